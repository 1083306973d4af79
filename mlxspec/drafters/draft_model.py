"""A small model guesses: the classic draft of speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache, common_prefix
from mlxspec.decoding.controller import Option
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.drafters.guessing import Guesses

PREFILL_CHUNK = 512
"""Tokens fed at once when the draft is far behind; a cancel waits for one chunk at most."""

ONE_PASS = 32
"""Tokens that are read in the pass that makes the first guess; more are read before it."""

MOST_GUESSES = 16


class DraftModel:
    """Guesses with an mlx-lm model, one pass a guess, all passes queued without a host sync.

    Args:
        model: an mlx-lm model whose token ids mean what the target's mean.
        context_tokens: the longest sequence that this model can read; beyond it, it offers nothing.
        ids: the target's id of each column of the logits; None where they are the target's own.
    """

    name = "draft_model"

    def __init__(self, model: Any, *, context_tokens: int | None = None, ids: mx.array | None = None) -> None:
        self.model = model
        self._ids = ids
        self._cache = PromptCache(model)
        self._context_tokens = context_tokens
        self._tokens: list[int] = []
        self._valid = 0  # how many tokens of the cache are committed ones; guesses stand behind them
        self._turn_end = 0  # how many tokens the prompt has
        self._sampler: Sampler | None = None
        self._cancelled: Callable[[], bool] = lambda: False

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer to `tokens`, keeping what the cache already holds of them."""
        self._cache.rewind_to(min(self._valid, common_prefix(self._tokens, tokens)))
        self._valid = self._cache.length
        self._tokens = list(tokens)
        self._turn_end = len(tokens)
        self._sampler = sampler
        self._cancelled = cancelled

    def offer(self) -> Option:
        """How many guesses fit into this model's context, and how far behind its cache is."""
        room = MOST_GUESSES
        if self._context_tokens is not None:
            room = max(0, min(room, self._context_tokens - len(self._tokens)))
        return Option(self.name, max_k=room, catch_up=len(self._tokens) - self._valid)

    def propose(self, k: int) -> Proposal | None:
        """`k` guesses and, unless greedy, their q rows; None when cancelled while catching up."""
        if not self._catch_up():
            return None
        logits = self._cache.forward(mx.array(self._tokens[self._cache.length :], mx.uint32))[-1:]
        self._valid = len(self._tokens)
        # Behind the committed tokens: what stands before this point is never taken back by a round.
        self._cache.checkpoint(one_row_passes=True)
        assert self._sampler is not None, "reset comes before propose"
        guesses = Guesses(self._sampler, self._tokens, self._ids)
        for i in range(k):
            guess = guesses.draw(logits)
            if i + 1 < k:
                logits = self._cache.forward(guess)
        return guesses.proposal()

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """Keep what the cache holds of the accepted guesses; the last guess was never fed to it."""
        if accepted:
            self._valid = min(self._valid + accepted, self._cache.length)
        self._tokens.extend(tokens)

    def close(self) -> None:
        """Forget the sequence."""
        self._cache.clear()
        self._tokens = []
        self._valid = 0

    def _catch_up(self) -> bool:
        """Take back guesses that were rejected and read what is missing, but for the last few tokens."""
        self._cache.rewind_to(self._valid)
        if not self._cache.always_exact and self._cache.length < self._turn_end - 1:
            if not self._read_to(self._turn_end - 1):
                return False
            self._cache.mark_turn()
        if len(self._tokens) - self._cache.length > ONE_PASS and not self._read_to(len(self._tokens) - 1):
            return False
        if self._cache.length == len(self._tokens):
            self._cache.rewind_to(len(self._tokens) - 1)
        return True

    def _read_to(self, length: int) -> bool:
        """Have the first `length` tokens in the cache; False when cancelled before."""
        while (missing := length - self._cache.length) > 0:
            if self._cancelled():
                return False
            start = self._cache.length
            chunk = self._tokens[start : start + min(PREFILL_CHUNK, missing)]
            self._cache.prefill(mx.array(chunk, mx.uint32))
            self._valid = self._cache.length
        return True
