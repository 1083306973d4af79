"""Saving that fails while a chat is under way: said once, and the chat goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import Script, answer_of
from stage import Stage, stage

from mlxspec.chat.store import database_path
from mlxspec.places import places
from tui.options import ChatOptions

WORDS = "word " * 30


def disk_full(s: Stage) -> None:
    """SQLite then says "disk full", as it does when the file system is."""
    s.app.saved.store._database._connection.execute("PRAGMA max_page_count = 1")


def read_only(s: Stage) -> None:
    s.app.saved.store._database._connection.execute("PRAGMA query_only = ON")


def damaged(s: Stage) -> None:
    file = database_path(places())
    for part in (file, Path(f"{file}-wal")):
        part.write_bytes(b"\0" * part.stat().st_size)
    # What SQLite remembers of the file goes, as it does when another program has written.
    s.app.saved.store._database._connection.execute("PRAGMA cache_size = 0")
    s.app.saved.store._database._connection.execute("PRAGMA shrink_memory")


BREAKS = pytest.mark.parametrize(
    ("spoil", "reason"),
    [(disk_full, "The disk is full"), (read_only, "Nothing can be saved"), (damaged, "are damaged")],
    ids=["disk full", "read-only", "damaged"],
)


def is_said_once(s: Stage, reason: str) -> None:
    assert s.notices.count("This chat is not being saved") == 1
    assert reason in s.notices
    assert "not saved" in s.status


@BREAKS
async def test_between_two_questions(spoil: Callable[[Stage], None], reason: str) -> None:
    second = ("second " * 20_000).strip()  # more than fits into what is left of a page
    async with stage(Script([answer_of("one"), answer_of("two"), answer_of("three")])) as s:
        await s.ask("first")
        s.app.saved.store._writers[-1].wait()
        spoil(s)
        await s.ask(second)
        await s.ask("third")
        is_said_once(s, reason)
        asked = [message.content for message in s.script.requests[2].messages]
        assert asked == ["first", "one", second, "two", "third"]
        await s.press("f5")
        await s.until(lambda: len(s.answers) == 3 and not s.answers[2].streaming)
        assert [answer.text for answer in s.answers[:2]] == ["one", "two"]
        await s.press("ctrl+s")
        await s.press("escape")
        await s.press(*"/chats ")
        assert s.app.is_running


@BREAKS
async def test_while_an_answer_streams(spoil: Callable[[Stage], None], reason: str) -> None:
    script = Script([answer_of(WORDS), answer_of("fine")], hang=5)
    async with stage(script) as s:
        await s.send("first")
        await s.until(lambda: s.answers and s.answers[0].text and s.app.saved.store._writers[-1]._chunks)
        spoil(s)
        script.go.set()
        await s.until(lambda: not s.answers[0].streaming and "not being saved" in s.notices)
        is_said_once(s, reason)
        assert s.answers[0].text == WORDS
        await s.ask("second")
        is_said_once(s, reason)
        assert [m.content for m in s.script.requests[1].messages] == ["first", WORDS, "second"]


async def test_messages_that_had_to_be_saved_once_more_can_still_be_edited() -> None:
    async with stage(Script([answer_of("one"), answer_of("two"), answer_of("three")])) as s:
        await s.ask("first")
        await s.ask("second")
        s.app.saved.store._writers[-1].wait()
        damaged(s)
        s.app.conversation.edit(s.questions[1], "changed")
        await s.until(lambda: s.answers and s.answers[-1].text == "three" and not s.answers[-1].streaming)
        assert [q.text for q in s.questions] == ["first", "changed"]
        assert [m.content for m in s.script.requests[2].messages] == ["first", "one", "changed"]


async def test_a_chat_deleted_by_another_program_is_said_to_go_on_as_a_new_one() -> None:
    async with stage(Script([answer_of("one"), answer_of("two")])) as s:
        await s.ask("first")
        assert s.app.saved.id is not None
        s.app.saved.store.delete(s.app.saved.id)
        await s.ask("second")
        assert "This chat was deleted by another program.\nIt goes on as a new chat" in s.notices
        assert "not saved" not in s.status


async def test_a_store_that_breaks_while_a_chat_is_resumed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as s:
        await s.ask("x")
    file = database_path(places())
    content = bytearray(file.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    file.write_bytes(content)
    monkeypatch.setattr("mlxspec.chat.database.QUICK_CHECK_BYTES", 0)
    async with stage(options=ChatOptions(resume=True)) as s:
        assert "are damaged" in s.notices
        await s.ask("still works")
