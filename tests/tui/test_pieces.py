"""Thinking, attachments, history, figures, rounds: what the widgets are made of."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from scripted import report_of, tokens_of

from mlxspec.events import Origin
from tui import figures, thinking
from tui.attachments import attach, complete_path, mentions, split_attachments
from tui.clipboard import last_code_block
from tui.meter import Meter
from tui.prompt_history import PromptHistory
from tui.round_text import token_text
from tui.rounds import plain_round_s, rounds_of, saved_s
from tui.shown import one_line, shown


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>hm</think>\n\nyes", "hm", "yes"),
        ("\n<think>\nhm\n</think>yes", "\nhm\n", "yes"),
        ("hm</think>yes", "hm", "yes"),
        ("<think>still at it", "still at it", ""),
        ("no thinking", "", "no thinking"),
        ("say ```\n```\n</think> is a tag", "", "say ```\n```\n</think> is a tag"),
    ],
)
def test_thinking_is_what_stands_before_the_answer(text: str, thought: str, answer: str) -> None:
    where = thinking.parts(text)
    assert text[where.thinking_start : where.thinking_end] == thought
    assert thinking.answer_of(text) == answer


def test_a_mentioned_file_goes_behind_the_message(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("[/] \x1b[31m <file>\n")
    message, problems = attach("read @a.txt please", tmp_path)
    assert not problems
    typed, files = split_attachments(message)
    assert typed == "read @a.txt please"
    assert [(file.path, file.size) for file in files] == [("a.txt", "17 B")]
    assert "[/] \x1b[31m <file>" in message


def test_what_cannot_be_added_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary.bin").write_bytes(b"\0\1")
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    (tmp_path / "folder").mkdir()
    (tmp_path / "big.txt").write_text("x" * 2_000_000)
    message, problems = attach("@binary.bin @latin.txt @folder/ @big.txt @none.txt", tmp_path)
    assert "<file" not in message
    assert len(problems) == 5
    assert "no text" in problems[0]
    assert "UTF-8" in problems[1]
    assert "folder" in problems[2]
    assert "2.0 MB" in problems[3]
    assert "No such file" in problems[4]


def test_a_name_in_a_sentence_is_no_file(tmp_path: Path) -> None:
    assert attach("ask @alice about a@b.c", tmp_path) == ("ask @alice about a@b.c", [])


def test_paths_may_have_spaces() -> None:
    assert mentions(r'@my\ file.txt and @"other file.txt", @x.md.') == [
        "my file.txt",
        "other file.txt",
        "x.md",
    ]


def test_paths_are_completed_folders_first(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "some file.txt").touch()
    (tmp_path / ".hidden").touch()
    assert complete_path("look at @s", tmp_path) == ["sub/", "some\\ file.txt"]
    assert complete_path("@", tmp_path) == ["sub/", "some\\ file.txt"]
    assert complete_path("a@s", tmp_path) == []
    assert complete_path("@nowhere/x", tmp_path) == []


def test_history_is_kept_from_run_to_run_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "data" / "history.jsonl"
    PromptHistory(file).add("one\ntwo")
    PromptHistory(file).add("three")
    assert PromptHistory(file).texts == ["one\ntwo", "three"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_history_gives_back_what_was_not_sent() -> None:
    history = PromptHistory(None)
    history.add("first")
    history.add("second")
    assert [history.earlier("new"), history.earlier(""), history.earlier("")] == ["second", "first", None]
    assert [history.later(), history.later(), history.later()] == ["second", "new", None]


def test_a_history_that_cannot_be_written_is_a_history_of_this_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    history = PromptHistory(blocked / "history.jsonl")
    history.add("text")
    assert history.texts == ["text"]


def test_a_damaged_history_loses_the_damaged_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b'"one"\n{nonsense\n\xff\n"two"\n')
    assert PromptHistory(file).texts == ["one", "two"]


def test_control_characters_are_shown_and_lines_stay() -> None:
    assert shown("a\tb\r\nc\x1b") == "a    b\nc␛"
    assert one_line("a\n b\t\x07") == "a b ␇"


def test_spaces_and_newlines_of_a_token_can_be_seen() -> None:
    assert token_text(" a\n") == "␣a⏎"
    assert token_text("") == "(part of a character)"


def test_rounds_say_what_was_kept_and_what_replaced_the_rest() -> None:
    tokens = list(tokens_of("one two three four five six seven"))
    reports = {0: report_of([t for t in tokens if t.round == 0])}
    first, second = rounds_of(tokens, reports)[:2]
    assert [guess.fate for guess in first.guesses] == ["kept", "kept", "rejected", "unseen"]
    assert (first.next_text, first.next_origin) == (" three", Origin.RESAMPLED)
    assert [guess.p for guess in second.guesses] == [None]
    assert second.next_origin is Origin.BONUS


def test_what_a_round_saved_is_measured_against_plain_rounds_of_the_same_answer() -> None:
    tokens = list(tokens_of("one two three " * 8))
    reports = {n: report_of([t for t in tokens if t.round == n]) for n in {t.round for t in tokens}}
    plain = plain_round_s(reports, None)
    assert plain == pytest.approx(0.04)
    assert saved_s(rounds_of(tokens, reports)[0], plain) == pytest.approx(3 * 0.04 - 0.06)
    assert plain_round_s({0: reports[0]}, None) is None
    assert plain_round_s({0: reports[0]}, {"plain_tokens_per_s": 20.0}) == pytest.approx(0.05)


def test_figures_say_what_is_unknown() -> None:
    assert figures.speed_up({"tokens_per_s": 30.0}) is None
    assert figures.speed_up({"tokens_per_s": 30.0, "plain_tokens_per_s": 20.0}) == pytest.approx(1.5)
    assert figures.number(None) == "–"
    assert figures.summary({"tokens": 0}) == ["– tok/s", "0 tokens", "first after –"]


def test_acceptance_is_of_guesses_and_not_of_the_text() -> None:
    parts = figures.summary({"proposed": 10, "accepted": 4, "acceptance_rate": 0.4, "tokens": 100})
    assert "40 % kept" in parts


@pytest.mark.parametrize(
    ("value", "text"), [(0.0021, "2.1 ms"), (0.0314, "31 ms"), (2.0, "2.0 s"), (75.0, "1 min 15 s")]
)
def test_times_are_in_a_unit_that_suits_them(value: float, text: str) -> None:
    assert figures.seconds(value) == text


def test_the_meter_counts_a_round_once_and_rates_over_two_seconds() -> None:
    now = [0.0]
    meter = Meter(lambda: now[0])
    for tokens in tokens_of("one two three four five six seven"):
        now[0] += 0.1
        meter.take(tokens)
    assert list(meter.passes) == [3, 4]
    assert meter.tokens_per_pass == pytest.approx(3.5)
    assert meter.first_s == pytest.approx(0.1)
    assert meter.tokens_per_s == pytest.approx(5 / 0.3)


def test_the_meter_knows_plain_decoding_from_plain_rounds() -> None:
    meter = Meter(lambda: 0.0)
    tokens = list(tokens_of("one two three " * 16))
    for number in sorted({t.round for t in tokens}):
        meter.take(report_of([t for t in tokens if t.round == number]))
        assert (meter.plain_tokens_per_s is None) == (number < 11)  # every fourth round is plain
    assert meter.plain_tokens_per_s == pytest.approx(25)


def test_the_last_code_block_is_found_without_its_fences() -> None:
    assert last_code_block("```\na\n```\ntext\n~~~py\nb\nc\n~~~\n") == "b\nc"
    assert last_code_block("no code") is None


def test_an_editor_command_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    from tui.external_editor import edited, editor

    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("EDITOR", "code --wait")
    assert editor() == ["code", "--wait"]
    monkeypatch.setenv("EDITOR", "sed -i s/one/two/")
    assert edited("one\n") == "two"
    monkeypatch.setenv("EDITOR", "false")
    assert edited("one") is None


def test_a_system_clipboard_program_gets_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tui import clipboard

    program = tmp_path / "xclip"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert clipboard.copy("ä\n[/]")
    assert (tmp_path / "copied").read_text() == "ä\n[/]"
    monkeypatch.delenv("DISPLAY")
    assert not clipboard.copy("x")
