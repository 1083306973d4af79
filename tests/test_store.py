"""Chats, their trees of messages, and answers that are saved while they stream."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mlxspec.chat import lease
from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store, database_path
from mlxspec.errors import UnknownChat, UsageError
from mlxspec.events import Origin, RoundReport, Tokens
from mlxspec.places import Places, places

KILL_STORE = Path(__file__).parent.parent / "benchmarks" / "kill_store.py"


@pytest.fixture
def here() -> Places:
    return places()


@pytest.fixture
def store(here: Places) -> Iterator[Store]:
    with closing(Store.open(here)) as store:
        yield store


def new_chat(store: Store) -> str:
    return store.create_chat(target="target", draft="auto").id


def plain(text: str, number: int = 0) -> Tokens:
    return Tokens((number,), text, Origin.PLAIN, None, number)


def answered(store: Store, chat: str, text: str, *, after: int | None = None) -> int:
    writer = store.answer(chat, after=after)
    writer.append(plain(text))
    writer.finish(MessageState.DONE)
    assert writer.wait(30)
    return writer.message


def contents(store: Store, chat: str) -> list[str]:
    return [message.content for message in store.path(chat)]


def wait_until_saved(store: Store, message: int, text: str) -> None:
    deadline = time.monotonic() + 30
    while store.message(message).content != text:
        assert time.monotonic() < deadline, f"only {store.message(message).content!r} was saved"
        time.sleep(0.01)


# Chats


def test_a_chat_comes_back_as_it_was_after_closing(here: Places) -> None:
    with closing(Store.open(here)) as store:
        chat = store.create_chat(
            target="big", draft="small", system="Be brief.", params={"temp": 0.5, "stop": ["x"]}
        )
        store.add_message(chat.id, "user", "Hello")
        answered(store, chat.id, "Hi")
        before = store.chat(chat.id)
    with closing(Store.open(here)) as store:
        assert store.chat(chat.id) == before
        assert (before.target, before.draft, before.system) == ("big", "small", "Be brief.")
        assert before.params == {"temp": 0.5, "stop": ["x"]}
        assert [(m.role, m.content, m.state) for m in store.path(chat.id)] == [
            ("user", "Hello", "done"),
            ("assistant", "Hi", "done"),
        ]


def test_an_id_can_be_typed_in_capitals_with_look_alikes_and_cut_short(store: Store) -> None:
    chat = new_chat(store)
    assert len(chat) == 8
    assert store.find_chat(f" {chat.upper().replace('0', 'O').replace('1', 'I')} ").id == chat
    assert store.find_chat(chat[:5]).id == chat


@pytest.mark.parametrize(
    "typed", ["", "zzzzzzzz", "*", "?", "[a-z]", "%", "' OR 1=1 --", "a" * 100, "\x1b[2J"]
)
def test_an_id_of_no_chat_is_an_error_that_names_it(store: Store, typed: str) -> None:
    new_chat(store)
    with pytest.raises(UnknownChat) as error:
        store.find_chat(typed)
    assert repr(typed) in error.value.message


def test_the_beginning_of_two_ids_is_refused(store: Store) -> None:
    ids = [new_chat(store) for _ in range(33)]  # one more than there are first letters
    shared = next(chat[0] for chat in ids if sum(other[0] == chat[0] for other in ids) > 1)
    with pytest.raises(UnknownChat, match="More than one"):
        store.find_chat(shared)


def test_recent_gives_the_chat_used_last_first_and_leaves_out_empty_ones(store: Store) -> None:
    first, second, empty = new_chat(store), new_chat(store), new_chat(store)
    for chat in (first, second, first):
        store.add_message(chat, "user", "Hello")
    assert [chat.id for chat in store.recent()] == [first, second]
    assert [chat.id for chat in store.recent(1)] == [first]
    last = store.last()
    assert last
    assert (last.id, last.messages) == (first, 2)
    assert empty not in [chat.id for chat in store.recent()]


def test_there_is_no_last_chat_in_the_beginning(store: Store) -> None:
    assert store.last() is None


def test_update_changes_what_it_is_given_and_nothing_else(store: Store) -> None:
    chat = store.create_chat(target="a", draft="b", system="c", params={"k": 1})
    changed = store.update(chat.id, draft="other", params={"k": 2})
    assert (changed.target, changed.draft, changed.system, changed.params) == ("a", "other", "c", {"k": 2})


def test_deleting_takes_all_branches_and_the_text_off_the_disk(here: Places) -> None:
    with closing(Store.open(here)) as store:
        doomed, kept = new_chat(store), new_chat(store)
        question = store.add_message(doomed, "user", "the word xylophone")
        answered(store, doomed, "a xylophone indeed")
        store.edit(question.id, "another xylophone")
        store.add_message(kept, "user", "stays")
        store.delete(doomed)
        assert [chat.id for chat in store.recent()] == [kept]
        assert store.search("xylophone") == []
        with pytest.raises(UnknownChat):
            store.chat(doomed)
        for file in here.data.glob("sessions.db*"):
            assert b"xylophone" not in file.read_bytes()
    with closing(sqlite3.connect(database_path(here))) as db:
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM spans").fetchone() == (0,)
        db.execute("INSERT INTO messages_text (messages_text, rank) VALUES ('integrity-check', 1)")


def test_deleting_or_renaming_an_unknown_chat_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownChat):
        store.delete("zzzzzzzz")
    with pytest.raises(UnknownChat):
        store.rename("zzzzzzzz", "title")


# Titles


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("\n\n  Why is the sky   blue?\nSecond line", "Why is the sky blue?"),
        ("[/] [bold]x[/bold]", "[/] [bold]x[/bold]"),
        ("\x1b[31mred\x07", "[31mred"),
        ("\u202etxt.exe", "txt.exe"),
        ("👩‍👩‍👧 family", "👩‍👩‍👧 family"),
        ("\x00\x01\n\u200b", "Untitled"),
        ("half \ud800 pair", "half \ufffd pair"),
    ],
)
def test_the_first_message_gives_the_title_without_what_cannot_be_seen(
    store: Store, message: str, title: str
) -> None:
    chat = new_chat(store)
    store.add_message(chat, "user", message)
    store.add_message(chat, "user", "Something else")
    assert store.chat(chat).title == title


def test_a_long_title_is_cut_between_words(store: Store) -> None:
    chat = new_chat(store)
    store.add_message(chat, "user", "word " * 50)
    title = store.chat(chat).title
    assert len(title) <= 60
    assert title.endswith("word…")


def test_rename_cleans_the_title_and_refuses_an_empty_one(store: Store) -> None:
    chat = new_chat(store)
    assert store.rename(chat, "new\n\x1b]0;evil\x07 title").title == "new ]0;evil title"
    with pytest.raises(UsageError):
        store.rename(chat, " \n\x00")
    store.add_message(chat, "user", "does not replace it")
    assert store.chat(chat).title == "new ]0;evil title"


# The tree


def test_messages_are_a_path_from_the_first_to_the_head(store: Store) -> None:
    chat = new_chat(store)
    for text in ("one", "two", "three"):
        store.add_message(chat, "user", text)
    assert contents(store, chat) == ["one", "two", "three"]


def test_a_second_answer_is_a_branch_and_the_first_is_kept(store: Store) -> None:
    chat = new_chat(store)
    question = store.add_message(chat, "user", "question")
    first = answered(store, chat, "first answer")
    second = answered(store, chat, "second answer", after=question.id)
    assert contents(store, chat) == ["question", "second answer"]
    assert [message.id for message in store.branches(second)] == [first, second]
    store.set_head(first)
    assert contents(store, chat) == ["question", "first answer"]


def test_editing_the_first_message_starts_a_branch_from_the_root(store: Store) -> None:
    chat = new_chat(store)
    old = store.add_message(chat, "user", "old wording")
    answered(store, chat, "old answer")
    new = store.edit(old.id, "new wording")
    assert new.parent is None
    assert contents(store, chat) == ["new wording"]
    answered(store, chat, "new answer")
    assert [message.content for message in store.branches(old.id)] == ["old wording", "new wording"]
    store.set_head(store.newest_leaf(old.id))
    assert contents(store, chat) == ["old wording", "old answer"]
    assert len(store.all_messages(chat)) == 4


def test_editing_a_later_message_keeps_what_stands_before_it(store: Store) -> None:
    chat = new_chat(store)
    for text in ("one", "two"):
        store.add_message(chat, "user", text)
    store.edit(store.path(chat)[1].id, "other two")
    assert contents(store, chat) == ["one", "other two"]


def test_the_newest_leaf_is_the_end_of_the_branch_that_was_written_last(store: Store) -> None:
    chat = new_chat(store)
    root = store.add_message(chat, "user", "root")
    old_end = store.add_message(chat, "assistant", "old end")
    new_middle = store.add_message(chat, "assistant", "new middle", after=root.id)
    new_end = store.add_message(chat, "user", "new end")
    assert store.newest_leaf(root.id) == new_end.id
    assert store.newest_leaf(new_middle.id) == new_end.id
    assert store.newest_leaf(old_end.id) == old_end.id


def test_a_message_of_another_chat_cannot_be_followed(store: Store) -> None:
    other = store.add_message(new_chat(store), "user", "elsewhere")
    chat = new_chat(store)
    with pytest.raises(UnknownChat):
        store.add_message(chat, "user", "lost", after=other.id)
    assert store.path(chat) == []


def test_text_comes_back_exactly_whatever_is_in_it(store: Store) -> None:
    chat = new_chat(store)
    text = "[/] \x1b[31m <|im_start|> NUL\x00 \r\n 漢字 👩‍👩‍👧 שלום '; DROP TABLE chats; --"
    message = store.add_message(chat, "user", text)
    assert store.message(message.id).content == text


# Answers that stream


def test_what_streams_is_saved_before_it_ends(store: Store) -> None:
    chat = new_chat(store)
    writer = store.answer(chat)
    writer.append(plain("Once "))
    writer.append(plain("upon"))
    wait_until_saved(store, writer.message, "Once upon")
    assert store.path(chat)[-1].state is MessageState.STREAMING
    writer.append(plain(" a time"))
    writer.finish(MessageState.STOPPED, stats={"tokens": 3})
    assert writer.wait(30)
    message = store.path(chat)[-1]
    assert (message.content, message.state, message.stats) == ("Once upon a time", "stopped", {"tokens": 3})


def test_every_token_keeps_its_origin(store: Store) -> None:
    writer = store.answer(new_chat(store))
    events = [
        Tokens((1, 2), "ab", Origin.ACCEPTED, "draft_model", 0),
        Tokens((3,), "", Origin.RESAMPLED, "draft_model", 0),
        Tokens((4,), "\ud83d\ude00 漢", Origin.BONUS, "lookup", 1),
        Tokens((5,), "\x00\n", Origin.PLAIN, None, 2),
    ]
    for event in events:
        writer.append(event)
    writer.finish(MessageState.DONE)
    assert writer.wait(30)
    assert [tokens.ids for tokens in store.spans(writer.message)] == [(1, 2), (3,), (4,), (5,)]
    assert [tokens.text for tokens in store.spans(writer.message)] == ["ab", "", "😀 漢", "\x00\n"]
    assert store.spans(writer.message)[0] == events[0]
    assert store.message(writer.message).content == "ab😀 漢\x00\n"


def test_why_every_token_is_there_is_kept_with_three_digits(store: Store) -> None:
    writer = store.answer(new_chat(store))
    guessed = RoundReport(
        round=3,
        drafter="draft_model",
        guesses=(5, 6),
        guess_texts=(" a", "\ud83d"),
        accepted=1,
        next_id=7,
        next_text=" b",
        p=(0.123456, 3.21e-7),
        q=(1.0, 0.5),
        p_next=0.98765,
        draft_s=0.00123,
        verify_s=0.05,
        round_s=0.05123,
        parked=False,
    )
    plain_round = replace(
        guessed, round=4, drafter=None, guesses=(), guess_texts=(), p=(), q=(), p_next=None, parked=True
    )
    for report in (guessed, plain_round):
        writer.append(report)
        writer.append(plain("x"))
    writer.finish(MessageState.DONE)
    assert writer.wait(30)
    assert store.reports(writer.message) == [
        replace(guessed, guess_texts=(" a", "\ufffd"), p=(0.123, 3.21e-7), p_next=0.988),
        plain_round,
    ]
    assert store.message(writer.message).content == "xx"


def test_appending_does_not_wait_while_another_program_holds_the_database(here: Places, store: Store) -> None:
    writer = store.answer(new_chat(store))
    writer.append(plain("a"))
    wait_until_saved(store, writer.message, "a")
    with closing(sqlite3.connect(database_path(here), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # If these waited, they would wait for the ROLLBACK below, in this thread, and fail.
        for _ in range(1000):
            writer.append(plain("b"))
        writer.finish(MessageState.DONE)
        assert not writer.wait(0.05)
        other.execute("ROLLBACK")
    assert writer.wait(30)
    assert writer.problem is None
    assert store.message(writer.message).content == "a" + "b" * 1000


def test_an_answer_without_a_token_ends_empty(store: Store) -> None:
    writer = store.answer(new_chat(store))
    writer.finish(MessageState.FAILED, stats={"error": "OutOfMemory"})
    assert writer.wait(30)
    message = store.message(writer.message)
    assert (message.content, message.state, message.stats) == ("", "failed", {"error": "OutOfMemory"})


def test_closing_stops_and_saves_an_answer_that_still_streams(here: Places) -> None:
    with closing(Store.open(here)) as store:
        writer = store.answer(new_chat(store))
        writer.append(plain("unfinished"))
    with closing(Store.open(here)) as store:
        message = store.message(writer.message)
        assert (message.content, message.state) == ("unfinished", "stopped")
    assert list((here.data / "leases").iterdir()) == []


def test_no_thread_is_left_behind(store: Store) -> None:
    before = threading.active_count()
    chat = new_chat(store)
    for _ in range(3):
        answered(store, chat, "text")
    assert threading.active_count() == before


def test_a_second_finish_changes_nothing(store: Store) -> None:
    writer = store.answer(new_chat(store))
    writer.finish(MessageState.DONE)
    writer.finish(MessageState.FAILED)
    assert writer.wait(30)
    assert store.message(writer.message).state is MessageState.DONE


# More than one program


def test_an_answer_of_another_living_program_keeps_streaming(here: Places, store: Store) -> None:
    chat = new_chat(store)
    writer = store.answer(chat)
    writer.append(plain("still "))
    wait_until_saved(store, writer.message, "still ")
    with closing(Store.open(here)) as other:
        assert other.message(writer.message).state is MessageState.STREAMING
        assert other.message(writer.message).content == "still "
    writer.append(plain("alive"))
    writer.finish(MessageState.DONE)
    assert writer.wait(30)
    assert store.message(writer.message).content == "still alive"
    assert store.message(writer.message).state is MessageState.DONE


def test_an_answer_that_ends_while_another_program_starts_is_not_marked_as_stopped(
    here: Places, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.answer(new_chat(store))
    writer.append(plain("just in time"))

    def finish_and_look(folder: Path, token: str) -> bool:
        writer.finish(MessageState.DONE, stats={"tokens": 1})
        assert writer.wait(30)
        return lease.is_held(folder, token)

    monkeypatch.setattr("mlxspec.chat.store.is_held", finish_and_look)
    Store.open(here).close()
    message = store.message(writer.message)
    assert (message.content, message.state, message.stats) == ("just in time", "done", {"tokens": 1})


def test_a_chat_deleted_by_another_program_while_it_streams_is_told_and_stays_deleted(
    here: Places, store: Store
) -> None:
    chat = new_chat(store)
    writer = store.answer(chat)
    writer.append(plain("a"))
    wait_until_saved(store, writer.message, "a")
    with closing(Store.open(here)) as other:
        other.delete(chat)
    writer.append(plain("b"))
    assert writer.wait(30)
    assert isinstance(writer.problem, UnknownChat)
    with pytest.raises(UnknownChat):
        store.add_message(chat, "user", "hello?")
    assert store.unsaved is None


def test_two_programs_write_at_once_and_nothing_is_lost(here: Places) -> None:
    script = """
import sys
from contextlib import closing
from pathlib import Path
from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store
from mlxspec.events import Origin, RoundReport, Tokens
from mlxspec.places import Places
from mlxspec.chat import database
database.BUSY_S = 120  # a busy disk may hold up the other program for long
root = Path(sys.argv[1])
with closing(Store.open(Places(config=root / "config", data=root / "data", cache=root / "cache"))) as store:
    chat = store.create_chat(target=sys.argv[2], draft="none").id
    for turn in range(20):
        store.add_message(chat, "user", f"question {turn}")
        writer = store.answer(chat)
        for number in range(50):
            writer.append(Tokens((number,), f"{number} ", Origin.PLAIN, None, number))
        writer.finish(MessageState.DONE)
        assert writer.wait(60) and writer.problem is None, writer.problem
"""
    programs = [
        subprocess.Popen([sys.executable, "-c", script, str(here.data.parent), name])
        for name in ("first", "second")
    ]
    assert [program.wait(300) for program in programs] == [0, 0]
    with closing(Store.open(here)) as store:
        assert {chat.target for chat in store.recent()} == {"first", "second"}
        answer = "".join(f"{number} " for number in range(50))
        expected = [text for turn in range(20) for text in (f"question {turn}", answer)]
        for chat in store.recent():
            assert contents(store, chat.id) == expected
    with closing(sqlite3.connect(database_path(here))) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_killed_program_loses_little_and_damages_nothing() -> None:
    # The benchmark holds the bound to one second; here the machine may be busy with other tests.
    command = [sys.executable, str(KILL_STORE), "--times", "3", "--json", "--most-lost-s", "5"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    runs = json.loads(result.stdout)["runs"]
    assert len(runs) == 3
    assert all(run["saved"] > 0 for run in runs)


# The file


def test_only_the_owner_can_read_the_files(here: Places, store: Store) -> None:
    store.add_message(new_chat(store), "user", "private")
    files = list(here.data.glob("sessions.db*"))
    assert {file.name for file in files} == {"sessions.db", "sessions.db-wal", "sessions.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(here.data.stat().st_mode) == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(here: Places) -> None:
    Store.open(here).close()
    database_path(here).chmod(0o644)
    Store.open(here).close()
    assert stat.S_IMODE(database_path(here).stat().st_mode) == 0o600
