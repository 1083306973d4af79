"""How often a draft would be right on conversations that it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from mlxspec.training.batches import Batch, Batches
from mlxspec.training.losses import distribution_loss, kept_chain
from mlxspec.training.students import Student
from mlxspec.training.teacher import Teacher


@dataclass(frozen=True, slots=True)
class Agreement:
    """Greedy agreement on some text.

    Attributes:
        loss: as in training.
        alphas: how often each guess is the target's choice, the guesses before it being right.
        positions: how many positions were looked at.
    """

    loss: float
    alphas: tuple[float, ...]
    positions: int


class HeldOut:
    """Some conversations, with the target's choices for them, which are worked out once.

    Args:
        batches: of the corpus.
        indices: which conversations.
    """

    def __init__(self, batches: Batches, indices: Sequence[int], teacher: Teacher) -> None:
        self._batches = batches
        self._indices = list(indices)
        self._teacher = teacher
        self._choices: list[mx.array] = []
        for batch in batches.parts(self._indices):
            choices = mx.argmax(teacher.whole_logits(batch), axis=-1).astype(mx.int32)
            self._choices.append(mx.where(batch.weights > 0, choices, -1))
            mx.eval(self._choices[-1])

    def agreement(self, student: Student) -> Agreement:
        """How the student does now."""
        student.module.eval()
        loss = positions = 0.0
        right: list[float] = []
        for batch, choices in zip(self._batches.parts(self._indices), self._choices, strict=True):
            part_loss, counts = self._part(student, batch, choices)
            mx.eval(part_loss, counts)
            sums = cast(list[float], counts.tolist())
            loss += cast(float, part_loss.item()) * sums[0]
            positions += sums[0]
            right = [a + b for a, b in zip(right or [0.0] * len(sums[1:]), sums[1:], strict=True)]
        student.module.train()
        before = [positions, *right]
        return Agreement(
            loss=loss / max(1.0, positions),
            alphas=tuple(r / max(1.0, b) for r, b in zip(right, before, strict=False)),
            positions=int(positions),
        )

    def _part(self, student: Student, batch: Batch, choices: mx.array) -> tuple[mx.array, mx.array]:
        guesses = student.guesses(batch)
        loss = distribution_loss(guesses, self._teacher.logits(batch), batch.weights)
        # From positions whose first guess is about an answer, and whose last one is still inside the text.
        first, last = guesses[0].ahead, guesses[-1].ahead
        counted = (_later(batch.weights, first) == 1.0) & (_later(batch.weights, last) > 0.0)
        kept = [(k & counted).sum() for k in kept_chain(guesses, choices, self._teacher.ids)]
        return loss, mx.stack([counted.sum(), *kept]).astype(mx.float32)


def _later(weights: mx.array, by: int) -> mx.array:
    """What stands `by` places later, 0 beyond the end."""
    return mx.pad(weights[:, by:], [(0, 0), (0, by)]) if by else weights
