"""`mlxspec sessions`, run as the program runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store, database_path
from mlxspec.cli.program import run_program
from mlxspec.events import Origin, Tokens
from mlxspec.places import places


@pytest.fixture
def chat() -> str:
    with closing(Store.open(places())) as store:
        chat = store.create_chat(target="smollm2-135m", draft="auto", system="Be brief.").id
        store.add_message(chat, "user", "Why is the sky [/] blue? \x1b[31m")
        writer = store.answer(chat)
        writer.append(Tokens((1,), "Rayleigh scattering\x1b[2J.", Origin.ACCEPTED, "lookup", 0))
        writer.finish(MessageState.STOPPED)
    return chat


def test_list_shows_a_line_for_each_chat(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["sessions", "list"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["ID", "UPDATED", "MESSAGES", "MODEL", "TITLE"]
    assert line.startswith(chat)
    assert "smollm2-135m" in line
    assert line.endswith("Why is the sky [/] blue? [31m")


def test_list_says_that_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["sessions", "list"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no saved chats" in captured.err


def test_list_says_when_there_are_more(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Store.open(places())) as store:
        other = store.create_chat(target="t", draft="d").id
        store.add_message(other, "user", "newer")
    assert run_program(["sessions", "list", "-n", "1"]) == 0
    captured = capsys.readouterr()
    assert other in captured.out
    assert chat not in captured.out
    assert "--limit" in captured.err


def test_list_as_json_has_an_object_a_line(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["sessions", "list", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["id"], json.loads(line)["messages"]) == (chat, 2)


def test_show_writes_the_chat_without_control_characters(
    chat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["sessions", "show", chat[:6]]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "system:\nBe brief.\n\nuser:\nWhy is the sky [/] blue? ␛[31m\n" in out
    assert out.endswith("assistant (stopped):\nRayleigh scattering␛[2J.\n")


@pytest.mark.parametrize("words", [["rayleigh"], ["scatter", "ray"], ["RAYLEIGH scattering"]])
def test_search_shows_where_the_words_are(
    chat: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["sessions", "search", *words]) == 0
    title, hit = capsys.readouterr().out.splitlines()
    assert title.startswith(chat)
    assert hit.strip() == "assistant: Rayleigh scattering␛[2J."


def test_search_as_json_and_without_a_hit(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["sessions", "search", "--json", "ray"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["chat"] == chat
    assert run_program(["sessions", "search", 'nothing" AND']) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Nothing was found" in captured.err


def test_export_writes_markdown_to_stdout_and_json_to_a_file(
    chat: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["sessions", "export", chat]) == 0
    assert capsys.readouterr().out.startswith("# Why is the sky \\[/\\] blue")
    assert run_program(["sessions", "export", chat, "--format", "json", "-o", str(home / "chat.json")]) == 0
    document = json.loads((home / "chat.json").read_text(encoding="utf-8"))
    assert document["messages"][1]["spans"][0]["drafter"] == "lookup"


def test_export_to_a_place_that_cannot_be_written_is_an_error(
    chat: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["sessions", "export", chat, "-o", str(home / "no" / "folder.md")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_rename_changes_the_title(chat: str) -> None:
    assert run_program(["sessions", "rename", chat, "The sky"]) == 0
    with closing(Store.open(places())) as store:
        assert store.chat(chat).title == "The sky"


def test_delete_without_a_terminal_needs_a_yes(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["sessions", "delete", chat]) == 2
    assert "--yes" in capsys.readouterr().err
    assert run_program(["sessions", "delete", chat, "--yes"]) == 0
    with closing(Store.open(places())) as store:
        assert store.recent() == []


def test_delete_of_several_deletes_none_when_one_is_unknown(chat: str) -> None:
    assert run_program(["sessions", "delete", "--yes", chat, "zzzzzzzz"]) == 1
    with closing(Store.open(places())) as store:
        assert [found.id for found in store.recent()] == [chat]


@pytest.mark.parametrize(("typed", "kept"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_delete_asks_on_a_terminal(chat: str, typed: str, kept: bool) -> None:
    keyboard, terminal = os.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "mlxspec", "sessions", "delete", chat],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            os.write(keyboard, typed.encode())
            _, errors = process.communicate(timeout=120)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert process.returncode == 0, errors
    assert f"Delete {chat}" in errors
    with closing(Store.open(places())) as store:
        assert bool(store.recent()) == kept


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "zzzzzzzz"], 1),
        (["export", "\x1b[2J"], 1),
        (["rename", "zzzzzzzz", "x"], 1),
        (["delete", "--yes", "zzzzzzzz"], 1),
        (["list", "--limit", "0"], 2),
        (["export", "zzzzzzzz", "--format", "pdf"], 2),
        (["show"], 2),
        (["shwo"], 2),
        (["set-aside", "--yes"], 2),
    ],
)
def test_a_mistake_ends_in_two_sentences_and_no_traceback(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["sessions", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mlxspec: ")
    assert "\x1b" not in captured.err
    assert "Traceback" not in captured.err
    assert len(captured.err.splitlines()) == 2


def test_a_damaged_file_is_told_and_can_be_set_aside(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database_path(places()).parent.mkdir(parents=True)
    database_path(places()).write_text("no database " * 100)
    assert run_program(["sessions", "list"]) == 1
    assert "sessions set-aside" in capsys.readouterr().err
    assert run_program(["sessions", "set-aside", "--yes"]) == 0
    (kept,) = home.glob("data/sessions-*.db")
    assert str(kept) in capsys.readouterr().err
    assert kept.read_text().startswith("no database")
    assert run_program(["sessions", "list"]) == 0


def test_the_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["sessions"]) == 0
    out = capsys.readouterr().out
    for command in ("list", "show", "search", "export", "rename", "delete", "set-aside"):
        assert command in out


def test_the_program_lists_the_group_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["--help"]) == 0
    assert "sessions" in capsys.readouterr().out
