"""What a draft is trained on, and how often it would be right. Arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.training.softmax import cross_entropy, probabilities


@dataclass(frozen=True, slots=True)
class Guess:
    """One guess of a draft from every position, made while training.

    Row t of `logits` [b, n, columns] is the guess for the token that row t + `ahead` of the target's
    logits is about, given that the guesses before it were right. `share` is its weight in the loss.
    """

    logits: mx.array
    ahead: int
    share: float = 1.0


def distribution_loss(guesses: Sequence[Guess], teacher: mx.array, weights: mx.array) -> mx.array:
    """Cross-entropy [1 value] of each guess with the target's whole distribution over the same columns.

    Args:
        guesses: of the draft.
        teacher: the target's logits [b, n, columns].
        weights: of each position of `teacher` [b, n].

    Returns the mean over positions, by weight, summed over guesses by their share.
    """
    p = probabilities(teacher)
    total = mx.array(0.0)
    for guess in guesses:
        mine, theirs, weight = aligned(guess, p, weights)
        total = total + guess.share * (cross_entropy(mine, theirs) * weight).sum() / mx.maximum(
            weight.sum(), 1.0
        )
    return total / sum(guess.share for guess in guesses)


def aligned(guess: Guess, rows: mx.array, weights: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """The guess's logits, the rows that they are about, and the weights of those."""
    if guess.ahead == 0:
        return guess.logits, rows, weights
    return guess.logits[:, : -guess.ahead], rows[:, guess.ahead :], weights[:, guess.ahead :]


def kept_chain(guesses: Sequence[Guess], choices: mx.array, ids: mx.array | None) -> list[mx.array]:
    """For each guess, where it and all before it are the target's choice: [b, n] of truth values.

    `choices` [b, n] are ids of the target's whole vocabulary; -1 counts as wrong.
    """
    kept: list[mx.array] = []
    for guess in guesses:
        said = mx.argmax(guess.logits, axis=-1)
        said = said if ids is None else ids[said]
        n = choices.shape[1] - guess.ahead
        right = said[:, :n].astype(mx.int32) == choices[:, guess.ahead :].astype(mx.int32)
        right = mx.pad(right, [(0, 0), (0, guess.ahead)])
        kept.append(right & kept[-1] if kept else right)
    return kept
