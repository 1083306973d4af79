"""A damaged, foreign, newer, unreadable or full sessions.db is told and left as it is; the chat goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mlxspec.chat import database
from mlxspec.chat.migrations import LATEST, migrate
from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store, database_path, set_aside
from mlxspec.errors import (
    StoreDamaged,
    StoreError,
    StoreNotReadable,
    StoreNotWritable,
    StoreTooNew,
)
from mlxspec.events import Origin, Tokens
from mlxspec.places import Places, places


@pytest.fixture
def here() -> Places:
    return places()


def saved_chat(here: Places) -> str:
    with closing(Store.open(here)) as store:
        chat = store.create_chat(target="target", draft="auto").id
        store.add_message(chat, "user", "an old question")
    return chat


def a_chat_goes_on_in(store: Store) -> None:
    chat = store.create_chat(target="target", draft="auto").id
    store.add_message(chat, "user", "a new question")
    writer = store.answer(chat)
    writer.append(Tokens((1,), "an answer", Origin.PLAIN, None, 0))
    writer.finish(MessageState.DONE)
    assert writer.wait(30)
    assert writer.problem is None
    assert [message.content for message in store.path(chat)] == ["a new question", "an answer"]
    assert store.search("answer")


def is_two_sentences(error: StoreError) -> None:
    for sentence in (error.message, error.hint):
        assert sentence[0].isupper() or sentence.startswith("/")
        assert sentence.endswith((".", "?"))
        assert "\n" not in sentence


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def overwrite_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : len(content)] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


def overwrite_an_index(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_parent'").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))


def replace_by_text(path: Path) -> None:
    path.write_text("this is not a database\n" * 100)


def replace_by_another_programs(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")


@pytest.mark.parametrize(
    "damage",
    [truncate, overwrite_the_middle, overwrite_an_index, replace_by_text, replace_by_another_programs],
)
def test_a_damaged_file_is_told_and_left_as_it_is(here: Places, damage: Callable[[Path], None]) -> None:
    saved_chat(here)
    damage(database_path(here))
    before = database_path(here).read_bytes()
    with pytest.raises(StoreDamaged) as error:
        Store.open(here)
    is_two_sentences(error.value)
    assert str(database_path(here)) in error.value.message
    with closing(Store.open_or_unsaved(here)) as store:
        assert isinstance(store.unsaved, StoreDamaged)
        a_chat_goes_on_in(store)
    assert database_path(here).read_bytes() == before


def test_a_file_that_another_program_is_just_making_is_no_foreign_one(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = database.user_version

    def meanwhile(db: sqlite3.Connection) -> int:
        """The other program makes its tables between two looks at the file, unless it has to wait."""
        monkeypatch.setattr(database, "user_version", before)
        with closing(sqlite3.connect(database_path(here), timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            migrate(other)
            with suppress(sqlite3.OperationalError):
                other.execute("COMMIT")
        return before(db)

    monkeypatch.setattr(database, "user_version", meanwhile)
    Store.open(here).close()
    assert database.user_version is before


def test_a_damaged_file_is_set_aside_on_its_owners_word_alone(here: Places) -> None:
    saved_chat(here)
    replace_by_text(database_path(here))
    before = database_path(here).read_bytes()
    kept = set_aside(here)
    assert kept
    assert kept.parent == here.data
    assert kept.read_bytes() == before
    with closing(Store.open(here)) as store:
        assert store.recent() == []
        a_chat_goes_on_in(store)
    second = set_aside(here)
    assert second
    assert second != kept
    assert set_aside(here) is None


def test_setting_aside_takes_the_journal_along(here: Places) -> None:
    with closing(Store.open(here)) as store:
        chat = store.create_chat(target="target", draft="auto").id
        store.add_message(chat, "user", "only in the write-ahead log")
        kept = set_aside(here)
        assert kept
        copy = here.data.parent / "copy.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{kept}{suffix}", f"{copy}{suffix}")
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT content FROM messages").fetchall() == [("only in the write-ahead log",)]


def test_a_file_of_a_newer_version_is_told_and_left_as_it_is(here: Places) -> None:
    saved_chat(here)
    with closing(sqlite3.connect(database_path(here))) as db:
        db.execute(f"PRAGMA user_version = {LATEST + 1}")
    before = database_path(here).read_bytes()
    with pytest.raises(StoreTooNew) as error:
        Store.open(here)
    is_two_sentences(error.value)
    with closing(Store.open_or_unsaved(here)) as store:
        assert isinstance(store.unsaved, StoreTooNew)
        a_chat_goes_on_in(store)
    assert database_path(here).read_bytes() == before


def test_an_older_file_is_brought_up_to_date_with_its_chats(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = saved_chat(here)

    def add_a_column(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE chats ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'")

    from mlxspec.chat import migrations

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, add_a_column))
    monkeypatch.setattr(database, "LATEST", LATEST + 1)
    for _ in range(2):
        with closing(Store.open(here)) as store:
            assert [message.content for message in store.path(chat)] == ["an old question"]
    with closing(sqlite3.connect(database_path(here))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (LATEST + 1,)
        assert db.execute("SELECT colour FROM chats").fetchall() == [("blue",)]


def test_a_file_of_the_first_form_is_brought_to_the_latest_with_all_it_has(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxspec.chat import migrations

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", migrations.STEPS[:1])
        patch.setattr(database, "LATEST", 1)
        chat = saved_chat(here)
    with closing(Store.open(here)) as store:
        assert [message.content for message in store.path(chat)] == ["an old question"]
        a_chat_goes_on_in(store)
    with closing(sqlite3.connect(database_path(here))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (LATEST,)


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = saved_chat(here)

    def fail_half_way(db: sqlite3.Connection) -> None:
        db.execute("DROP TABLE spans")
        raise KeyboardInterrupt

    from mlxspec.chat import migrations

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", (*migrations.STEPS, fail_half_way))
        patch.setattr(database, "LATEST", LATEST + 1)
        with pytest.raises(KeyboardInterrupt):
            Store.open(here)
    with closing(Store.open(here)) as store:
        assert [message.content for message in store.path(chat)] == ["an old question"]
        a_chat_goes_on_in(store)


def test_when_the_disk_fills_up_the_chat_goes_on_unsaved_with_all_it_had(here: Places) -> None:
    with closing(Store.open_or_unsaved(here)) as store:
        chat = store.create_chat(target="target", draft="auto").id
        store.add_message(chat, "user", "before")
        fill_the_disk(store)
        store.add_message(chat, "user", "x" * 1_000_000)
        assert isinstance(store.unsaved, StoreNotWritable)
        assert "full" in store.unsaved.message
        is_two_sentences(store.unsaved)
        assert [len(message.content) for message in store.path(chat)] == [6, 1_000_000]
        a_chat_goes_on_in(store)
    with closing(Store.open(here)) as store:
        assert [message.content for message in store.path(chat)] == ["before"]


def test_when_the_disk_fills_up_in_an_answer_it_goes_on_unsaved(here: Places) -> None:
    with closing(Store.open_or_unsaved(here)) as store:
        chat = store.create_chat(target="target", draft="auto").id
        store.add_message(chat, "user", "before")
        writer = store.answer(chat)
        fill_the_disk(store)
        writer.append(Tokens((1,), "y" * 1_000_000, Origin.PLAIN, None, 0))
        writer.finish(MessageState.DONE)
        assert writer.wait(30)
        assert writer.problem is None
        assert isinstance(store.unsaved, StoreNotWritable)
        assert len(store.path(chat)[-1].content) == 1_000_000
    with closing(Store.open(here)) as store:
        assert [(m.content, m.state) for m in store.path(chat)] == [("before", "done"), ("", "stopped")]


def test_a_command_that_needs_the_disk_is_told_when_it_is_full(here: Places) -> None:
    with closing(Store.open(here)) as store:
        chat = store.create_chat(target="target", draft="auto").id
        fill_the_disk(store)
        with pytest.raises(StoreNotWritable):
            store.add_message(chat, "user", "x" * 1_000_000)
        assert store.unsaved is None
        assert store.path(chat) == []


def test_an_answer_whose_lease_cannot_be_made_is_not_saved(here: Places) -> None:
    chat = saved_chat(here)
    (here.data / "leases").write_text("a file where the folder should be")
    with closing(Store.open(here)) as store, pytest.raises(StoreNotWritable, match="leases"):
        store.answer(chat)
    with closing(Store.open_or_unsaved(here)) as store:
        store.answer(chat).finish(MessageState.DONE)
        assert isinstance(store.unsaved, StoreNotWritable)
        assert len(store.path(chat)) == 2


def test_another_program_that_never_lets_go_does_not_stop_the_chat(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    chat = saved_chat(here)
    with (
        closing(Store.open_or_unsaved(here)) as store,
        closing(sqlite3.connect(database_path(here), isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        store.add_message(chat, "user", "goes on")
        assert isinstance(store.unsaved, StoreNotWritable)
        assert "locked" in store.unsaved.message
        assert [message.content for message in store.path(chat)] == ["an old question", "goes on"]


def fill_the_disk(store: Store) -> None:
    """SQLite then says "disk full" as it does when the file system is."""
    connection = store._database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")


# What a user without permission sees. Root may do everything: when root runs the tests, these run as nobody.


@pytest.fixture
def public_home() -> Iterator[Places]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        yield Places(config=root / "config", data=root / "data", cache=root / "cache")
        for path in [root, *root.rglob("*")]:
            path.chmod(0o700)


def as_ordinary_user(here: Places, script: str) -> str:
    program = f"""
import os, sys
from contextlib import closing
from pathlib import Path
from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store
from mlxspec.errors import StoreError
from mlxspec.places import Places
root = Path(sys.argv[1])
here = Places(config=root / "config", data=root / "data", cache=root / "cache")
import mlxspec.chat.searching, filelock, encodings.utf_16
if os.geteuid() == 0:
    os.setuid(65534)
{script}
"""
    result = subprocess.run(
        [sys.executable, "-c", program, str(here.data.parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


CHAT_ON = """
with closing(Store.open_or_unsaved(here)) as store:
    old = [message.content for chat in store.recent() for message in store.path(chat.id)]
    chat = store.create_chat(target="target", draft="auto").id
    store.add_message(chat, "user", "question")
    writer = store.answer(chat)
    writer.finish(MessageState.DONE)
    assert writer.wait(30) and writer.problem is None
    print(type(store.unsaved).__name__, old, len(store.path(chat)))
"""


def test_in_a_folder_that_cannot_be_written_old_chats_can_be_read(public_home: Places) -> None:
    saved_chat(public_home)
    database_path(public_home).chmod(0o444)
    public_home.data.chmod(0o555)
    assert as_ordinary_user(public_home, CHAT_ON) == "StoreNotWritable ['an old question'] 2"


def test_a_file_that_cannot_be_written_is_read(public_home: Places) -> None:
    saved_chat(public_home)
    public_home.data.chmod(0o777)
    database_path(public_home).chmod(0o444)
    assert as_ordinary_user(public_home, CHAT_ON) == "StoreNotWritable ['an old question'] 2"


def test_a_file_that_cannot_be_read_is_told(public_home: Places) -> None:
    saved_chat(public_home)
    public_home.data.chmod(0o777)
    database_path(public_home).chmod(0o000)
    assert as_ordinary_user(public_home, CHAT_ON) == "StoreNotReadable [] 2"


def test_a_folder_that_cannot_be_made_is_told(public_home: Places) -> None:
    public_home.data.parent.chmod(0o555)
    assert as_ordinary_user(public_home, CHAT_ON) == "StoreNotWritable [] 2"


def test_a_folder_that_cannot_be_entered_is_told(public_home: Places) -> None:
    saved_chat(public_home)
    public_home.data.chmod(0o000)
    assert as_ordinary_user(public_home, CHAT_ON) == "StoreNotReadable [] 2"


def test_without_permission_opening_for_a_command_raises(public_home: Places) -> None:
    public_home.data.parent.chmod(0o555)
    script = """
try:
    Store.open(here)
except StoreError as error:
    print(error.kind, error.message)
"""
    assert as_ordinary_user(public_home, script).startswith("StoreNotWritable")


def test_a_data_folder_that_is_a_file_is_told(here: Places) -> None:
    here.data.parent.mkdir(exist_ok=True)
    here.data.write_text("")
    with closing(Store.open_or_unsaved(here)) as store:
        assert isinstance(store.unsaved, StoreNotWritable | StoreNotReadable)
        is_two_sentences(store.unsaved)
        a_chat_goes_on_in(store)
