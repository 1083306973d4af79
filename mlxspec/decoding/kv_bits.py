"""Quantised attention caches: which models can have them, and the step that makes them.

As mlx-lm does, plain attention caches are quantised after each pass and recurrent state beside them
is left alone. What cannot be quantised is refused before anything is generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedCache

KV_GROUP_SIZE = 64
"""Values that share one scale in a quantised cache, as in mlx-lm."""


def quantise(layers: list[Any], kv_bits: int) -> None:
    """Replace the plain attention caches of `layers` by quantised ones, in this very list."""
    from mlx_lm.models.cache import KVCache

    for i, layer in enumerate(layers):
        if type(layer) is KVCache:
            layers[i] = layer.to_quantized(group_size=KV_GROUP_SIZE, bits=kv_bits)


def check_quantisable(model: Any, layers: list[Any], kv_bits: int) -> None:
    """See that a model works with quantised caches. `layers` are used up; nothing is computed.

    Raises:
        UnsupportedCache: a kind of cache, a head size or the model's attention cannot.
    """
    from mlx_lm.models import cache

    kinds = {type(layer) for layer in layers}
    others = sorted(kind.__name__ for kind in kinds - {cache.KVCache, cache.ArraysCache})
    if others:
        raise _refusal(f"This model keeps {' and '.join(others)}, which cannot be quantised")
    if cache.KVCache not in kinds:
        raise _refusal(
            "This model keeps recurrent state alone and no keys and values, so nothing can be quantised"
        )
    # The graphs of two passes are built and dropped: shapes and types are checked, no kernel runs.
    model(mx.zeros((1, 1), mx.uint32), cache=layers)
    sizes = _head_sizes(layers)
    odd = sorted(size for size in sizes if size % KV_GROUP_SIZE)
    if odd:
        named = " and ".join(str(size) for size in odd)
        raise _refusal(
            f"This model has heads of {named} values, which groups of {KV_GROUP_SIZE} do not divide"
        )
    quantise(layers, kv_bits)
    try:
        model(mx.zeros((1, 2), mx.uint32), cache=layers)
    except (AttributeError, TypeError, ValueError) as error:
        raise _refusal(
            "The attention of this model reads its cache in a way that quantised ones do not allow"
        ) from error


def _head_sizes(layers: Sequence[Any]) -> set[int]:
    """The sizes of keys and values in the plain attention caches."""
    filled = [layer for layer in layers if getattr(layer, "keys", None) is not None]
    return {array.shape[-1] for layer in filled for array in (layer.keys, layer.values)}


def _refusal(what: str) -> UnsupportedCache:
    return UnsupportedCache(f"{what}.", hint="Leave out --kv-bits for this model.")
