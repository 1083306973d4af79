"""The kinds of cache that mlx-lm gives to layers, and how rows are taken back out of each.

- trim: plain, quantised and chunked attention caches forget their last rows;
- slice: a rotating window that holds its rows in temporal order loses the last ones;
- checkpoint: recurrent state, and any kind not known here, goes back to a copy that was made before.

mlx-lm's own `trim` is not enough: a rotating cache reports success and keeps stale rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def leaves_of(layers: Iterable[Any]) -> Iterator[Any]:
    """The cache objects with those inside a CacheList instead of it, always in the same order."""
    from mlx_lm.models.cache import CacheList

    for layer in layers:
        if isinstance(layer, CacheList):
            yield from leaves_of(layer.caches)
        else:
            yield layer


def way_back(leaf: Any) -> str:
    """How this kind of cache gives rows back: trim, slice or checkpoint."""
    from mlx_lm.models import cache

    # Exact types: a class derived from one of these may keep more than it knows of.
    if type(leaf) in (cache.KVCache, cache.QuantizedKVCache, cache.ChunkedKVCache):
        return "trim"
    if type(leaf) in (cache.RotatingKVCache, cache.ConcatenateKVCache):
        return "slice"
    return "checkpoint"


def forgets(leaf: Any) -> bool:
    """Does this kind drop rows, or mix them, as it goes on? Only a copy brings those back."""
    from mlx_lm.models import cache

    return type(leaf) not in (cache.KVCache, cache.QuantizedKVCache, cache.ConcatenateKVCache)


def can_shorten(leaf: Any, length: int, new_length: int) -> bool:
    """Can this layer go from `length` tokens to `new_length` without losing what it then needs?"""
    from mlx_lm.models import cache

    if length == new_length:
        return True
    if way_back(leaf) == "checkpoint":
        return False
    if leaf.keys is None:
        return True
    if type(leaf) is cache.RotatingKVCache:
        if leaf.offset == leaf._idx:  # nothing has left the window yet
            return True
        rows = leaf.keys.shape[2]
        return bool(leaf._idx == rows and rows - (length - new_length) >= leaf.max_size)
    if type(leaf) is cache.ChunkedKVCache:
        # Attention looks back to the start of the chunk that the next token is in.
        new_offset = leaf.offset - (length - new_length)
        return bool(new_offset // leaf.chunk_size * leaf.chunk_size >= leaf.start_position)
    return True


def shorten(leaf: Any, rows: int) -> None:
    """Take the last `rows` rows out of a layer that `can_shorten`."""
    from mlx_lm.models import cache

    if rows == 0 or getattr(leaf, "keys", None) is None:
        return
    if way_back(leaf) == "trim":
        trimmed = leaf.trim(rows)
        assert trimmed == rows, f"{type(leaf).__name__} trimmed {trimmed} of {rows} rows"
        return
    leaf.offset -= rows
    kept = leaf.offset
    if type(leaf) is cache.RotatingKVCache:
        leaf._idx -= rows
        kept = leaf._idx
        if leaf.keys.shape[2] <= leaf.max_size:
            return
        # A pass of one row keeps the last rows of a buffer that is longer than the window.
    leaf.keys = leaf.keys[..., :kept, :]
    leaf.values = leaf.values[..., :kept, :]
