"""The acceptance lab: what speculation would bring, by formula, by chance and with the controller.

Everything is in plain passes: one row costs 1, a guess and a round's overhead are parts of that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.cost import (
    MAX_GUESSES,
    VerifyCurve,
    acceptance_rate,
    best_k,
    expected_tokens,
    round_cost,
    speedup,
)
from mlxspec.errors import UsageError
from mlxspec.lab.world import Played, ScriptedDrafter, World, kept, play

SWEEP = (*(i / 10 for i in range(1, 10)), 0.95)  # acceptances


@dataclass(frozen=True, slots=True)
class Setting:
    """A target and a draft as the simulator sees them.

    Attributes:
        alphas: acceptance of each guess, given that all before it were kept.
        curve: cost of a target pass by rows, one row costing 1.
        draft_step: cost of one guess.
        overhead: cost of a round of guesses beside its passes.
    """

    alphas: tuple[float, ...]
    curve: VerifyCurve
    draft_step: float
    overhead: float = 0.0

    def best_k(self) -> int:
        """The number of guesses with the largest speed-up; 0 when none pays."""
        return best_k(self.alphas, self.curve, draft_step_s=self.draft_step, overhead_s=self.overhead)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A fixed `k` in a setting, by the closed form; `cost` of a round is in plain passes."""

    k: int
    tokens_per_pass: float
    acceptance_rate: float | None
    cost: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """The same by chance: means of `rounds` rounds and the standard errors of the means."""

    k: int
    rounds: int
    tokens_per_pass: float
    tokens_error: float
    speedup: float
    speedup_error: float


def acceptances(values: Sequence[float]) -> tuple[float, ...]:
    """One acceptance for all guesses, or one for each position, the last of which goes on.

    Raises:
        UsageError: there is none, or one is outside 0..1.
    """
    if not values:
        raise UsageError(
            "No acceptance is given.", hint="Give a number such as 0.8, or several: 0.9,0.8,0.7."
        )
    for value in values:
        if not 0.0 <= value <= 1.0:
            raise UsageError(
                f"An acceptance of {value:g} is outside 0 to 1.",
                hint="Give the share of guesses that are kept, such as 0.8.",
            )
    flat = (values[-1],) * (MAX_GUESSES - len(values))
    return (*values, *flat)[:MAX_GUESSES]


def predict(setting: Setting, k: int) -> Prediction:
    """What `k` guesses a round bring."""
    alphas = setting.alphas[:k]
    return Prediction(
        k=k,
        tokens_per_pass=expected_tokens(alphas),
        acceptance_rate=acceptance_rate(alphas),
        cost=round_cost(k, setting.curve, draft_step_s=setting.draft_step, overhead_s=setting.overhead)
        / setting.curve.seconds(1),
        speedup=speedup(
            alphas, k, curve=setting.curve, draft_step_s=setting.draft_step, overhead_s=setting.overhead
        ),
    )


def sample(setting: Setting, k: int, *, rounds: int, rng: random.Random) -> Sampled:
    """Play `rounds` rounds of `k` guesses by chance: what `predict` says must come out."""
    emitted = [kept(setting.alphas[:k], rng) + 1 for _ in range(rounds)]
    mean = sum(emitted) / rounds
    variance = sum((tokens - mean) ** 2 for tokens in emitted) / max(rounds - 1, 1)
    error = math.sqrt(variance / rounds)
    cost = predict(setting, k).cost
    return Sampled(k, rounds, mean, error, mean / cost, error / cost)


def run_controller(setting: Setting, *, tokens: int, rng: random.Random) -> Played:
    """Let the controller decode `tokens` tokens in this setting; it knows the costs, not the acceptance."""

    def pass_cost(rows: int, _emitted: int) -> float:
        return setting.curve.seconds(rows) + (setting.overhead if rows > 1 else 0.0)

    drafter = ScriptedDrafter("draft_model", lambda _emitted: setting.alphas, setting.draft_step)
    known = VerifyCurve.measured({n: pass_cost(n, 0) for n in range(1, MAX_GUESSES + 2)})
    controller = AdaptiveController(known, {"draft_model": setting.draft_step}, AcceptanceHistory())
    return play(World(pass_cost, (drafter,)), controller, tokens=tokens, rng=rng)


def sweep(setting: Setting, ks: Sequence[int]) -> list[tuple[float, Setting, list[Prediction]]]:
    """For flat acceptances from low to high: the setting, and what each of `ks` guesses brings in it."""
    settings = [(alpha, replace(setting, alphas=acceptances([alpha]))) for alpha in SWEEP]
    return [(alpha, flat, [predict(flat, k) for k in ks]) for alpha, flat in settings]
