"""Answers of the round loop beside answers of a loop that decodes one token a pass, nothing else.

Used by the tests of every architecture and by `benchmarks/architectures.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import FixedController
from mlxspec.decoding.decode import Decoding
from mlxspec.decoding.proposal import Drafter
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams, Stream
from mlxspec.decoding.target import TargetState, prefill
from tests.tiny_models import VOCAB

TOKENS = 48
SEED = 11
PROMPT_TOKENS = 21
TIE = 1e-4
"""Two logits of a float32 model nearer than this are a tie: one row and many rows may round apart."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of an answer and what it took."""

    ids: list[int]
    proposed: int
    accepted: int
    passes: int
    carried: int
    reused: int

    @property
    def acceptance(self) -> float:
        """Accepted / proposed, 1.0 when nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else 1.0


def some_prompt(length: int = PROMPT_TOKENS, *, seed: int = 5) -> list[int]:
    """Random ids with a repetition in them, so that lookup has something to find."""
    rng = random.Random(seed)
    half = [rng.randrange(1, VOCAB - 1) for _ in range(length - length // 3)]
    return (half + half)[:length]


def sampler_of(temperature: float) -> Sampler:
    """Greedy at temperature 0, else the coupled rule with a fixed seed."""
    params = SamplingParams(temperature=temperature, top_p=1.0)
    return Sampler(params, vocab_size=VOCAB, rule=Rule.COUPLED, seed=SEED)


def fill(state: TargetState, prompt: Sequence[int]) -> int:
    """Prefill; the number of tokens reused."""
    reused = prefill(state, prompt, cancelled=lambda: False, progress=lambda _done, _reused: None)
    assert reused is not None
    return reused


def answer(
    state: TargetState,
    prompt: Sequence[int],
    *,
    drafters: Sequence[Drafter] = (),
    k: int = 4,
    tokens: int = TOKENS,
    temperature: float = 0.0,
) -> Answer:
    """One answer by the round loop, with invariants 2 to 4 checked after every round."""
    reused = fill(state, prompt)
    decoding = loop(state, drafters=drafters, k=k, tokens=tokens, temperature=temperature)
    ids: list[int] = []
    for landed in decoding.rounds():
        assert landed.tokens, "a round emits at least one token"
        assert landed.accepted <= len(landed.guesses)
        ids += landed.tokens
    assert state.tokens == [*prompt, *ids], "the committed tokens are those that were handed on"
    assert state.cache.length <= len(state.tokens)
    stats = decoding.stats
    assert stats.tokens == len(ids) == stats.accepted + stats.resampled + stats.bonus + stats.plain
    return Answer(ids, stats.proposed, stats.accepted, stats.target_passes, stats.carried, reused)


def loop(
    state: TargetState,
    *,
    drafters: Sequence[Drafter],
    k: int = 4,
    tokens: int = TOKENS,
    temperature: float = 0.0,
    cancelled: Callable[[], bool] = lambda: False,
) -> Decoding:
    """The round loop, about to start."""
    return Decoding(
        state,
        sampler=sampler_of(temperature),
        drafters=drafters,
        controller=FixedController(k),
        max_tokens=tokens,
        eos_ids=frozenset(),
        cancelled=cancelled,
    )


def plain_ids(
    model: Any,
    prompt: Sequence[int],
    *,
    tokens: int = TOKENS,
    temperature: float = 0.0,
    kv_bits: int | None = None,
) -> list[int]:
    """The reference: one token a pass, with mlx-lm's own generation where it is greedy."""
    cache = PromptCache(model)
    if temperature == 0 and not cache.row_by_row:
        from mlx_lm.generate import generate_step

        steps = generate_step(
            mx.array(prompt), model, max_tokens=tokens, prompt_cache=cache.layers, kv_bits=kv_bits,
            quantized_kv_start=0,
        )  # fmt: skip
        return [int(token) for token, _ in steps]
    rows = [[token] for token in prompt[:-1]] if cache.row_by_row else [list(prompt[:-1])]
    for row in rows:
        mx.eval(model(mx.array([row]), cache=cache.layers))
    ids = list(prompt)
    while len(ids) < len(prompt) + tokens:
        logits = model(mx.array([ids[-1:]]), cache=cache.layers)[0, -1]
        ids.append(int(mx.argmax(_scores(logits, temperature, position=len(ids))).item()))
    return ids[len(prompt) :]


def margin_at(
    model: Any, prompt: Sequence[int], ids: Sequence[int], place: int, *, temperature: float = 0.0
) -> float:
    """How far the two best scores are apart where token `place` of the answer was chosen."""
    logits = PromptCache(model).forward(mx.array([*prompt, *ids[:place]]))[-1]
    best = mx.sort(_scores(logits, temperature, position=len(prompt) + place))
    return float((best[-1] - best[-2]).item())


def _scores(logits: mx.array, temperature: float, *, position: int) -> mx.array:
    """What the chosen token is the argmax of, under the coupled rule."""
    logits = logits.astype(mx.float32)
    if not temperature:
        return logits
    noise = sampler_of(temperature).gumbel(Stream.POSITION, position)
    return mx.log(mx.softmax(logits / temperature)) + noise


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place where two answers differ, None where they are equal."""
    if list(one) == list(other):
        return None
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
