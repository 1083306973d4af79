"""What a trained draft brings: agreement by kind of text, its cost, and the speed-up that follows."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.chat.conversation import Message, render
from mlxspec.decoding.calibrate import measure_curve, measure_reader_step, measure_step
from mlxspec.decoding.cost import VerifyCurve, best_k, speedup
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.trained_maker import drafter_of
from mlxspec.lab.prediction import PAYS
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.models.loading import LoadedModel
from mlxspec.training.batches import Batches
from mlxspec.training.corpus import Conversation
from mlxspec.training.features import Features
from mlxspec.training.held_out import HeldOut
from mlxspec.training.self_chat import SelfChat
from mlxspec.training.students import Student
from mlxspec.training.teacher import Teacher

TRIAL_TOKENS = 128
CURVE_S = 2.0
MOST_GUESSES = 8


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of text: how often each guess is kept, the guesses before it being right."""

    name: str
    alphas: tuple[float, ...]
    positions: int
    k: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found.

    Attributes:
        domains: greedy answers to the prompts, by their kinds.
        step: cost of one guess, in plain passes of the target.
        speedup: geometric mean over the domains, the number of guesses being the best for each.
    """

    domains: tuple[Domain, ...]
    step: float
    speedup: float

    @property
    def agreement(self) -> float:
        """How often the first guess is right, over all positions."""
        positions = sum(domain.positions for domain in self.domains)
        return sum(d.alphas[0] * d.positions for d in self.domains) / max(1, positions)

    @property
    def pays(self) -> bool:
        """Is decoding faster with it than without?"""
        return self.speedup > PAYS

    def as_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        return {
            "agreement": self.agreement,
            "cost": self.step,
            "speedup": self.speedup,
            "pays": self.pays,
            "domains": [
                {
                    "domain": domain.name,
                    "alphas": list(domain.alphas),
                    "positions": domain.positions,
                    "k": domain.k,
                    "speedup": domain.speedup,
                }
                for domain in self.domains
            ],
        }


def examine(
    student: Student,
    teacher: Teacher,
    target: LoadedModel,
    prompts: Sequence[BenchPrompt],
    speaker: SelfChat,
    folder: Path,
    config: Mapping[str, Any],
    ids: mx.array | None,
) -> Outcome:
    """Try a finished draft on the target's greedy answers to prompts, and time it.

    Args:
        student: with the weights that were written.
        folder: where hidden rows may be kept.
    """
    rendered = [render(target.tokenizer, (Message("user", prompt.prompt),)) for prompt in prompts]
    answers = speaker.greedy_answers(rendered, TRIAL_TOKENS)
    said = [
        Conversation(len(prompt), 0.0, (*prompt, *answer))
        for prompt, answer in zip(rendered, answers, strict=True)
    ]
    longest = max(len(conversation.ids) for conversation in said)
    features = Features(folder, said, student.points, most=longest)
    features.make(target.model, lambda _done, _total: None)
    batches = Batches(said, features, student.points, range(len(said)), size=1, seed=0, part_tokens=longest)
    curve = measure_curve(target.model, clock=time.perf_counter, budget_s=CURVE_S)
    assert curve is not None, "nobody cancels"
    drafter = drafter_of(config, student.module, ids, target.model)
    step_s = (
        measure_step(drafter.model, clock=time.perf_counter)
        if isinstance(drafter, DraftModel)
        else measure_reader_step(drafter, target.model, clock=time.perf_counter)
    )
    step = step_s / curve.seconds(1)
    domains = []
    for name in dict.fromkeys(prompt.domain for prompt in prompts):
        own = [i for i, prompt in enumerate(prompts) if prompt.domain == name]
        agreement = HeldOut(batches, own, teacher).agreement(student)
        k, gain = expected(agreement.alphas, curve.relative(), step, bounded=config["kind"] == "medusa")
        domains.append(Domain(name, agreement.alphas, agreement.positions, k, gain))
    gain = math.exp(sum(math.log(domain.speedup) for domain in domains) / len(domains))
    return Outcome(tuple(domains), step, gain)


def expected(alphas: Sequence[float], curve: VerifyCurve, step: float, *, bounded: bool) -> tuple[int, float]:
    """The best number of guesses and its speed-up; guesses beyond those known are kept as the last one is.

    `bounded` draftsmen make no more guesses than there are `alphas`.
    """
    if not bounded:
        alphas = [*alphas, *[alphas[-1]] * (MOST_GUESSES - len(alphas))]
    k = best_k(alphas, curve, draft_step_s=step)
    return k, speedup(alphas, k, curve=curve, draft_step_s=step)
