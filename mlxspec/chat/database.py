"""sessions.db: opened safely, shared by threads, and exchanged for memory when the disk refuses.

Nothing here knows what a chat is. A file that is damaged, or that a newer mlxspec or another program wrote,
is never written to.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from mlxspec.chat.migrations import APPLICATION_ID, LATEST, migrate, user_version
from mlxspec.chat.trouble import BUSY_S, LOCKED, SET_ASIDE, explain, explained, primary_code
from mlxspec.errors import StoreDamaged, StoreError, StoreNotWritable, StoreTooNew

QUICK_CHECK_BYTES = 16 << 20  # files up to this size are checked when they are opened (measured: 1 ms a MB)

T = TypeVar("T")


class Database:
    """One connection under a lock, for any thread.

    Attributes:
        path: the file on disk, whether it is in use or not.
        unsaved: None while all is saved in `path`; else why it is not, and everything is in memory.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, unsaved: StoreError | None, may_go_unsaved: bool
    ) -> None:
        self.path = path
        self.unsaved = unsaved
        self._connection = connection
        self._may_go_unsaved = may_go_unsaved
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path) -> Database:
        """The database at `path`, made if it is missing, readable by its owner only.

        Raises: StoreNotWritable, StoreNotReadable, StoreDamaged, StoreTooNew.
        """
        with explained(path):
            return cls(path, _connect(path), unsaved=None, may_go_unsaved=False)

    @classmethod
    def open_or_unsaved(cls, path: Path) -> Database:
        """Like `open`, but trouble, now or later, leads to a database in memory; `unsaved` says why.

        It starts as a copy of what is on disk where that can be read, else empty.
        """
        try:
            with explained(path):
                return cls(path, _connect(path), unsaved=None, may_go_unsaved=True)
        except StoreNotWritable as problem:
            try:
                memory, unsaved = _copy_of(path), problem
            except StoreError as worse:
                return cls(path, _empty(), unsaved=worse, may_go_unsaved=True)
            return cls(path, memory, unsaved=unsaved, may_go_unsaved=True)
        except StoreError as problem:
            return cls(path, _empty(), unsaved=problem, may_go_unsaved=True)

    @classmethod
    def in_memory(cls, reason: StoreError) -> Database:
        """An empty database in memory; `unsaved` is the reason."""
        return cls(Path(), _empty(), unsaved=reason, may_go_unsaved=True)

    def read(self, sql: str, *arguments: object) -> list[sqlite3.Row]:
        """All rows of a query. Raises StoreError."""
        with self._lock, explained(self.path):
            return self._connection.execute(sql, arguments).fetchall()

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in one short transaction; all of it happens or nothing.

        When the disk refuses and the database may go unsaved, it does, and the work is done in memory.

        Raises: StoreError; UnknownChat where the work refers to a row that another program deleted.
        """
        with self._lock:
            try:
                with explained(self.path), _transaction(self._connection):
                    return work(self._connection)
            except StoreNotWritable as problem:
                self.go_unsaved(problem)
            with explained(self.path), _transaction(self._connection):
                return work(self._connection)

    def go_unsaved(self, reason: StoreError) -> None:
        """Carry on in memory with a copy of everything.

        Raises: `reason` when the database must be on disk, or is in memory already; StoreError when it cannot
        be read.
        """
        with self._lock:
            if self.unsaved or not self._may_go_unsaved:
                raise reason
            memory = _memory()
            try:
                with explained(self.path):
                    self._connection.backup(memory)
            except StoreError:
                memory.close()
                raise
            self._connection.close()
            self._connection, self.unsaved = memory, reason

    def forget_deleted(self) -> None:
        """Take deleted text out of the write-ahead log as well, unless another program is reading."""
        with self._lock, explained(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the connection; nothing is pending."""
        with self._lock:
            self._connection.close()


def set_aside(path: Path) -> Path:
    """Rename the database and its journal files, for a damaged one that its owner wants out of the way.

    Returns: the new path, in the same folder. Raises: StoreNotWritable.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        kept = path.with_name(f"{path.stem}-{stamp}{f'-{number}' if number else ''}{path.suffix}")
        if not kept.exists():
            break
    try:
        # The database goes last: a crash in between leaves it where it is looked for.
        for suffix in ("-wal", "-shm", ""):
            source = Path(f"{path}{suffix}")
            if source.exists():
                source.rename(f"{kept}{suffix}")
    except OSError as error:
        raise explain(error, path) from error
    return kept


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # Before SQLite makes it, for SQLite gives its journal files the mode that this file has.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(mode & 0o700)
    db = _configured(sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S))
    try:
        _refuse_what_is_not_ours(db, path)
        _use_wal(db)
        with _transaction(db):  # that it begins proves that the file can be written
            if user_version(db) != LATEST:
                migrate(db)
    except BaseException:
        db.close()
        raise
    return db


def _configured(db: sqlite3.Connection) -> sqlite3.Connection:
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = ON")  # a deleted chat leaves no text in free pages
    db.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe from corruption, and a kill loses nothing
    return db


def _refuse_what_is_not_ours(db: sqlite3.Connection, path: Path) -> None:
    """Reads only. Raises StoreTooNew or StoreDamaged."""
    with _transaction(db, "DEFERRED"):  # one moment: another program may be making the file
        ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        version = user_version(db)
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if ours and version > LATEST:
        raise StoreTooNew(
            f"A newer mlxspec wrote the saved chats in {path} (format {version}; this one knows {LATEST}).",
            hint="Update mlxspec to read and save chats; until then the file is left as it is.",
        )
    if not ours and tables:
        raise StoreDamaged(f"{path} is a database of another program, not saved chats.", hint=SET_ASIDE)
    if path.stat().st_size <= QUICK_CHECK_BYTES and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise StoreDamaged(f"The saved chats in {path} are damaged.", hint=SET_ASIDE)


def _use_wal(db: sqlite3.Connection) -> None:
    # The change of mode does not wait for other programs by itself, and two may start at once.
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) not in LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _memory() -> sqlite3.Connection:
    return _configured(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def _empty() -> sqlite3.Connection:
    db = _memory()
    migrate(db)
    return db


def _copy_of(path: Path) -> sqlite3.Connection:
    """What can be read of `path`, in memory; empty when there is no such file. Raises StoreError."""
    try:
        if not path.exists():
            return _empty()
    except OSError as error:
        raise explain(error, path, reading=True) from error
    # A WAL database in a folder that cannot be written opens only as immutable.
    for query in ("mode=ro", "mode=ro&immutable=1"):
        memory = _memory()
        try:
            with (
                explained(path, reading=True),
                closing(sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True)) as source,
            ):
                _refuse_what_is_not_ours(source, path)
                source.backup(memory)
                migrate(memory)
                return memory
        except StoreError as error:
            memory.close()
            problem = error
    raise problem
