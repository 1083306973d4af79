"""What rounds really take: the calibrated curve, corrected by the rounds' own times.

Everything is a logarithm of a factor on the calibration: one for the machine as a whole (it gets hot,
another program wants it), one for each number of rows, one for plain passes that are queued ahead, one
for each drafter. A round's time says something about the sum of its parts, so a Kalman filter keeps
their covariances: when a later round tells one of them, the others are corrected too. A surprise is
clipped before it counts, so a single slow round (a page fault, a saved file) moves little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mlxspec.decoding.cost import CALIBRATED_ROWS, VerifyCurve

# Variances of logarithms.
ROUND_NOISE = 0.08**2  # of one round's time
MACHINE_PRIOR = 0.1**2  # of the machine against its calibration
MACHINE_DRIFT = 0.005**2  # of its change from round to round
SLOPE_PRIOR = 0.1**2  # of all passes with guesses against the curve
ROWS_PRIOR = 0.05**2  # of one point of the curve beside that
WAIT_PRIOR = 0.07**2  # of the cost of waiting
DRAFT_PRIOR = 0.25**2  # of a draft's step, measured more roughly
DRIFT = 0.001**2  # of the change of all of these from round to round

CLIP = 2.5  # standard deviations that a surprise counts at most
QUEUED_COST = 1 / 1.05
"""Cost of a plain pass queued ahead, until measured, of one that is waited for, as calibration does."""

CHANGE = math.log(1.15)
CHANGE_ROUNDS = 3
"""Rounds one after another that all surprise by so much, and in the same direction, mean a change: what
was known about the times is known no longer."""

MACHINE = 0  # index of each factor: row counts stand at their own number
QUEUED = CALIBRATED_ROWS + 1


class RoundTimes:
    """Predicts the seconds of rounds and learns from them.

    Args:
        curve: the target's calibrated curve.
        draft_step_s: seconds of one guess by drafter; drafters that are not named cost nothing.

    Attributes:
        unsettled: the times have changed, and only a plain round can tell whether plain decoding's did.
    """

    def __init__(self, curve: VerifyCurve, draft_step_s: Mapping[str, float]) -> None:
        self._curve = curve
        self._draft_step_s = {drafter: step_s for drafter, step_s in draft_step_s.items() if step_s > 0.0}
        self._drafts = {drafter: QUEUED + 1 + i for i, drafter in enumerate(self._draft_step_s)}
        size = QUEUED + 1 + len(self._drafts)
        guesses = slice(2, CALIBRATED_ROWS + 1)  # rows of passes that verify something
        self._mean = np.zeros(size)
        self._mean[QUEUED] = math.log(QUEUED_COST)
        self._prior = np.diag(
            [MACHINE_PRIOR, *[ROWS_PRIOR] * (CALIBRATED_ROWS + 1), *[DRAFT_PRIOR] * len(self._drafts)]
        )
        self._prior[guesses, guesses] += SLOPE_PRIOR
        one_row = [1, QUEUED]  # the same pass, but for the wait
        self._prior[np.ix_(one_row, one_row)] = ROWS_PRIOR
        self._prior[QUEUED, QUEUED] += WAIT_PRIOR
        self._covariance = self._prior.copy()
        self._surprises = 0  # rounds that surprised by CHANGE one after another; negative: too fast
        self.unsettled = False
        self._drift = np.full(size, DRIFT)
        self._drift[MACHINE] = MACHINE_DRIFT
        self._bases: dict[int, float] = {}  # seconds by row count, as calibrated
        self._factors: list[float] = []  # by index
        self._refresh()

    def plain_s(self, context: int) -> float:
        """Seconds of a plain pass that was queued before its predecessor's token was read."""
        return self._pass_s(1, context, index=QUEUED)

    def verify_s(self, rows: int, context: int) -> float:
        """Seconds of a round's target pass over `rows` rows, its share of everything else included."""
        return self._pass_s(rows, context, index=min(rows, CALIBRATED_ROWS))

    def draft_s(self, drafter: str, k: int, catch_up: int = 0) -> float:
        """Seconds until `drafter` has made `k` guesses, `catch_up` tokens being fed in its first step."""
        step_s = self._draft_step_s.get(drafter)
        if step_s is None or k == 0:
            return 0.0
        # How the draft's own passes grow with their rows is not measured: it is taken to be as the target's.
        steps = k - 1 + self._curve.shape(max(catch_up, 1))
        return step_s * steps * self._factors[self._drafts[drafter]]

    def learn_plain(self, context: int, seconds: float) -> None:
        """A queued plain pass took `seconds`."""
        self._learn(seconds, self.plain_s(context), {QUEUED: 1.0})
        self.unsettled = False

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
        row_index = min(rows, CALIBRATED_ROWS)
        draft_s = self.draft_s(drafter, guesses, catch_up) if drafter is not None else 0.0
        if drafter is None or draft_s == 0.0:
            self._learn(round_s, verify_s, {row_index: 1.0})
            self.unsettled = self.unsettled and rows > 1
        elif drafting_s is None:
            share = draft_s / (verify_s + draft_s)
            self._learn(round_s, verify_s + draft_s, {row_index: 1.0 - share, self._drafts[drafter]: share})
        else:
            self._learn(drafting_s, draft_s, {self._drafts[drafter]: 1.0})
            self._learn(round_s - drafting_s, verify_s, {row_index: 1.0})

    def corrected(self) -> VerifyCurve:
        """The curve as it turned out to be, for the next answer and the next run."""
        return VerifyCurve.measured(
            {n: self._curve.seconds(n) * self._factors[n] for n in range(1, CALIBRATED_ROWS + 1)},
            context_tokens=self._curve.context_tokens,
            context_pass_s=self._curve.context_pass_s * self._factors[1],
            context_row_s=self._curve.context_row_s * self._factors[1],
        )

    def corrected_steps(self) -> dict[str, float]:
        """Seconds of one guess by drafter, as they turned out to be."""
        return {drafter: self.draft_s(drafter, 1) for drafter in self._draft_step_s}

    def _pass_s(self, rows: int, context: int, *, index: int) -> float:
        base = self._bases.get(rows)
        if base is None:
            base = self._bases[rows] = self._curve.seconds(rows)
        return (base + self._curve.context_s(rows, context, base)) * self._factors[index]

    def _learn(self, seconds: float, predicted_s: float, parts: Mapping[int, float]) -> None:
        """Correct the machine and the `parts` of a round, each index with its share of the time."""
        surprise = math.log(max(seconds, 1e-6 * predicted_s) / predicted_s)
        self._notice_change(surprise)
        self._covariance[np.diag_indices_from(self._covariance)] += self._drift
        reach = self._covariance[MACHINE].copy()  # covariance of every factor with this round's time
        for index, share in parts.items():
            reach += share * self._covariance[index]
        spread = ROUND_NOISE + reach[MACHINE] + sum(share * reach[index] for index, share in parts.items())
        limit = CLIP * math.sqrt(spread)
        self._mean += reach * (min(max(surprise, -limit), limit) / spread)
        self._covariance -= np.outer(reach, reach / spread)
        self._refresh()

    def _notice_change(self, surprise: float) -> None:
        direction = 0 if abs(surprise) < CHANGE else 1 if surprise > 0 else -1
        self._surprises = self._surprises + direction if self._surprises * direction > 0 else direction
        if abs(self._surprises) >= CHANGE_ROUNDS:
            self._covariance = self._prior.copy()
            self._surprises = 0
            self.unsettled = True

    def _refresh(self) -> None:
        """Work out the factors: the machine's, times each one's own."""
        factors: list[float] = np.exp(self._mean + self._mean[MACHINE]).tolist()
        self._factors = factors
