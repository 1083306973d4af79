"""A draft that weighs some tokens only: which, and that their logits stay what they were."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlxspec.decoding.cache import PromptCache
from mlxspec.drafters.trimmed_head import kept_ids, trim_head
from mlxspec.errors import UnsupportedModel
from tests import tiny_models

IDS = mx.array([0, 3, 5, 20, 41, 63])


def logits(model: Any) -> mx.array:
    return PromptCache(model).forward(mx.array([4, 9, 21, 7])).astype(mx.float32)


def test_the_frequent_tokens_are_kept_and_always_the_special_ones() -> None:
    kept = kept_ids(4, vocab_size=10, always={8}, frequencies={7: 1, 5: 9})
    assert kept == [0, 5, 7, 8]


def test_without_frequencies_the_first_ids_are_kept() -> None:
    assert kept_ids(4, vocab_size=10, always={8}, frequencies={}) == [0, 1, 2, 8]


def test_no_id_beyond_the_vocabulary_is_kept() -> None:
    assert kept_ids(9, vocab_size=4, always={8}, frequencies={5: 1}) == [0, 1, 2, 3]


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_the_kept_tokens_stay_what_they_were(tied: bool, bits: int | None) -> None:
    model = tiny_models.build("llama", tie_word_embeddings=tied)
    if bits:
        nn.quantize(
            model,
            group_size=32,
            bits=bits,
            class_predicate=lambda _, layer: (
                hasattr(layer, "to_quantized") and layer.weight.shape[-1] % 32 == 0
            ),
        )
    whole = logits(model)
    trim_head(model, IDS)
    assert mx.allclose(logits(model), whole[:, IDS], atol=1e-5)


def test_a_head_that_is_no_part_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="no part that can be trimmed"):
        trim_head(tiny_models.build("talkie"), IDS)


def test_a_model_that_writes_its_logits_by_id_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="by their ids"):
        trim_head(tiny_models.build("phi3small"), IDS)


def test_a_model_that_needs_all_its_logits_is_refused() -> None:
    class Biased:
        """Adds something to each logit."""

        def __init__(self, model: Any) -> None:
            self._model = model

        def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
            made: mx.array = self._model(tokens, cache=cache) + mx.arange(64)
            return made

        def __getattr__(self, name: str) -> Any:
            return getattr(self._model, name)

    with pytest.raises(UnsupportedModel, match="cannot be trimmed"):
        trim_head(Biased(tiny_models.build("llama")), IDS)
