"""The audit: what it compares, how it tells ties from bugs, and the command."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxspec.cli.program import run_program
from mlxspec.decoding.cache import PromptCache
from mlxspec.lab import audit as lab
from mlxspec.lab.audit import Audit, chi_square_test
from mlxspec.lab.drafts import load_draft, load_target, wanted
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.places import places
from tests.test_engine import make_model

PROMPT = BenchPrompt("code", "Write a loop.")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Path:
    root = tmp_path_factory.mktemp("models")
    make_model(root / "target", default_model)
    make_model(root / "other", default_model, seed=5)
    return root


def audit_of(models: Path, draft: str = "lookup", *, k: int = 4) -> Audit:
    named = str(models / draft) if draft == "other" else draft
    asked = wanted(str(models / "target"), [named], places())
    target = load_target(asked, places(), lambda _event: None)
    way = load_draft(asked.drafts[0], target, asked, places(), lambda _event: None, measure=False)
    return Audit(target, way, k=k, max_tokens=24)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("draft", ["lookup", "other"])
def test_speculation_writes_the_same_text(models: Path, draft: str, temperature: float) -> None:
    audit = audit_of(models, draft)
    check = audit.text(PROMPT, temperature=temperature)
    assert check.difference is None
    assert check.tokens == 24
    if (draft, temperature) != ("lookup", 0.7):  # noise repeats nothing that could be copied
        assert check.proposed > 0


def test_another_token_where_the_target_is_sure_is_a_bug(models: Path) -> None:
    audit = audit_of(models)
    prompt = audit._runner.prompt_ids(PROMPT.prompt)
    plain = audit._runner.plain(prompt, temperature=0.0, seed=0).ids
    wrong = (*plain[:5], plain[5] + 1, *plain[6:])
    difference = audit.difference(prompt, plain, wrong, temperature=0.0)
    assert difference is not None
    assert (difference.position, difference.plain, difference.speculative) == (5, plain[5], plain[5] + 1)
    assert difference.verdict == "bug"


def test_a_text_that_ends_early_is_a_bug(models: Path) -> None:
    audit = audit_of(models)
    difference = audit.difference([1, 2], (3, 4, 5), (3, 4), temperature=0.0)
    assert difference is not None
    assert difference.verdict == "bug"


class TwoEqualTokens:
    """A model for which tokens 3 and 4 are always as good as each other, and better than all others."""

    def __init__(self, gap: float = 0.0) -> None:
        self.layers = [None]
        self._row = mx.zeros(49152).at[mx.array([3, 4])].add(mx.array([10.0, 10.0 - gap]))

    def __call__(self, inputs: mx.array, cache: Sequence[Any]) -> mx.array:
        rows = inputs.shape[1]
        cache[0].update_and_fetch(mx.zeros((1, 1, rows, 1)), mx.zeros((1, 1, rows, 1)))
        return mx.broadcast_to(self._row, (1, rows, 49152))


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "tie"), (1e-6, "tie"), (1e-3, "bug")])
def test_two_tokens_that_rounding_cannot_tell_apart_are_a_tie(
    models: Path, monkeypatch: pytest.MonkeyPatch, gap: float, verdict: str
) -> None:
    audit = audit_of(models)
    model = TwoEqualTokens(gap)
    monkeypatch.setattr(lab, "PromptCache", lambda _model: PromptCache(model))
    difference = audit.difference([1] * 20, (7, 3), (7, 4), temperature=0.0)
    assert difference is not None
    assert difference.verdict == verdict
    assert difference.margin == pytest.approx(gap, abs=1e-6)


# ---------------------------------------------------------------- sampling


def test_the_first_token_is_drawn_from_the_target(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "DRAWS", 200)
    audit = audit_of(models, "other")
    certain, drawn = audit.sampling(PROMPT, temperature=0.3)
    assert min(certain.bins, drawn.bins) > 3
    assert certain.passed
    assert drawn.passed
    assert certain.draws == drawn.draws == 200


def test_a_wrong_distribution_fails(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: guesses that are kept whatever the target says."""
    monkeypatch.setattr(lab, "DRAWS", 200)
    audit = audit_of(models, "other")
    before = lab.judge

    def keeps_all(*args: Any, **options: Any) -> Any:
        judged = before(*args, **options)
        verdict = type(judged.verdict)(mx.array(1), judged.verdict.next_token)
        return replace(judged, verdict=verdict)

    monkeypatch.setattr(lab, "judge", keeps_all)
    assert not any(check.passed for check in audit.sampling(PROMPT, temperature=0.3))


def test_chi_square_accepts_its_own_distribution_and_not_another() -> None:
    p = [0.5, 0.3, 0.15, 0.05]
    rng = random.Random(1)
    drawn = rng.choices(range(4), p, k=2000)
    bins, _, p_value = chi_square_test(drawn, p)
    assert bins == 4
    assert p_value > 0.01
    assert chi_square_test(drawn, [0.4, 0.4, 0.15, 0.05])[2] < 1e-6


def test_chi_square_has_the_tail_of_the_tables() -> None:
    """16.919 is the 95 % point of nine degrees of freedom."""
    p = [0.1] * 10
    shift = round((16.919 * 100 / 2) ** 0.5)  # of two cells
    drawn: list[int] = []
    for token in range(10):
        drawn += [token] * (100 + (shift if token == 0 else -shift if token == 1 else 0))
    _, chi_square, p_value = chi_square_test(drawn, p)
    assert chi_square == pytest.approx(16.919, abs=0.4)
    assert p_value == pytest.approx(0.05, abs=0.01)


def test_a_token_that_cannot_be_is_a_failure() -> None:
    assert chi_square_test([1], [1.0, 0.0])[2] == 0.0


# ---------------------------------------------------------------- the command


def test_the_command_says_lossless_and_ends_with_0(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "DRAWS", 100)
    args = ["audit", "--target", str(models / "target"), "--draft", "lookup", "--prompt", "Write a loop."]
    assert run_program([*args, "--max-tokens", "12", "--temps", "0"]) == 0
    assert "Temperature 0: 1 of 1 answers are the same, 12 tokens" in (out := capsys.readouterr().out)
    assert out.endswith("Lossless: no answer was changed.\n")


def test_the_command_ends_with_1_when_there_is_a_bug(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "DRAWS", 100)
    decode = lab.Runner.run

    def damaged(self: Any, prompt: Any, drafters: Any, controller: Any, **options: Any) -> Any:
        run = decode(self, prompt, drafters, controller, **options)
        ids = (*run.ids[:-1], run.ids[-1] + 1) if drafters else run.ids
        return type(run)(ids, *(getattr(run, name) for name in run.__slots__[1:]))

    monkeypatch.setattr(lab.Runner, "run", damaged)
    args = ["audit", "--target", str(models / "target"), "--draft", "lookup", "--prompt", "Write a loop."]
    assert run_program([*args, "--max-tokens", "12", "--temps", "0", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["lossless"] is False
    assert report["texts"][0]["verdict"] == "bug"
    assert report["texts"][0]["difference"]["position"] == 11


@pytest.mark.parametrize(
    "args",
    [
        ["--num-draft", "0"],
        ["--num-draft", "17"],
        ["--draft", "none"],
        ["--draft", "layers:many"],
        ["--temps", "-1"],
        ["--temps", "warm"],
        ["--prompt", " "],
        ["--limit", "0"],
        ["--max-tokens", "0"],
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["audit", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2  # what happened, and what to do
