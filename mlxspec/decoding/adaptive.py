"""The controller of `--num-draft auto`: what pays most this round, by what is known so far.

A round of `k` guesses is worth E[tokens] - rate * E[seconds], with `rate` the tokens a second that
this answer runs at: the best ratio of a single round is not the best answer, since a round's seconds
are taken from all the rounds after it. Times come from `round_times.py`, acceptance from
`acceptance_history.py`.

Speculation may not cost more than plain decoding would have: a loss account holds what it lost and
gained in this answer, and a round that could overdraw it is not made. Parked is what an answer is
where no drafter is worth its cost and none is likely to be in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.controller import Choice, Option, Outcome, Situation
from mlxspec.decoding.cost import MAX_GUESSES, VerifyCurve
from mlxspec.decoding.round_times import RoundTimes

LOSS_SHARE = 0.008
"""Part of an answer's time that speculation may lose: below the 1 % of the promise, for noise."""

FIRST_ALLOWANCE = 0.75
"""Plain passes that it may lose at once. Without them a new answer could try nothing for its first
dozens of tokens, since one failed round costs 0.1 to 0.5 passes; one pass lets it fail two to ten
times, and is half a percent of an answer of 200 tokens."""

GAINS_KEPT = 16.0
"""Plain passes: older gains than these do not pay for losses."""

RATE_MEMORY = 0.97  # of the tokens and seconds behind the running rate remains after a round
ADVANTAGE_MEMORY = 0.95  # the same for what watching the drafters is worth
HYSTERESIS = 0.01  # tokens: what speculation must promise beyond plain decoding to be taken up
OPTIMISM = 1.0  # standard deviations of a drafter's mood that a probe may hope for
PROBE_EVERY = 8  # rounds from one probe to the next at least
CATCH_UP_HORIZON = 64  # tokens over which feeding a stale draft may pay off at most


@dataclass(frozen=True, slots=True)
class _Plan:
    """`k` guesses of `option`, and what they are worth in tokens."""

    option: Option | None
    k: int
    value: float


class AdaptiveController:
    """Serves one answer; the history and the corrected times serve the next ones.

    Args:
        curve: seconds of target passes, as calibrated or as the last answer corrected them.
        draft_step_s: seconds of one guess by drafter; drafters that are not named cost nothing.
        history: acceptance of earlier answers; this answer is added to it.
    """

    def __init__(
        self, curve: VerifyCurve, draft_step_s: Mapping[str, float], history: AcceptanceHistory
    ) -> None:
        self.times = RoundTimes(curve, draft_step_s)
        self._history = history
        history.begin_answer()
        self._tokens = 0.0  # discounted, behind the running rate
        self._seconds = 0.0
        self._elapsed_s = 0.0
        self._loss_s = 0.0
        self._advantage = 0.0  # tokens a round that watching the drafters is worth, after plain rounds
        self._offered = 0.0  # tokens: what the options of the last decision were worth beyond plain
        self._catch_up = 0
        self._carries = False
        self._was_plain = True
        self._was_parked = False
        self._since_probe = PROBE_EVERY
        self._probed = False

    def choose(self, situation: Situation) -> Choice:
        """The round that is worth most. Asking twice gives the same answer."""
        if situation.ahead:
            return Choice(None, parked=not self._worth_waiting(situation))
        self._carries = self._carries or situation.owed > 1
        plan = self._plan(situation)
        if plan.option is None:
            return Choice(None, parked=situation.owed == 1 and not self._worth_watching(situation.context))
        self._catch_up = plan.option.catch_up
        return Choice(plan.option.drafter, plan.k)

    def _plan(self, situation: Situation) -> _Plan:
        plain = _Plan(None, 0, self._plain_value(situation))
        best = self._best(situation, plain.value + HYSTERESIS * self._was_plain) or plain
        self._offered = best.value - plain.value
        self._probed = self._since_probe >= PROBE_EVERY
        if self._probed:
            best = self._best(situation, best.value + HYSTERESIS, optimism=OPTIMISM, beside=best) or best
        return best

    def _worth_waiting(self, situation: Situation) -> bool:
        """Is it better to read the token that is in the air than to queue another pass behind it?

        A copy that goes on is one token shorter by then, if the token is what it says.
        """
        plan = self._plan(situation)
        if plan.option is None:
            return self._worth_watching(situation.context)
        option = plan.option
        if option.match_length == 0 and not option.confidences:
            return True
        first = next(self._history.alphas(option))
        rest = Option(
            option.drafter,
            max_k=option.max_k - 1,
            confidences=option.confidences[1:],
            match_length=option.match_length + 1 if option.match_length else 0,
            catch_up=option.catch_up,
        )
        later = replace(situation, options=(rest,))
        plain = self._plain_value(situation)
        best = self._best(later, plain)
        wait_s = self._wait_s(situation.context)
        if (
            best is not None
            and first * (best.value - plain) > HYSTERESIS + self._rate(situation.context) * wait_s
        ):
            return True
        return self._worth_watching(situation.context)

    def observe(self, outcome: Outcome) -> None:
        """Learn times, acceptance and what the round lost or gained."""
        rows = max(outcome.rows, 1)
        plain_s = self.times.plain_s(outcome.context)
        drafter = outcome.choice.drafter if outcome.proposed else None
        expected_s = plain_s if outcome.queued else self.times.verify_s(rows, outcome.context)
        if drafter is not None:
            expected_s += self.times.draft_s(drafter, outcome.proposed, self._catch_up)
            round_s = min(max(outcome.round_s, 0.5 * expected_s), 1.5 * expected_s)
            self._loss_s += round_s - outcome.emitted * plain_s
            self._loss_s = max(self._loss_s, -GAINS_KEPT * plain_s)
            self._history.record(
                drafter,
                outcome.accepted,
                proposed=outcome.proposed,
                confidences=outcome.confidences,
                match_length=outcome.match_length,
            )
        elif not outcome.queued:
            self._loss_s += max(0.0, expected_s - plain_s)
        if outcome.queued:
            self.times.learn_plain(outcome.context, outcome.round_s)
        else:
            self.times.learn_round(
                rows,
                outcome.context,
                round_s=outcome.round_s,
                drafter=drafter,
                guesses=outcome.proposed,
                catch_up=self._catch_up,
                drafting_s=outcome.draft_s,
            )
        self._history.tick()
        self._elapsed_s += expected_s
        self._tokens = RATE_MEMORY * self._tokens + outcome.emitted
        self._seconds = RATE_MEMORY * self._seconds + expected_s
        if self._was_plain:
            fresh = min(max(self._offered, 0.0), 1.0)
            self._advantage += (1.0 - ADVANTAGE_MEMORY) * (fresh - self._advantage)
        self._was_plain = drafter is None
        self._was_parked = outcome.choice.parked
        self._since_probe = 0 if self._probed else self._since_probe + 1
        self._probed = False

    def _plain_value(self, situation: Situation) -> float:
        return 1.0 - self._rate(situation.context) * self._plain_here_s(situation)

    def _plain_here_s(self, situation: Situation) -> float:
        """Seconds of a round without guesses from here; with carried tokens it is a flush."""
        if situation.owed == 1 and self._was_parked:
            return self.times.plain_s(situation.context)
        return self.times.verify_s(situation.owed, situation.context)

    def _rate(self, context: int) -> float:
        """Tokens a second: of the last rounds, or of plain decoding if that is more."""
        plain = 1.0 / self.times.plain_s(context)
        return max(plain, self._tokens / self._seconds) if self._seconds else plain

    def _best(
        self, situation: Situation, floor: float, *, optimism: float = 0.0, beside: _Plan | None = None
    ) -> _Plan | None:
        """The best plan that is worth more than `floor` and that the loss account can stand.

        Not one of the drafter of `beside`.
        """
        best: _Plan | None = None
        rate = self._rate(situation.context)
        budget_s = self._budget_s(situation.context) + self._plain_here_s(situation)
        for option in situation.options:
            most = min(option.max_k, situation.room - 1, MAX_GUESSES)
            if most <= 0 or (optimism and option.confidences):
                continue
            if beside and beside.option and beside.option.drafter == option.drafter:
                continue
            step_s = self.times.draft_s(option.drafter, 1)
            catch_up_s = self.times.draft_s(option.drafter, 1, option.catch_up) - step_s
            catch_up_share = 1.0 / min(situation.room, CATCH_UP_HORIZON)
            survival = tokens = 1.0
            carrying_s = 0.0
            for k, alpha in zip(
                range(1, most + 1), self._history.alphas(option, optimism=optimism), strict=False
            ):
                if self._carries:
                    carrying_s += survival * (1.0 - alpha) * self._carried_s(situation, k)
                survival *= alpha
                tokens += survival
                cost_s = self.times.verify_s(situation.owed + k, situation.context) + k * step_s
                worst_s = cost_s + catch_up_s
                if self._carries:
                    worst_s += self._carried_s(situation, 1)
                if worst_s > budget_s:
                    break
                cost_s += carrying_s + catch_up_s * min(1.0, tokens * catch_up_share)
                value = tokens - rate * cost_s
                if value > floor:
                    floor = value
                    best = _Plan(option, k, value)
                elif value + survival * (most - k) <= floor:
                    break  # even if all further guesses were kept, and cost nothing
        return best

    def _carried_s(self, situation: Situation, emitted: int) -> float:
        """Seconds that a flush will take beyond a plain pass when a rejection leaves tokens carried."""
        owed = situation.owed + emitted
        context = situation.context
        return self.times.verify_s(owed, context) - self.times.verify_s(1, context)

    def _budget_s(self, context: int) -> float:
        """Seconds that may be lost beyond what is lost already."""
        allowance = FIRST_ALLOWANCE * self.times.plain_s(context) + LOSS_SHARE * self._elapsed_s
        return allowance - self._loss_s

    def _worth_watching(self, context: int) -> bool:
        """Is a plain pass that waits for its token, and so can be followed by guesses, worth the wait?"""
        wait_s = self._wait_s(context)
        return self._advantage / self._rate(context) > wait_s and self._budget_s(context) > wait_s

    def _wait_s(self, context: int) -> float:
        return max(0.0, self.times.verify_s(1, context) - self.times.plain_s(context))
