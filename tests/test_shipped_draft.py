"""A draft that comes with mlxspec: a small one, trained for a tiny target, in the place of the real one."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gguf_files import tiny_model

from mlxspec.cli.completion import draft_names, model_names
from mlxspec.cli.program import run_program
from mlxspec.engine import Engine, LoadRequest
from mlxspec.events import Loaded, Notice
from mlxspec.lab.drafts import load_draft, load_target, wanted
from mlxspec.models.loading import LoadedModel
from mlxspec.models.registry import ShippedSource
from mlxspec.places import places
from tests.test_engine import ask, failed, finished
from tests.trainees import distilled, make_quick, some_wish, tiny_corpus, tiny_target

NAME = "smollm2-draft"


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return tiny_target(tmp_path_factory)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, target: LoadedModel) -> Path:
    out = tmp_path_factory.mktemp("shipped") / NAME
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXSPEC_HOME", str(out.parent / "home"))
        make_quick(patch)
        distilled(some_wish(tiny_corpus(tmp_path_factory), learning_rate=3e-3, steps=20), out, target)
    shutil.rmtree(out / "training", ignore_errors=True)
    return out


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trained: Path, target: LoadedModel) -> None:
    """`mine` has the draft as its own; `other` has other tokens."""
    monkeypatch.setattr(ShippedSource, "path", property(lambda _source: trained))
    monkeypatch.setattr("mlxspec.engine.pace.BUDGET_S", 0.01)
    other = tiny_model(tmp_path / "other")
    words = json.loads((other / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    first, second = sorted(vocab, key=vocab.get)[-2:]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (other / "tokenizer.json").write_text(json.dumps(words))
    places().config.mkdir(parents=True)
    places().user_models.write_text(
        f'default_target = "mine"\n[models.{NAME}]\nshipped = "{NAME}"\n'
        f'[models.mine]\npath = "{target.folder}"\ndraft = "{NAME}"\n'
        f'[models.other]\npath = "{other}"\ndraft = "{NAME}"\n'
    )


def json_of(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[dict[str, Any]]]:
    code = run_program([*args, "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_auto_takes_it_with_lookup_and_no_answer_changes() -> None:
    with Engine() as engine:
        list(engine.load(LoadRequest(draft="none", datastore=False)))
        plain = finished(ask(engine, "hello hello"))
        loaded = list(engine.load(LoadRequest(datastore=False)))[-1]
        assert isinstance(loaded, Loaded)
        assert loaded.draft == NAME
        answer = finished(ask(engine, "hello hello"))
    assert answer.ids == plain.ids
    assert answer.stats.drafters["head"].proposed > 0


def test_the_lab_knows_it_by_name_and_as_auto() -> None:
    for draft in (NAME, "auto"):
        asked = wanted(None, [draft], places())
        assert asked.drafts == (NAME,)
    loaded = load_target(asked, places(), lambda _event: None)
    way = load_draft(NAME, loaded, asked, places(), lambda _event: None)
    assert [drafter.name for drafter in way.drafters] == ["head", "lookup"]
    assert way.steps["head"] > 0


@pytest.mark.parametrize(
    "command", [["audit", "--temps", "0"], ["bench", "--pairs", "1", "--temps", "0", "--draft", NAME]]
)
def test_audit_and_bench_run_with_it(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, (report,) = json_of(capsys, *command, "--prompt", "hello", "--max-tokens", "8")
    assert code == 0
    assert NAME in json.dumps(report)


def test_audit_checks_the_tokens_that_follow_its_guesses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxspec.lab.audit.DRAWS", 200)
    _, (report,) = json_of(capsys, "audit", "--temps", "0", "--prompt", "hello", "--max-tokens", "2")
    assert [check["guesses"] for check in report["sampling"]] == ["certain guesses", "guesses drawn by head"]


def test_doctor_says_that_it_fits_its_target_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    code, (report,) = json_of(capsys, "doctor", "--calibrate")
    assert code == 0
    assert (report["drafter"], report["compatible"], report["reason"]) == (NAME, True, None)
    assert report["draft"]["on_disk"]
    assert report["draft"]["context_tokens"] is None, "it reads as far as its target"
    assert report["prediction"]["draft_cost"] > 0
    assert report["budget"]["draft_cache_bytes"] > 0


def test_a_target_that_is_not_its_own_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, (report,) = json_of(capsys, "doctor", "--target", "other")
    assert (code, report["compatible"]) == (1, False)
    assert report["reason"] == "it was made for another vocabulary"
    with Engine() as engine:
        refusal = failed(list(engine.load(LoadRequest("other", NAME, datastore=False))))
        assert refusal.message == f"{NAME} cannot draft for other: it was made for another vocabulary."
        *events, loaded = engine.load(LoadRequest("other", datastore=False))
        assert isinstance(loaded, Loaded)
        assert loaded.draft == "lookup"
        assert any(
            isinstance(event, Notice) and "lookup guesses instead" in event.message for event in events
        )


def test_models_lists_it_as_a_draft(capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = json_of(capsys, "models")
    (row,) = [row for row in rows if row["name"] == NAME]
    assert (row["on_disk"], row["only_drafts"], row["fits"], row["draft"]) == (True, True, None, None)
    (mine,) = [row for row in rows if row["name"] == "mine"]
    assert (mine["draft"], mine["fits"], mine["only_drafts"]) == (NAME, "yes", False)
    run_program(["models"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == [NAME]]
    assert line.endswith("a draft that comes with mlxspec")
    assert NAME in draft_names("smol")
    assert NAME not in model_names("smol")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["rm", NAME, "--yes"], 2, "part of mlxspec"),
        (["run", "--target", NAME, "hello"], 1, "cannot answer"),
        (["run", "--draft", f"{NAME} --translate", "hello"], 2, "cannot have --translate"),
        (["run", "--draft-vocab", "9", "hello"], 2, f"auto is {NAME} here, which cannot have --draft-vocab"),
        (["doctor", "--draft", f"{NAME} --translate"], 2, "cannot have --translate"),
        (["bench", "--draft", f"{NAME} --draft-vocab 9"], 2, "cannot have --draft-vocab"),
    ],
)
def test_what_it_cannot_do_is_said(
    command: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert run_program(command) == code
    assert words in capsys.readouterr().err


def test_where_it_is_missing_lookup_guesses_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ShippedSource, "path", property(lambda _source: tmp_path / "gone"))
    with Engine() as engine:
        *events, loaded = engine.load(LoadRequest(datastore=False))
    assert isinstance(loaded, Loaded)
    assert loaded.draft == "lookup"
    assert any(isinstance(event, Notice) and "install mlxspec again" in event.message for event in events)
    assert run_program(["pull", "mine"]) == 1
    assert "comes with mlxspec" in capsys.readouterr().err
