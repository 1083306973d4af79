"""What rounds take, learnt from their times."""

from __future__ import annotations

import math
import random

import pytest

from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.round_times import RoundTimes

CURVE = VerifyCurve.measured({1: 0.050, 2: 0.055, 4: 0.067, 8: 0.072, 16: 0.095})


def times() -> RoundTimes:
    return RoundTimes(CURVE, {"draft_model": 0.005})


def ratio(learnt: RoundTimes, rows: int) -> float:
    return learnt.verify_s(rows, 0) / learnt.verify_s(1, 0)


def test_before_any_round_the_calibration_holds() -> None:
    fresh = times()
    assert fresh.verify_s(4, 0) == pytest.approx(0.067)
    assert fresh.draft_s("draft_model", 3) == pytest.approx(0.015)
    assert fresh.draft_s("lookup", 3) == 0.0
    assert fresh.plain_s(0) < fresh.verify_s(1, 0)


def test_a_stale_draft_pays_for_the_tokens_it_is_fed_first() -> None:
    fresh = times()
    assert fresh.draft_s("draft_model", 1, catch_up=8) == pytest.approx(0.005 * CURVE.shape(8))
    assert fresh.draft_s("draft_model", 1, catch_up=1) == fresh.draft_s("draft_model", 1)


def test_a_wrong_point_of_the_curve_is_corrected_by_its_rounds() -> None:
    learnt = times()
    for _ in range(20):
        learnt.learn_round(1, 0, round_s=0.050)
        learnt.learn_round(4, 0, round_s=0.120)
    assert learnt.verify_s(4, 0) == pytest.approx(0.120, rel=0.05)
    assert learnt.verify_s(1, 0) == pytest.approx(0.050, rel=0.05)


def test_one_plain_round_tells_a_slow_machine_from_a_wrong_curve() -> None:
    slow_machine, wrong_curve = times(), times()
    for learnt in (slow_machine, wrong_curve):
        for _ in range(10):
            learnt.learn_round(4, 0, round_s=2 * 0.067)
    slow_machine.learn_round(1, 0, round_s=2 * 0.050)
    wrong_curve.learn_round(1, 0, round_s=0.050)
    assert ratio(wrong_curve, 4) > 1.25 * ratio(slow_machine, 4)


def test_a_machine_that_gets_slower_keeps_the_shape_of_its_curve() -> None:
    learnt = times()
    for _ in range(60):
        for rows in (1, 4, 8):
            learnt.learn_round(rows, 0, round_s=1.5 * CURVE.seconds(rows))
    assert learnt.verify_s(8, 0) == pytest.approx(1.5 * 0.072, rel=0.05)
    assert ratio(learnt, 4) == pytest.approx(CURVE.shape(4), rel=0.05)
    assert learnt.verify_s(16, 0) == pytest.approx(1.5 * 0.095, rel=0.1)  # never seen, but the same machine


def test_noise_and_outliers_move_the_curve_little() -> None:
    rng = random.Random(1)
    learnt = times()
    for i in range(300):
        rows = rng.choice([1, 2, 4])
        outlier = 20.0 if i % 25 == 0 else 1.0
        learnt.learn_round(rows, 0, round_s=outlier * CURVE.seconds(rows) * math.exp(rng.gauss(0, 0.1)))
    for rows in (2, 4):
        assert ratio(learnt, rows) == pytest.approx(CURVE.shape(rows), rel=0.06)


def test_queued_plain_passes_have_a_cost_of_their_own() -> None:
    learnt = times()
    for _ in range(30):
        learnt.learn_round(1, 0, round_s=0.060)
        learnt.learn_plain(0, 0.050)
    assert learnt.plain_s(0) / learnt.verify_s(1, 0) == pytest.approx(50 / 60, rel=0.03)


def test_draft_and_pass_are_told_apart_by_rounds_of_different_k() -> None:
    learnt = times()
    for _ in range(60):
        for k in (1, 3, 7):
            seconds = CURVE.seconds(k + 1) + 0.010 * k  # the draft takes twice what was calibrated
            learnt.learn_round(k + 1, 0, round_s=seconds, drafter="draft_model", guesses=k)
        learnt.learn_round(1, 0, round_s=0.050)
    assert learnt.draft_s("draft_model", 1) == pytest.approx(0.010, rel=0.25)
    predicted = learnt.verify_s(8, 0) + learnt.draft_s("draft_model", 7)
    assert predicted == pytest.approx(0.072 + 0.070, rel=0.05)


def test_a_drafting_time_that_was_measured_is_the_draft_s_alone() -> None:
    learnt = times()
    for _ in range(20):
        learnt.learn_round(4, 0, round_s=0.067 + 0.03, drafter="draft_model", guesses=3, drafting_s=0.03)
    assert learnt.draft_s("draft_model", 3) == pytest.approx(0.03, rel=0.05)
    assert learnt.verify_s(4, 0) == pytest.approx(0.067, rel=0.05)


def test_the_corrected_curve_begins_the_next_run() -> None:
    learnt = times()
    for _ in range(20):
        learnt.learn_round(1, 0, round_s=0.050)
        learnt.learn_round(4, 0, round_s=0.100)
    again = RoundTimes(learnt.corrected(), learnt.corrected_steps())
    assert again.verify_s(4, 0) == pytest.approx(learnt.verify_s(4, 0), rel=0.01)
