"""Measure what a model's passes cost on this device: the verify curve, and a draft's step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, cast

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.proposal import TargetReader
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17)
"""Row counts that are measured; a staircase has its steps among the small ones."""

CONTEXT_TOKENS = 64
"""Tokens in the cache while measuring: enough to attend to, and soon read."""

LEAST_READINGS = 3
STEP_GUESSES = 4

Clock = Callable[[], float]


def measure_curve(
    model: Any, *, clock: Clock, budget_s: float, cancelled: Callable[[], bool] = lambda: False
) -> VerifyCurve | None:
    """The medians of interleaved passes of each row count, on a cache of its own.

    Goes on until `budget_s` seconds are spent, but not before three readings of each row count; stops at
    once when cancelled, and returns None.
    """
    cache = _warm_cache(model)
    readings: dict[int, list[float]] = defaultdict(list)
    for rows in ROWS:  # kernels compile, memory is taken
        _pass_s(cache, rows, clock)
    began = clock()
    while len(readings[ROWS[-1]]) < LEAST_READINGS or clock() - began < budget_s:
        for rows in ROWS:
            if cancelled():
                return None
            readings[rows].append(_pass_s(cache, rows, clock))
        if clock() - began > 4 * budget_s:
            break
    return VerifyCurve.measured(
        {rows: median(seconds) for rows, seconds in readings.items()}, context_tokens=CONTEXT_TOKENS
    )


def measure_step(model: Any, *, clock: Clock, repeats: int = 5) -> float:
    """Seconds of one guess of a draft model, of the few that it makes in one go."""
    cache = _warm_cache(model)
    seconds = []
    for _ in range(repeats + 1):
        cache.rewind_to(CONTEXT_TOKENS)
        began = clock()
        tokens = [mx.array([1], mx.uint32)]
        for _ in range(STEP_GUESSES):
            tokens.append(_choices(cache.forward(tokens[-1])))
        mx.eval(tokens)
        seconds.append((clock() - began) / STEP_GUESSES)
    return median(seconds[1:])


def measure_reader_step(drafter: TargetReader, model: Any, *, clock: Clock, repeats: int = 5) -> float:
    """The same of a drafter that guesses from what the target `model` computed. It forgets its sequence."""
    cache = PromptCache(model)
    cache.watch_hidden(drafter.needs_hidden)
    logits = cache.forward(_filler(CONTEXT_TOKENS))
    rows = cache.take_hidden(CONTEXT_TOKENS)
    mx.eval(logits, [list(part.values()) for _, part in rows])
    greedy = Sampler(SamplingParams(temperature=0.0), vocab_size=logits.shape[-1], rule=Rule.TOKEN, seed=0)
    drafter.attach(cache)
    drafter.reset([*cast(list[int], _filler(CONTEXT_TOKENS).tolist()), 1], greedy, lambda: False)
    for start, part in rows:
        drafter.read_hidden(start, part)
    seconds = []
    for _ in range(repeats + 1):
        began = clock()
        proposal = drafter.propose(STEP_GUESSES)
        assert proposal is not None, "all rows were read"
        mx.eval(proposal.tokens)
        seconds.append((clock() - began) / proposal.tokens.shape[0])
    drafter.close()
    return median(seconds[1:])


def _warm_cache(model: Any) -> PromptCache:
    cache = PromptCache(model)
    cache.prefill(_filler(CONTEXT_TOKENS))
    cache.mark_turn()
    return cache


def _pass_s(cache: PromptCache, rows: int, clock: Clock) -> float:
    cache.rewind_to(CONTEXT_TOKENS)
    began = clock()
    mx.eval(_choices(cache.forward(_filler(rows))))
    return clock() - began


def _filler(count: int) -> mx.array:
    ids: Iterable[int] = (1 + i % 13 for i in range(count))
    return mx.array(list(ids), mx.uint32)


def _choices(logits: mx.array) -> mx.array:
    return mx.argmax(logits.astype(mx.float32), axis=-1).astype(mx.uint32)
