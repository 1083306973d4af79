"""What can be chosen as target and draft: on disk or not, how big, whether it fits, and why it may not serve.

Reading this touches many files, so it is done away from the keys.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tui.attachments import size_text
from tui.chooser import Row

if TYPE_CHECKING:
    from mlxspec.models.loading import LoadedModel
    from mlxspec.models.registry import ModelSpec
    from mlxspec.places import Places

CONTEXT_TOKENS = 4096
TARGET, DRAFT = "target:", "draft:"
DRAFTERS = {
    "auto": "the target's own draft if it is on disk, with lookup; else lookup",
    "lookup": "copies from the chat; needs no second model",
    "lookahead": "what the target said behind wrong guesses, and copies; needs no second model",
    "none": "no guesses: plain decoding",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A model as its files, or the registry, describe it."""

    spec: ModelSpec
    folder: Path | None
    size_bytes: int | None
    fits: bool | None


def model_rows(where: Places, *, target: str | None, draft: str, drafts_first: bool = False) -> list[Row]:
    """Targets, and drafts for the target. Raises MlxspecError when models.toml cannot be read."""
    from mlxspec.models.registry import load_registry

    registry = load_registry(where)
    now = registry.resolve(target or registry.default_target)
    known = {spec.name: _known(spec, where) for spec in registry.models.values()}
    known.setdefault(now.name, _known(now, where))
    in_order = sorted(known.values(), key=lambda model: model.folder is None)
    targets = [Row("targets", "Targets", heading=True)]
    targets += [_row(TARGET, model, current=model.spec.name == now.name) for model in in_order]
    drafts = [Row("drafts", f"Drafts for {now.name}", heading=True)]
    for name, about in DRAFTERS.items():
        mark = "● " if name == draft else "  "
        drafts.append(Row(DRAFT + name, mark + name, about))
    for model in in_order:
        if model.spec.name != now.name:
            reason = _reason(known[now.name], model)
            current = draft == model.spec.name
            if reason is not None or model.folder is not None or now.draft == model.spec.name:
                drafts.append(_row(DRAFT, model, current=current, reason=reason))
    return [*drafts, *targets] if drafts_first else [*targets, *drafts]


def model_names(where: Places) -> list[str]:
    """All names of models.toml; none when it cannot be read."""
    from mlxspec.errors import MlxspecError
    from mlxspec.models.registry import load_registry

    try:
        return list(load_registry(where).models)
    except MlxspecError:
        return []


def _known(spec: ModelSpec, where: Places) -> Known:
    from mlxspec.models import sources
    from mlxspec.models.device import dequantise_on_this_device, memory_bytes

    folder = sources.find(spec, where)
    if folder is None:
        size = None if spec.download_gb is None else int(spec.download_gb * 1e9)
        return Known(spec, None, size, None if size is None else size < memory_bytes())
    from mlxspec.models.budget import ModelSize, estimate

    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    budget = estimate(
        ModelSize(_json(folder / "config.json"), size),
        None,
        context_tokens=CONTEXT_TOKENS,
        available_bytes=memory_bytes(),
        float32=dequantise_on_this_device(),
    )
    return Known(spec, folder, size, budget.fits)


def _row(prefix: str, model: Known, *, current: bool, reason: str | None = None) -> Row:
    parts = ["on disk" if model.folder is not None else "to be fetched"]
    if model.size_bytes:
        parts.append(size_text(model.size_bytes))
    if model.fits is False:
        parts.append("does not fit in memory")
    return Row(
        prefix + model.spec.name,
        ("● " if current else "  ") + model.spec.name,
        " · ".join(parts),
        note=f"cannot draft: {reason}" if reason else "",
        enabled=reason is None,
    )


def _reason(target: Known, draft: Known) -> str | None:
    """Why a draft cannot serve, None when it may or when that will be known once it is here."""
    if target.folder is None or draft.folder is None:
        return None
    from mlxspec.models.compatibility import incompatibility

    ours, theirs = _stand_in(target), _stand_in(draft)
    if ours is None or theirs is None:
        return None
    return incompatibility(cast("LoadedModel", ours), cast("LoadedModel", theirs))


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


def _stand_in(model: Known) -> _StandIn | None:
    assert model.folder is not None
    file = model.folder / "tokenizer.json"
    size = _json(model.folder / "config.json").get("vocab_size")
    if not file.exists() or not isinstance(size, int):
        return None
    from tokenizers import Tokenizer

    return _StandIn(model.spec.name, _Vocabulary(Tokenizer.from_file(str(file))), size)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
