"""Measure what a model's passes cost on this device: the verify curve, and a draft's step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, cast

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.layer_kinds import leaves_of
from mlxspec.decoding.proposal import TargetReader
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17)
"""Row counts that are measured; a staircase has its steps among the small ones."""

CONTEXT_TOKENS = 64
"""Tokens in the cache while measuring: enough to attend to, and soon read."""

LONG_CONTEXT_TOKENS = 1088
"""The same for what a longer context costs: 17 times as many, made of the same rows over and over."""

CONTEXT_ROWS = (1, 9)
"""Row counts whose passes are measured at both lengths."""

LEAST_READINGS = 3
CONTEXT_READINGS = 7
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
    per_pass_s, per_row_s = _context_costs(model, cache, clock)
    return VerifyCurve.measured(
        {rows: median(seconds) for rows, seconds in readings.items()},
        context_tokens=CONTEXT_TOKENS,
        context_pass_s=per_pass_s,
        context_row_s=per_row_s,
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


def _context_costs(model: Any, short: PromptCache, clock: Clock) -> tuple[float, float]:
    """Seconds that a token in the cache adds to a pass and to each of its rows.

    Nothing where a layer keeps anything but plain keys and values: windows and states do not grow.
    """
    from mlx_lm.models.cache import KVCache

    long = _warm_cache(model)
    leaves = list(leaves_of(long.layers))
    if not all(type(leaf) is KVCache for leaf in leaves):
        return 0.0, 0.0
    for leaf in leaves:
        leaf.keys, leaf.values = (
            _over_and_over(part[..., :CONTEXT_TOKENS, :]) for part in (leaf.keys, leaf.values)
        )
        leaf.offset = LONG_CONTEXT_TOKENS
    long.length = LONG_CONTEXT_TOKENS
    added = LONG_CONTEXT_TOKENS - CONTEXT_TOKENS
    differences: dict[int, list[float]] = {rows: [] for rows in CONTEXT_ROWS}
    for _ in range(CONTEXT_READINGS + 1):
        for rows in CONTEXT_ROWS:
            once = _pass_s(short, rows, clock)
            differences[rows].append(_pass_s(long, rows, clock, context=LONG_CONTEXT_TOKENS) - once)
    few, many = CONTEXT_ROWS
    added_few, added_many = (median(differences[rows][1:]) / added for rows in CONTEXT_ROWS)
    per_row_s = max(0.0, (added_many - added_few) / (many - few))
    return max(0.0, added_few - few * per_row_s), per_row_s


def _over_and_over(rows: mx.array) -> mx.array:
    return mx.concatenate([rows] * (LONG_CONTEXT_TOKENS // CONTEXT_TOKENS), axis=-2)


def _warm_cache(model: Any) -> PromptCache:
    cache = PromptCache(model)
    cache.prefill(_filler(CONTEXT_TOKENS))
    cache.mark_turn()
    return cache


def _pass_s(cache: PromptCache, rows: int, clock: Clock, *, context: int = CONTEXT_TOKENS) -> float:
    cache.rewind_to(context)
    began = clock()
    mx.eval(_choices(cache.forward(_filler(rows))))
    return clock() - began


def _filler(count: int) -> mx.array:
    ids: Iterable[int] = (1 + i % 13 for i in range(count))
    return mx.array(list(ids), mx.uint32)


def _choices(logits: mx.array) -> mx.array:
    return mx.argmax(logits.astype(mx.float32), axis=-1).astype(mx.uint32)
