"""What speculation should bring a pair on this machine, from the curve that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxspec.decoding.cost import MAX_GUESSES, VerifyCurve, best_k, speedup
from mlxspec.engine.pace import last_pace
from mlxspec.lab.chips import chip_curve, this_chip
from mlxspec.places import Places

ACCEPTANCES = (0.3, 0.5, 0.7, 0.9)
STEPS = 100  # acceptances that are tried to find where guesses begin to pay
PAYS = 1.005


@dataclass(frozen=True, slots=True)
class Expected:
    """With this share of guesses kept: the best number of them, and tokens a second against plain."""

    acceptance: float
    k: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The verify curve in plain passes, the cost of one guess in the same, and where they come from."""

    source: str
    curve: VerifyCurve
    draft_step: float
    plain_tokens_per_s: float | None

    @classmethod
    def of(
        cls, target_name: str, size_ratio: float | None, where: Places, *, guesser: str = "draft_model"
    ) -> Prediction | None:
        """From what was measured of this target here, else what was published about this chip.

        Args:
            target_name: as the registry calls it.
            size_ratio: bytes of the draft / bytes of the target, 0 for lookup, None for unknown.
            where: mlxspec's folders.
            guesser: the drafter's name, "" for one whose guesses cost nothing.
        """
        pace = last_pace(target_name, where, guesser=guesser)
        if pace is not None:
            plain_s = pace.curve.seconds(1)
            step = pace.steps.get(guesser)
            cost = 0.0 if size_ratio == 0 else step / plain_s if step else size_ratio
            if cost is not None:
                return cls("measured here", pace.curve.relative(), cost, 1.0 / plain_s)
        chip = this_chip()
        if chip is None or size_ratio is None:
            return None
        return cls(f"published for {chip}", chip_curve(chip).curve, size_ratio, None)

    @property
    def rows(self) -> list[Expected]:
        """For low to high acceptance."""
        return [self.at(acceptance) for acceptance in ACCEPTANCES]

    @property
    def break_even(self) -> float | None:
        """The least acceptance with which guesses pay; None when none does."""
        for step in range(1, STEPS + 1):
            if self.at(step / STEPS).speedup > PAYS:
                return step / STEPS
        return None

    def at(self, acceptance: float) -> Expected:
        """The best number of guesses with this acceptance, and what it brings."""
        alphas = (acceptance,) * MAX_GUESSES
        k = best_k(alphas, self.curve, draft_step_s=self.draft_step)
        return Expected(acceptance, k, speedup(alphas, k, curve=self.curve, draft_step_s=self.draft_step))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        return {
            "source": self.source,
            "curve": {str(rows): cost for rows, cost in self.curve.points},
            "draft_cost": self.draft_step,
            "plain_tok_s": self.plain_tokens_per_s,
            "break_even": self.break_even,
            "expected": [
                {"acceptance": row.acceptance, "k": row.k, "speedup": row.speedup} for row in self.rows
            ],
        }
