"""The target in the middle of a chat: its cache, the committed tokens, and reading a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache, common_prefix
from mlxspec.decoding.proposal import Drafter, hidden_points

PREFILL_CHUNK = 512
"""Prompt tokens in one pass; a cancel waits for one chunk at most."""


@dataclass(slots=True)
class TargetState:
    """The target's cache and the committed tokens. The cache may lack the last of them (`owed`)."""

    cache: PromptCache
    tokens: list[int] = field(default_factory=list)

    @property
    def owed(self) -> list[int]:
        """Committed tokens that the cache lacks: those carried and the pending one."""
        return self.tokens[self.cache.length :]

    def clear(self) -> None:
        """Hold nothing: the way back from a failed pass."""
        self.cache.clear()
        self.tokens = []


def prefill(
    state: TargetState,
    prompt: Sequence[int],
    *,
    cancelled: Callable[[], bool],
    progress: Callable[[int, int], None],
    chunk: int = PREFILL_CHUNK,
    drafters: Sequence[Drafter] = (),
) -> int | None:
    """Make `prompt` the committed tokens and feed all but the last to the cache.

    What the cache already holds of the prompt is kept. `progress` hears (tokens in the cache, tokens
    reused). The hidden states that `drafters` read are kept for them. Returns the number of tokens
    reused, or None when cancelled.
    """
    try:
        state.cache.watch_hidden(hidden_points(drafters))
        state.cache.rewind_to(min(common_prefix(state.tokens, prompt), len(prompt) - 1))
        state.tokens = list(prompt)
        reused = state.cache.length
        progress(reused, reused)
        while (missing := len(prompt) - 1 - state.cache.length) > 0:
            if cancelled():
                return None
            start = state.cache.length
            state.cache.prefill(mx.array(state.tokens[start : start + min(chunk, missing)], mx.uint32))
            progress(state.cache.length, reused)
            mx.clear_cache()
        state.cache.mark_turn()
    except BaseException:
        state.clear()
        raise
    return reused
