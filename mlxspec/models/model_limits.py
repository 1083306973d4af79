"""What a model's config files say of its context and its sampling. Pure functions of their content."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# For a config that names no context length, such as a recurrent model's: enough to chat.
FALLBACK_CONTEXT_TOKENS = 4096

_CONTEXT_KEYS = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "n_positions",
    "n_ctx",
    "seq_length",
)

_SAMPLING_RANGES: dict[str, Callable[[float], bool]] = {
    "temperature": lambda value: value >= 0,
    "top_p": lambda value: 0 < value <= 1,
    "top_k": lambda value: value >= 0,
    "min_p": lambda value: 0 <= value <= 1,
    "repetition_penalty": lambda value: value > 0,
}


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model: models that also see or hear keep it one level down."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def context_tokens(config: Mapping[str, Any]) -> int:
    """How many tokens a model of this config.json was made for.

    Rope scaling counts where the config gives the length before scaling, as Qwen's do; where it
    already gives the stretched length, as Llama 3's do, that stands.
    """
    text = text_config(config)
    for key in _CONTEXT_KEYS:
        tokens = text.get(key)
        if isinstance(tokens, int) and tokens > 0:
            return max(tokens, _scaled_length(text))
    return FALLBACK_CONTEXT_TOKENS


def _scaled_length(text: Mapping[str, Any]) -> int:
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(scaling, dict):
        return 0
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    if isinstance(original, int) and isinstance(factor, int | float):
        return int(original * factor)
    return 0


def sampling_defaults(generation_config: Mapping[str, Any]) -> dict[str, float]:
    """The sampling parameters that a generation_config.json names; `do_sample: false` is temperature 0.

    A value that makes no sense counts as not named.
    """
    defaults = {
        key: float(value)
        for key, in_range in _SAMPLING_RANGES.items()
        if isinstance(value := generation_config.get(key), int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and in_range(value)
    }
    if generation_config.get("do_sample") is False:
        defaults["temperature"] = 0.0
    return defaults
