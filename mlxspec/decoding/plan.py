"""What a round of guesses is worth, and how many guesses are worth most. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlxspec.decoding.controller import Option, Situation
from mlxspec.decoding.cost import MAX_GUESSES
from mlxspec.decoding.round_times import RoundTimes

CATCH_UP_HORIZON = 64  # tokens over which feeding a stale draft may pay off at most


@dataclass(frozen=True, slots=True)
class Plan:
    """`k` guesses of `option`.

    Attributes:
        option: who guesses.
        k: how many guesses.
        value: E[tokens] - rate * E[seconds], in tokens.
        worst_s: seconds that must be affordable, if no guess were kept.
    """

    option: Option
    k: int
    value: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class Market:
    """What seconds are worth and what passes cost, in one decision.

    Attributes:
        situation: what is known before the round.
        times: predicts seconds.
        rate: tokens a second that the answer runs at: what a second could bring elsewhere.
        carries: a rejection leaves the round's tokens owed, so the next passes have more rows.
    """

    situation: Situation
    times: RoundTimes
    rate: float
    carries: bool

    def best_plan(
        self, option: Option, alphas: Iterable[float], *, floor: float, limit_s: float
    ) -> Plan | None:
        """The plan for `option` worth most, if it is worth more than `floor` and affordable.

        `alphas` is the acceptance of each guess given those before it; only as many are drawn from it
        as matter.
        """
        times, owed, context = self.times, self.situation.owed, self.situation.context
        most = min(option.max_k, self.situation.room - 1, MAX_GUESSES)
        step_s = times.draft_s(option.drafter, 1)
        catch_up_s = times.draft_s(option.drafter, 1, option.catch_up) - step_s
        reserve_s = catch_up_s + (self.carried_s(1) if self.carries else 0.0)
        catch_up_share = 1.0 / max(1, min(self.situation.room, CATCH_UP_HORIZON))
        best: Plan | None = None
        survival = tokens = 1.0
        carrying_s = 0.0
        for k, alpha in zip(range(1, most + 1), alphas, strict=False):
            if self.carries:
                carrying_s += survival * (1.0 - alpha) * self.carried_s(k)
            survival *= alpha
            tokens += survival
            cost_s = times.verify_s(owed + k, context) + k * step_s
            worst_s = cost_s + reserve_s
            if worst_s > limit_s:
                break
            share = min(1.0, tokens * catch_up_share)
            value = tokens - self.rate * (cost_s + carrying_s + share * catch_up_s)
            if value > floor:
                floor = value
                best = Plan(option, k, value, worst_s)
            elif value + survival * (most - k) <= floor:
                break  # even if all further guesses were kept, and cost nothing
        return best

    def carried_s(self, emitted: int) -> float:
        """Seconds by which a flush will exceed a plain pass, once a rejection leaves `emitted` more owed."""
        owed, context = self.situation.owed + emitted, self.situation.context
        return self.times.verify_s(owed, context) - self.times.verify_s(1, context)
