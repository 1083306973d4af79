"""A context of an n-gram file as a row of numbers: its key, and what followed it. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

MAX_ORDER = 5
"""Tokens of context in the longest n-gram."""

KEYS = 1 << 63
"""Keys are below this."""

MOST_FOLLOWERS = 16  # kept of a context: rarer ones are never the likeliest

_MASK = KEYS - 1
LOW = (1 << 32) - 1
"""These bits of a key are 0 exactly where the context is one token."""

_PAIR = struct.Struct("<II")


def context_keys(context: Sequence[int]) -> list[int]:
    """The keys of the last 1, 2, ... tokens of `context`, as many as there are, at most MAX_ORDER."""
    if not context:
        return []
    last = (context[-1] + 1) * 0x9E37_79B9_7F4A_7C15 & _MASK
    keys = [last & ~LOW]
    if len(context) == 1:
        return keys
    mixed = (last ^ (context[-2] + 1) * 0x5851_F42D_4C95_7F2D) & _MASK
    page = mixed & ~LOW
    keys.append(page | 1)
    for token in reversed(context[-MAX_ORDER:-2]):
        mixed = (mixed ^ (token + 1)) * 0x5851_F42D_4C95_7F2D & _MASK
        mixed ^= mixed >> 29
        keys.append(page | mixed & LOW)
    return keys


def packed(counts: Mapping[int, int]) -> int | bytes:
    """What the table holds for these counts.

    A context that one token followed once, as most are, takes 3 bytes: count - 1 above the token.
    """
    if len(counts) == 1:
        ((token, count),) = counts.items()
        return (min(count, 1 << 30) - 1) << 32 | token
    return b"".join(_PAIR.pack(token, min(count, LOW)) for token, count in counts.items())


def unpacked(stored: object) -> dict[int, int]:
    """The counts; none where it is not what `packed` makes: a guess is lost and no more."""
    if isinstance(stored, int):
        return {stored & LOW: (stored >> 32) + 1} if stored >= 0 else {}
    if isinstance(stored, bytes) and len(stored) % _PAIR.size == 0:
        return dict(_PAIR.iter_unpack(stored))
    return {}


def most_frequent(counts: dict[int, int]) -> dict[int, int]:
    """The MOST_FOLLOWERS tokens with the highest counts, in the order in which they are."""
    if len(counts) <= MOST_FOLLOWERS:
        return counts
    kept = set(sorted(counts, key=counts.__getitem__, reverse=True)[:MOST_FOLLOWERS])
    return {token: count for token, count in counts.items() if token in kept}
