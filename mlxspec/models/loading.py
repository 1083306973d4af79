"""A model folder -> a model in memory, ready on this device."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxspec.errors import BrokenModel, OutOfMemory, UnsupportedModel
from mlxspec.models.device import dequantise_on_this_device
from mlxspec.models.model_folder import CONFIG, WEIGHTS, fault_of, json_object
from mlxspec.models.model_limits import context_tokens, sampling_defaults

if TYPE_CHECKING:
    from pathlib import Path

    import mlx.nn as nn

_FETCH_AGAIN = "Fetch the model again."
_NO_CODE = "Choose a model of an architecture that mlx-lm knows without it."


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


def load_model(spec_name: str, folder: Path, *, read_weights: bool = True) -> LoadedModel:
    """Load the model in `folder`. No code of the model's own is run and no network is used.

    On a Linux CPU all weights become float32; elsewhere they stay as they are stored. Without
    `read_weights` they stay in their files: enough to ask about tokenizer, layers and caches.

    Raises:
        NotAModel: the folder is missing or holds no model that can be loaded.
        BrokenModel: a file is damaged or missing.
        UnsupportedModel: an architecture that mlx-lm does not know, or one that brings its own code.
        OutOfMemory: the device cannot hold the weights.
    """
    if fault := fault_of(folder):
        raise fault
    config = _config(spec_name, folder)
    for path in sorted(folder.glob(WEIGHTS)):
        if not _is_whole(path):
            raise BrokenModel(f"{path} is damaged or was cut short.", hint=_FETCH_AGAIN)
    _quiet_transformers()
    generation = json_object(folder / "generation_config.json")
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    # Nothing is read before both are known to be good.
    model = _described(spec_name, folder, config)
    tokenizer = _tokenizer(spec_name, folder, eos)
    if read_weights:
        model = _read(model, spec_name, folder, config)
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


def load_tokenizer(spec_name: str, folder: Path) -> Any:
    """The tokenizer alone. Raises: NotAModel, BrokenModel, UnsupportedModel."""
    if fault := fault_of(folder):
        raise fault
    _quiet_transformers()
    return _tokenizer(spec_name, folder, None)


def _config(name: str, folder: Path) -> dict[str, Any]:
    config = json_object(folder / CONFIG)
    if not isinstance(config.get("model_type"), str):
        raise BrokenModel(f"{folder / CONFIG} is damaged: it names no model_type.", hint=_FETCH_AGAIN)
    if config.get("model_file") is not None:
        raise UnsupportedModel(
            f"{name} brings its own program code ({config['model_file']}), which mlxspec never runs.",
            hint=_NO_CODE,
        )
    return config


def _is_whole(path: Path) -> bool:
    """Whether a safetensors file is exactly as long as its header says."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if not 0 < length <= size - 8:
                return False
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        return bool(8 + length + max(ends, default=0) == size)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _tokenizer(name: str, folder: Path, eos: Any) -> Any:
    from mlx_lm.utils import load_tokenizer

    try:
        return load_tokenizer(
            folder,
            {"trust_remote_code": False, "local_files_only": True},
            eos_token_ids=[eos] if isinstance(eos, int) else eos,
        )
    # transformers and tokenizers fail with whatever their code meets first, the bare Exception included.
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UnsupportedModel(
                f"The tokenizer of {name} brings its own program code, which mlxspec never runs.",
                hint=_NO_CODE,
            ) from error
        raise BrokenModel(
            f"The tokenizer in {folder} cannot be loaded: {_first_line(error)}.", hint=_FETCH_AGAIN
        ) from error


def _described(name: str, folder: Path, config: dict[str, Any]) -> nn.Module:
    """The model as mlx-lm builds it, its weights not yet read."""
    from mlx_lm.utils import load_model as load

    try:
        model: nn.Module
        model, _ = load(folder, lazy=True, trust_remote_code=False)
    # Each of mlx-lm's models fails with whatever its code meets first: a KeyError, a shape, a name.
    except Exception as error:
        _raise_fault(error, name, folder, config)
    return model


def _read(model: nn.Module, name: str, folder: Path, config: dict[str, Any]) -> nn.Module:
    """The same model, its weights in memory in the form that this device wants."""
    from mlx_lm.utils import dequantize_model

    try:
        if dequantise_on_this_device():
            # Scales in float32 before anything is dequantised: three times as fast, and no rounding
            # to 16 bits in between. The second cast is for block formats without such scales.
            model.set_dtype(mx.float32)
            model = dequantize_model(model)
            model.set_dtype(mx.float32)
        for _, array in tree_flatten(model.parameters()):
            # One after another, so that only one tensor's stored form is in memory beside its final one.
            mx.eval(array)
    except Exception as error:
        _raise_fault(error, name, folder, config)
    return model


def _raise_fault(error: Exception, name: str, folder: Path, config: dict[str, Any]) -> NoReturn:
    """Say in our words why mlx-lm could not load a model."""
    text = str(error)
    if ("not supported" in text and config["model_type"] in text) or "no attribute 'Model'" in text:
        raise UnsupportedModel(
            f"{name} is of the type {config['model_type']}, which mlx-lm does not know.",
            hint="Choose another model, or a newer version of mlxspec.",
        ) from error
    if "allocate" in text or "out of memory" in text.lower():
        raise OutOfMemory(
            f"The memory of this machine cannot hold {name}.",
            hint="Close other programs, or choose a smaller model.",
        ) from error
    raise BrokenModel(
        f"The weights in {folder} do not fit its {CONFIG}: {_first_line(error)}.", hint=_FETCH_AGAIN
    ) from error


def _logits_width(model: nn.Module) -> int:
    """The last axis of the logits: what a config calls vocab_size may be padded or not.

    The graph of one token is built but never computed.
    """
    from mlx_lm.models.cache import make_prompt_cache

    logits = model(mx.array([[0]]), cache=make_prompt_cache(model))
    return int(logits.shape[-1])


def _quiet_transformers() -> None:
    """Let transformers say errors only, not that PyTorch, which it need not have, is missing."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text[:200].rstrip(".")
