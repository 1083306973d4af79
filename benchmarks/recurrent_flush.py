"""Carry or flush? Simulated speed of recurrent targets, whose rejected rounds leave tokens to be fed again.

    python -m benchmarks.recurrent_flush [--answers N] [--tokens N]

After a rejection a recurrent target goes back to where its pass began, and the next pass carries the kept
tokens in front. They add up until a round keeps all of its guesses, or until a pass without guesses feeds
them and makes a new checkpoint: a flush. Each controller is compared with itself flushing after every
rejection: `--num-draft` 1, 4 and 8, and `auto`, which has learnt from one answer. Beside them stands the
best policy for an acceptance that is known (value iteration), and 4 guesses without any flush. Guesses are
right with probability alpha each. Times are the verify curve of SmolLM2-135M with OpenBLAS, a guess costs
`draft` of a plain pass. Figures are speeds over plain decoding. Exits with 1 where, at an acceptance of 0.5
or more, flushing every round is faster by more than the noise.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.controller import Choice, FixedController, Option, Outcome, Situation
from mlxspec.decoding.cost import VerifyCurve

CURVE = VerifyCurve(((1, 1.0), (2, 1.10), (3, 1.23), (4, 1.34), (5, 1.38), (6, 1.39), (8, 1.45), (16, 1.9)))
ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.9)
BAR = 0.5
DRAFT_STEPS = (0.02, 0.1)
FIXED = (1, 4, 8)
MOST_GUESSES = 8
MOST_OWED = 40
ERRORS = 2.0  # standard errors of the mean that count as noise
DRAFT = "draft_model"

Policy = Callable[[int], int]
"""Tokens owed -> guesses of the next round."""


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: tokens a plain pass's time, and how many tokens a pass carried on average."""

    speed: float
    carried: float


def main() -> int:
    """Print a row for each acceptance and draft cost."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--answers", type=int, default=30)
    arguments.add_argument("--tokens", type=int, default=300)
    asked = arguments.parse_args()
    heads = [*(f"k={k}" for k in FIXED), "auto"]
    print("alpha draft  " + "  ".join(f"{head:>15}" for head in heads) + "    best  4, no flush: carried")
    print(" " * 13 + "  ".join(f"{'own /every':>15}" for _ in heads))
    slower = 0
    for alpha in ALPHAS:
        for step in DRAFT_STEPS:
            cells = []
            for controller in (*FIXED, None):
                own, every = (
                    [
                        answer(controller, alpha, step, every=every, tokens=asked.tokens, seed=seed)
                        for seed in range(asked.answers)
                    ]
                    for every in (False, True)
                )
                gains = [a.speed - b.speed for a, b in zip(own, every, strict=True)]
                noise = ERRORS * statistics.stdev(gains) / len(gains) ** 0.5
                slow = statistics.mean(gains) < -noise
                slower += slow and alpha >= BAR
                cells.append(f"{_speed(own):.3f}/{_speed(every):.3f}{'-' if slow else ' '}")
            best, never = (
                [play(policy, alpha, step, asked.tokens, seed) for seed in range(asked.answers)]
                for policy in (best_policy(alpha, step), lambda _owed: 4)
            )
            carried = statistics.mean(run.carried for run in never)
            print(
                f"{alpha:.1f}   {step:.2f}   " + "  ".join(f"{cell:>15}" for cell in cells),
                f"  {_speed(best):.3f}   {_speed(never):.3f}: {carried:.0f}",
                flush=True,
            )
    return 1 if slower else 0


def play(policy: Policy, alpha: float, step: float, tokens: int, seed: int) -> Run:
    """An answer under a policy that knows what it owes."""
    rng = random.Random(seed)
    emitted = passes = carried = 0
    owed, seconds = 1, 0.0
    while emitted < tokens:
        k = min(policy(owed), tokens - emitted - 1)
        kept = _kept(k, alpha, rng)
        seconds += CURVE.seconds(owed + k) + k * step
        passes, carried = passes + 1, carried + owed - 1
        emitted += kept + 1
        owed = 1 if kept == k else owed + kept + 1
    return Run(emitted / seconds, carried / passes)


def answer(fixed: int | None, alpha: float, step: float, *, every: bool, tokens: int, seed: int) -> Run:
    """An answer under a controller, the adaptive one if none is fixed, after one that it has learnt from.

    `every`: whatever it says, a pass that carries tokens makes no guesses.
    """
    history = AcceptanceHistory()
    for warm in (True, False):
        controller = FixedController(fixed) if fixed else AdaptiveController(CURVE, {DRAFT: step}, history)
        rng = random.Random(seed + 1000 * warm)
        emitted = passes = carried = 0
        owed, behind, seconds = 1, 1, 0.0
        while emitted < tokens:
            option = Option(DRAFT, MOST_GUESSES, catch_up=behind)
            choice = controller.choose(Situation(owed, 100, tokens - emitted, (option,)))
            if (every and owed > 1) or choice.k == 0:
                choice = Choice(None)
            kept = _kept(choice.k, alpha, rng)
            rows = owed + choice.k
            took = CURVE.seconds(rows)
            if choice.k:
                took += (choice.k - 1 + CURVE.shape(behind)) * step
            controller.observe(Outcome(choice, choice.k, kept, kept + 1, rows, 100, (), 0, None, None, took))
            seconds += took
            passes, carried = passes + 1, carried + owed - 1
            emitted += kept + 1
            behind = (2 if kept == choice.k else 1) if choice.k else behind + 1
            owed = 1 if kept == choice.k else owed + kept + 1
    return Run(emitted / seconds, carried / passes)


def best_policy(alpha: float, step: float) -> Policy:
    """The best number of guesses for what is owed, by value iteration on tokens - rate * seconds."""
    plan = [0] * (MOST_OWED + 1)

    def policy(owed: int) -> int:
        return plan[min(owed, MOST_OWED)]

    rate = 1.0
    for _ in range(10):  # Dinkelbach: the rate is that of the best plan for the last rate
        values = [0.0] * (MOST_OWED + 1)
        for _ in range(40):
            worths = [
                [_worth(owed, k, alpha, step, rate, values) for k in range(MOST_GUESSES + 1)]
                for owed in range(1, MOST_OWED + 1)
            ]
            plan[1:] = [row.index(max(row)) for row in worths]
            values = [0.0, *(max(row) - max(worths[0]) for row in worths)]
        rate = play(policy, alpha, step, 20_000, seed=7).speed
    return policy


def _worth(owed: int, k: int, alpha: float, step: float, rate: float, values: Sequence[float]) -> float:
    worth = -rate * (CURVE.seconds(owed + k) + k * step)
    for kept in range(k + 1):
        chance = alpha**kept * (1.0 if kept == k else 1.0 - alpha)
        then = 1 if kept == k else min(owed + kept + 1, MOST_OWED)
        worth += chance * (kept + 1 + values[then])
    return worth


def _kept(k: int, alpha: float, rng: random.Random) -> int:
    return next((i for i in range(k) if rng.random() >= alpha), k)


def _speed(runs: Sequence[Run]) -> float:
    return statistics.mean(run.speed for run in runs)


if __name__ == "__main__":
    sys.exit(main())
