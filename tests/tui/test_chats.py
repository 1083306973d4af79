"""Saved chats in the app: branches, lists, search, export, and a store that fails."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from scripted import Script, answer_of
from stage import Stage, stage

from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store, database_path
from mlxspec.places import places
from tui.options import ChatOptions


def saved(s: Stage) -> Store:
    return s.app.saved.store


async def test_what_was_shown_was_saved() -> None:
    async with stage(Script([answer_of("the answer to it")])) as s:
        await s.ask("the question")
        chat = saved(s).last()
        assert chat is not None
        assert chat.title == "the question"
    store = Store.open(places())
    messages = store.path(chat.id)
    assert [(m.role, m.content, m.state) for m in messages] == [
        ("user", "the question", MessageState.DONE),
        ("assistant", "the answer to it", MessageState.DONE),
    ]
    assert messages[1].stats is not None
    assert messages[1].stats["tokens"] == 4
    assert store.spans(messages[1].id)
    store.close()


async def test_a_chat_is_resumed_with_its_colours() -> None:
    async with stage(Script([answer_of("the answer")])) as s:
        await s.ask("the question")
    async with stage(options=ChatOptions(resume=True)) as s:
        assert "the question" in s.screen
        assert "the answer" in s.screen
        assert "context 1 %" in s.status
        await s.send("/new")
        assert "context" not in s.status
        await s.press("ctrl+s", "enter")
        await s.press("ctrl+t")
        assert "draft's\u00a0guess" in s.screen
        await s.ask("more")
        assert [m.content for m in s.script.requests[0].messages] == ["the question", "the answer", "more"]


async def test_a_session_that_is_not_there_is_said() -> None:
    async with stage(options=ChatOptions(session="zzzz")) as s:
        assert "There is no saved chat 'zzzz'." in s.screen
        await s.ask("still works")


async def test_retry_makes_a_branch_beside_the_answer() -> None:
    async with stage(Script([answer_of("one"), answer_of("two")])) as s:
        await s.ask("x")
        await s.press("f5")
        await s.until(lambda: s.answers and s.answers[0].text == "two" and not s.answers[0].streaming)
        assert "2/2" in s.screen
        assert s.script.requests[1].seed is None
        assert s.script.requests[1].messages == s.script.requests[0].messages
        await s.send("/branch")
        assert s.answers[0].text == "one"
        assert "1/2" in s.screen


async def test_editing_an_earlier_message_keeps_the_old_branch() -> None:
    async with stage(Script([answer_of("a"), answer_of("b", prompt_tokens=90), answer_of("c")])) as s:
        await s.ask("first")
        await s.ask("second")
        await s.send("/edit 1")
        assert s.app.composer.text == "first"
        s.app.composer.put("")
        await s.write("changed")
        await s.press("enter")
        await s.until(lambda: s.answers and s.answers[-1].text == "c" and not s.answers[-1].streaming)
        assert [q.text for q in s.questions] == ["changed"]
        row = next(y for y, line in enumerate(s.screen.split("\n")) if "2/2" in line)
        column = s.screen.split("\n")[row].index("‹")
        await s.pilot.click("Transcript", offset=(column, row))
        await s.until(lambda: [q.text for q in s.questions] == ["first", "second"])
        assert s.app.answering.context_used == 90 + 1
        assert [answer.text for answer in s.answers] == ["a", "b"]


async def test_esc_leaves_editing_with_the_text_kept() -> None:
    async with stage() as s:
        await s.ask("first")
        await s.send("/edit 1")
        await s.press("escape")
        assert s.app.composer.text == "first"
        await s.press("!", "enter")
        await s.until(lambda: len(s.answers) == 2)
        assert [q.text for q in s.questions] == ["first", "first!"]


async def test_chats_are_listed_and_opened() -> None:
    async with stage() as s:
        await s.ask("about rivers")
        await s.press("ctrl+n")
        assert not s.questions
        await s.ask("about lakes")
        await s.press("ctrl+s")
        assert "about rivers" in s.screen
        assert "about lakes" in s.screen
        await s.press(*"riv", "enter")
        await s.until(lambda: [q.text for q in s.questions] == ["about rivers"])


async def test_search_finds_words_and_goes_to_them() -> None:
    async with stage(Script([answer_of("the needle is here"), answer_of("nothing")])) as s:
        await s.ask("haystack")
        await s.press("ctrl+n")
        await s.ask("other")
        await s.press("f3", *"needle")
        assert "the needle is here" in s.screen
        await s.press("enter")
        await s.until(lambda: [q.text for q in s.questions] == ["haystack"])
        assert s.app.page.marked is s.answers[0]


async def test_renaming_and_deleting() -> None:
    async with stage() as s:
        await s.ask("x")
        await s.send("/rename [/] A better title")
        assert s.app.saved.chat is not None
        assert s.app.saved.chat.title == "[/] A better title"
        await s.send("/delete")
        assert "Delete “[/] A better title”" in s.screen
        await s.press("n")
        assert saved(s).last() is not None
        await s.send("/delete")
        await s.press("y")
        await s.until(lambda: saved(s).last() is None)
        assert not s.questions


async def test_renaming_in_the_list() -> None:
    async with stage() as s:
        await s.ask("old")
        await s.press("ctrl+s")
        await s.press("ctrl+t")
        assert "The new title:" in s.screen
        await s.press("end", *"er", "enter")
        await s.until(lambda: "older" in s.screen)


@pytest.mark.parametrize("name", ["chat.md", "chat.json"])
async def test_export_writes_a_file_and_never_over_one(name: str, tmp_path: Path) -> None:
    async with stage(Script([answer_of("the answer")])) as s:
        await s.ask("the question")
        await s.send(f"/export {tmp_path / name}")
        text = (tmp_path / name).read_text()
        assert "the question" in text
        assert "the answer" in text
        if name.endswith("json"):
            assert json.loads(text)
        await s.send(f"/export {tmp_path / name}")
        assert "File exists" in s.notices


async def test_two_programs_at_once_work() -> None:
    async with stage(Script([answer_of("a")])) as one, stage(Script([answer_of("b")])) as two:
        await one.ask("from one")
        await two.ask("from two")
        assert {chat.title for chat in saved(one).recent()} == {"from one", "from two"}


async def test_a_chat_that_another_program_deleted_goes_on_as_a_new_one() -> None:
    async with stage(Script([answer_of("a"), answer_of("b")])) as s:
        await s.ask("first")
        assert s.app.saved.id is not None
        other = Store.open(places())
        other.delete(s.app.saved.id)
        other.close()
        await s.ask("second")
        assert [m.content for m in s.script.requests[1].messages] == ["first", "a", "second"]
        assert [m.content for m in saved(s).path(s.app.saved.id)] == ["first", "a", "second", "b"]


async def test_a_corrupt_database_is_said_and_the_chat_goes_on_unsaved() -> None:
    file = database_path(places())
    file.parent.mkdir(parents=True)
    file.write_bytes(b"this is no database" * 100)
    async with stage(Script([answer_of("fine")])) as s:
        assert "This chat is not being saved" in s.screen
        assert "not saved" in s.status
        await s.ask("x")
        assert "fine" in s.screen
        await s.press("f5")
        await s.until(lambda: s.answers and not s.answers[0].streaming)
    assert file.read_bytes().startswith(b"this is no database")


async def test_a_database_from_a_newer_version_is_left_alone() -> None:
    Store.open(places()).close()
    file = database_path(places())
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    async with stage() as s:
        assert "A newer mlxspec wrote" in s.screen
        await s.ask("x")


async def test_200_messages_open_at_their_end_and_scroll_to_their_start() -> None:
    store = Store.open(places())
    chat = store.create_chat(target="tiny", draft="auto")
    for number in range(100):
        store.add_message(chat.id, "user", f"question {number}")
        store.add_message(chat.id, "assistant", f"answer **{number}** " * 20)
    store.close()
    async with stage(options=ChatOptions(resume=True)) as s:
        assert "answer 99" in s.screen
        laid_out = sum(entry.laid_out for entry in s.app.transcript.entries)
        assert laid_out < 30
        await s.press("ctrl+home")
        assert "question 0" in s.screen
        await s.press("alt+up")
        assert s.app.page.marked is s.answers[-1]
