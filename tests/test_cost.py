"""Verify curves and the arithmetic of speed-up."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.decoding.cost import (
    VerifyCurve,
    acceptance_rate,
    best_k,
    expected_tokens,
    expected_tokens_flat,
    round_cost,
    speedup,
)
from mlxspec.errors import UsageError

probabilities = st.floats(0.0, 1.0)


def test_a_curve_is_a_straight_line_between_its_points() -> None:
    curve = VerifyCurve.measured({1: 1.0, 2: 1.2, 4: 2.0})
    assert [curve.seconds(n) for n in (1, 2, 3, 4)] == pytest.approx([1.0, 1.2, 1.6, 2.0])


def test_beyond_its_last_point_a_curve_goes_on_with_its_average_slope() -> None:
    ends_on_a_step = VerifyCurve.typed([1.0, 1.0, 1.0, 2.5])
    ends_on_a_plateau = VerifyCurve.typed([1.0, 2.5, 2.5, 2.5])
    assert ends_on_a_step.seconds(6) == pytest.approx(3.5)
    assert ends_on_a_plateau.seconds(6) == pytest.approx(3.5)


def test_a_curve_of_one_point_takes_every_row_to_cost_as_much() -> None:
    assert VerifyCurve.typed([0.05]).seconds(4) == pytest.approx(0.2)


def test_a_measured_curve_that_falls_by_noise_stays_level_instead() -> None:
    curve = VerifyCurve.measured({1: 1.0, 2: 0.99, 3: 1.13, 4: 1.12})
    assert [curve.seconds(n) for n in (1, 2, 3, 4)] == [1.0, 1.0, 1.13, 1.13]


@pytest.mark.parametrize(
    "costs", [[1.0, 0.9], [1.0, 1.2, 1.1], [], [0.0, 1.0], [-1.0], [math.nan], [1.0, math.inf]]
)
def test_a_typed_curve_that_falls_or_is_no_curve_is_a_usage_error(costs: list[float]) -> None:
    with pytest.raises(UsageError):
        VerifyCurve.typed(costs)


def test_the_error_of_a_falling_curve_names_the_place() -> None:
    with pytest.raises(UsageError) as raised:
        VerifyCurve.typed([1.0, 1.3, 1.2])
    assert "3 rows cost 1.2, less than the 1.3 of 2" in raised.value.message


def test_a_longer_context_costs_more_for_the_pass_and_for_each_row() -> None:
    curve = VerifyCurve.measured(
        {1: 1.0, 2: 1.1}, context_tokens=100, context_pass_s=0.001, context_row_s=0.01
    )
    assert curve.seconds(2, context=100) == pytest.approx(1.1)
    assert curve.seconds(2, context=110) == pytest.approx(1.1 + 10 * (0.001 + 2 * 0.01))
    assert 0.0 < curve.seconds(2, context=0) < 1.1


def test_the_shape_is_relative_to_one_row() -> None:
    assert VerifyCurve.typed([0.05, 0.06]).shape(2) == pytest.approx(1.2)


@given(st.dictionaries(st.integers(2, 40), st.floats(1e-4, 10.0), max_size=8), st.floats(1e-4, 1.0))
def test_a_curve_never_falls_and_survives_storage(readings: dict[int, float], first: float) -> None:
    curve = VerifyCurve.measured({1: first} | readings, context_tokens=7, context_row_s=1e-6)
    costs = [curve.seconds(n) for n in range(1, 50)]
    assert costs == sorted(costs)
    assert VerifyCurve.from_dict(json.loads(json.dumps(curve.to_dict()))) == curve


@pytest.mark.parametrize(
    "stored",
    [
        {},
        [],
        {"seconds": {"1": "x"}},
        {"seconds": {"2": 1.0}, "context_tokens": 0, "context_pass_s": 0, "context_row_s": 0},
    ],
)
def test_what_is_no_stored_curve_is_a_value_error(stored: object) -> None:
    with pytest.raises(ValueError, match="not a stored verify curve"):
        VerifyCurve.from_dict(stored)  # type: ignore[arg-type]


@given(probabilities, st.integers(0, 16))
def test_equal_acceptances_give_the_geometric_sum_of_leviathan(alpha: float, k: int) -> None:
    assert expected_tokens([alpha] * k) == pytest.approx(expected_tokens_flat(alpha, k))


def test_expected_tokens_are_one_and_the_running_products() -> None:
    assert expected_tokens([]) == 1.0
    assert expected_tokens([0.9, 0.5, 0.0, 1.0]) == pytest.approx(1 + 0.9 + 0.45)


def test_the_acceptance_rate_counts_guesses_behind_a_rejected_one() -> None:
    assert acceptance_rate([0.5, 0.5]) == pytest.approx(0.375)
    assert acceptance_rate([]) is None


def test_a_round_without_guesses_costs_one_plain_pass_and_no_overhead() -> None:
    curve = VerifyCurve.typed([1.0, 1.1, 1.3])
    assert round_cost(0, curve, draft_step_s=0.1, overhead_s=0.2) == 1.0
    assert round_cost(2, curve, draft_step_s=0.1, overhead_s=0.2) == pytest.approx(1.3 + 0.2 + 0.2)


def test_speedup_is_tokens_per_cost_against_plain() -> None:
    curve = VerifyCurve.typed([2.0, 2.2, 2.6])  # any unit
    assert speedup([0.8] * 2, 2, curve=curve, draft_step_s=0.2) == pytest.approx((1 + 0.8 + 0.64) * 2.0 / 3.0)
    assert speedup([0.8] * 2, 0, curve=curve, draft_step_s=0.2) == 1.0


@given(st.lists(probabilities, max_size=8), st.floats(0.0, 2.0))
def test_no_other_k_beats_the_best_one(alphas: list[float], draft_step_s: float) -> None:
    curve = VerifyCurve.typed([1.0, 1.1, 1.3, 1.3, 1.4, 2.0])
    best = best_k(alphas, curve, draft_step_s=draft_step_s)
    reached = speedup(alphas, best, curve=curve, draft_step_s=draft_step_s)
    assert reached >= 1.0
    for k in range(len(alphas) + 1):
        assert speedup(alphas, k, curve=curve, draft_step_s=draft_step_s) <= reached


def test_the_best_k_stands_at_the_end_of_a_plateau() -> None:
    staircase = VerifyCurve.typed([1.0, 1.3, 1.3, 1.3, 1.9, 1.9, 1.9, 1.9])
    assert best_k([0.6] * 7, staircase, draft_step_s=0.0) == 3
    assert best_k([0.95] * 7, staircase, draft_step_s=0.0) == 7


def test_no_guess_is_best_when_a_guess_costs_as_much_as_a_pass() -> None:
    assert best_k([0.9] * 4, VerifyCurve.typed([1.0, 1.1]), draft_step_s=1.0) == 0
