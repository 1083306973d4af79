"""Invariant 1, sampling: what the rules emit is distributed as the target alone would write it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoding.acceptance import Verdict, block_rule, draw, keep_while_equal, token_rule
from mlxspec.decoding.sampling import History, Rule, Sampler, SamplingParams

VOCAB = 5
GUESSES = 2
DRAWS = 200_000
FILTERS = {
    "plain": SamplingParams(temperature=1.0, top_p=1.0),
    "warm": SamplingParams(temperature=0.7, top_p=1.0),
    "filtered": SamplingParams(temperature=0.8, top_p=0.9, top_k=4, min_p=0.02),
}
RULES = {"token": token_rule, "block": block_rule}


@dataclass(frozen=True)
class World:
    """Target and draft logits for every context of up to GUESSES tokens, and many drawn proposals."""

    p: list[np.ndarray]  # p[i]: [VOCAB] * i + [VOCAB], the target after i tokens
    guesses: np.ndarray  # [DRAWS, GUESSES]
    p_rows: np.ndarray  # [DRAWS, GUESSES + 1, VOCAB]
    q_rows: np.ndarray  # [DRAWS, GUESSES, VOCAB]


def make_world(params: SamplingParams, seed: int = 7) -> World:
    rng = np.random.default_rng(seed)
    p = [distribution(rng.normal(size=(VOCAB,) * i + (VOCAB,)) * 1.5, params) for i in range(GUESSES + 1)]
    q = [distribution(rng.normal(size=(VOCAB,) * i + (VOCAB,)) * 1.5, params) for i in range(GUESSES)]
    guesses = np.zeros((DRAWS, GUESSES), int)
    q_rows = np.zeros((DRAWS, GUESSES, VOCAB))
    for i in range(GUESSES):
        q_rows[:, i] = q[i][tuple(guesses[:, :i].T)] if i else q[0]
        guesses[:, i] = choose(rng, q_rows[:, i])
    p_rows = np.stack(
        [p[i][tuple(guesses[:, :i].T)] if i else np.tile(p[0], (DRAWS, 1)) for i in range(3)], 1
    )
    return World(p, guesses, p_rows, q_rows)


def distribution(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Rows of logits through the real pipeline."""
    sampler = Sampler(params, vocab_size=VOCAB, rule=Rule.TOKEN, seed=0)
    rows = mx.array(logits.reshape(-1, VOCAB), mx.float32)
    return np.array(sampler.distribution(rows, History([], rows=rows.shape[0]))).reshape(logits.shape)


def choose(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """One index a row, by inverse transform; never one of probability 0."""
    cumulated = np.cumsum(rows, axis=1)
    return (rng.random((len(rows), 1)) * cumulated[:, -1:] >= cumulated).sum(axis=1)


def complete(world: World, verdict: Verdict, seed: int = 1) -> np.ndarray:
    """The sequences [DRAWS, GUESSES + 1] that begin as the verdict says and go on as the target would."""
    rng = np.random.default_rng(seed)
    accepted, token = np.array(verdict.accepted), np.array(verdict.next_token)
    sequences = np.zeros((DRAWS, GUESSES + 1), int)
    for i in range(GUESSES + 1):
        rows = world.p[i][tuple(sequences[:, :i].T)] if i else np.tile(world.p[0], (DRAWS, 1))
        guess = world.guesses[:, min(i, GUESSES - 1)]
        sequences[:, i] = np.where(i < accepted, guess, np.where(i == accepted, token, choose(rng, rows)))
    return sequences


def z_score(world: World, sequences: np.ndarray) -> float:
    """Chi-square of the joint sequences against the target's, in standard deviations; inf if impossible."""
    cells = list(itertools.product(range(VOCAB), repeat=GUESSES + 1))
    expected = (
        np.array([np.prod([world.p[i][c[: i + 1]] for i in range(GUESSES + 1)]) for c in cells]) * DRAWS
    )
    observed = np.bincount(np.ravel_multi_index(sequences.T, (VOCAB,) * (GUESSES + 1)), minlength=len(cells))
    if observed[expected < 1e-6].any():
        return float("inf")
    common = expected >= 5
    chi2 = ((observed[common] - expected[common]) ** 2 / expected[common]).sum()
    freedom = common.sum() - 1
    return float((chi2 - freedom) / np.sqrt(2 * freedom))


def judge(world: World, rule: Callable[..., Verdict], *, certain: bool) -> Verdict:
    mx.random.seed(11)
    guesses = mx.array(world.guesses)
    q = None if certain else mx.array(world.q_rows, mx.float32)
    uniform = mx.random.uniform(shape=(DRAWS, GUESSES))
    gumbel = mx.random.gumbel((DRAWS, VOCAB))
    return rule(mx.array(world.p_rows, mx.float32), guesses, q, uniform=uniform, gumbel=gumbel)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("certain", [False, True], ids=["drawn", "one-hot"])
@pytest.mark.parametrize("rule", RULES)
def test_joint_sequences_are_distributed_as_the_targets(rule: str, certain: bool, filters: str) -> None:
    world = make_world(FILTERS[filters])
    assert abs(z_score(world, complete(world, judge(world, RULES[rule], certain=certain)))) < 4


@pytest.mark.parametrize("certain", [False, True], ids=["drawn", "one-hot"])
@pytest.mark.parametrize("filters", FILTERS)
def test_coupled_sequences_are_distributed_as_the_targets(filters: str, certain: bool) -> None:
    world = make_world(FILTERS[filters])
    noise = np.random.default_rng(5).gumbel(size=(DRAWS, GUESSES + 1, VOCAB))
    with np.errstate(divide="ignore"):
        choices = np.argmax(np.log(world.p_rows) + noise, axis=-1)
        coupled = np.argmax(np.log(world.q_rows) + noise[:, :GUESSES], axis=-1)
    guesses = world.guesses if certain else coupled
    if not certain:  # the rows must be those after the guesses that the shared noise drew
        p_rows = [
            world.p[i][tuple(guesses[:, :i].T)] if i else np.tile(world.p[0], (DRAWS, 1)) for i in range(3)
        ]
        with np.errstate(divide="ignore"):
            choices = np.argmax(np.log(np.stack(p_rows, 1)) + noise, axis=-1)
        world = World(world.p, guesses, np.stack(p_rows, 1), world.q_rows)
    verdict = keep_while_equal(mx.array(choices), mx.array(guesses))
    assert abs(z_score(world, complete(world, verdict))) < 4


def test_the_chi_square_notices_a_biased_rule() -> None:
    """Negative control: the draft's noise used again for the residual (vLLM's fault)."""
    world = make_world(FILTERS["plain"])
    rng = np.random.default_rng(3)
    noise = rng.gumbel(size=(DRAWS, VOCAB))
    guesses = world.guesses.copy()
    guesses[:, 0] = np.argmax(np.log(world.q_rows[:, 0]) + noise, axis=-1)
    p_rows = [world.p[i][tuple(guesses[:, :i].T)] if i else np.tile(world.p[0], (DRAWS, 1)) for i in range(3)]
    biased = World(world.p, guesses[:, :1], np.stack(p_rows, 1)[:, :2], world.q_rows[:, :1])
    verdict = token_rule(
        mx.array(biased.p_rows, mx.float32),
        mx.array(biased.guesses),
        mx.array(biased.q_rows, mx.float32),
        uniform=mx.array(rng.random((DRAWS, 1)), mx.float32),
        gumbel=mx.array(noise, mx.float32),
    )
    padded = World(world.p, guesses, biased.p_rows, biased.q_rows)
    assert z_score(padded, complete(padded, verdict)) > 20


def test_block_accepts_at_least_as_much_as_token() -> None:
    world = make_world(FILTERS["plain"])
    accepted = {
        name: judge(world, rule, certain=False).accepted.mean().item() for name, rule in RULES.items()
    }
    assert accepted["block"] > accepted["token"]


@pytest.mark.parametrize("rule", RULES.values())
def test_equal_distributions_accept_everything(rule: Callable[..., Verdict]) -> None:
    rows = mx.softmax(mx.random.normal((1000, 3, VOCAB), key=mx.random.key(1)), axis=-1)
    guesses = mx.random.categorical(mx.log(rows[:, :2]), key=mx.random.key(2))
    uniform = mx.random.uniform(shape=(1000, 2), key=mx.random.key(3))
    gumbel = mx.random.gumbel((1000, VOCAB), key=mx.random.key(4))
    assert rule(rows, guesses, rows[:, :2], uniform=uniform, gumbel=gumbel).accepted.tolist() == [2] * 1000


@pytest.mark.parametrize("rule", RULES.values())
def test_a_guess_of_probability_zero_is_never_kept(rule: Callable[..., Verdict]) -> None:
    p = mx.array([[0.0, 1.0], [0.5, 0.5]])
    q = mx.array([[1.0, 0.0]])
    verdict = rule(p, mx.array([0]), q, uniform=mx.zeros(1), gumbel=mx.zeros(2))
    assert (verdict.accepted.item(), verdict.next_token.item()) == (0, 1)


@pytest.mark.parametrize("rule", RULES.values())
def test_an_empty_residual_falls_back_to_p(rule: Callable[..., Verdict]) -> None:
    p = mx.array([[1.0, 0.0], [0.0, 1.0]])
    verdict = rule(p, mx.array([1]), p[:1], uniform=mx.array([0.9]), gumbel=mx.zeros(2))
    assert (verdict.accepted.item(), verdict.next_token.item()) == (0, 0)


@pytest.mark.parametrize("rule", RULES.values())
def test_without_guesses_the_token_is_drawn_from_p(rule: Callable[..., Verdict]) -> None:
    verdict = rule(
        mx.array([[0.0, 1.0]]), mx.zeros((0,), mx.int32), None, uniform=mx.zeros(0), gumbel=mx.zeros(2)
    )
    assert (verdict.accepted.item(), verdict.next_token.item()) == (0, 1)


def test_greedy_keeps_while_equal_and_takes_the_targets_token() -> None:
    verdict = keep_while_equal(mx.array([4, 2, 7, 1]), mx.array([4, 2, 5]))
    assert (verdict.accepted.item(), verdict.next_token.item()) == (2, 7)


def test_small_probabilities_are_drawn_from_and_not_rounded_away() -> None:
    weights = mx.array([1e-9, 0.0, 3e-9])
    assert draw(weights, mx.array([0.0, 50.0, 0.0])).item() == 2
