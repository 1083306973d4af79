"""How often guesses are kept: counts from all answers so far, and how this answer differs from them.

Two time scales. A cell of counts for each kind of guess moves slowly and is kept from run to run; its
older rounds are discounted. One number a drafter, its *mood*, says in log-odds how much better or
worse than its cells it is doing in the text at hand; it moves within a few rounds, fades when nothing
is observed and starts each answer at 0. A guess counts as tried when all before it were kept, so a
cell estimates alpha_j = P(at least j kept) / P(at least j - 1 kept).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec.decoding.controller import Option

DISCOUNT = 0.995  # a cell remembers about its last 200 guesses
PRIOR_WEIGHT = 6.0  # guesses that the prior of a cell is worth
UNKNOWN_DRAFT = 0.6  # acceptance of a draft model that nobody has tried: it may well pay
UNKNOWN_COPY = 0.5  # confidence of a copy that comes without one

MATCH_ODDS = tuple(math.exp(x) for x in (0.0, -1.25, -0.2, 0.6, 1.0, 1.0, 1.5, 1.5, 1.5, 2.0))
"""Factor on the odds of a copy's confidence, by length of its match (0: not known). Measured on 60
answers of SmolLM2-135M, where a word seen once after the same 1, 2, 3, 4, 8 tokens was right in 22,
48, 60, 73 and 87 of 100 cases."""

MOOD_SPREAD = 0.75  # log-odds: standard deviation of the mood from one text to another
MOOD_MEMORY = 0.98  # of the mood remains after a round in which nothing was observed

MATCH_EDGES = (1, 2, 3, 4, 6, 9)
CONFIDENCE_EDGES = (0.3, 0.45, 0.55, 0.7, 0.8, 0.9, 0.95)

Key = tuple[int, int]
"""(match bucket, confidence bucket) of a copy; (-1, position) of a guess without confidence or match."""


@dataclass(slots=True)
class Cell:
    """Discounted counts: `kept` of the `tried` guesses of one kind."""

    kept: float = 0.0
    tried: float = 0.0

    def rate(self, prior: float) -> float:
        """Mean of the Beta posterior whose prior has mean `prior`."""
        return (self.kept + PRIOR_WEIGHT * prior) / (self.tried + PRIOR_WEIGHT)

    def add(self, kept: bool) -> None:
        """Count one guess."""
        self.kept = DISCOUNT * self.kept + kept
        self.tried = DISCOUNT * self.tried + 1.0


@dataclass(slots=True)
class Mood:
    """Belief about one drafter in this answer: mean and variance in log-odds."""

    mean: float = 0.0
    variance: float = MOOD_SPREAD**2
    round: int = 0  # when mean and variance held


class AcceptanceHistory:
    """Acceptance of every drafter of one target. Keep one per target, draft and kind of sampling.

    `begin_answer` comes before an answer and `tick` after each of its rounds; `record` tells what
    was kept.
    """

    def __init__(self) -> None:
        self._cells: dict[str, dict[Key, Cell]] = {}
        self._moods: dict[str, Mood] = {}
        self._round = 0

    def begin_answer(self) -> None:
        """A new text: what was peculiar to the last one is forgotten."""
        self._moods = {}
        self._round = 0

    def tick(self) -> None:
        """A round has passed."""
        self._round += 1

    def alphas(self, option: Option, *, optimism: float = 0.0) -> Iterator[float]:
        """Acceptance of each of the option's guesses in order, given that all before it were kept.

        With `optimism`, as it would be if the mood were that many standard deviations better.
        """
        mood = self._mood(option.drafter)
        odds = math.exp(mood.mean + optimism * math.sqrt(mood.variance))
        for _, rate in self._rates(option.drafter, option.max_k, option.confidences, option.match_length):
            yield odds * rate / (1.0 - rate + odds * rate)

    def record(
        self,
        drafter: str,
        accepted: int,
        *,
        proposed: int,
        confidences: Sequence[float] = (),
        match_length: int = 0,
    ) -> None:
        """`accepted` of `proposed` guesses were kept; `confidences` and `match_length` as in the option."""
        mood = self._mood(drafter)
        cells = self._cells.setdefault(drafter, {})
        odds = math.exp(mood.mean)
        tried = min(accepted + 1, proposed)
        seen = list(self._rates(drafter, tried, confidences, match_length))
        for j, (key, rate) in enumerate(seen, start=1):
            kept = j <= accepted
            alpha = odds * rate / (1.0 - rate + odds * rate)
            mood.variance /= 1.0 + mood.variance * alpha * (1.0 - alpha)
            mood.mean += mood.variance * (kept - alpha)
            cells.setdefault(key, Cell()).add(kept)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back."""
        return {
            drafter: [[*key, cell.kept, cell.tried] for key, cell in cells.items()]
            for drafter, cells in self._cells.items()
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> AcceptanceHistory:
        """The history that `to_dict` wrote.

        Raises:
            ValueError: `stored` is something else, or damaged.
        """
        history = cls()
        try:
            for drafter, rows in stored.items():
                cells = history._cells[drafter] = {}
                for first, second, kept, tried in rows:
                    if not 0.0 <= kept <= tried <= 1.0 / (1.0 - DISCOUNT):
                        raise ValueError("counts out of range")
                    cells[int(first), int(second)] = Cell(float(kept), float(tried))
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError("not a stored acceptance history") from error
        return history

    def _mood(self, drafter: str) -> Mood:
        """The mood now: what nobody has looked at for a while is known less well."""
        mood = self._moods.get(drafter)
        if mood is None:
            mood = self._moods[drafter] = Mood(round=self._round)
        elif mood.round != self._round:
            memory = MOOD_MEMORY ** (self._round - mood.round)
            mood.mean *= memory
            mood.variance = MOOD_SPREAD**2 + (mood.variance - MOOD_SPREAD**2) * memory**2
            mood.round = self._round
        return mood

    def _rates(
        self, drafter: str, k: int, confidences: Sequence[float], match_length: int
    ) -> Iterator[tuple[Key, float]]:
        """The cell of each of `k` guesses and what it says, strictly between 0 and 1."""
        cells = self._cells.get(drafter, {})
        copied = bool(confidences) or match_length > 0
        rate = UNKNOWN_DRAFT
        for i in range(k):
            if copied:
                confidence = confidences[min(i, len(confidences) - 1)] if confidences else UNKNOWN_COPY
                # Each guess that is kept makes the match one token longer.
                match = match_length + i if match_length else 0
                key = (bisect_right(MATCH_EDGES, match), bisect_right(CONFIDENCE_EDGES, confidence))
                odds = MATCH_ODDS[min(match, 9)] * confidence
                rate = odds / (1.0 - confidence + odds)
            else:
                # The prior of a position is the one before it: acceptance changes little along a run.
                key = (-1, i + 1)
            cell = cells.get(key)
            if cell is not None:
                rate = cell.rate(rate)
            yield key, min(max(rate, 0.005), 0.995)
