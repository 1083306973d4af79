"""What SQLite and the system say when they refuse, as errors that a user can act upon."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlxspec.errors import StoreDamaged, StoreError, StoreNotReadable, StoreNotWritable, UnknownChat

BUSY_S = 5.0  # how long a write waits for another program's write
SET_ASIDE = "Run `mlxspec sessions set-aside` to keep the file under another name and start afresh."
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_REFUSED = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_PROTOCOL,
)


@contextmanager
def explained(path: Path, *, reading: bool = False) -> Iterator[None]:
    """Raise StoreErrors about `path` for what SQLite and the system raise inside."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path, reading=reading) from error


def explain(error: sqlite3.Error | OSError, path: Path, *, reading: bool = False) -> StoreError:
    """Which StoreError this is. A fault of our own, such as bad SQL, is raised as it is."""
    code = primary_code(error)
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return UnknownChat(
            "This chat was deleted by another program.", hint="Start a new chat or open another."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"The saved chats in {path} are damaged: {error}.", hint=SET_ASIDE)
    if code in LOCKED:
        return StoreNotWritable(
            f"Another program has kept the saved chats in {path} locked for {BUSY_S:g} seconds.",
            hint="Close that program and start again.",
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreNotWritable(f"The disk is full: nothing can be saved in {path}.", hint="Free some space.")
    if code in _REFUSED or isinstance(error, OSError):
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if reading:
            return StoreNotReadable(
                f"The saved chats in {path} cannot be read: {reason}.",
                hint="Check who may read the file and its folder.",
            )
        return StoreNotWritable(
            f"Nothing can be saved in {path}: {reason}.",
            hint="Check who may write to the file and its folder.",
        )
    raise error


def primary_code(error: Any) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
