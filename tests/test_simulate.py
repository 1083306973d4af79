"""The acceptance lab: closed form against chance, published figures, and the command."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from mlxspec.cli.program import run_program
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.engine.pace import Pace
from mlxspec.errors import UsageError
from mlxspec.lab.chips import CHIPS, PairOnChip, chip_curve, figures, find_chip
from mlxspec.lab.simulate import Setting, acceptances, predict, run_controller, sample, sweep
from mlxspec.places import places

LINUX = VerifyCurve.measured({1: 1.0, 2: 1.1, 3: 1.23, 4: 1.34, 5: 1.38, 6: 1.39, 8: 1.45, 16: 1.9})


def setting(*alphas: float, draft_step: float = 0.1) -> Setting:
    return Setting(acceptances(alphas), LINUX, draft_step)


# ---------------------------------------------------------------- formula and chance


@pytest.mark.parametrize("k", [0, 1, 4, 16])
@pytest.mark.parametrize("alphas", [(0.0,), (0.3,), (0.8,), (1.0,), (0.9, 0.5, 0.7)])
def test_chance_agrees_with_the_closed_form(alphas: tuple[float, ...], k: int) -> None:
    exact = predict(setting(*alphas), k)
    drawn = sample(setting(*alphas), k, rounds=5000, rng=random.Random(1))
    assert drawn.tokens_per_pass == pytest.approx(exact.tokens_per_pass, abs=4 * drawn.tokens_error + 1e-9)
    assert drawn.speedup == pytest.approx(exact.speedup, abs=4 * drawn.speedup_error + 1e-9)


def test_one_acceptance_is_for_all_guesses_and_the_last_of_several_goes_on() -> None:
    assert acceptances([0.8]) == (0.8,) * 16
    assert acceptances([0.9, 0.5])[:4] == (0.9, 0.5, 0.5, 0.5)


@pytest.mark.parametrize("values", [[], [1.01], [-0.1], [0.5, float("nan")]])
def test_acceptance_outside_0_to_1_is_a_usage_error(values: list[float]) -> None:
    with pytest.raises(UsageError):
        acceptances(values)


def test_the_controller_comes_close_to_the_best_k_of_the_formula() -> None:
    world = setting(0.8)
    best = predict(world, world.best_k())
    played = run_controller(world, tokens=2000, rng=random.Random(0))
    assert 0.9 * best.speedup < played.speedup < 1.05 * best.speedup


def test_a_sweep_goes_from_acceptances_that_do_not_pay_to_ones_that_do() -> None:
    rows = sweep(setting(0.5), [1, 2, 4])
    speeds = [[prediction.speedup for prediction in predictions] for _, _, predictions in rows]
    assert all(
        before < after for low, high in pairwise(speeds) for before, after in zip(low, high, strict=True)
    )
    assert max(speeds[0]) < 1.0 < max(speeds[-1])


# ---------------------------------------------------------------- published figures

MLX_LM_K = 2
"""What mlx-lm's speculative_generate_step guesses a round unless told otherwise."""

SAME_FAMILY = 0.75
"""Acceptance of a small model of the target's own family, where it was not published."""

BILLIONS = {
    "Qwen2.5-3B": 3.0,
    "Qwen2.5-0.5B": 0.5,
    "32B": 32.0,
    "0.5B": 0.5,
    "Qwen2.5-7B 4-bit": 7.0,
    "1.5B": 1.5,
}


def pair_of(checkpoint: dict[str, Any]) -> PairOnChip:
    """Target and draft as published. Where they were "various", the pair that suits speculation best."""
    if "draft" not in checkpoint:
        return PairOnChip(checkpoint["chip"], 31.8, size_ratio=0.5 / 32)
    ratio = BILLIONS[checkpoint["draft"]] / BILLIONS[checkpoint["target"]]
    return PairOnChip(checkpoint["chip"], checkpoint["plain"], size_ratio=ratio)


@pytest.mark.parametrize(
    "checkpoint",
    figures()["checkpoint"],
    ids=lambda checkpoint: f"{checkpoint['chip']} {checkpoint['target']}",
)
def test_the_model_wins_and_loses_where_others_did(checkpoint: dict[str, Any]) -> None:
    pair = pair_of(checkpoint)
    k = checkpoint.get("k", MLX_LM_K)
    published = checkpoint.get("ratio") or [checkpoint["speculative"] / checkpoint["plain"]]
    for alpha in checkpoint.get("acceptance", [SAME_FAMILY]):
        predicted = pair.speedup(acceptances([alpha]), k)
        for ratio in published:
            assert (predicted > 1.0) == (ratio > 1.0)
            assert 0.6 < predicted / ratio < 1.7


def test_wins_and_losses_are_both_published() -> None:
    ratios = [c["speculative"] / c["plain"] for c in figures()["checkpoint"] if "plain" in c]
    assert min(ratios) < 1.0 < max(ratios)


def test_every_chip_has_a_curve_with_its_sources() -> None:
    for chip in CHIPS:
        found = chip_curve(chip)
        assert found.curve.seconds(1) == 1.0
        assert found.curve.seconds(8) > 1.5
        assert all("(" in reading for reading in found.readings)


def test_a_chip_s_own_curve_comes_before_its_relatives_and_two_bits_count_not() -> None:
    assert chip_curve("M3 Pro").curve.seconds(8) == pytest.approx(3.44)
    assert chip_curve("M3 Max").readings == chip_curve("M3 Pro").readings
    assert chip_curve("M1").readings == chip_curve("M2 Max").readings
    assert not any("2-bit" in reading for reading in chip_curve("M4").readings)
    assert chip_curve("M2 Ultra").curve.seconds(4) < chip_curve("M2 Max").curve.seconds(4)


def test_a_chip_is_found_however_it_is_spelled() -> None:
    assert find_chip("m4pro") == find_chip("Apple M4 Pro") == find_chip("M4  PRO") == "M4 Pro"


# ---------------------------------------------------------------- the command


def simulate(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run_program(["simulate", *options]) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(simulate(capsys, "--json", *options))
    return parsed


def test_without_options_it_compares_plain_with_one_to_eight_guesses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = simulate(capsys)
    assert "plain" in text
    assert "Best: 2 guesses a round" in text
    assert "█" in text
    assert "With the controller" in text


def test_a_typed_curve_may_be_in_any_unit(capsys: pytest.CaptureFixture[str]) -> None:
    relative = as_json(capsys, "--curve", "1,1.1,1.3")
    milliseconds = as_json(capsys, "--curve", "50, 55, 65")
    assert relative["best_k"] == milliseconds["best_k"]
    assert relative["table"][2]["speedup"] == pytest.approx(milliseconds["table"][2]["speedup"])


def test_what_was_measured_here_is_the_curve_of_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    measured = VerifyCurve.typed([0.05, 0.06, 0.07])
    file = places().cache / "pace" / f"my-model-{'0' * 16}.json"
    Pace(measured, {"draft_model": 0.01}, {}, file, measured_now=True).save()
    answer = as_json(capsys, "--target", "my/model")
    assert answer["curve"]["2"] == pytest.approx(1.2)
    assert answer["draft_cost"] == pytest.approx(0.2)
    assert answer["table"][0]["tokens_per_s"] == pytest.approx(20.0)
    assert as_json(capsys, "--target", "my/model", "--draft-cost", "0.5")["draft_cost"] == 0.5


def test_json_has_the_table_the_chance_run_and_the_controller(capsys: pytest.CaptureFixture[str]) -> None:
    answer = as_json(capsys, "--alpha", "0.9,0.7,0.5", "--draft-cost", "0.05", "--chip", "m2 pro", "--k", "2")
    assert [row["k"] for row in answer["table"]] == [0, 2]
    assert answer["table"][1]["tokens_per_pass"] == pytest.approx(1 + 0.9 + 0.63)
    assert answer["monte_carlo"]["k"] == 2
    assert answer["monte_carlo"]["tokens_per_pass"] == pytest.approx(2.53, abs=0.05)
    assert answer["controller"]["speedup"] > 0.98
    assert answer["curve_source"] == "M2 Pro"


def test_plain_speed_adds_tokens_a_second_and_the_chip_s_overheads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    without = as_json(capsys, "--chip", "M4")
    with_speed = as_json(capsys, "--chip", "M4", "--plain", "50")
    assert with_speed["overhead"] > without["overhead"] == 0.0
    assert with_speed["table"][0]["tokens_per_s"] == 50.0
    assert with_speed["table"][2]["speedup"] < without["table"][2]["speedup"]
    assert "TOK/S" in simulate(capsys, "--chip", "M4", "--plain", "50")


def test_a_sweep_is_a_table_with_a_bar_for_each_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    text = simulate(capsys, "--sweep")
    assert "Speed-up by acceptance" in text
    assert len([line for line in text.split("Speed-up by acceptance")[1].splitlines() if "k=" in line]) == 10


def test_where_nothing_pays_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "speculation does not pay here" in simulate(capsys, "--alpha", "0.1", "--draft-cost", "1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--alpha", "1.2"], "outside 0 to 1"),
        (["--alpha", "0.9,-1"], "outside 0 to 1"),
        (["--alpha", "nan"], "outside 0 to 1"),
        (["--alpha", "high"], "no list of numbers"),
        (["--alpha", ""], "no list of numbers"),
        (["--curve", "1,1.3,1.2"], "falls"),
        (["--curve", "0,1"], "above zero"),
        (["--curve", ","], "no list of numbers"),
        (["--chip", "M4 Prp"], "Name one of M4 Pro,"),
        (["--chip", "Snapdragon"], "no figures"),
        (["--chip", "M4", "--curve", "1,2"], "--curve and --chip cannot"),
        (["--target", "smollm2-135m"], "Nothing has been measured"),
        (["--k", "17"], "from 0 to 16"),
        (["--k", "-1"], "from 0 to 16"),
        (["--draft-cost", "-0.1"], "makes no sense"),
        (["--draft-cost", "nan"], "makes no sense"),
        (["--plain", "0"], "makes no sense"),
    ],
)
def test_wrong_input_is_two_sentences_and_exit_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["simulate", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert len(shown.err.strip().splitlines()) == 2
