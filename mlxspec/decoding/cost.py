"""What a target pass costs, and the arithmetic of speed-up that follows from it.

Pure functions of numbers. Acceptance is given as `alphas`: `alphas[j - 1]` is the probability that
guess `j` is kept, given that all before it were. Closed forms after Leviathan et al. 2022
(arXiv 2211.17192).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlxspec.errors import UsageError

CALIBRATED_ROWS = 17  # a pending token and 16 guesses
MAX_GUESSES = CALIBRATED_ROWS - 1


@dataclass(frozen=True, slots=True)
class VerifyCurve:
    """Seconds of one target pass over `n` rows, for any `n` from 1.

    Between the given points the curve is a straight line; beyond the last one it goes on with its
    average slope, for the last piece of a staircase says nothing about the next.

    Attributes:
        points: (rows, seconds), rows rising from 1, seconds never falling.
        context_tokens: length of the cache at which `points` holds.
        context_pass_s: seconds that each further token in the cache adds to a pass.
        context_row_s: seconds that it adds to each row of a pass.

    Raises:
        UsageError: the points are no curve.
    """

    points: tuple[tuple[int, float], ...]
    context_tokens: int = 0
    context_pass_s: float = 0.0
    context_row_s: float = 0.0

    def __post_init__(self) -> None:
        rows = [n for n, _ in self.points]
        if not rows or rows[0] != 1 or any(b <= a for a, b in pairwise(rows)):
            raise UsageError(
                f"A verify curve cannot be read from the row counts {rows}.",
                hint="Give the cost of 1 row first and then of more and more rows.",
            )
        if any(not math.isfinite(s) or s <= 0 for _, s in self.points):
            raise UsageError(
                "A verify curve has a cost that is no number above zero.",
                hint="Give each cost as a number such as 1.25.",
            )
        for (n, before), (m, after) in pairwise(self.points):
            if after < before:
                raise UsageError(
                    f"The verify curve falls: {m} rows cost {after:g}, less than the {before:g} of {n}.",
                    hint="Give costs that rise or stay level, since more rows are never less work.",
                )

    @classmethod
    def typed(cls, costs: Sequence[float]) -> VerifyCurve:
        """The curve whose `costs[n - 1]` is the cost of `n` rows, as a user types it.

        Raises:
            UsageError: it is empty, falls, or has a cost that is not above zero.
        """
        return cls(tuple(enumerate(costs, start=1)))

    @classmethod
    def measured(
        cls,
        seconds: Mapping[int, float],
        *,
        context_tokens: int = 0,
        context_pass_s: float = 0.0,
        context_row_s: float = 0.0,
    ) -> VerifyCurve:
        """The curve through readings by row count; where noise makes it fall it stays level instead."""
        points: list[tuple[int, float]] = []
        for n, reading in sorted(seconds.items()):
            points.append((n, max(reading, points[-1][1]) if points else reading))
        return cls(
            tuple(points),
            context_tokens=context_tokens,
            context_pass_s=max(context_pass_s, 0.0),
            context_row_s=max(context_row_s, 0.0),
        )

    def seconds(self, rows: int, context: int | None = None) -> float:
        """Seconds of a pass over `rows` rows with `context` tokens in the cache.

        Without `context`, at the length where the curve was measured.
        """
        base = self._at(rows)
        return base if context is None else base + self.context_s(rows, context, base)

    def context_s(self, rows: int, context: int, base: float) -> float:
        """Seconds that `context` adds to `base`, the cost of `rows` rows; less than 0 in a short one."""
        per_token = self.context_pass_s + self.context_row_s * rows
        return max((context - self.context_tokens) * per_token, -0.9 * base)

    def shape(self, rows: int) -> float:
        """Cost of `rows` rows, that of one row being 1."""
        return self._at(rows) / self.points[0][1]

    def relative(self) -> VerifyCurve:
        """The same shape at its own context, one row costing 1."""
        return VerifyCurve(tuple((n, seconds / self.points[0][1]) for n, seconds in self.points))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back."""
        return {
            "seconds": {str(n): s for n, s in self.points},
            "context_tokens": self.context_tokens,
            "context_pass_s": self.context_pass_s,
            "context_row_s": self.context_row_s,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> VerifyCurve:
        """The curve that `to_dict` wrote.

        Raises:
            ValueError: `stored` is something else, or damaged.
        """
        try:
            return cls.measured(
                {int(n): float(s) for n, s in stored["seconds"].items()},
                context_tokens=int(stored["context_tokens"]),
                context_pass_s=float(stored["context_pass_s"]),
                context_row_s=float(stored["context_row_s"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError, UsageError) as error:
            raise ValueError("not a stored verify curve") from error

    def _at(self, rows: int) -> float:
        """Seconds at the calibrated context."""
        points = self.points
        index = bisect_left(points, (rows, 0.0))
        if index < len(points):
            after_rows, after = points[index]
            if after_rows == rows or index == 0:
                return after
            before_rows, before = points[index - 1]
            return before + (after - before) * (rows - before_rows) / (after_rows - before_rows)
        last_rows, last = points[-1]
        # A single point says nothing about more rows; then each is taken to cost as much as the first.
        slope = (last - points[0][1]) / (last_rows - 1) if last_rows > 1 else last
        return last + slope * (rows - last_rows)


def expected_tokens(alphas: Sequence[float]) -> float:
    """Tokens that a round of `len(alphas)` guesses emits on average: 1 + sum of the running products."""
    total = survival = 1.0
    for alpha in alphas:
        survival *= alpha
        total += survival
    return total


def expected_tokens_flat(alpha: float, k: int) -> float:
    """The same with one acceptance for every position: (1 - alpha^(k + 1)) / (1 - alpha)."""
    return k + 1.0 if alpha == 1.0 else (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def acceptance_rate(alphas: Sequence[float]) -> float | None:
    """Accepted / proposed on average; None without a guess."""
    return (expected_tokens(alphas) - 1.0) / len(alphas) if alphas else None


def round_cost(k: int, curve: VerifyCurve, *, draft_step_s: float, overhead_s: float = 0.0) -> float:
    """Seconds of a round of `k` guesses; a round without guesses is one plain pass."""
    return curve.seconds(k + 1) + (k * draft_step_s + overhead_s if k else 0.0)


def speedup(
    alphas: Sequence[float], k: int, *, curve: VerifyCurve, draft_step_s: float, overhead_s: float = 0.0
) -> float:
    """Tokens a second with `k` guesses a round, plain decoding being 1.

    `draft_step_s` is one guess, in the unit of `curve`; `overhead_s` is what a round of guesses costs
    beside its passes. `alphas` has at least `k` entries.
    """
    tokens = expected_tokens(alphas[:k])
    cost = round_cost(k, curve, draft_step_s=draft_step_s, overhead_s=overhead_s)
    return tokens * curve.seconds(1) / cost


def best_k(
    alphas: Sequence[float], curve: VerifyCurve, *, draft_step_s: float, overhead_s: float = 0.0
) -> int:
    """The number of guesses, 0 to `len(alphas)`, with the largest speed-up; the smallest of equals."""
    return max(
        range(len(alphas) + 1),
        key=lambda k: (
            speedup(alphas, k, curve=curve, draft_step_s=draft_step_s, overhead_s=overhead_s),
            -k,
        ),
    )
