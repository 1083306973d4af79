"""Is this folder a model that mlx-lm can read? Looked at from outside, without loading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlxspec.errors import BrokenModel, ModelError, NotAModel

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WEIGHTS = "model*.safetensors"
DRAFT_FILE = "mlxspec_draft.json"
"""In a draft's folder, says by its `kind` what the draft is. A model without it is a draft model."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "*.tiktoken")
_PICKLES = (".bin", ".pt", ".pth")
_CONVERT = "Convert it with `mlx_lm.convert`, or use a conversion such as those of mlx-community."


def fault_of(folder: Path) -> ModelError | None:
    """Why `folder` is no complete model folder; None when it is one."""
    try:
        return _fault_of(folder)
    except OSError as error:
        return NotAModel(
            f"{folder} cannot be read: {error.strerror or error}.", hint="Make it readable for you."
        )


def is_draft(folder: Path) -> bool:
    """Is this the folder of a draft, which need not be a whole model?"""
    return (folder / DRAFT_FILE).is_file()


def json_object(file: Path) -> dict[str, Any]:
    """What a file says; nothing when it is not there, or holds no JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _fault_of(folder: Path) -> ModelError | None:
    if not folder.is_dir():
        return NotAModel(f"There is no folder {folder}.", hint="Check the path.")
    names = {path.name for path in folder.iterdir()}
    if (folder / CONFIG).is_file() and (shards := missing_shards(folder)):
        return BrokenModel(
            f"{folder} lacks {len(shards)} of the files that its {INDEX} names, the first being {shards[0]}.",
            hint="Fetch the model again.",
        )
    if DRAFT_FILE in names and CONFIG not in names:
        return NotAModel(
            f"{folder} holds a draft, which guesses for another model and cannot answer.",
            hint="Give it as --draft, and a model as --target.",
        )
    if reason := fault_of_names(names):
        return NotAModel(f"{folder} {reason[0]}.", hint=reason[1])
    if not any(path.is_file() for path in folder.glob(WEIGHTS)):
        return BrokenModel(
            f"{folder} has links to weights that are not there.", hint="Fetch the model again."
        )
    if not any(path.is_file() for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        return NotAModel(f"{folder} has no tokenizer.", hint="Put the model's tokenizer files there.")
    return None


def fault_of_names(names: set[str]) -> tuple[str, str] | None:
    """Why files of these names make no model, as the end of a sentence, and what to do."""
    if CONFIG not in names:
        return f"has no {CONFIG}, so it is no model", "Name the folder or repository that holds the model."
    if any(Path(name).match(WEIGHTS) for name in names):
        return None
    if any(name.endswith(_PICKLES) for name in names):
        return "has its weights as PyTorch pickles (.bin) only, which mlxspec does not load", _CONVERT
    if any(name.endswith(".gguf") for name in names):
        return "holds GGUF files only", "Give the path of one GGUF file, or use a safetensors conversion."
    if any(name.endswith(".safetensors") for name in names):
        return "names its weights unlike model*.safetensors, which is what mlx-lm reads", _CONVERT
    return "has no weights (model*.safetensors)", _CONVERT


def missing_shards(folder: Path) -> list[str]:
    """The weight files that the index names and that are not in `folder`."""
    return sorted(name for name in shards_named(folder / INDEX) if not (folder / name).is_file())


def shards_named(index: Path) -> frozenset[str]:
    """The weight files that an index names; none when there is no index or it is no JSON."""
    weight_map = json_object(index).get("weight_map")
    return frozenset(map(str, weight_map.values())) if isinstance(weight_map, dict) else frozenset()


def remote_code_of(config: Path) -> str | None:
    """The Python file that mlx-lm would have to run to build this model, None when it needs none."""
    file = json_object(config).get("model_file")
    return str(file) if file else None
