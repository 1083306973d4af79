"""One file of n-gram counts: what followed each context of 1 to 5 tokens, and how often.

A SQLite table with a row a context, named by a 63-bit hash. Contexts that end in the same two tokens have
neighbouring hashes, so that a token which is learnt or looked up touches two pages and not five: measured on
500,000 contexts, 7 microseconds a look-up. Two programs may read and write at once.

The file keeps below its bound: when it is full, the quarter of its contexts that is worth least goes. A
context is worth the more the younger it is, and each time that its count doubles it counts as younger.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from mlxspec.drafters.ngram_database import (
    BUSY,
    BUSY_S,
    DAMAGED,
    ForeignFile,
    create,
    damage_told,
    is_ours,
    primary_code,
    transaction,
    use_wal,
)
from mlxspec.drafters.ngram_rows import KEYS, LOW, MAX_ORDER, context_keys, most_frequent, packed, unpacked

DEFAULT_BYTES = 64 << 20
BATCH_TOKENS = 1024  # learnt in one transaction, so that no other program waits for long
DOUBLING = 128  # batches by which a context counts as younger each time that its count doubles
SLICES = 64  # of the key space; what is worth least goes slice by slice
WAL_SHARE = 16  # one part in so many of the bound is for the journal

_LOOK_UP = "SELECT counts FROM ngrams WHERE key = ?"
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds.

    Attributes:
        targets: tokens learnt for each model, by its name.
        contexts: rows.
        bytes: on disk, the journal included.
    """

    targets: Mapping[str, int]
    contexts: int
    bytes: int

    @property
    def tokens(self) -> int:
        """Tokens learnt for all models of this vocabulary."""
        return sum(self.targets.values())


class NgramFile:
    """An open file, for one thread. SQLite's errors come as they are, except where something else is said."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection
        self._cursor = connection.cursor()
        self._looking = False
        self._inode = path.stat().st_ino

    @classmethod
    def open(cls, path: Path, *, max_bytes: int = DEFAULT_BYTES) -> NgramFile:
        """The file at `path` to learn, made if it is missing, for its owner only.

        Raises: ForeignFile, NewerFile; OSError or sqlite3.Error when it cannot be opened.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            # Before SQLite makes it, for SQLite gives its journal files the mode that this file has.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        try:
            with damage_told():
                if not is_ours(db):
                    use_wal(db)
                    create(db)
            pages = (max_bytes - max_bytes // WAL_SHARE) // _PAGE_BYTES
            db.execute(f"PRAGMA max_page_count = {pages}")
            db.execute(f"PRAGMA journal_size_limit = {max_bytes // WAL_SHARE}")
            # What a power cut takes is some counts; SQLite keeps the file whole through anything else.
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA cache_size = -8192")
            return cls(path, db)
        except BaseException:
            db.close()
            raise

    @classmethod
    def open_to_read(cls, path: Path) -> NgramFile | None:
        """The file at `path` to look up contexts, without ever waiting; None when nothing was learnt yet.

        Raises: as `open`.
        """
        if not path.exists():
            return None
        db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            with damage_told():
                if is_ours(db):
                    db.execute("PRAGMA query_only = ON")
                    db.execute(f"PRAGMA mmap_size = {DEFAULT_BYTES}")
                    return cls(path, db)
        except BaseException:
            db.close()
            raise
        db.close()
        return None

    def is_current(self) -> bool:
        """Is this still the file at its path, or was it deleted or exchanged?"""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def counts(self, key: int) -> dict[int, int]:
        """How often each token followed this context, the one that came last at the end.

        Empty when the context is unknown, and while another program keeps the file to itself. `rest` must
        come after the last of several look-ups.

        Raises: ForeignFile.
        """
        try:
            if not self._looking:
                self._cursor.execute("BEGIN")  # one lock for all: half the time of a look-up
                self._looking = True
            row = self._cursor.execute(_LOOK_UP, (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            if primary_code(error) in DAMAGED:
                raise ForeignFile(str(error)) from error
            if primary_code(error) not in BUSY:
                raise
            return {}
        return {} if row is None else unpacked(row[0])

    def frequencies(self) -> dict[int, int]:
        """How often each token was learnt behind another one. Reads all of the file: up to some 0.3 s.

        Raises: ForeignFile.
        """
        totals: dict[int, int] = {}
        with damage_told():
            for (stored,) in self._db.execute("SELECT counts FROM ngrams WHERE key & ? = 0", (LOW,)):
                for token, count in unpacked(stored).items():
                    totals[token] = totals.get(token, 0) + count
        return totals

    def rest(self) -> None:
        """Let go of the state of the file that was looked at, so that its journal can be shortened."""
        if self._looking:
            self._looking = False
            self._cursor.execute("COMMIT")

    def learn(self, tokens: Sequence[int], target: str) -> None:
        """Count one text of the vocabulary that `target` has.

        Raises: ForeignFile.
        """
        for start in range(0, len(tokens), BATCH_TOKENS):
            before = tokens[max(0, start - MAX_ORDER) : start]
            batch = tokens[start : start + BATCH_TOKENS]
            with damage_told():
                try:
                    self._learn_batch(before, batch, target)
                except sqlite3.OperationalError as error:
                    if primary_code(error) != sqlite3.SQLITE_FULL or not self._is_full():
                        raise
                    self._forget_a_quarter()
                    self._learn_batch(before, batch, target)

    def contents(self) -> Contents:
        """What the file holds. Raises: ForeignFile."""
        with damage_told():
            targets = dict(self._db.execute("SELECT name, tokens FROM targets ORDER BY tokens DESC"))
            (contexts,) = self._db.execute("SELECT count(*) FROM ngrams").fetchone()
        return Contents(targets, contexts, disk_bytes(self.path))

    def clear(self) -> None:
        """Forget everything, in other programs that have the file open as well."""
        with damage_told():
            self._db.execute("PRAGMA secure_delete = ON")
            with transaction(self._db):
                self._db.execute("DELETE FROM ngrams")
                self._db.execute("DELETE FROM targets")
            with suppress(sqlite3.OperationalError):  # somebody is reading: the space is used again later
                self._db.execute("VACUUM")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> None:
        """Read all of it. Raises: ForeignFile when anything is damaged."""
        with damage_told():
            (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise ForeignFile(found)
            self.contents()
            self._db.execute("SELECT batches FROM age").fetchone()

    def close(self) -> None:
        """Close the connection; everything that was learnt is in the file."""
        self._db.close()

    def _learn_batch(self, before: Sequence[int], batch: Sequence[int], target: str) -> None:
        text = [*before, *batch]
        fresh: dict[int, dict[int, int]] = {}
        for end in range(max(1, len(before)), len(text)):
            token = text[end]
            for key in context_keys(text[max(0, end - MAX_ORDER) : end]):
                counts = fresh.setdefault(key, {})
                counts[token] = counts.pop(token, 0) + 1
        with transaction(self._db):
            self._db.execute(
                "INSERT INTO targets VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET tokens = tokens + excluded.tokens",
                (target, len(batch)),
            )
            (age,) = self._db.execute("UPDATE age SET batches = batches + 1 RETURNING batches").fetchone()
            self._db.executemany("REPLACE INTO ngrams VALUES (?, ?, ?)", self._merged(fresh, age))

    def _merged(self, fresh: Mapping[int, dict[int, int]], age: int) -> list[tuple[int, int, int | bytes]]:
        """Rows of the fresh counts and those in the file together, in the order of the table."""
        rows = []
        for key in sorted(fresh):
            counts = fresh[key]
            found = self._db.execute(_LOOK_UP, (key,)).fetchone()
            if found is not None:
                merged = unpacked(found[0])
                for token, count in counts.items():
                    merged[token] = merged.pop(token, 0) + count
                counts = most_frequent(merged)
            worth = age + DOUBLING * (sum(counts.values()).bit_length() - 1)
            rows.append((key, worth, packed(counts)))
        return rows

    def _is_full(self) -> bool:
        """Is the bound reached, and not the end of the disk?"""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (most,) = self._db.execute("PRAGMA max_page_count").fetchone()
        # The failed transaction was rolled back, so it is at the bound but for what that one asked for.
        return bool(pages + MAX_ORDER * BATCH_TOKENS >= most)

    def _forget_a_quarter(self) -> None:
        """The rows go slice by slice, so that other programs can write in between."""
        worths = self._db.execute(
            "SELECT worth, count(*) FROM ngrams GROUP BY worth ORDER BY worth"
        ).fetchall()
        surplus = sum(count for _, count in worths) // 4
        limit = 0
        for worth, count in worths:
            limit = worth
            surplus -= count
            if surplus <= 0:
                break
        step = KEYS // SLICES
        for low in range(0, KEYS, step):
            with transaction(self._db):
                self._db.execute(
                    "DELETE FROM ngrams WHERE key BETWEEN ? AND ? AND worth <= ?",
                    (low, low + step - 1, limit),
                )
        # Every page has lost some rows and none is free: without this, the next page to split fails again.
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def set_aside(path: Path) -> Path | None:
    """Rename a file that cannot be used, and delete its journals.

    Returns: the new path; None when another program did it, and whatever is there now is good.

    Raises: NewerFile; OSError or sqlite3.Error when it cannot be done.
    """
    if not path.exists():
        return None
    try:
        with closing(NgramFile.open(path)) as file:
            file.check()
            return None
    except ForeignFile:
        pass
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        kept = path.with_name(f"{path.stem}-{stamp}{f'-{number}' if number else ''}.unusable")
        if not kept.exists():
            break
    path.rename(kept)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    return kept


def disk_bytes(path: Path) -> int:
    """Bytes of a file and its journals."""
    total = 0
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            total += Path(f"{path}{suffix}").stat().st_size
    return total
