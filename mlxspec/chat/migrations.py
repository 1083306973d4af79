"""The tables of sessions.db, as numbered steps from an empty file to today's form.

A step, once released, is never edited: a change of the tables is a new step at the end of `STEPS`. The number
of steps that a file has been through is its `user_version`.

    chats      one row a chat; `head` is the message that the chat stands at
    messages   a tree: each message names its parent, so that an edit or a second answer is a branch
    spans      the tokens of an answer with their origins, a row for each time it was saved while streaming
    rounds     why they are there: what was guessed and with which probabilities, saved in the same way

A streaming answer's text is in its spans alone; `content` is filled when it ends, so the search index is
written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

APPLICATION_ID = 0x6D6C7873  # "mlxs", in the file's header


def migrate(db: sqlite3.Connection) -> None:
    """Bring an open, writable database to the latest form, in one transaction of the caller's."""
    version = user_version(db)
    for number, step in enumerate(STEPS[version:], start=version + 1):
        step(db)
        db.execute(f"PRAGMA user_version = {number}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def user_version(db: sqlite3.Connection) -> int:
    """How many steps this database has been through."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _chats_messages_spans(db: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE chats (
               number INTEGER PRIMARY KEY,
               id TEXT NOT NULL UNIQUE,
               title TEXT NOT NULL DEFAULT '',
               created REAL NOT NULL,
               updated REAL NOT NULL,
               target TEXT NOT NULL,
               draft TEXT NOT NULL,
               system TEXT NOT NULL,
               params TEXT NOT NULL,
               head INTEGER
           )""",
        "CREATE INDEX chats_updated ON chats (updated)",
        # AUTOINCREMENT: the id of a deleted message must not come back while a writer still holds it.
        """CREATE TABLE messages (
               id INTEGER PRIMARY KEY AUTOINCREMENT,
               chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
               parent INTEGER REFERENCES messages (id) ON DELETE CASCADE,
               role TEXT NOT NULL,
               content TEXT NOT NULL,
               created REAL NOT NULL,
               state TEXT NOT NULL,
               stats TEXT,
               owner TEXT
           )""",
        "CREATE INDEX messages_chat ON messages (chat)",
        "CREATE INDEX messages_parent ON messages (parent)",
        "CREATE INDEX messages_streaming ON messages (state) WHERE state = 'streaming'",
        """CREATE TABLE spans (
               message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
               seq INTEGER NOT NULL,
               body TEXT NOT NULL,
               PRIMARY KEY (message, seq)
           ) WITHOUT ROWID""",
    ):
        db.execute(statement)
    _index(db, table="messages", key="id", column="content")
    _index(db, table="chats", key="number", column="title")


def _index(db: sqlite3.Connection, *, table: str, key: str, column: str) -> None:
    """Full-text search over one column. Trigrams find parts of words, in scripts without spaces too."""
    index = f"{table}_text"
    remove = f"INSERT INTO {index} ({index}, rowid, {column}) VALUES ('delete', old.{key}, old.{column});"
    add = f"INSERT INTO {index} (rowid, {column}) VALUES (new.{key}, new.{column});"
    db.execute(
        f"CREATE VIRTUAL TABLE {index} USING fts5 "
        f"({column}, content = '{table}', content_rowid = '{key}', tokenize = 'trigram')"
    )
    db.execute(f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN {add} END")
    db.execute(f"CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN {remove} END")
    db.execute(
        f"CREATE TRIGGER {table}_changed AFTER UPDATE OF {column} ON {table} "
        f"WHEN old.{column} IS NOT new.{column} BEGIN {remove} {add} END"
    )


def _rounds(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE rounds (
               message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
               seq INTEGER NOT NULL,
               body TEXT NOT NULL,
               PRIMARY KEY (message, seq)
           ) WITHOUT ROWID"""
    )


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_chats_messages_spans, _rounds)
LATEST = len(STEPS)
