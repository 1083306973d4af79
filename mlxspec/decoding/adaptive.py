"""The controller of `--num-draft auto`: what pays most this round, by what is known so far.

A round of `k` guesses is worth E[tokens] - rate * E[seconds], with `rate` the tokens a second that
this answer runs at: the best ratio of a single round is not the best answer, since a round's seconds
are taken from all the rounds after it. Times come from `round_times.py`, acceptance from
`acceptance_history.py`, the arithmetic from `plan.py`.

Speculation may not cost more than plain decoding would have: a loss account holds what it lost and
gained in this answer, and a round that could overdraw it is not made. Parked is what an answer is
where no drafter is worth its cost and none is likely to be in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.controller import Choice, Option, Outcome, Situation
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.plan import Market, Plan
from mlxspec.decoding.round_times import RoundTimes

LOSS_SHARE = 0.008
"""Part of an answer's time that speculation may lose: below the 1 % of the promise, for noise."""

FIRST_ALLOWANCE = 0.5
"""Plain passes that it may lose at once. Without them a new answer could try nothing for its first
dozens of tokens, since one failed round costs 0.1 to 0.5 passes; this lets it fail one to five
times, and is 0.25 % of an answer of 200 tokens."""

TRUSTED_ALLOWANCE = 2.0
"""The same for a plan that would pay even if this text were a hard one. Such a loss is bad luck and
comes back: without it, one unlucky start in five parks a good draft for the next 50 tokens."""

STAKE = 1 / 3  # of that may go into one round, so that others can follow it
CAUTION = 1.0  # standard deviations by which the mood of a trusted plan may be worse than believed
OPTIMISM = 1.0  # by which a probe may hope that it is better
PROBE_EVERY = 8  # rounds from one probe to the next at least

GAINS_KEPT = 16.0
"""Plain passes: older gains than these do not pay for losses."""

FIRST_REFERENCE = 8
REFERENCE_EVERY = 128
"""Rounds of guesses after which a plain one is due, first and later: what plain decoding costs is what
all is measured against, and cannot be learnt from rounds of guesses. At twice the speed, one plain
round in 128 costs 0.4 %."""

RATE_MEMORY = 0.97  # of the tokens and seconds behind the running rate remains after a round
ADVANTAGE_MEMORY = 0.95  # the same for what watching the drafters is worth
HYSTERESIS = 0.05  # tokens: what speculation must promise beyond plain decoding to be taken up
LEAST_WAIT = 0.01  # of a plain pass: so much is lost by waiting for a token, at least
CREDIBLE = 1.5  # times what was expected: a round's time counts no more than this in the loss account


class AdaptiveController:
    """Serves one answer. `history` and `times.corrected()` serve the next ones.

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
        self._tokens = self._seconds = 0.0  # discounted, behind the running rate
        self._elapsed_s = 0.0
        self._loss_s = 0.0
        self._advantage = 0.0  # tokens a round that watching the drafters is worth, after plain rounds
        self._offered = 0.0  # tokens: what the options of the last decision were worth beyond plain
        self._catch_up = 0  # of the option that was chosen last
        self._carries = False
        self._was_plain = True
        self._was_parked = False
        self._probed = False
        self._since_probe = PROBE_EVERY
        self._since_plain = self._reference_every = FIRST_REFERENCE

    def choose(self, situation: Situation) -> Choice:
        """The round that is worth most. Asking twice gives the same answer."""
        if situation.ahead:
            return Choice(None, parked=not self._worth_waiting(situation))
        self._carries = self._carries or situation.owed > 1
        plan = self._plan(situation)
        if plan is None:
            return Choice(None, parked=situation.owed == 1 and not self._worth_watching(situation.context))
        if self._since_plain >= self._reference_every:
            return Choice(None)
        self._catch_up = plan.option.catch_up
        return Choice(plan.option.drafter, plan.k)

    def observe(self, outcome: Outcome) -> None:
        """Learn times, acceptance and what the round lost or gained."""
        drafter = outcome.choice.drafter if outcome.proposed else None
        expected_s = self._learn_times(outcome, drafter)
        self._elapsed_s += expected_s
        self._tokens = RATE_MEMORY * self._tokens + outcome.emitted
        self._seconds = RATE_MEMORY * self._seconds + expected_s
        if drafter is not None:
            self._history.record(
                drafter,
                outcome.accepted,
                proposed=outcome.proposed,
                confidences=outcome.confidences,
                match_length=outcome.match_length,
            )
        self._history.tick()
        if self._was_plain:
            fresh = min(max(self._offered, 0.0), 1.0)
            self._advantage += (1.0 - ADVANTAGE_MEMORY) * (fresh - self._advantage)
        self._was_plain = drafter is None
        self._was_parked = outcome.choice.parked
        self._since_probe = 0 if self._probed else self._since_probe + 1
        self._probed = False
        if drafter is not None:
            self._since_plain = self._reference_every if self.times.unsettled else self._since_plain + 1
            return
        if self._since_plain >= self._reference_every:
            self._reference_every = min(4 * self._reference_every, REFERENCE_EVERY)
        self._since_plain = 0

    def _learn_times(self, outcome: Outcome, drafter: str | None) -> float:
        """Book the round's loss, learn from its time, and return the seconds that were expected."""
        times, context, rows = self.times, outcome.context, max(outcome.rows, 1)
        plain_s = times.plain_s(context)
        if outcome.queued:
            if outcome.round_s is not None:
                times.learn_plain(context, outcome.round_s)
            return plain_s
        expected_s = times.verify_s(rows, context)
        if drafter is None:
            self._loss_s += max(0.0, expected_s - plain_s)
        else:
            assert outcome.round_s is not None, "nothing is queued behind a round of guesses"
            expected_s += times.draft_s(drafter, outcome.proposed, self._catch_up)
            round_s = min(max(outcome.round_s, expected_s / CREDIBLE), CREDIBLE * expected_s)
            loss_s = self._loss_s + round_s - outcome.emitted * plain_s
            self._loss_s = max(loss_s, -GAINS_KEPT * plain_s)
        if outcome.round_s is None:
            return expected_s
        times.learn_round(
            rows,
            context,
            round_s=outcome.round_s,
            drafter=drafter,
            guesses=outcome.proposed,
            catch_up=self._catch_up,
            drafting_s=outcome.draft_s,
        )
        return expected_s

    def _plan(self, situation: Situation) -> Plan | None:
        """The best plan, or now and then a hopeful one; None: plain."""
        market = Market(situation, self.times, self._rate(situation.context), self._carries)
        plain = self._plain_value(market)
        best = self._best(market, situation.options, floor=plain + HYSTERESIS * self._was_plain)
        self._offered = best.value - plain if best else 0.0
        self._probed = self._since_probe >= PROBE_EVERY
        if not self._probed:
            return best
        # A copy says itself how good it is; a draft that has done badly must be tried again to know.
        others = tuple(
            option
            for option in situation.options
            if not option.confidences and not (best and option.drafter == best.option.drafter)
        )
        floor = (best.value if best else plain) + HYSTERESIS
        return self._best(market, others, floor=floor, optimism=OPTIMISM) or best

    def _best(
        self, market: Market, options: tuple[Option, ...], *, floor: float, optimism: float = 0.0
    ) -> Plan | None:
        """The plan that is worth most, if it is worth more than `floor` and the account can stand it."""
        best: Plan | None = None
        plain_s = self._plain_here_s(market.situation)
        budget_s = self._budget_s(market.situation.context)
        limit_s = budget_s + plain_s
        stake_s = STAKE * (budget_s + (TRUSTED_ALLOWANCE - FIRST_ALLOWANCE) * plain_s)
        trusted_s = max(budget_s, stake_s) + plain_s
        for option in options:
            alphas = self._history.alphas(option, optimism=optimism)
            plan = market.best_plan(option, alphas, floor=floor, limit_s=limit_s if optimism else trusted_s)
            if plan is not None and plan.worst_s > limit_s and not self._trusted(market, plan):
                alphas = self._history.alphas(option, optimism=optimism)
                plan = market.best_plan(option, alphas, floor=floor, limit_s=limit_s)
            if plan is not None:
                floor = plan.value
                best = plan
        return best

    def _trusted(self, market: Market, plan: Plan) -> bool:
        """Would guesses of this drafter pay even if its mood were worse than believed?"""
        option = replace(plan.option, max_k=plan.k)
        alphas = self._history.alphas(option, optimism=-CAUTION)
        plain = self._plain_value(market)
        return market.best_plan(option, alphas, floor=plain, limit_s=plan.worst_s) is not None

    def _worth_waiting(self, situation: Situation) -> bool:
        """Is it better to read the token that is in the air than to queue another pass behind it?

        A copy that goes on is one token shorter by then, if the token is what it says.
        """
        plan = self._plan(situation)
        if plan is None:
            return self._worth_watching(situation.context)
        option = plan.option
        if not option.match_length and not option.confidences:
            return True
        first = next(self._history.alphas(option))
        rest = replace(
            option,
            max_k=option.max_k - 1,
            confidences=option.confidences[1:],
            match_length=option.match_length + 1 if option.match_length else 0,
        )
        market = Market(situation, self.times, self._rate(situation.context), self._carries)
        plain = self._plain_value(market)
        later = self._best(market, (rest,), floor=plain)
        wait = self._wait_s(situation.context) * market.rate
        if later is not None and first * (later.value - plain) > wait + HYSTERESIS:
            return True
        return self._worth_watching(situation.context)

    def _worth_watching(self, context: int) -> bool:
        """Is a plain pass that waits for its token, and so can be followed by guesses, worth the wait?"""
        wait_s = self._wait_s(context)
        return self._advantage / self._rate(context) > wait_s and self._budget_s(context) > wait_s

    def _wait_s(self, context: int) -> float:
        plain_s = self.times.plain_s(context)
        return max(LEAST_WAIT * plain_s, self.times.verify_s(1, context) - plain_s)

    def _plain_value(self, market: Market) -> float:
        return 1.0 - market.rate * self._plain_here_s(market.situation)

    def _plain_here_s(self, situation: Situation) -> float:
        """Seconds of a round without guesses from here; with carried tokens it is a flush."""
        if situation.owed == 1 and self._was_parked:
            return self.times.plain_s(situation.context)
        return self.times.verify_s(situation.owed, situation.context)

    def _rate(self, context: int) -> float:
        """Tokens a second: of the last rounds, or of plain decoding if that is more."""
        plain = 1.0 / self.times.plain_s(context)
        return max(plain, self._tokens / self._seconds) if self._seconds else plain

    def _budget_s(self, context: int) -> float:
        """Seconds that may be lost beyond what is lost already."""
        allowance = FIRST_ALLOWANCE * self.times.plain_s(context) + LOSS_SHARE * self._elapsed_s
        return allowance - self._loss_s
