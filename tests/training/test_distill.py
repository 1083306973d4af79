"""From a wish to a folder that drafts, and what is said of it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxspec.cli.program import run_program
from mlxspec.decoding.sampling import Rule, SamplingParams
from mlxspec.drafters.drafting import DraftChoice, Workshop
from mlxspec.drafters.loading import DRAFT_FILE, made, understood
from mlxspec.errors import BrokenModel, IncompatiblePair, MlxspecError, UsageError
from mlxspec.models.loading import LoadedModel
from mlxspec.models.registry import load_registry
from mlxspec.places import places
from mlxspec.training import outcome
from mlxspec.training.distilling import Wish
from mlxspec.training.outcome import expected
from mlxspec.training.students import KINDS
from mlxspec.training.trainer import Report
from tests.test_decode import Answering
from tests.trainees import PROMPTS, distilled, some_wish


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_drafts_without_changing_an_answer(
    kind: str, tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    out = tmp_path / "draft"
    found = distilled(some_wish(corpus, kind=kind, learning_rate=3e-3, steps=20), out, target)
    assert [domain.name for domain in found.domains] == ["code", "chat"]
    assert found.step > 0
    drafters = made_of(out, target).drafters
    assert [drafter.name for drafter in drafters] == [kind, "lookup"]
    prompt = [1, 9, 9, 20]
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, top_p=1.0)
        answering = Answering(target.model, vocab=target.vocab_size)
        plain = answering.answer(prompt=prompt, params=params, rule=Rule.COUPLED)
        for rule in Rule:
            given = answering.answer(drafters[:1], 3, prompt=prompt, params=params, rule=rule)
            assert answering.stats.proposed > 0
            if rule is Rule.COUPLED or not temperature:
                assert given == plain
    assert answering.stats.drafters[kind].proposed > 0


def made_of(out: Path, target: LoadedModel) -> Any:
    registry = load_registry(places())
    workshop = Workshop(target, registry.resolve(str(target.folder)), registry, places(), lambda _event: None)
    return made(understood(DraftChoice(str(out)), workshop), workshop)


def test_an_interrupted_distillation_goes_on_with_its_options(
    tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    def stop(report: Report) -> None:
        if report.step == 2:
            raise KeyboardInterrupt

    out = tmp_path / "draft"
    with pytest.raises(KeyboardInterrupt):
        distilled(some_wish(corpus, kind="medusa"), out, target, step=stop)
    with pytest.raises(UsageError, match="already"):
        distilled(some_wish(corpus), out, target)
    steps: list[int] = []
    distilled(Wish(), out, target, resume=True, step=lambda report: steps.append(report.step))
    assert steps == [3, 4]
    assert json.loads((out / DRAFT_FILE).read_text())["kind"] == "medusa"


def test_without_a_corpus_the_target_makes_one(tmp_path: Path, target: LoadedModel) -> None:
    wish = Wish(kind="medusa", tokens=150, steps=2, vocabulary=128)
    distilled(wish, tmp_path / "one", target)
    stored = list(places().cache.glob("distill/*/corpus.jsonl.gz"))
    assert len(stored) == 1
    before = stored[0].read_bytes()
    distilled(wish, tmp_path / "two", target)
    assert stored[0].read_bytes() == before, "the corpus is kept"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "huge"}, "no kind 'huge'"),
        ({"corpus": "nowhere.jsonl.gz"}, "no corpus"),
        ({"kind": "exit", "layers": 2}, "no exit behind layer 2 of 2"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    with pytest.raises(UsageError, match=reason):
        distilled(replace(some_wish(corpus), **changes), tmp_path / "draft", target)


def test_too_few_conversations_are_refused(tmp_path: Path, target: LoadedModel) -> None:
    few = tmp_path / "few.jsonl.gz"
    few.write_bytes(gzip.compress(b"[1, 0.5, [1, 2, 3]]\n"))
    with pytest.raises(UsageError, match="too few"):
        distilled(some_wish(few), tmp_path / "draft", target)


def test_there_is_nothing_to_go_on_with(tmp_path: Path, target: LoadedModel, corpus: Path) -> None:
    with pytest.raises(UsageError, match="no training"):
        distilled(some_wish(corpus), tmp_path / "draft", target, resume=True)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory, target: LoadedModel, corpus: Path) -> Path:
    """A finished head."""
    out = tmp_path_factory.mktemp("drafts") / "head"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXSPEC_HOME", str(out.parent / "home"))
        patch.setattr(outcome, "CURVE_S", 0.01)
        patch.setattr(outcome, "TRIAL_TOKENS", 8)
        distilled(some_wish(corpus), out, target)
    return out


def changed_config(draft: Path, folder: Path, **values: Any) -> Path:
    import shutil

    shutil.copytree(draft, folder)
    config = json.loads((folder / DRAFT_FILE).read_text())
    (folder / DRAFT_FILE).write_text(json.dumps(config | values))
    return folder


@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        ({"vocabulary": "0"}, IncompatiblePair, "another vocabulary"),
        ({"width": 32}, IncompatiblePair, "hidden states of 32 values"),
        ({"shape": {}}, BrokenModel, "damaged"),
        ({"token_width": 32}, BrokenModel, "damaged"),
        ({"kind": "huge"}, BrokenModel, "'huge', which is not known"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(
    values: dict[str, Any],
    error: type[MlxspecError],
    reason: str,
    draft: Path,
    tmp_path: Path,
    target: LoadedModel,
) -> None:
    with pytest.raises(error, match=reason):
        made_of(changed_config(draft, tmp_path / "changed", **values), target)


def test_a_damaged_weight_file_is_named(draft: Path, tmp_path: Path, target: LoadedModel) -> None:
    folder = changed_config(draft, tmp_path / "cut")
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-500])
    with pytest.raises(BrokenModel, match="damaged"):
        made_of(folder, target)


def test_the_best_number_of_guesses_is_none_where_none_pays() -> None:
    from mlxspec.decoding.cost import VerifyCurve

    flat = VerifyCurve.typed([1.0, 1.1, 1.2, 1.3])
    assert expected((0.05,), flat, 0.2, bounded=False) == (0, 1.0)
    k, gain = expected((0.6, 0.5), flat, 0.05, bounded=True)
    assert k == 2
    assert gain == pytest.approx((1 + 0.6 + 0.3) / (1.2 + 0.1))


def test_the_command_trains_and_says_plainly_what_it_brings(
    tmp_path: Path,
    target: LoadedModel,
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlxspec.lab.prompts.bench_prompts", lambda: list(PROMPTS))
    monkeypatch.chdir(tmp_path)
    given = ["distill", "--target", str(target.folder), "--corpus", str(corpus), "--out", "draft"]
    assert run_program([*given, "--minutes", "0.01", "--draft-vocab", "128", "--kind", "medusa"]) == 0
    said = capsys.readouterr()
    assert "SPEED-UP" in said.out
    assert "does not pay" in said.out or "mlxspec run --draft draft" in said.out
    assert "held out" in said.err
    assert run_program(given) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--minutes", "0"],
        ["--steps", "0"],
        ["--tokens", "0"],
        ["--draft-vocab", "1"],
        ["--prompts", "nowhere.jsonl"],
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["distill", *wrong]) == 2
    assert "mlxspec:" in capsys.readouterr().err
