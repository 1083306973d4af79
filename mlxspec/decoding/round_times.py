"""What rounds really take: the calibrated curve, corrected by the rounds' own times.

Everything is kept as the logarithm of a factor on the calibration: one factor for the machine as a
whole (it gets hot, another program wants it), one for each number of rows and one for each drafter. A
round's time says something about all that are part of it, so its surprise is shared out by how
uncertain each of them is: a Kalman filter with its covariances left out. A surprise is clipped before
it counts, so one slow round (a page fault, a saved file) moves next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlxspec.decoding.cost import CALIBRATED_ROWS, VerifyCurve

ROUND_NOISE = 0.08**2  # variances of logarithms: of one round's time,
MACHINE_PRIOR = 0.10**2  # of the whole machine against its calibration,
MACHINE_DRIFT = 0.01**2  # of its change from round to round,
ROWS_PRIOR = 0.05**2  # of one point of the curve,
DRAFT_PRIOR = 0.25**2  # of a draft's step, measured more roughly,
SETTLED = 0.01**2  # and of what has been measured often: it may still change
SURPRISE = 0.25  # the most that one round's surprise counts
QUEUED = 0  # the row count under which plain passes queued ahead of their tokens are kept
QUEUED_PRIOR = 1 / 1.05  # of a pass that is waited for, as calibration waits (measured on Linux)


@dataclass(slots=True)
class Factor:
    """Belief about the logarithm of a factor."""

    mean: float = 0.0
    variance: float = ROWS_PRIOR

    def learn(self, share: float, surprise: float, spread: float) -> None:
        """Take this factor's part of `surprise`, whose variance is `spread`."""
        gain = self.variance * share / spread
        self.mean += gain * surprise
        self.variance = max(self.variance * (1.0 - gain * share), SETTLED)


class RoundTimes:
    """Predicts the seconds of rounds and learns from them.

    Args:
        curve: the target's calibrated curve.
        draft_step_s: seconds of one guess by drafter; drafters that are not named cost nothing.
    """

    def __init__(self, curve: VerifyCurve, draft_step_s: Mapping[str, float]) -> None:
        self._curve = curve
        self._draft_step_s = dict(draft_step_s)
        self._factors: dict[int, float] = {}  # by row count, since the last round was learnt
        self._bases: dict[int, float] = {}  # seconds by row count as calibrated
        self._machine = Factor(variance=MACHINE_PRIOR)
        self._rows = {QUEUED: Factor(mean=math.log(QUEUED_PRIOR))}
        self._drafts = {drafter: Factor(variance=DRAFT_PRIOR) for drafter in draft_step_s}

    def plain_s(self, context: int) -> float:
        """Seconds of a plain pass that was queued before its predecessor's token was read."""
        return self._pass_s(1, context, key=QUEUED)

    def verify_s(self, rows: int, context: int) -> float:
        """Seconds of a round's target pass over `rows` rows, its share of everything else included."""
        return self._pass_s(rows, context, key=rows)

    def draft_s(self, drafter: str, k: int, catch_up: int = 0) -> float:
        """Seconds until `drafter` has made `k` guesses, `catch_up` tokens being fed in its first step."""
        step_s = self._draft_step_s.get(drafter, 0.0)
        if step_s == 0.0 or k == 0:
            return 0.0
        # How the draft's own passes grow with their rows is not measured: it is taken to be as the target's.
        steps = k - 1 + self._curve.shape(max(catch_up, 1))
        return step_s * steps * math.exp(self._machine.mean + self._drafts[drafter].mean)

    def learn_plain(self, context: int, seconds: float) -> None:
        """A queued plain pass took `seconds`."""
        self._learn(seconds, self.plain_s(context), row_key=QUEUED)

    def learn_round(
        self,
        rows: int,
        context: int,
        *,
        round_s: float,
        drafter: str | None = None,
        guesses: int = 0,
        catch_up: int = 0,
        drafting_s: float | None = None,
    ) -> None:
        """A round of `guesses` guesses and a pass over `rows` rows took `round_s` seconds.

        `drafting_s` of them were the drafter's, where that was measured.
        """
        verify_s = self.verify_s(rows, context)
        draft_s = self.draft_s(drafter, guesses, catch_up) if drafter is not None else 0.0
        if draft_s == 0.0:
            self._learn(round_s, verify_s, row_key=rows)
        elif drafting_s is None:
            share = draft_s / (verify_s + draft_s)
            self._learn(round_s, verify_s + draft_s, row_key=rows, drafter=drafter, draft_share=share)
        else:
            self._learn(drafting_s, draft_s, drafter=drafter, draft_share=1.0)
            self._learn(round_s - drafting_s, verify_s, row_key=rows)

    def corrected(self) -> VerifyCurve:
        """The curve as it turned out to be, for the next run."""
        rows = {n for n, _ in self._curve.points} | {n for n in self._rows if 0 < n <= CALIBRATED_ROWS}
        machine = math.exp(self._machine.mean)
        return VerifyCurve.measured(
            {n: self._curve.seconds(n) * self._factor(n) for n in rows},
            context_tokens=self._curve.context_tokens,
            context_pass_s=self._curve.context_pass_s * machine,
            context_row_s=self._curve.context_row_s * machine,
        )

    def corrected_steps(self) -> dict[str, float]:
        """Seconds of one guess by drafter, as they turned out to be."""
        return {drafter: self.draft_s(drafter, 1) for drafter in self._draft_step_s}

    def _pass_s(self, rows: int, context: int, *, key: int) -> float:
        base = self._bases.get(rows)
        if base is None:
            base = self._bases[rows] = self._curve.seconds(rows)
        return (base + self._curve.context_s(rows, context, base)) * self._factor(key)

    def _factor(self, key: int) -> float:
        factor = self._factors.get(key)
        if factor is None:
            rows = self._rows.get(key)
            factor = self._factors[key] = math.exp(self._machine.mean + (rows.mean if rows else 0.0))
        return factor

    def _learn(
        self,
        seconds: float,
        predicted_s: float,
        *,
        row_key: int | None = None,
        drafter: str | None = None,
        draft_share: float = 0.0,
    ) -> None:
        """Share the surprise out over the machine, the row count and the drafter."""
        surprise = math.log(max(seconds, 1e-3 * predicted_s) / predicted_s)
        surprise = min(max(surprise, -SURPRISE), SURPRISE)
        self._machine.variance += MACHINE_DRIFT
        parts = [(self._machine, 1.0)]
        if row_key is not None:
            parts.append((self._rows.setdefault(row_key, Factor()), 1.0 - draft_share))
        if drafter is not None:
            parts.append((self._drafts[drafter], draft_share))
        spread = ROUND_NOISE + sum(share**2 * factor.variance for factor, share in parts)
        for factor, share in parts:
            factor.learn(share, surprise, spread)
        self._factors.clear()
