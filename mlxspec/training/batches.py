"""Conversations -> arrays, in an order that seed and step alone decide, so that training can go on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.training.corpus import Conversation
from mlxspec.training.features import Features

PAD = 32  # lengths are filled up to a multiple of this
PROMPT_WEIGHT = 0.3
"""What a token of a prompt counts, that of an answer counting 1: a draft guesses answers."""

POOL = 8  # steps whose conversations are sorted by length together


@dataclass(frozen=True, slots=True)
class Batch:
    """Conversations in rows.

    `tokens` [b, n] uint32; `weights` [b, n] of each position, 0 for filling; `rows` [b, n, width] by point.
    """

    tokens: mx.array
    weights: mx.array
    rows: dict[int, mx.array]


class Batches:
    """The conversations `chosen` of a corpus, in steps of `size`, each cut into parts that fit in memory.

    Args:
        part_tokens: tokens of a part, filling included; a single conversation may have more.
    """

    def __init__(
        self,
        conversations: Sequence[Conversation],
        features: Features,
        points: Sequence[int],
        chosen: Sequence[int],
        *,
        size: int,
        seed: int,
        part_tokens: int,
    ) -> None:
        self._conversations = conversations
        self._features = features
        self._points = tuple(points)
        self._chosen = list(chosen)
        self._size = size
        self._seed = seed
        self._part_tokens = part_tokens
        self.steps_an_epoch = max(1, len(self._chosen) // size)
        self._order: tuple[int, list[list[int]]] | None = None

    def step(self, number: int) -> Iterator[Batch]:
        """The parts of one step."""
        epoch, place = divmod(number, self.steps_an_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._epoch(epoch)
        return self.parts(self._order[1][place])

    def parts(self, indices: Sequence[int]) -> Iterator[Batch]:
        """These conversations, those of like length together."""
        part: list[int] = []
        for index in sorted(indices, key=self._features.length):
            if part and _padded(self._features.length(index)) * (len(part) + 1) > self._part_tokens:
                yield self._batch(part)
                part = []
            part.append(index)
        if part:
            yield self._batch(part)

    def _epoch(self, epoch: int) -> list[list[int]]:
        """Steps of conversations of like length, in random order."""
        rng = random.Random(f"{self._seed} {epoch}")
        order = self._chosen.copy()
        rng.shuffle(order)
        pool = POOL * self._size
        steps: list[list[int]] = []
        for start in range(0, len(order), pool):
            near = sorted(order[start : start + pool], key=self._features.length)
            steps += [near[i : i + self._size] for i in range(0, len(near), self._size)]
        whole = [step for step in steps if len(step) == self._size] or steps
        rng.shuffle(whole)
        return whole

    def _batch(self, indices: Sequence[int]) -> Batch:
        lengths = [self._features.length(i) for i in indices]
        n = _padded(max(lengths))
        tokens = np.zeros((len(indices), n), np.uint32)
        weights = np.zeros((len(indices), n), np.float32)
        rows = {
            point: np.zeros((len(indices), n, self._features.width(point)), np.float16)
            for point in self._points
        }
        for row, (i, length) in enumerate(zip(indices, lengths, strict=True)):
            conversation = self._conversations[i]
            tokens[row, :length] = conversation.ids[:length]
            weights[row, :length] = 1.0
            # The row of the prompt's last token is about the answer's first.
            weights[row, : max(0, conversation.prompt_tokens - 1)] = PROMPT_WEIGHT
            for point in self._points:
                rows[point][row, :length] = self._features.rows(i, point)
        return Batch(
            mx.array(tokens),
            mx.array(weights),
            {point: mx.array(values).astype(mx.float32) for point, values in rows.items()},
        )


def _padded(length: int) -> int:
    return (length + PAD - 1) // PAD * PAD
