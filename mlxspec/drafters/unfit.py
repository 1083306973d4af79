"""Why a draft cannot serve a target. `unfit` looks at files only: no weights are read, and MLX is not asked.

Reasons are sentences without their full stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mlxspec.models.model_folder import CONFIG, DRAFT_FILE, is_draft, json_object
from mlxspec.models.model_limits import text_config

if TYPE_CHECKING:
    from mlxspec.models.loading import LoadedModel


OTHER_VOCABULARY = "it was made for another vocabulary"


@dataclass(frozen=True, slots=True)
class Files:
    """A model or a draft that is on disk, by its name and folder."""

    name: str
    folder: Path


def unfit(target: Files, draft: Files) -> str | None:
    """The reason; None when it can serve, or when loading it will tell."""
    if is_draft(draft.folder):
        return _unfit_trained(target, json_object(draft.folder / DRAFT_FILE))
    from mlxspec.models.compatibility import incompatibility

    ours, theirs = _stand_in(target), _stand_in(draft)
    if ours is None or theirs is None:
        return None
    return incompatibility(cast("LoadedModel", ours), cast("LoadedModel", theirs))


def _unfit_trained(target: Files, config: Mapping[str, Any]) -> str | None:
    if not config:
        return f"its {DRAFT_FILE} is damaged"
    if not _has_vocabulary(target, config.get("vocabulary")):
        return OTHER_VOCABULARY
    width = text_config(json_object(target.folder / CONFIG)).get("hidden_size")
    return other_width(config, width) if isinstance(width, int) else None


def other_width(config: Mapping[str, Any], width: int) -> str | None:
    """Why a trained draft cannot read hidden states of so many values; None when it can, or reads none."""
    wanted = config.get("width")
    if wanted in (None, width):
        return None
    return f"it was made for hidden states of {wanted} values, and these have {width}"


def _has_vocabulary(target: Files, wanted: object) -> bool:
    """Whether the target's tokenizer is the one of this hash, or cannot be read."""
    from mlxspec.drafters.datastore import vocabulary_hash

    quick = _vocabulary(target)
    if quick is not None and vocabulary_hash(quick.get_vocab()) == wanted:
        return True
    # Other files of a tokenizer may add tokens; reading them all takes longer.
    from mlxspec.errors import ModelError
    from mlxspec.models.loading import load_tokenizer

    try:
        return vocabulary_hash(load_tokenizer(target.name, target.folder).get_vocab()) == wanted
    except ModelError:
        return True


@dataclass(frozen=True, slots=True)
class _StandIn:
    """As much of a loaded model as comparing vocabularies needs."""

    name: str
    tokenizer: Any
    vocab_size: int


class _Vocabulary:
    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def get_vocab(self) -> dict[str, int]:
        return dict(self._tokenizer.get_vocab(with_added_tokens=True))


def _stand_in(model: Files) -> _StandIn | None:
    vocabulary, size = _vocabulary(model), text_config(json_object(model.folder / CONFIG)).get("vocab_size")
    if vocabulary is None or not isinstance(size, int):
        return None
    return _StandIn(model.name, vocabulary, size)


def _vocabulary(model: Files) -> _Vocabulary | None:
    """What tokenizer.json says; None when there is none that can be read."""
    from tokenizers import Tokenizer

    try:
        return _Vocabulary(Tokenizer.from_file(str(model.folder / "tokenizer.json")))
    # tokenizers raises the bare Exception for a file that is missing or damaged.
    except Exception:
        return None
