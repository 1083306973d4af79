"""The doctor: the machine, pairs that are here and pairs that are not, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxspec.cli.program import run_program
from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.engine.pace import Pace, last_pace
from mlxspec.lab import prediction
from mlxspec.lab.machine import Level, Machine
from mlxspec.lab.prediction import Prediction
from mlxspec.models.known_size import known_size
from mlxspec.models.registry import load_registry
from mlxspec.places import places
from tests.test_engine import make_model

LINUX = VerifyCurve.measured({1: 1.0, 2: 1.1, 3: 1.23, 4: 1.34, 5: 1.38, 6: 1.39, 8: 1.45, 16: 1.9})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Path:
    root = tmp_path_factory.mktemp("models")
    make_model(root / "target", default_model)
    make_model(root / "draft", default_model, seed=5)
    foreign = make_model(root / "foreign", default_model, seed=0)
    words = json.loads((foreign / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab["Paris"], vocab["London"] = vocab.pop("London", 7001), vocab.pop("Paris", 7002)
    (foreign / "tokenizer.json").write_text(json.dumps(words))
    return root


def doctor(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    code = run_program(["doctor", *args, "--json"])
    return code, json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- the machine


def machine(**changes: Any) -> Machine:
    linux = {"device": "cpu", "blas": "openblas", "float32": True}
    return replace(Machine.this_one(), **(linux | changes))


def levels(of: Machine) -> list[Level]:
    return [finding.level for finding in of.findings()]


def test_the_reference_blas_is_a_problem_and_openblas_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    (problem,) = machine(blas="reference").findings()
    assert problem.level is Level.PROBLEM
    assert "libopenblas0" in problem.hint
    assert levels(machine()) == [Level.GOOD]


def test_a_gpu_that_is_not_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert "mlxspec[cuda13]" in next(machine().findings()).hint
    assert levels(machine(device="gpu")) == [Level.GOOD]


# ---------------------------------------------------------------- before anything is downloaded


def test_it_works_before_anything_is_downloaded(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = doctor(capsys, "--target", "qwen3-0.6b")
    assert code == 0
    assert report["target"]["on_disk"] is False
    assert report["compatible"] is None
    assert report["budget"]["fits"] is True
    assert any("mlxspec pull qwen3-0.6b" in finding["hint"] for finding in report["findings"])


def test_a_pair_of_the_registry_is_believed_until_it_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = doctor(capsys, "--target", "qwen3-4b")
    assert report["draft"]["name"] == "qwen3-0.6b"
    assert any("models.toml gives qwen3-4b" in finding["message"] for finding in report["findings"])


def test_sizes_come_from_the_registry_and_the_name() -> None:
    size = known_size(load_registry(places()).resolve("qwen3-4b"), None)
    assert size is not None
    assert size.stored_bytes == 2_300_000_000
    assert size.config == {"quantization": {"bits": 4, "group_size": 64}}


# ---------------------------------------------------------------- a pair that is here


def test_a_pair_that_is_here_is_examined(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--target", str(models / "target"), "--draft", str(models / "draft"), "--context", "300"]
    code, report = doctor(capsys, *args)
    assert code == 0
    assert report["compatible"] is True
    assert report["target"]["caches"] == {"KVCache": "trim"}
    assert report["context"] == 300
    assert report["budget"]["target_cache_bytes"] == report["budget"]["draft_cache_bytes"] == 512 * 128 * 4
    assert report["largest_context"] == 512


def test_a_draft_that_cannot_serve_is_a_problem(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--target", str(models / "target"), "--draft", str(models / "foreign")]
    code, report = doctor(capsys, *args)
    assert code == 1
    assert report["compatible"] is False
    assert "tokens differ" in report["reason"]


def test_what_does_not_fit_is_a_problem(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxspec.lab.doctor.memory_bytes", lambda: 1_000_000)
    code, report = doctor(capsys, "--target", str(models / "target"))
    assert code == 1
    assert any("does not fit" in finding["message"] for finding in report["findings"])


def test_a_damaged_model_is_a_finding_and_no_error(
    default_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = make_model(tmp_path / "broken", default_model)
    (broken / "model.safetensors").write_bytes(b"cut short")
    code, report = doctor(capsys, "--target", str(broken))
    assert code == 1
    assert any("damaged" in finding["message"] for finding in report["findings"])


# ---------------------------------------------------------------- speed


def test_calibrating_measures_again(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxspec.engine.pace.BUDGET_S", 0.01)
    target = str(models / "target")
    code, report = doctor(capsys, "--target", target, "--draft", "lookup", "--calibrate")
    assert code == 0
    assert report["prediction"]["source"] == "measured here"
    pace = last_pace(target, places())
    assert pace is not None
    before = pace.file.stat().st_mtime_ns
    doctor(capsys, "--target", target, "--draft", "lookup", "--calibrate")
    assert pace.file.stat().st_mtime_ns > before


def test_what_is_not_here_cannot_be_calibrated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["doctor", "--target", "qwen3-0.6b", "--calibrate"]) == 1
    assert "mlxspec pull qwen3-0.6b" in capsys.readouterr().err


def test_a_curve_measured_here_comes_before_a_published_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(LINUX, {"draft_model": 0.2}, AcceptanceHistory(), Path("unused"), measured_now=False)
    monkeypatch.setattr(prediction, "this_chip", lambda: "M4 Pro")
    monkeypatch.setattr(prediction, "last_pace", lambda _name, _where, **_: None)
    published = Prediction.of("a", 0.1, places())
    assert published is not None
    assert published.source == "published for M4 Pro"
    monkeypatch.setattr(prediction, "last_pace", lambda _name, _where, **_: pace)
    measured = Prediction.of("a", 0.1, places())
    assert measured is not None
    assert (measured.source, measured.draft_step) == ("measured here", 0.2)


def test_nothing_is_predicted_where_no_curve_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "this_chip", lambda: None)
    assert Prediction.of("nobody", 0.1, places()) is None


def test_better_guesses_bring_more_and_dear_ones_never_pay() -> None:
    cheap = Prediction("typed", LINUX, 0.05, None)
    speeds = [row.speedup for row in cheap.rows]
    assert speeds == sorted(speeds)
    assert cheap.break_even is not None
    assert cheap.at(cheap.break_even - 0.02).k == 0
    assert Prediction("typed", LINUX, 1.5, None).break_even is None


# ---------------------------------------------------------------- the command


def test_the_report_for_a_person_names_machine_pair_and_findings(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["doctor", "--target", str(models / "target")]) == 0
    out = capsys.readouterr().out
    for part in (
        "This machine",
        "made for 512 tokens",
        "KVCache gives rows back",
        "Draft: lookup",
        "Findings",
    ):
        assert part in out


@pytest.mark.parametrize("context", ["0", "513"])
def test_a_context_that_cannot_be_is_refused(
    models: Path, capsys: pytest.CaptureFixture[str], context: str
) -> None:
    assert run_program(["doctor", "--target", str(models / "target"), "--context", context]) == 2
    assert "from 1 to 512" in capsys.readouterr().err


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["doctor", "--target", "qwen3-4bb"]) != 0
    assert "qwen3-4b" in capsys.readouterr().err


def test_an_exit_behind_a_layer_that_is_not_there_is_refused(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["doctor", "--target", str(models / "target"), "--draft", "exit:99"]) == 2
    assert "exit:99 is no draft for a model of" in capsys.readouterr().err


def test_an_option_that_would_not_be_used_is_refused(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--target", str(models / "target"), "--draft", "auto --translate"]
    assert run_program(["doctor", *args]) == 2
    assert "auto is lookup here, which cannot have --translate" in capsys.readouterr().err
