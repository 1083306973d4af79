"""The bench: what it measures, its figures, its pictures, and the command."""

from __future__ import annotations

import csv
import io
import json
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxspec.cli.program import run_program
from mlxspec.drafters.datastore import Datastore, datastore_path
from mlxspec.errors import IncompatiblePair, UsageError
from mlxspec.lab import bench as bench_module
from mlxspec.lab.bench import Bench, Plan
from mlxspec.lab.bench_plot import svg
from mlxspec.lab.bench_results import DraftResult, PromptResult, summarise
from mlxspec.lab.bench_table import CSV_COLUMNS, as_csv, bars, table
from mlxspec.lab.drafts import first_layers, load_draft, load_target, rounded, wanted
from mlxspec.lab.prompts import BenchPrompt, chosen_prompts
from mlxspec.lab.runs import repeated_share
from mlxspec.places import places
from tests.test_engine import make_model

PROMPTS = (BenchPrompt("code", "Write a loop."), BenchPrompt("story", "Tell of the sea."))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Path:
    root = tmp_path_factory.mktemp("models")
    make_model(root / "target", default_model)
    make_model(root / "other", default_model, seed=5)
    foreign = make_model(root / "foreign", default_model)
    words = json.loads((foreign / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab["Paris"], vocab["London"] = vocab.pop("London", 7001), vocab.pop("Paris", 7002)
    (foreign / "tokenizer.json").write_text(json.dumps(words))
    return root


@pytest.fixture(autouse=True)
def quick_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxspec.engine.pace.BUDGET_S", 0.01)


def measure(models: Path, *drafts: str, **plan: Any) -> tuple[list[DraftResult], list[tuple[int, int, str]]]:
    steps: list[tuple[int, int, str]] = []
    asked = wanted(str(models / "target"), drafts, places())
    target = load_target(asked, places(), lambda _event: None)
    ways = [load_draft(name, target, asked, places(), lambda _event: None) for name in asked.drafts]
    settled = Plan(**{"prompts": PROMPTS, "pairs": 2, "max_tokens": 12, **plan})
    bench = Bench(target, ways, plan=settled, progress=lambda *step: steps.append(step))
    return bench.run(), steps


# ---------------------------------------------------------------- measuring


def test_every_draft_and_temperature_has_its_results(models: Path) -> None:
    results, steps = measure(models, "lookup", str(models / "other"), temperatures=(0.0, 1.0))
    assert [(r.temperature, r.draft) for r in results] == [
        (0.0, "lookup"),
        (0.0, str(models / "other")),
        (1.0, "lookup"),
        (1.0, str(models / "other")),
    ]
    for result in results:
        assert [prompt.domain for prompt in result.prompts] == ["code", "story"]
        for prompt in result.prompts:
            assert prompt.tokens == 12
            assert prompt.emitted == 24  # of two pairs
            assert 0 <= prompt.accepted <= prompt.proposed
            assert min(prompt.plain_tok_s, prompt.tok_s, prompt.speedup, prompt.null, prompt.ttft_s) > 0
            assert 0.0 <= prompt.parked <= 1.0
            assert prompt.baseline_tok_s is None
            assert prompt.same_text is (True if result.temperature == 0 else None)
    assert [done for done, _, _ in steps] == list(range(steps[0][1]))


def test_mlx_lm_is_compared_with_its_best_number_of_guesses(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxspec.lab.mlx_lm_runs.MOST_GUESSES", 2)
    draft = str(models / "other")
    results, steps = measure(models, "lookup", draft, pairs=1, prompts=PROMPTS[:1], against_mlx_lm=True)
    copied, drafted = (result.prompts[0] for result in results)
    assert results[0].mlx_lm_k is None  # mlx-lm has no lookup
    assert copied.baseline_tok_s == copied.baseline_plain_tok_s
    assert copied.over_baseline == copied.over_baseline_plain
    assert set(results[1].mlx_lm_by_k) == {1, 2}
    assert drafted.baseline_tok_s == drafted.baseline_speculative_tok_s
    assert drafted.over_baseline == pytest.approx(drafted.tok_s / (drafted.baseline_tok_s or 0))
    assert len(steps) == steps[0][1]


def test_mlx_lm_writes_the_same_greedy_text(models: Path) -> None:
    from mlxspec.lab import mlx_lm_runs
    from mlxspec.lab.runs import Runner

    asked = wanted(str(models / "target"), ["lookup"], places())
    target = load_target(asked, places(), lambda _event: None)
    runner = Runner(target, max_tokens=12)
    ids = runner.prompt_ids("Write a loop.")
    ours = runner.plain(ids, temperature=0.0, seed=0).ids
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0, "seed": 0}
    assert mlx_lm_runs.plain(target, ids, **options).ids == ours
    assert mlx_lm_runs.speculative(target, target.model, ids, k=3, **options).ids == ours


def test_timed_runs_know_nothing_of_the_cold_run(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learnt from a prompt serves the next one only."""
    begun: list[Any] = []
    from mlxspec.lab import bench

    controller = bench.AdaptiveController

    def recorded(curve: Any, steps: Any, history: Any) -> Any:
        begun.append(history.to_dict())
        return controller(curve, steps, history)

    monkeypatch.setattr(bench, "AdaptiveController", recorded)
    measure(models, str(models / "other"), pairs=2, prompts=PROMPTS[:1])
    assert begun == [{}, {}, {}]


# ---------------------------------------------------------------- drafts


def test_drafts_are_named_once_and_auto_is_lookup_where_there_is_none(models: Path) -> None:
    asked = wanted(str(models / "target"), ["auto", "lookup", "3bit", "layers:2"], places())
    assert asked.drafts == ("lookup", "3bit", "layers:2")


@pytest.mark.parametrize("draft", ["layers:", "layers:x", "layers:-1"])
def test_a_misspelt_draft_is_refused_before_anything_is_loaded(models: Path, draft: str) -> None:
    with pytest.raises(UsageError):
        wanted(str(models / "target"), [draft], places())


@pytest.mark.parametrize("draft", ["auto --translate", "auto --draft-vocab 9", "3bit --translate"])
def test_an_option_that_would_not_be_used_is_refused(models: Path, draft: str) -> None:
    with pytest.raises(UsageError, match="cannot have --"):
        wanted(str(models / "target"), [draft], places())


def test_a_model_of_other_tokens_cannot_draft(models: Path) -> None:
    with pytest.raises(IncompatiblePair):
        measure(models, str(models / "foreign"))


def test_rounding_and_cutting_leave_the_target_alone(default_model: Path, tmp_path: Path) -> None:
    from tests.tiny_models import build

    del default_model, tmp_path
    model: Any = build("llama")
    before = {name: mx.array(array) for name, array in tree_flatten(model.parameters())}
    short: Any = first_layers(model, 2)
    rounded(model)
    assert len(short.layers) == 2
    assert len(model.layers) == 4
    assert all(mx.array_equal(before[name], array) for name, array in tree_flatten(model.parameters()))
    for count in (0, 4):
        with pytest.raises(UsageError, match="4 layers"):
            first_layers(model, count)


# ---------------------------------------------------------------- figures

RESULT = PromptResult(
    domain="code",
    prompt="Write a loop.",
    prompt_tokens=9,
    tokens=100,
    plain_tok_s=50.0,
    tok_s=100.0,
    speedup=2.0,
    null=1.0,
    proposed=40,
    accepted=30,
    emitted=100,
    passes=50,
    k=4.0,
    parked=0.25,
    ttft_s=0.2,
    plain_ttft_s=0.1,
    peak_memory_bytes=10**9,
    repeated_8grams=0.1,
    same_text=True,
)
SLOW = replace(RESULT, domain="<story>", tok_s=25.0, speedup=0.5, null=1.04, proposed=0, accepted=0, k=0.0)
BOTH = DraftResult(0.0, "lookup", (RESULT, SLOW), {})
COMPARED = DraftResult(
    0.7,
    "small",
    (replace(RESULT, baseline_tok_s=80.0, over_baseline=1.25, over_baseline_plain=1.9),),
    {1: 70.0, 2: 80.0},
)


def test_prompts_are_joined_by_geometric_means_and_counts() -> None:
    summary = summarise("all", BOTH.prompts)
    assert summary.speedup == pytest.approx(1.0)
    assert summary.tok_s == pytest.approx(50.0)
    assert summary.acceptance == 0.75
    assert summary.k == 4.0  # of the prompt that had guesses
    assert BOTH.worst is SLOW


def test_json_has_what_the_bars_are_read_from() -> None:
    record = json.loads(json.dumps(BOTH.as_dict()))
    assert (record["temperature"], record["draft"]) == (0.0, "lookup")
    assert record["geomean"] == pytest.approx(1.0)
    assert record["worst"] == 0.5
    assert record["null"] == pytest.approx(1.04**0.5)
    assert record["prompts"][0]["speedup"] == 2.0
    assert record["prompts"][0]["baseline_tok_s"] is None
    assert [domain["domain"] for domain in record["domains"]] == ["code", "<story>"]


def test_the_table_has_a_line_a_domain_and_names_the_worst_prompt() -> None:
    lines = table(BOTH)
    assert [line.split()[0] for line in lines[1:5]] == ["DOMAIN", "code", "<story>", "all"]
    assert "2.00x" in lines[2]
    assert lines[5] == "Worst 0.50x, <story>: Write a loop."
    assert not any("MLX-LM" in line for line in lines)
    compared = table(COMPARED)
    assert "MLX-LM" in compared[1]
    assert "1.25x" in compared[2]
    assert any("best k, 2" in line and "1.90x" in line for line in compared)


def test_a_changed_answer_is_not_kept_quiet() -> None:
    changed = replace(BOTH, prompts=(replace(RESULT, same_text=False), SLOW))
    assert any("mlxspec audit" in line for line in table(changed))


def test_csv_has_a_line_a_prompt_under_the_names_of_its_columns() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv([BOTH, COMPARED]))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [row["draft"] for row in rows] == ["lookup", "lookup", "small"]
    assert (rows[0]["baseline_tok_s"], rows[2]["baseline_tok_s"]) == ("", "80.0")


def test_bars_are_as_long_as_the_speed_and_mark_plain_decoding() -> None:
    code, story, _ = bars([BOTH])[1:]
    assert code.count("█") == 40
    assert story.count("█") == 10
    assert story.index("┊") - story.index("█") == 20


def test_the_picture_is_xml_whatever_the_names_are() -> None:
    root = ElementTree.fromstring(svg([BOTH, COMPARED][:1], 'a <b> & "c" \x1b'))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<story>" in texts
    assert any("lookup, temperature 0: 1.00x" in (text or "") for text in texts)


def test_repeated_8grams_are_counted_within_the_answer() -> None:
    assert repeated_share(range(50)) == 0.0
    assert repeated_share([1, 2, 3]) == 0.0
    assert repeated_share([5] * 17) == pytest.approx(0.9)


# ---------------------------------------------------------------- the command


def bench(models: Path, *args: str) -> int:
    short = ["--prompt", "Write a loop.", "--max-tokens", "8", "--pairs", "1", "--draft", "lookup"]
    return run_program(["bench", "--target", str(models / "target"), *short, *args])


def test_the_command_writes_tables_json_csv_and_a_picture(
    models: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "speed.svg"
    assert bench(models, "--plot", "--save", str(picture)) == 0
    out = capsys.readouterr().out
    assert "Draft lookup, temperature 0" in out
    assert "speed-up, ┊ is plain decoding" in out
    assert "for a first look" in out  # one pair is no claim
    ElementTree.parse(picture)
    assert bench(models, "--json", "--save", str(tmp_path / "speed.png")) == 0
    capsys.readouterr()
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["speed.png", "speed.svg"]
    assert bench(models, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["pairs"], record["max_tokens"], len(record["results"])) == (1, 8, 1)
    assert bench(models, "--csv") == 0
    assert capsys.readouterr().out.startswith("temperature,draft,domain,prompt")


def test_a_png_needs_a_package_more(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr("mlxspec.cli.bench.find_spec", lambda _name: None)
    assert bench(models, "--save", "speed.png") == 2
    assert "mlxspec[png]" in capsys.readouterr().err


def test_the_number_of_guesses_can_be_fixed(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--prompt", "a b c a b c a b c", "--json", "--num-draft", "2"]
    assert bench(models, *arguments) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["num_draft"] == 2
    assert record["results"][0]["prompts"][0]["k"] <= 2


@pytest.mark.parametrize("done", [0, 2])
def test_ctrl_c_keeps_the_prompts_that_are_done(
    done: int, models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, begun = bench_module._Turn.measure, []

    def interrupted(turn: bench_module._Turn) -> dict[str, PromptResult]:
        begun.append(turn)
        if len(begun) > done:
            raise KeyboardInterrupt
        return measure(turn)

    monkeypatch.setattr(bench_module._Turn, "measure", interrupted)
    short = ["--limit", "3", "--max-tokens", "4", "--pairs", "1", "--draft", "lookup"]
    assert run_program(["bench", "--target", str(models / "target"), *short]) == 130
    assert ("Stopped after 2 of 3 prompts" in capsys.readouterr().out) == bool(done)


def test_the_datastore_is_read_when_asked_for_and_never_added_to(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench(models, "--datastore") == 2
    assert "no datastore" in capsys.readouterr().err
    target = load_target(wanted(str(models / "target"), [], places()), places(), lambda _event: None)
    path = datastore_path(places(), target.tokenizer.get_vocab())
    earlier = Datastore(path, target="any", vocab_size=49152)
    earlier.learn(range(100))
    earlier.close()
    looked_up: list[int] = []
    monkeypatch.setattr(Datastore, "counts", lambda _self, key: looked_up.append(key) or {})
    monkeypatch.setattr(Datastore, "learn", lambda _self, _tokens: pytest.fail("measuring taught"))
    assert bench(models) == 0
    assert not looked_up
    assert bench(models, "--datastore") == 0
    assert looked_up
    assert "with your datastore" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        ["--baseline", "llama.cpp"],
        ["--pairs", "0"],
        ["--num-draft", "17"],
        ["--max-tokens", "0"],
        ["--limit", "0"],
        ["--temps", ""],
        ["--temps", "0,nan"],
        ["--temps", "inf"],
        ["--json", "--csv"],
        ["--save", "speed.gif"],
        ["--num-draft", "0"],
        ["--save", "nowhere/speed.svg"],
        ["--save", "/dev/null/speed.svg"],
        ["--save", "folder.svg"],
        ["--draft", ","],
        ["--prompt", ""],
        ["--prompts", "nowhere.jsonl"],
        ["--prompts", "nowhere.jsonl", "--prompt", "Hello"],
        ["--draft", "layers:many"],
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(
    args: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    assert run_program(["bench", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2  # what happened, and what to do
    assert [file.name for file in tmp_path.glob("*.*")] == ["folder.svg"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "one"}\n{"prompt": \n', "Line 2"),
        (b'{"prompt": "one"}\n\n{"domain": "code"}\n', "Line 3"),
        (b'{"prompt": "\\ud800"}\n', "Line 1"),
        (b"[1]\n", "Line 1"),
        (b"\n\n", "has no prompts"),
        (b"\x89PNG\xff\xfe", "no text in UTF-8"),
    ],
)
def test_a_broken_prompts_file_is_named_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        chosen_prompts(file, None, None)


def test_a_prompt_may_hold_any_line_separator_but_the_line_feed(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes('\ufeff{"prompt": "a\u2028b\x85c"}\r\n'.encode())
    assert chosen_prompts(file, None, None) == (BenchPrompt("all", "a\u2028b\x85c"),)


def test_the_limit_takes_the_first_prompts(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one"}\n{"prompt": "two", "domain": "edit"}\n')
    assert chosen_prompts(file, None, 1) == (BenchPrompt("all", "one"),)
    assert len(chosen_prompts(None, None, None)) == 24
