"""`mlxspec run` with a scripted engine: what goes in, what comes out, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import stat
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store
from mlxspec.cli import following
from mlxspec.cli.narrator import stats_line
from mlxspec.cli.program import COMMANDS, run_program
from mlxspec.cli.prompts import joined
from mlxspec.cli.writers import TextWriter
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.stats import DecodeStats
from mlxspec.engine import GenerateRequest, Job, LoadRequest
from mlxspec.engine.pace import Pace
from mlxspec.errors import IncompatiblePair, PromptTooLong
from mlxspec.events import (
    Downloading,
    Loading,
    Notice,
    Origin,
)
from mlxspec.places import places
from tests.fakes import ANSWER, ScriptedEngine, failed, token

TEXT = "The capital is Paris."


class Program:
    """The program with a scripted engine, text on stdin, and what it wrote."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.engine = ScriptedEngine()
        self.out = self.err = ""

    def __call__(self, *args: str, piped: bytes = b"") -> int:
        self._monkeypatch.setattr(following, "open_engine", lambda: self.engine)
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped), encoding="utf-8"))
        code = run_program(args)
        self.out, self.err = self._capsys.readouterr()
        return code

    @property
    def load(self) -> LoadRequest:
        request = self.engine.requests[0]
        assert isinstance(request, LoadRequest)
        return request

    @property
    def asked(self) -> GenerateRequest:
        request = self.engine.requests[-1]
        assert isinstance(request, GenerateRequest)
        return request

    @property
    def prompt(self) -> str:
        return self.asked.messages[-1].content

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(monkeypatch, capsys)


# ---------------------------------------------------------------- prompts


def test_the_answer_is_on_stdout_and_nothing_else(program: Program) -> None:
    assert program("run", "What is the capital?") == 0
    assert program.out == f"{TEXT}\n"
    assert program.err == ""
    assert program.engine.closed


def test_piped_text_is_the_prompt(program: Program) -> None:
    assert program("run", piped="Zusammenfassen: ü\n".encode()) == 0
    assert program.prompt == "Zusammenfassen: ü"


def test_prompt_and_piped_text_are_joined_with_a_blank_line_between(program: Program) -> None:
    program("run", "Summarise:", piped=b"one\n\ntwo\n")
    assert program.prompt == "Summarise:\n\none\n\ntwo"


def test_a_large_prompt_passes(program: Program) -> None:
    program("run", piped=b"word " * 40_000)
    assert len(program.prompt) == 200_000


@pytest.mark.parametrize(("prompt", "piped"), [("", b""), (None, b""), (None, b" \n\t\n"), ("  ", b"\n")])
def test_an_empty_prompt_is_wrong_usage(program: Program, prompt: str | None, piped: bytes) -> None:
    assert program("run", *([] if prompt is None else [prompt]), piped=piped) == 2
    assert "The prompt is empty." in program.err
    assert not program.engine.requests


def test_piped_bytes_that_are_not_utf8_are_named_by_their_place(program: Program) -> None:
    assert program("run", piped="é".encode() + b"\xff rest") == 2
    assert "byte 2 is 0xff" in program.err


def test_an_argument_that_is_not_utf8_is_named_by_its_place(program: Program) -> None:
    assert program("run", os.fsdecode("é".encode() + b"\xff")) == 2
    assert "byte 2 is 0xff" in program.err
    assert program("run", "Hi", "--system", "\udcff") == 2
    assert "--system" in program.err


def test_a_prompt_that_looks_like_an_option_comes_after_two_dashes(program: Program) -> None:
    assert program("run", "--", "--help me") == 0
    assert program.prompt == "--help me"


@given(prompt=st.none() | st.text(), piped=st.text())
def test_a_joined_prompt_holds_both_texts(prompt: str | None, piped: str) -> None:
    if not (prompt or "").strip() and not piped.strip():
        return
    text = joined(prompt, piped)
    assert text.strip()
    assert not (prompt or "").strip() or text.startswith(prompt or "")
    assert not piped.strip() or text.endswith(piped.removesuffix("\n"))


# ---------------------------------------------------------------- options


def test_without_options_everything_is_left_to_the_engine(program: Program) -> None:
    program("run", "Hi")
    assert program.load == LoadRequest()
    assert program.asked == GenerateRequest(messages=program.asked.messages)
    assert [message.role for message in program.asked.messages] == ["user"]


@pytest.mark.parametrize(
    ("options", "draft"),
    [
        (["--draft", "qwen-0.5b", "--translate"], "qwen-0.5b --translate"),
        (["--draft", "qwen-0.5b", "--draft-vocab", "8192"], "qwen-0.5b --draft-vocab 8192"),
        (["--translate"], "auto --translate"),
        (["--draft", "lookahead"], "lookahead"),
    ],
)
def test_the_options_of_a_draft_go_with_its_name(options: list[str], draft: str, program: Program) -> None:
    program("run", "Hi", *options)
    assert program.load == LoadRequest(draft=draft)


@pytest.mark.parametrize("rows", ["0", "-3", "many", ""])
def test_a_draft_of_no_tokens_is_wrong_usage(rows: str, program: Program) -> None:
    assert program("run", "Hi", "--draft", "qwen-0.5b", "--draft-vocab", rows) == 2
    assert "--draft-vocab cannot be" in program.err


def test_options_reach_the_engine(program: Program) -> None:
    program(
        *("run", "Hi", "--target", "qwen-7b", "--draft", "none", "--context", "2048", "--kv-bits", "4"),
        *("--num-draft", "6", "--accept", "token", "--temp", "0.5", "--top-p", "0.9", "--top-k", "40"),
        *("--min-p", "0.1", "--repetition-penalty", "1.1", "--seed", "7", "--max-tokens", "99"),
        *("--stop", "END", "--stop", "\n\n", "--system", "Be short.", "--think", "off"),
    )
    assert program.load == LoadRequest("qwen-7b", "none", 2048, 4)
    asked = program.asked
    assert asked.sampling is not None
    assert asked.sampling.temperature == 0.5
    assert (asked.sampling.top_p, asked.sampling.top_k, asked.sampling.min_p) == (0.9, 40, 0.1)
    assert asked.sampling.repetition_penalty == 1.1
    assert (asked.num_draft, asked.accept, asked.seed, asked.max_tokens) == (6, "token", 7, 99)
    assert (asked.stop, asked.think) == (("END", "\n\n"), False)
    assert [(m.role, m.content) for m in asked.messages] == [("system", "Be short."), ("user", "Hi")]


def test_auto_guesses_are_left_to_the_controller(program: Program) -> None:
    assert program("run", "Hi", "--num-draft", "auto") == 0
    assert program.asked.num_draft is None


WRONG = [
    ("--num-draft", "-1"),
    ("--num-draft", "17"),
    ("--num-draft", "many"),
    ("--temp", "-1"),
    ("--temp", "nan"),
    ("--temp", "hot"),
    ("--top-p", "2"),
    ("--top-k", "-1"),
    ("--min-p", "1.5"),
    ("--repetition-penalty", "0"),
    ("--seed", "-3"),
    ("--seed", "x"),
    ("--max-tokens", "-5"),
    ("--max-tokens", "0"),
    ("--kv-bits", "3"),
    ("--context", "0"),
    ("--context", "1.5"),
    ("--accept", "maybe"),
    ("--think", "hard"),
    ("--stop", ""),
    ("--color", "green"),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_wrong_value_is_two_sentences_and_wrong_usage(program: Program, option: str, value: str) -> None:
    assert program("run", "Hi", option, value) == 2
    happened, to_do = program.err.splitlines()
    assert happened.startswith(f"mlxspec: {option} ")
    assert happened.endswith(".")
    assert to_do.endswith(".")
    assert program.out == ""
    assert not program.engine.requests


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "What", "is"], "quotes"),
        (["run", "Hi", "--tmep", "1"], "--tmep"),
        (["run", "Hi", "--temp"], "--temp"),
        (["run", "Hi", "--session", "x", "--continue"], "both"),
        (["pull"], "NAME"),
        (["rnu"], "mlxspec run"),
        (["What is the capital of France?"], 'mlxspec run "…"'),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_two_sentences_and_exit_2(program: Program, args: list[str], says: str) -> None:
    assert program(*args) == 2
    assert says in program.err
    assert len(program.err.splitlines()) == 2
    assert program.err.startswith("mlxspec: ")


def test_wrong_usage_that_holds_an_escape_sequence_does_not_reach_the_terminal(program: Program) -> None:
    assert program("\x1b[2Jrun") == 2
    assert "\x1b" not in program.err


# ---------------------------------------------------------------- errors


def test_an_error_of_the_engine_is_two_sentences_and_its_exit_code(program: Program) -> None:
    error = failed(IncompatiblePair("The vocabularies differ at id 5.", hint="Use --draft lookup."))
    program.engine = ScriptedEngine(loading=[error])
    assert program("run", "Hi") == 1
    assert program.err == "mlxspec: The vocabularies differ at id 5.\nUse --draft lookup.\n"
    assert program.out == ""


def test_an_answer_that_fails_keeps_what_was_written(program: Program) -> None:
    program.engine = ScriptedEngine([token("Half"), failed(PromptTooLong("Too long.", hint="Shorten it."))])
    assert program("run", "Hi") == 1
    assert program.out == "Half\n"


def test_a_fault_inside_is_two_sentences_and_a_log_of_ones_own(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: LoadRequest) -> Job:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr(program.engine, "load", broken)
    assert program("run", "Hi") == 1
    assert "Traceback" not in program.err
    assert str(places().log) in program.err
    assert "wires crossed" in places().log.read_text()
    assert stat.S_IMODE(places().log.stat().st_mode) == 0o600


def test_notices_are_on_stderr(program: Program) -> None:
    program.engine = ScriptedEngine(loading=[Notice("The draft is not on disk.")])
    assert program("run", "Hi") == 0
    assert program.err == "mlxspec: The draft is not on disk.\n"
    assert program.out == f"{TEXT}\n"


def test_a_download_is_told_in_a_few_lines_where_no_line_can_change(program: Program) -> None:
    steps = [Downloading("m", "model.gguf", done * 1_000_000, 100_000_000) for done in range(101)]
    program.engine = ScriptedEngine(loading=[*steps, Loading("m")])
    assert program("run", "Hi") == 0
    assert 2 <= len(program.err.splitlines()) <= 6
    assert "\r" not in program.err
    assert "100.0 MB" in program.err


# ---------------------------------------------------------------- --json


def test_json_has_the_events_in_order(program: Program) -> None:
    program.engine = ScriptedEngine(
        loading=[Downloading("m", "f", 1, 2), Loading("m"), Notice("Slow."), Notice("Small.")]
    )
    assert program("run", "Hi", "--json") == 0
    names = [line["event"] for line in program.objects]
    assert names == ["download", "loaded", "prefill", *["tokens"] * len(ANSWER), "finished"]
    assert all(line.startswith('{"event": ') for line in program.out.splitlines())


def test_json_shapes_are_those_of_the_design(program: Program) -> None:
    program.engine = ScriptedEngine(loading=[Notice("Slow.")])
    program("run", "Hi", "--json")
    loaded, prefill, first, *_, finished = program.objects
    assert loaded == {
        "event": "loaded",
        "target": "smollm2-135m",
        "draft": "lookup",
        "device": "cpu",
        "load_s": 0.5,
        "notices": ["Slow."],
    }
    assert prefill == {"event": "prefill", "done": 0, "total": 9, "reused": 0}
    assert first == {
        "event": "tokens",
        "ids": [0],
        "text": "The",
        "origin": "accepted",
        "drafter": "lookup",
        "round": 0,
    }
    assert list(finished) == ["event", "reason", "text", "ids", "stats"]
    assert (finished["reason"], finished["text"], finished["ids"]) == ("stop", TEXT, [0] * 4)
    design = (
        "prompt_tokens reused_tokens tokens rounds target_passes carried proposed accepted resampled bonus "
        "plain acceptance_rate tokens_per_pass ttft_s prefill_s decode_s draft_s verify_s overhead_s "
        "tokens_per_s peak_memory_bytes seed accept drafters"
    )
    assert set(design.split()) <= set(finished["stats"])


def test_json_text_joins_to_the_answer_and_is_ascii(program: Program) -> None:
    program.engine = ScriptedEngine([token("é"), token("\x1b[2J"), token("🎉\n")])
    program("run", "Hi", "--json")
    assert program.out.isascii()
    texts = [line["text"] for line in program.objects if line["event"] == "tokens"]
    assert "".join(texts) == program.objects[-1]["text"] == "é\x1b[2J🎉\n"


def test_json_says_errors_too(program: Program) -> None:
    program.engine = ScriptedEngine(loading=[failed(IncompatiblePair("No.", hint="Do."))])
    assert program("run", "Hi", "--json") == 1
    assert program.objects == [
        {"event": "error", "kind": "IncompatiblePair", "message": "No.", "hint": "Do."}
    ]
    assert program("run", "Hi", "--json", "--temp", "-1") == 2
    assert program.objects[0]["kind"] == "UsageError"


# ---------------------------------------------------------------- --stats and colours


def test_stats_are_one_line_on_stderr(program: Program) -> None:
    assert program("run", "Hi", "--stats") == 0
    (line,) = program.err.splitlines()
    assert line == (
        "mlxspec: 4 tokens · 50.0 tok/s · acceptance 75% · 2.00 tokens per pass · first token after 0.25 s"
        " · drafters: lookup 3/4 in 2 rounds"
    )
    assert program.out == f"{TEXT}\n"


def test_figures_without_a_value_are_left_out() -> None:
    line = stats_line(DecodeStats(), target="unknown")
    assert line == "0 tokens · first token after 0.00 s · drafters: none"


def test_stats_tell_the_speed_up_against_plain_decoding_as_learnt_here() -> None:
    file = places().cache / "pace" / f"some-target-{'0' * 16}.json"
    curve = VerifyCurve.typed([0.05, 0.06])
    Pace(curve, {}, {}, file, measured_now=True, plain_s=0.04).save()
    assert "50.0 tok/s · 2.00× plain ·" in stats_line(
        DecodeStats(tokens=100, decode_s=2.0), target="some-target"
    )


def test_a_pipe_gets_nothing_but_text(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    program("run", "Hi", "--color", "auto")
    assert program.out == f"{TEXT}\n"


def test_a_pipe_gets_the_models_text_as_it_is(program: Program) -> None:
    program.engine = ScriptedEngine([token("a\x1b[31mb\r\n")])
    program("run", "Hi")
    assert program.out == "a\x1b[31mb\r\n"


@pytest.mark.parametrize(
    ("true_colour", "accepted", "resampled"),
    [
        ("truecolor", "38;2;95;175;255", "4;38;2;255;175;0"),
        ("", "38;5;75", "4;38;5;214"),
    ],
)
def test_colours_say_where_tokens_came_from(
    program: Program, monkeypatch: pytest.MonkeyPatch, true_colour: str, accepted: str, resampled: str
) -> None:
    monkeypatch.setenv("COLORTERM", true_colour)
    monkeypatch.setenv("NO_COLOR", "1")
    program("run", "Hi", "--color", "always")
    assert program.out == f"\x1b[{accepted}mThe\x1b[0m\x1b[{resampled}m capital\x1b[0m is Paris.\n"


def test_each_token_is_coloured_once_and_all_text_is_there() -> None:
    stream = io.StringIO()
    writer = TextWriter(stream, colour=True, terminal=True)
    for event in ANSWER:
        writer.event(event)
    assert stream.getvalue().count("\x1b[38") == 1
    assert stream.getvalue().count("\x1b[4;38") == 1


def test_markup_in_an_answer_is_text(program: Program) -> None:
    program.engine = ScriptedEngine([token("[/] [bold]x[/bold]", Origin.ACCEPTED)])
    program("run", "Hi", "--color", "always")
    assert "[/] [bold]x[/bold]" in program.out


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_answer_ends_with_one_newline(program: Program, end: str) -> None:
    program.engine = ScriptedEngine([token(f"x{end}")])
    program("run", "Hi")
    assert program.out == "x\n"


# ---------------------------------------------------------------- saved chats


def saved_chat(*turns: tuple[str, str]) -> str:
    with closing(Store.open(places())) as store:
        chat = store.create_chat(target="qwen-7b", draft="none", system="Be short.").id
        for question, answer in turns:
            store.add_message(chat, "user", question)
            store.add_message(chat, "assistant", answer)
    return chat


def saved_texts() -> list[list[str]]:
    with closing(Store.open(places())) as store:
        return [[message.content for message in store.path(chat.id)] for chat in store.recent()]


def test_a_one_shot_question_is_not_saved(program: Program) -> None:
    program("run", "Hi")
    assert not (places().data / "sessions.db").exists()


def test_a_one_shot_question_is_saved_when_asked_for(program: Program) -> None:
    assert program("run", "Hi", "--save") == 0
    assert saved_texts() == [["Hi", TEXT]]


@pytest.mark.parametrize("by", ["session", "continue"])
def test_a_saved_chat_goes_on(program: Program, by: str) -> None:
    chat = saved_chat(("One?", "1"), ("Two?", ""), ("Three?", "3"))
    assert program("run", "Four?", *(["--session", chat[:5]] if by == "session" else ["--continue"])) == 0
    assert program.load == LoadRequest("qwen-7b", "none")
    turns = [(message.role, message.content) for message in program.asked.messages]
    assert turns == [
        ("system", "Be short."),
        ("user", "One?"),
        ("assistant", "1"),
        ("user", "Three?"),
        ("assistant", "3"),
        ("user", "Four?"),
    ]
    assert saved_texts() == [["One?", "1", "Two?", "", "Three?", "3"]]


def test_a_saved_chat_that_goes_on_is_saved_when_asked_for(program: Program) -> None:
    saved_chat(("One?", "1"))
    program("run", "Two?", "--continue", "--save", "--target", "other")
    assert saved_texts() == [["One?", "1", "Two?", TEXT]]
    assert program.load.target == "other"


def test_a_failed_answer_is_saved_as_failed(program: Program) -> None:
    program.engine = ScriptedEngine([token("Half"), failed(PromptTooLong("Too long.", hint="Shorten it."))])
    program("run", "Hi", "--save")
    with closing(Store.open(places())) as store:
        chat = store.last()
        assert chat is not None
        assert store.path(chat.id)[-1].state is MessageState.FAILED


@pytest.mark.parametrize("args", [["--session", "zzzzzzzz"], ["--continue"]])
def test_a_chat_that_is_not_there_is_an_error(program: Program, args: list[str]) -> None:
    assert program("run", "Hi", *args) == 1
    assert "saved chat" in program.err
    assert not program.engine.requests


def test_a_store_that_cannot_be_written_does_not_cost_the_answer(program: Program) -> None:
    places().data.parent.mkdir(parents=True)
    places().data.write_text("a file where a folder belongs")
    assert program("run", "Hi", "--save") == 0
    assert program.out == f"{TEXT}\n"
    assert "not being saved" in program.err


# ---------------------------------------------------------------- the program


def test_help_lists_every_command(program: Program) -> None:
    assert program("--help") == 0
    for name, summary in COMMANDS.items():
        assert name in program.out
        assert summary in " ".join(program.out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(program: Program, name: str) -> None:
    assert program(name, "--help") == 0
    assert program.out.startswith(f"Usage: mlxspec {name}")


def test_the_options_of_run_are_those_of_the_design(program: Program) -> None:
    program("run", "--help")
    design = (
        "--target --draft --num-draft --accept --temp --top-p --top-k --min-p --repetition-penalty --seed "
        "--max-tokens --stop --system --think --context --kv-bits --continue --session --plain --json "
        "--stats --color"
    )
    assert [option for option in design.split() if option not in program.out] == []
