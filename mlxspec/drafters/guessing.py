"""The guesses of one proposal, drawn one after another from a draft's logits."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import History, Rule, Sampler


class Guesses:
    """Draws guesses and keeps the q rows that they were drawn from; no host sync.

    Args:
        sampler: the answer's.
        tokens: the committed ones, which the first guess follows.
        ids: the target's id of each column of the logits; None where they are the target's own.
        certain: always take the likeliest token, so that guesses are one-hot at any temperature.
    """

    def __init__(
        self,
        sampler: Sampler,
        tokens: Sequence[int],
        ids: mx.array | None = None,
        *,
        certain: bool = False,
    ) -> None:
        self._sampler = sampler
        self._tokens = tokens
        self._ids = ids
        self._greedy = certain or sampler.greedy
        self._guesses: list[mx.array] = []
        self._rows: list[mx.array] = []
        # What needs to know the tokens by name works on rows as wide as the target's.
        self._narrow = ids is not None and not sampler.params.logit_bias and not sampler.params.reads_history

    def draw(self, logits: mx.array) -> mx.array:
        """The next guess [1] uint32, a target's id, from logits [1, columns]."""
        if self._narrow:
            guess = self._draw_narrow(logits)
        else:
            guess = self._draw_wide(logits if self._ids is None else self._spread(logits, -mx.inf))
        self._guesses.append(guess)
        return guess

    def proposal(self) -> Proposal:
        """All guesses; q is None where each was certain."""
        if not self._rows:
            return Proposal(mx.concatenate(self._guesses))
        rows = mx.concatenate(self._rows)
        return Proposal(mx.concatenate(self._guesses), self._spread(rows, 0.0) if self._narrow else rows)

    def _draw_wide(self, logits: mx.array) -> mx.array:
        sampler = self._sampler
        history = History(self._tokens, mx.concatenate(self._guesses) if self._guesses else None)
        if self._greedy:
            return mx.argmax(sampler.processed(logits, history), axis=-1).astype(mx.uint32)
        # Whatever q is: it is what the guess is drawn from, and that keeps the answer exact.
        q, _ = sampler.likely(logits, history)
        self._rows.append(q)
        noise = sampler.draft_noise(len(self._tokens), len(self._guesses))
        return mx.argmax(mx.log(q) + noise, axis=-1).astype(mx.uint32)

    def _draw_narrow(self, logits: mx.array) -> mx.array:
        assert self._ids is not None
        sampler = self._sampler
        if self._greedy:
            return self._ids[mx.argmax(logits, axis=-1)].astype(mx.uint32)
        narrow = Sampler(sampler.params, vocab_size=self._ids.shape[0], rule=sampler.rule, seed=sampler.seed)
        q, _ = narrow.likely(logits, History(()))
        self._rows.append(q)
        place = len(self._tokens), len(self._guesses)
        if sampler.rule is Rule.COUPLED:  # the target draws with the noise of the whole vocabulary
            noise = sampler.draft_noise(*place)[self._ids]
        else:
            noise = narrow.draft_noise(*place)
        return self._ids[mx.argmax(mx.log(q) + noise, axis=-1)].astype(mx.uint32)

    def _spread(self, rows: mx.array, rest: float) -> mx.array:
        """Rows [n, columns] as wide as the target's, with `rest` in the other columns."""
        assert self._ids is not None
        wide = mx.full((rows.shape[0], self._sampler.vocab_size), rest)
        ids = mx.broadcast_to(self._ids.astype(mx.int32)[None], rows.shape)
        return mx.put_along_axis(wide, ids, rows.astype(mx.float32), axis=-1)
