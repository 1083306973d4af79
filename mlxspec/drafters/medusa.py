"""Residual heads on the target's last hidden state, one for each guess.

Medusa (Cai et al. 2024, arXiv 2401.10774). Every head guesses its own place without knowing the
guesses before it; the chain of their best guesses is the proposal, so each guess is certain (one-hot).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mlx.core as mx
import mlx.nn as nn

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import Option
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.drafters.guessing import Guesses


class ResidualHead(nn.Module):  # type: ignore[misc]
    """x + silu(W x + b), which begins as x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.linear.weight = mx.zeros((width, width))
        self.linear.bias = mx.zeros((width,))

    def __call__(self, x: mx.array) -> mx.array:
        """Rows [.., width] -> rows [.., width]."""
        made: mx.array = x + nn.silu(self.linear(x))
        return made


class MedusaHeads(nn.Module):  # type: ignore[misc]
    """The trained part: heads 1..count; head i is for the token i places after the pending one."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.heads = [ResidualHead(width) for _ in range(count)]

    def __call__(self, x: mx.array, count: int | None = None) -> list[mx.array]:
        """Rows [.., width] -> the rows of each of the first `count` heads."""
        return [head(x) for head in self.heads[:count]]


class Medusa:
    """The drafter around `MedusaHeads`. Arguments as in `head.Head`."""

    name = "medusa"

    def __init__(
        self,
        heads: MedusaHeads,
        *,
        head: Callable[[mx.array], mx.array],
        ids: mx.array | None,
        point: int,
    ) -> None:
        self.needs_hidden: tuple[int, ...] = (point,)
        self._point = point
        self._heads = heads
        self._head = head
        self._ids = ids
        self._tokens: list[int] = []
        self._row: tuple[int, mx.array] | None = None  # the last one heard: its position, [1, width]
        self._sampler: Sampler | None = None

    def attach(self, target: PromptCache) -> None:
        """The rows that it reads are all it needs of the target."""

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer to `tokens`."""
        del cancelled
        if self._row is not None and self._tokens[: self._row[0] + 1] != list(tokens[: self._row[0] + 1]):
            self._row = None
        self._tokens = list(tokens)
        self._sampler = sampler

    def read_hidden(self, start: int, rows: Mapping[int, mx.array]) -> None:
        """Keep the last row."""
        given = rows[self._point]
        self._row = start + given.shape[0] - 1, given[-1:]

    def offer(self) -> Option:
        """One guess a head, if the row of the token before the pending one was heard of."""
        able = self._row is not None and self._row[0] == len(self._tokens) - 2
        return Option(self.name, max_k=len(self._heads.heads) if able else 0)

    def propose(self, k: int) -> Proposal | None:
        """The best guess of each of the first `k` heads."""
        assert self._sampler is not None, "reset comes before propose"
        if self.offer().max_k == 0 or self._row is None:
            return None
        guesses = Guesses(self._sampler, self._tokens, self._ids, certain=True)
        rows = self._heads(self._row[1], k)
        for logits in mx.split(self._head(mx.concatenate(rows)), len(rows)):
            guesses.draw(logits)
        return guesses.proposal()

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """Note the tokens."""
        del accepted
        self._tokens.extend(tokens)

    def close(self) -> None:
        """Forget the sequence."""
        self._tokens = []
        self._row = None
