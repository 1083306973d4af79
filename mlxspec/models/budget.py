"""Do these models and their caches fit into memory? Answered from config.json alone, before any download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlxspec.models.cache_plan import cache_plan
from mlxspec.models.model_limits import context_tokens as made_for

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFILL_CHUNK = 512  # rows of the longest pass: windows grow by so many while a prompt is read
WORKING_SHARE = 0.1  # of weights and caches, for the numbers between layers
_CONTEXT_STEP = 256


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model as its files describe it: its config.json and the bytes of its weights on disk."""

    config: Mapping[str, Any]
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that a pair needs at one context, and the bytes there are."""

    weights_bytes: int
    target_cache_bytes: int
    draft_cache_bytes: int
    available_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Weights, caches, and a tenth of both to work with."""
        held = self.weights_bytes + self.target_cache_bytes + self.draft_cache_bytes
        return int(held * (1 + WORKING_SHARE))

    @property
    def fits(self) -> bool:
        """Whether the pair can run here."""
        return self.needed_bytes <= self.available_bytes


def estimate(
    target: ModelSize,
    draft: ModelSize | None,
    *,
    context_tokens: int,
    available_bytes: int,
    kv_bits: int | None = None,
    float32: bool = False,
) -> Budget:
    """What target and draft need at `context_tokens` tokens.

    `kv_bits` quantises the target's cache only. `float32` says that weights become float32 at load
    (see `device.dequantise_on_this_device`), and with them the caches.
    """
    return Budget(
        weights_bytes=weight_bytes(target, float32=float32)
        + (weight_bytes(draft, float32=float32) if draft else 0),
        target_cache_bytes=cache_bytes(target.config, context_tokens, kv_bits=kv_bits, float32=float32),
        draft_cache_bytes=cache_bytes(
            draft.config, min(context_tokens, made_for(draft.config)), float32=float32
        )
        if draft
        else 0,
        available_bytes=available_bytes,
    )


def largest_context(
    target: ModelSize,
    draft: ModelSize | None,
    *,
    available_bytes: int,
    kv_bits: int | None = None,
    float32: bool = False,
) -> int:
    """The largest context in tokens that fits: the target's own, or a multiple of 256 below it, or 0."""

    def fits(tokens: int) -> bool:
        return estimate(
            target,
            draft,
            context_tokens=tokens,
            available_bytes=available_bytes,
            kv_bits=kv_bits,
            float32=float32,
        ).fits

    longest = made_for(target.config)
    if fits(longest):
        return longest
    low, high = 0, -(-longest // _CONTEXT_STEP)  # low fits or is 0, high does not fit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * _CONTEXT_STEP):
            low = middle
        else:
            high = middle
    return low * _CONTEXT_STEP


def cache_bytes(
    config: Mapping[str, Any], tokens: int, *, kv_bits: int | None = None, float32: bool = False
) -> int:
    """Bytes of one model's caches when they hold `tokens` tokens."""
    number_bytes = 4 if float32 else _stored_number_bytes(config)
    return sum(
        layer.bytes(tokens, number_bytes, chunk=PREFILL_CHUNK, kv_bits=kv_bits)
        for layer in cache_plan(config)
    )


def weight_bytes(model: ModelSize, *, float32: bool = False) -> int:
    """Bytes of the weights in memory: as stored, or what float32 makes of them.

    Modules that are stored wider than the rest count as the rest does, so float32 comes out a little high.
    """
    if not float32:
        return model.stored_bytes
    quantization = model.config.get("quantization") or model.config.get("quantization_config") or {}
    bits = quantization.get("bits")
    if not isinstance(bits, int) or bits < 1:
        return model.stored_bytes * 4 // _stored_number_bytes(model.config)
    # A 16-bit scale and bias for each group; block formats with 8-bit scales have none of the biases.
    group = quantization.get("group_size")
    bits_a_weight = bits + (32 / group if isinstance(group, int) and group > 0 else 0.5)
    return int(model.stored_bytes * 32 / bits_a_weight)


def _stored_number_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of an activation when the weights stay as stored."""
    return 4 if "float32" in (config.get("torch_dtype"), config.get("dtype")) else 2
