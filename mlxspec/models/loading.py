"""A model folder -> a model in memory, ready on this device."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxspec.errors import BrokenModel, NotAModel, UnsupportedModel
from mlxspec.models.device import dequantise_on_this_device

if TYPE_CHECKING:
    from pathlib import Path

    import mlx.nn as nn

# What generation_config.json may say of sampling, and whether 0 is a value or stands for "not given".
SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")

# A config that names no context length: enough to chat, small enough for any device.
FALLBACK_CONTEXT_TOKENS = 4096

_CONTEXT_KEYS = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "model_max_length",
    "n_positions",
    "n_ctx",
    "seq_length",
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its tokenizer, and the facts about them that others need.

    Attributes:
        name: what the user calls it.
        folder: where its files are.
        model: mlx-lm's module; its weights are evaluated.
        tokenizer: mlx-lm's TokenizerWrapper.
        config: config.json.
        vocab_size: the width of the logits; the tokenizer may have fewer tokens.
        context_tokens: how many tokens the model was made for.
        weight_bytes: bytes of the weights in memory.
        defaults: sampling parameters that generation_config.json names.
        has_chat_template: whether messages can be rendered; else text is continued.
        eos_ids: tokens that end an answer.
    """

    name: str
    folder: Path
    model: nn.Module
    tokenizer: Any
    config: dict[str, Any]
    vocab_size: int
    context_tokens: int
    weight_bytes: int
    defaults: dict[str, float]
    has_chat_template: bool
    eos_ids: frozenset[int]


def load_model(spec_name: str, folder: Path) -> LoadedModel:
    """Load the model in `folder`. No code of the model's own is run and no network is used.

    On a Linux CPU all weights become float32; elsewhere they stay as they are stored.

    Raises:
        NotAModel: the folder is missing or holds no model that can be loaded.
        BrokenModel: a file is damaged or missing.
        UnsupportedModel: an architecture that mlx-lm does not know, or one that brings its own code.
    """
    config = _config(spec_name, folder)
    _check_weight_files(spec_name, folder)
    _quiet_transformers()
    model = _model(spec_name, folder, config)
    tokenizer = _tokenizer(spec_name, folder, config)
    generation = _json(folder / "generation_config.json") or {}
    return LoadedModel(
        name=spec_name,
        folder=folder,
        model=model,
        tokenizer=tokenizer,
        config=config,
        vocab_size=_logits_width(model),
        context_tokens=context_tokens(config),
        weight_bytes=sum(array.nbytes for _, array in tree_flatten(model.parameters())),
        defaults=sampling_defaults(generation),
        has_chat_template=bool(tokenizer.has_chat_template),
        eos_ids=frozenset(int(i) for i in tokenizer.eos_token_ids),
    )


def context_tokens(config: dict[str, Any]) -> int:
    """Tokens that a model of this config was made for; rope scaling that stretches positions counts."""
    text = config.get("text_config")
    parts = [text, config] if isinstance(text, dict) else [config]
    for part in parts:
        for key in _CONTEXT_KEYS:
            tokens = part.get(key)
            if isinstance(tokens, int) and tokens > 0:
                return _stretched(tokens, part)
    return FALLBACK_CONTEXT_TOKENS


def _stretched(tokens: int, config: dict[str, Any]) -> int:
    """`tokens`, or more where linear or yarn scaling is on and the length is the unscaled one."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, dict):
        return tokens
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    if isinstance(original, int) and isinstance(factor, int | float) and factor > 1:
        return max(tokens, int(original * factor))
    return tokens


def sampling_defaults(generation_config: dict[str, Any]) -> dict[str, float]:
    """The sampling parameters that a generation_config.json names; `do_sample: false` is temperature 0."""
    defaults = {
        key: float(value)
        for key in SAMPLING_DEFAULTS
        if isinstance(value := generation_config.get(key), int | float) and not isinstance(value, bool)
    }
    if generation_config.get("do_sample") is False:
        defaults["temperature"] = 0.0
    return defaults


def _json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None when there is no such file or no object in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _config(name: str, folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise NotAModel(f"{folder} is no folder.", hint="Give the folder that holds config.json.")
    path = folder / "config.json"
    if not path.exists():
        raise NotAModel(
            f"{folder} holds no model: there is no config.json.",
            hint="Give the folder that holds config.json and the .safetensors files.",
        )
    config = _json(path)
    if config is None:
        raise BrokenModel(f"{path} is damaged.", hint=_again(name))
    if not isinstance(config.get("model_type"), str):
        raise BrokenModel(f"{path} does not say model_type.", hint=_again(name))
    if config.get("model_file") is not None:
        raise UnsupportedModel(
            f"{name} brings its own program code ({config['model_file']}), which mlxspec never runs.",
            hint="Choose a model of an architecture that mlx-lm knows.",
        )
    return config


def _check_weight_files(name: str, folder: Path) -> None:
    """All shards that the index names are there, and every file is as long as its header says."""
    weights = sorted(folder.glob("model*.safetensors"))
    if not weights:
        others = sorted(
            path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".gguf")
        )
        held = f"only {others[0]}" if others else "no weights"
        raise NotAModel(
            f"{folder} holds {held}: mlxspec loads model*.safetensors.",
            hint="Choose a version of the model with .safetensors files.",
        )
    index = _json(folder / "model.safetensors.index.json") or {}
    named = index.get("weight_map")
    wanted = set(named.values()) if isinstance(named, dict) else set()
    if missing := sorted(wanted - {path.name for path in weights}):
        raise BrokenModel(
            f"{name} is incomplete: {missing[0]} and {len(missing) - 1} more are missing in {folder}."
            if len(missing) > 1
            else f"{name} is incomplete: {missing[0]} is missing in {folder}.",
            hint=_again(name),
        )
    for path in weights:
        if not _is_whole(path):
            raise BrokenModel(f"{path} is damaged or was cut short.", hint=_again(name))


def _is_whole(path: Path) -> bool:
    """Whether a safetensors file reaches as far as its header says."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if not 0 < length <= size - 8:
                return False
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        return bool(8 + length + max(ends, default=0) <= size)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


def _model(name: str, folder: Path, config: dict[str, Any]) -> nn.Module:
    from mlx_lm.utils import _get_classes, dequantize_model
    from mlx_lm.utils import load_model as load

    try:
        _get_classes(config)
    except ValueError as error:
        raise UnsupportedModel(
            f"{name} is of the type {config['model_type']}, which mlx-lm does not know.",
            hint="Choose another model, or a newer mlx-lm.",
        ) from error
    try:
        model, _ = load(folder, lazy=True, trust_remote_code=False)
        if dequantise_on_this_device():
            model = dequantize_model(model)
            model.set_dtype(mx.float32)
        mx.eval(model.parameters())
    except MemoryError:
        raise
    except Exception as error:
        # mlx-lm's models fail with whatever their code meets first: a KeyError, a shape, a missing tensor.
        raise BrokenModel(
            f"The weights in {folder} do not fit its config.json: {_first_line(error)}.", hint=_again(name)
        ) from error
    return model


def _tokenizer(name: str, folder: Path, config: dict[str, Any]) -> Any:
    from mlx_lm.utils import load_tokenizer

    generation = _json(folder / "generation_config.json") or {}
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    eos_ids = [eos] if isinstance(eos, int) else eos
    if not any((folder / file).exists() for file in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise BrokenModel(f"{folder} holds no tokenizer.", hint=_again(name))
    try:
        return load_tokenizer(folder, {"trust_remote_code": False}, eos_token_ids=eos_ids)
    except Exception as error:
        raise BrokenModel(
            f"The tokenizer in {folder} cannot be loaded: {_first_line(error)}.", hint=_again(name)
        ) from error


def _logits_width(model: nn.Module) -> int:
    """The last axis of the logits of one token: what the config calls vocab_size may be padded or not."""
    from mlx_lm.models.cache import make_prompt_cache

    logits = model(mx.array([[0]]), cache=make_prompt_cache(model))
    return int(logits.shape[-1])


def _quiet_transformers() -> None:
    """Keep transformers from telling users that PyTorch is missing; it is not needed."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text[:200].rstrip(".")


def _again(name: str) -> str:
    return f"Remove it with `mlxspec rm {name}` and fetch it again with `mlxspec pull {name}`."
