"""The SQLite database of an n-gram file: is it ours, is it whole, and how it is made."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

APPLICATION_ID = 0x6D78_6E67
FORMAT = 1
BUSY_S = 5.0

BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


class ForeignFile(Exception):
    """The file is damaged, or is not ours."""


class NewerFile(Exception):
    """A newer mlxspec wrote the file."""


@contextmanager
def damage_told() -> Iterator[None]:
    """Raise ForeignFile where SQLite says that the file is damaged or lacks a table."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if primary_code(error) in DAMAGED:
            raise ForeignFile(str(error)) from error
        raise


def primary_code(error: sqlite3.Error) -> int:
    """The primary code; the extended ones say the same in more detail."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_ours(db: sqlite3.Connection) -> bool:
    """False for an empty file. Raises: ForeignFile, NewerFile."""
    (ours,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if ours == APPLICATION_ID:
        if version > FORMAT:
            raise NewerFile
        return True
    if ours or version or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise ForeignFile("a database of another program")
    return False


def use_wal(db: sqlite3.Connection) -> None:
    """Let others read while one writes. Raises: sqlite3.OperationalError."""
    # The change of mode does not wait for other programs by itself, and two may start at once.
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) not in BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def create(db: sqlite3.Connection) -> None:
    """Make the tables of an empty file."""
    with transaction(db):
        if is_ours(db):  # another program was faster
            return
        db.execute("CREATE TABLE ngrams (key INTEGER PRIMARY KEY, worth INTEGER NOT NULL, counts NOT NULL)")
        db.execute("CREATE TABLE targets (name TEXT PRIMARY KEY, tokens INTEGER NOT NULL)")
        db.execute("CREATE TABLE age (batches INTEGER NOT NULL)")
        db.execute("INSERT INTO age VALUES (0)")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it happens or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
