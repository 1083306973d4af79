"""Microseconds that the adaptive controller takes to decide, with both drafters on offer.

Run it with `python benchmarks/controller_cost.py`. The bar is 100 microseconds a decision.
"""

from __future__ import annotations

import random
import timeit
from functools import partial

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.controller import Option, Outcome, Situation
from mlxspec.decoding.cost import VerifyCurve

CURVE = VerifyCurve.measured({1: 0.050, 2: 0.055, 4: 0.067, 8: 0.072, 16: 0.095}, context_row_s=1e-6)
WARM_UP = 300
BATCH = 20


def main() -> None:
    """Print the fastest of many batches, for a text that is easy to guess and for one that is not."""
    for name, alpha in (("easy", 0.9), ("hard", 0.2)):
        controller = AdaptiveController(CURVE, {"draft_model": 0.005}, AcceptanceHistory())
        options = (Option("lookup", 16, (alpha,) * 16, 3), Option("draft_model", 16, catch_up=1))
        situation = Situation(1, 100, 1000, options)
        rng = random.Random(0)
        for _ in range(WARM_UP):
            outcome = play(controller, situation, alpha=alpha, rng=rng)
        decide = timeit.repeat(partial(controller.choose, situation), number=BATCH, repeat=50)
        learn = timeit.repeat(partial(controller.observe, outcome), number=BATCH, repeat=50)
        print(f"{name}: decide {1e6 * min(decide) / BATCH:.0f} us, learn {1e6 * min(learn) / BATCH:.0f} us")


def play(
    controller: AdaptiveController, situation: Situation, *, alpha: float, rng: random.Random
) -> Outcome:
    """One round, as it goes by chance."""
    choice = controller.choose(situation)
    accepted = 0
    while accepted < choice.k and rng.random() < alpha:
        accepted += 1
    copied = choice.drafter == "lookup"
    outcome = Outcome(
        choice,
        proposed=choice.k,
        accepted=accepted,
        emitted=accepted + 1,
        rows=1 + choice.k,
        context=situation.context,
        confidences=(alpha,) * choice.k if copied else (),
        match_length=3 if copied else 0,
        draft_s=None,
        round_s=CURVE.seconds(1 + choice.k, situation.context),
    )
    controller.observe(outcome)
    return outcome


if __name__ == "__main__":
    main()
