"""From the logits of a target pass to a verdict: the sampler's pipeline, noise and acceptance rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, cast

import mlx.core as mx

from mlxspec.decoding.acceptance import Verdict, block_rule, keep_while_equal, token_rule
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import History, Rule, Sampler, Stream


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, still on the device.

    `sure` is False where it was made from too short a list of tokens and has to be made again with
    `whole=True`. `p` makes the target's probabilities [k + 1, vocab]. `choices` makes the target's own
    token for each row [k + 1] int32: the one it is sure to take under its rule, else the likeliest.
    """

    verdict: Verdict
    sure: mx.array
    p: Callable[[], mx.array]
    choices: Callable[[], mx.array]


def judge(
    sampler: Sampler,
    logits: mx.array,
    proposal: Proposal | None,
    history: History,
    *,
    position: int,
    whole: bool = False,
) -> Judgement:
    """Judge by the logits [k + 1, any] after the pending token and each of k guesses.

    `position` is the place in the sequence of the first token to come. `whole` sorts the whole
    vocabulary; plain rounds always do, since the next pass is queued before they could be made again.
    """
    guesses = proposal.tokens.astype(mx.int32) if proposal else mx.zeros((0,), mx.int32)
    k = guesses.shape[0]
    if sampler.greedy:
        processed = sampler.processed(logits, history)
        choices = mx.argmax(processed, axis=-1).astype(mx.int32)
        return Judgement(
            keep_while_equal(choices, guesses),
            mx.array(True),
            lambda: mx.softmax(processed, axis=-1),
            lambda: choices,
        )
    if whole or k == 0:
        p, sure = sampler.distribution(logits, history), mx.array(True)
    else:
        p, sure = sampler.likely(logits, history)
    if sampler.rule is Rule.COUPLED:
        noise = mx.stack([sampler.gumbel(Stream.POSITION, position + i) for i in range(k + 1)])
        choices = mx.argmax(mx.log(p) + noise, axis=-1).astype(mx.int32)
        return Judgement(keep_while_equal(choices, guesses), sure, lambda: p, lambda: choices)
    verdict = (block_rule if sampler.rule is Rule.BLOCK else token_rule)(
        p,
        guesses,
        proposal.q if proposal else None,
        uniform=sampler.uniform(Stream.ACCEPT, position, max(k, 1))[:k],
        gumbel=sampler.gumbel(Stream.RESIDUAL, position),
    )
    return Judgement(verdict, sure, lambda: p, lambda: mx.argmax(p, axis=-1).astype(mx.int32))


class Report(TypedDict, total=False):
    """p and q of each guess, and p of the token after the kept ones."""

    p: tuple[float, ...]
    q: tuple[float, ...]
    p_next: float


def report(p: mx.array, proposal: Proposal | None, verdict: Verdict) -> mx.array:
    """What `read_report` reads, still on the device: [2k + 1], p of guesses, q of guesses, p of the next."""
    p_next = mx.take(mx.take(p, verdict.accepted, axis=0), verdict.next_token).reshape(1)
    if proposal is None:
        return p_next
    index = proposal.tokens[:, None].astype(mx.int32)
    p_guesses = mx.take_along_axis(p[:-1], index, axis=-1)[:, 0]
    q = proposal.q
    q_guesses = mx.ones_like(p_guesses) if q is None else mx.take_along_axis(q, index, axis=-1)[:, 0]
    return mx.concatenate([p_guesses, q_guesses, p_next])


def read_report(values: mx.array | None, k: int) -> Report:
    """The report of a round with `k` guesses; empty when none was asked for."""
    if values is None:
        return {}
    numbers = cast(list[float], values.tolist())
    return {"p": tuple(numbers[:k]), "q": tuple(numbers[k : 2 * k]), "p_next": numbers[-1]}
