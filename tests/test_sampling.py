"""The pipeline from logits to p: mlx-lm's filters and penalties, row by row."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p, make_logits_processors

from mlxspec.decoding.sampling import History, Rule, Sampler, SamplingParams, Stream

VOCAB = 30


def make_sampler(params: SamplingParams, *, rule: Rule = Rule.BLOCK, seed: int = 1) -> Sampler:
    return Sampler(params, vocab_size=VOCAB, rule=rule, seed=seed)


def logits(rows: int = 4, seed: int = 0) -> mx.array:
    return mx.random.normal((rows, VOCAB), key=mx.random.key(seed)) * 3


def rows_alone(rows: int) -> History:
    return History([], rows=rows)


def test_filters_are_those_of_mlx_lm_in_its_order() -> None:
    params = SamplingParams(temperature=0.6, top_p=0.8, min_p=0.05, top_k=5)
    raw = logits()
    expected = raw - mx.logsumexp(raw, axis=-1, keepdims=True)
    expected = apply_top_k(apply_min_p(apply_top_p(expected, 0.8), 0.05), 5)
    expected = mx.softmax(expected / 0.6, axis=-1)
    p = make_sampler(params).distribution(raw, rows_alone(4))
    assert np.array_equal(np.array(p) == 0, np.array(expected) == 0)
    assert mx.allclose(p, expected, atol=1e-6).item()


def test_top_k_beyond_the_vocabulary_filters_nothing() -> None:
    p = make_sampler(SamplingParams(temperature=1.0, top_p=1.0, top_k=99)).distribution(
        logits(), rows_alone(4)
    )
    assert (p > 0).all().item()


def test_16_bit_logits_become_32_bit_probabilities_that_do_not_underflow() -> None:
    raw = mx.array([[20.0, 0.0] + [-30.0] * (VOCAB - 2)], mx.float16)
    p = make_sampler(SamplingParams(temperature=1.0, top_p=1.0)).distribution(raw, rows_alone(1))
    assert p.dtype == mx.float32
    assert 0 < p[0, 1].item() < 6e-8


@pytest.mark.parametrize("width", [VOCAB - 4, VOCAB + 4])
def test_logits_of_another_width_are_cut_or_padded_to_the_targets(width: int) -> None:
    raw = mx.random.normal((2, width), key=mx.random.key(0))
    p = make_sampler(SamplingParams(temperature=1.0, top_p=1.0)).distribution(raw, rows_alone(2))
    shared = mx.softmax(raw[:, :VOCAB], axis=-1)
    assert p.shape == (2, VOCAB)
    assert mx.allclose(p[:, : min(width, VOCAB)], shared, atol=1e-6).item()
    assert p[:, width:].sum().item() == 0


@pytest.mark.parametrize("host_length", [0, 3, 40])
def test_penalties_of_each_row_see_exactly_the_tokens_before_it(host_length: int) -> None:
    """Against mlx-lm's own processors, one row at a time."""
    params = SamplingParams(
        temperature=0.0,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        logit_bias={3: -100.0, 5: 2.0},
    )
    processors = make_logits_processors({3: -100.0, 5: 2.0}, 1.3, 20, 0.4, 20, 0.2, 20)
    host = [int(token) for token in np.random.default_rng(0).integers(0, VOCAB, host_length)]
    guesses = [7, 7, 9]
    raw = logits(4)
    out = make_sampler(params).processed(raw, History(host, mx.array(guesses), rows=4))
    for i in range(4):
        row, tokens = mx.array(raw[i : i + 1]), mx.array([*host, *guesses[:i]])
        for processor in processors:
            row = processor(tokens, row)
        assert mx.allclose(out[i : i + 1], row, atol=1e-5).item()


def test_a_row_after_an_unread_token_sees_it() -> None:
    params = SamplingParams(temperature=0.0, presence_penalty=5.0)
    raw = logits(1)
    out = make_sampler(params).processed(raw, History([1, 2], mx.array([8])))
    assert (raw - out)[0].tolist() == pytest.approx([5.0 if i in (1, 2, 8) else 0.0 for i in range(VOCAB)])


def test_processors_of_mlx_lm_are_called_with_all_tokens_before_the_row() -> None:
    seen: list[list[int]] = []

    def processor(tokens: mx.array, row: mx.array) -> mx.array:
        seen.append(tokens.tolist())
        return row + 1

    params = SamplingParams(processors=(processor,))
    out = make_sampler(params).processed(logits(3), History([4, 5], mx.array([6, 7]), rows=3))
    assert seen == [[4, 5], [4, 5, 6], [4, 5, 6, 7]]
    assert mx.allclose(out, logits(3) + 1).item()


def test_noise_differs_by_stream_position_index_and_seed() -> None:
    sampler = make_sampler(SamplingParams())
    draws = [
        sampler.gumbel(Stream.DRAFT, 5),
        sampler.gumbel(Stream.RESIDUAL, 5),
        sampler.gumbel(Stream.DRAFT, 6),
        sampler.gumbel(Stream.DRAFT, 5, 1),
        make_sampler(SamplingParams(), seed=2).gumbel(Stream.DRAFT, 5),
    ]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(draws)
    assert mx.array_equal(draws[0], make_sampler(SamplingParams()).gumbel(Stream.DRAFT, 5)).item()


def test_coupled_draft_noise_belongs_to_the_position_and_other_rules_to_the_proposal() -> None:
    coupled, block = (make_sampler(SamplingParams(), rule=rule) for rule in (Rule.COUPLED, Rule.BLOCK))
    assert mx.array_equal(coupled.draft_noise(5, 2), coupled.draft_noise(6, 1)).item()
    assert not mx.array_equal(block.draft_noise(5, 2), block.draft_noise(6, 1)).item()


FILTERS = [
    SamplingParams(temperature=0.7, top_p=0.9),
    SamplingParams(temperature=0.7, top_p=1.0, top_k=40),
    SamplingParams(temperature=0.7, top_p=1.0, min_p=0.05),
    SamplingParams(temperature=0.7, top_p=0.9, top_k=40, min_p=0.05),
]


@pytest.mark.parametrize("params", FILTERS)
def test_the_likeliest_tokens_give_the_same_distribution_when_they_are_enough(params: SamplingParams) -> None:
    raw = mx.random.normal((3, 2000), key=mx.random.key(2)) * 4
    sampler = Sampler(params, vocab_size=2000, rule=Rule.BLOCK, seed=1)
    p, enough = sampler.likely(raw, rows_alone(3))
    assert enough.item()
    assert mx.allclose(p, sampler.distribution(raw, rows_alone(3)), atol=1e-6).item()


def test_a_flat_row_says_that_the_likeliest_tokens_are_not_enough() -> None:
    raw = mx.concatenate([mx.random.normal((1, 2000), key=mx.random.key(2)) * 4, mx.zeros((1, 2000))])
    _, enough = Sampler(FILTERS[0], vocab_size=2000, rule=Rule.BLOCK, seed=1).likely(raw, rows_alone(2))
    assert not enough.item()
