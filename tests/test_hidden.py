"""Hidden states come out of a model's own passes, and drafters hear of those of every committed token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import pytest

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.hidden import LAST, HiddenStates
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.errors import UnsupportedModel
from tests import tiny_models
from tests.answers import loop, some_prompt

TOKENS = mx.array([[3, 5, 9, 2]])

HEADS = (
    "llama",
    "cohere",
    "gemma2",
    "gemma3n",
    "qwen3_5",
    "mamba",
    "minicpm",
    "talkie",
    "kimi_vl",
    "nanochat",
)
"""Heads of their own and tied ones, nested models, capped logits, recurrent state, a product by hand."""


def passed(model: Any, cache: PromptCache | None = None) -> mx.array:
    """Logits [n, vocab] of a pass over TOKENS."""
    return (cache or PromptCache(model)).forward(TOKENS[0])


@pytest.mark.parametrize("name", HEADS)
def test_the_last_rows_are_those_that_the_output_head_reads(name: str) -> None:
    model = tiny_models.build(name)
    states = HiddenStates(model)
    logits = passed(model)
    with states.reading():
        assert mx.array_equal(passed(model), logits)
    rows = states.rows[LAST]
    assert rows.shape == (1, 4, states.widths[LAST])
    head = model.lm_head if states.head is None else states.head.weight
    assert mx.array_equal(mx.argmax(rows[0] @ head.T, axis=-1), mx.argmax(logits, axis=-1))


def test_a_pass_outside_leaves_the_model_as_it_is() -> None:
    model = tiny_models.build("llama")
    classes = [type(module) for _, module in model.named_modules()]
    states = HiddenStates(model, (LAST, 2))
    with states.reading():
        passed(model)
    assert [type(module) for _, module in model.named_modules()] == classes


def test_a_failing_pass_leaves_the_model_as_it_is() -> None:
    model = tiny_models.build("llama")
    classes = [type(module) for _, module in model.named_modules()]
    with pytest.raises(ValueError, match="pass"), HiddenStates(model).reading():
        raise ValueError("pass")
    assert [type(module) for _, module in model.named_modules()] == classes


def test_rows_behind_a_layer_are_what_the_next_one_is_given() -> None:
    model = tiny_models.build("llama")
    states = HiddenStates(model, (3,))
    with states.reading():
        passed(model)
    last = model.layers[3](states.rows[3], "causal", None)
    assert mx.allclose(model.lm_head(model.model.norm(last))[0], passed(model), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "point", "reason"),
    [
        ("llama", 9, "4 layers, and no layer 9"),
        ("nanbeige/loops", 1, "runs 2 times"),
        ("gemma3n", 1, "something else than one row"),
    ],
)
def test_a_point_that_cannot_be_reached_is_named_with_the_reason(name: str, point: int, reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        HiddenStates(tiny_models.build(name), (point,))


class Listener(DraftModel):
    """A draft model that writes down the rows it hears of."""

    needs_hidden = (LAST,)

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.heard: dict[int, mx.array] = {}

    def attach(self, target: PromptCache) -> None:
        """Nothing is read there."""

    def read_hidden(self, start: int, rows: Mapping[int, mx.array]) -> None:
        for i, row in enumerate(rows[LAST], start=start):
            self.heard[i] = row


@pytest.mark.parametrize("name", ["llama", "llama/window", "qwen3_5", "phi3small"])
def test_a_drafter_hears_of_every_committed_token_whatever_was_rejected(name: str) -> None:
    model = tiny_models.build(name)
    listener = Listener(tiny_models.perturbed(model, 0.3))
    state = TargetState(PromptCache(model))
    prefill(
        state, some_prompt(), cancelled=lambda: False, progress=lambda *_: None, chunk=8, drafters=[listener]
    )
    decoding = loop(state, drafters=[listener], k=3, tokens=30)
    for _ in decoding.rounds():
        assert sorted(listener.heard) == list(range(len(state.tokens) - 1)), "all but the pending token"
        listener.heard = {i: row for i, row in listener.heard.items() if i < len(state.tokens)}
    assert 0 < decoding.stats.accepted < decoding.stats.proposed
    fresh = PromptCache(model)
    fresh.watch_hidden((LAST,))
    fresh.forward(mx.array(state.tokens[:-1]))
    expected = mx.concatenate([rows[LAST] for _, rows in fresh.take_hidden(len(state.tokens))])
    heard = mx.stack([listener.heard[i] for i in range(len(state.tokens) - 1)])
    assert mx.allclose(heard, expected, atol=1e-3)


def test_of_a_long_prompt_only_the_last_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxspec.decoding.hidden.MOST_ROWS", 16)
    cache = PromptCache(tiny_models.build("llama"))
    cache.watch_hidden((LAST,))
    for _ in range(10):
        cache.prefill(TOKENS[0])
    starts = [start for start, _ in cache.take_hidden(100)]
    assert starts == [24, 28, 32, 36]
    assert cache.take_hidden(100) == []
