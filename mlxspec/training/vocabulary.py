"""Which tokens a draft's output head covers: those that the target writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import cast

import mlx.core as mx

from mlxspec.drafters.trimmed_head import kept_ids
from mlxspec.training.corpus import Conversation


def frequent_ids(
    conversations: Iterable[Conversation], count: int, *, vocab_size: int, always: Collection[int] = ()
) -> mx.array | None:
    """The `count` ids that occur most in the answers, rising [count]; None when that is all of them.

    `always` are among them in any case.
    """
    if count >= vocab_size:
        return None
    seen = Counter(i for c in conversations for i in c.ids[c.prompt_tokens :])
    return mx.array(kept_ids(count, vocab_size=vocab_size, always=always, frequencies=seen), mx.int32)


def coverage(conversations: Iterable[Conversation], ids: mx.array | None) -> float:
    """Share of the answers' tokens that are among `ids`."""
    if ids is None:
        return 1.0
    known = set(cast(list[int], ids.tolist()))
    seen = Counter(i in known for c in conversations for i in c.ids[c.prompt_tokens :])
    return seen[True] / max(1, seen.total())
