"""The same answers decoded by mlx-lm's own generation, to compare with.

Caches are filled before the clock starts, the draft's too, so that only decoding is timed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.target import PREFILL_CHUNK
from mlxspec.models.device import wired_limit
from mlxspec.models.loading import LoadedModel

MOST_GUESSES = 8
"""`num_draft_tokens` is tried from 1 to here."""


@dataclass(frozen=True, slots=True)
class TheirRun:
    """One answer of mlx-lm: its tokens, end-of-sequence included, and the seconds of decoding."""

    ids: tuple[int, ...]
    decode_s: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, prefill not counted."""
        return len(self.ids) / self.decode_s


def plain(
    target: LoadedModel, prompt: Sequence[int], *, max_tokens: int, temperature: float, seed: int
) -> TheirRun:
    """`generate_step`."""
    from mlx_lm.generate import generate_step

    mx.random.seed(seed)
    steps = generate_step(
        mx.array([prompt[-1]], mx.uint32),
        target.model,
        max_tokens=max_tokens,
        sampler=_sampler(temperature),
        prompt_cache=_filled(target.model, prompt),
    )
    return _timed(steps, target)


def speculative(
    target: LoadedModel,
    draft: Any,
    prompt: Sequence[int],
    *,
    k: int,
    max_tokens: int,
    temperature: float,
    seed: int,
) -> TheirRun:
    """`speculative_generate_step` with `k` draft tokens."""
    from mlx_lm.generate import speculative_generate_step

    mx.random.seed(seed)
    steps = speculative_generate_step(
        mx.array([prompt[-1]], mx.uint32),
        target.model,
        draft,
        num_draft_tokens=k,
        max_tokens=max_tokens,
        sampler=_sampler(temperature),
        prompt_cache=[*_filled(target.model, prompt), *_filled(draft, prompt)],
    )
    return _timed(steps, target)


def can_speculate(target: LoadedModel) -> bool:
    """Whether mlx-lm speculates with this target at all: it refuses caches that it cannot trim."""
    from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

    return bool(can_trim_prompt_cache(make_prompt_cache(target.model)))


def _timed(steps: Iterable[Any], target: LoadedModel) -> TheirRun:
    from mlx_lm.generate import generation_stream

    ids: list[int] = []
    mx.synchronize()
    ended = began = time.perf_counter()
    with wired_limit(target.model):
        for token, *_ in steps:
            ids.append(int(token))
            ended = time.perf_counter()
            if ids[-1] in target.eos_ids:
                break
        # A pass may be queued that nobody reads; the next run must not pay for it.
        mx.synchronize(generation_stream)
    return TheirRun(tuple(ids), ended - began)


def _filled(model: Any, prompt: Sequence[int]) -> list[Any]:
    """Caches that hold all of the prompt but its last token."""
    cache = PromptCache(model)
    read = list(prompt[:-1])
    for start in range(0, len(read), PREFILL_CHUNK):
        cache.prefill(mx.array(read[start : start + PREFILL_CHUNK], mx.uint32))
    return cache.layers


def _sampler(temperature: float) -> Any:
    from mlx_lm.sample_utils import make_sampler

    return make_sampler(temp=temperature)
