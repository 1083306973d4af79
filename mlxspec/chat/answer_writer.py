"""Saves an answer while it streams, on a thread of its own, so that nobody waits for the disk."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlxspec.chat.records import MessageState, storable
from mlxspec.chat.streamed import decoded_tokens, encoded_reports, encoded_tokens
from mlxspec.errors import StoreError
from mlxspec.events import RoundReport, Tokens

if TYPE_CHECKING:
    import sqlite3

    from mlxspec.chat.database import Database
    from mlxspec.chat.lease import Lease

FLUSH_S = 0.25  # the least time between two writes; a killed program loses what came since the last one


class AnswerWriter:
    """Takes the tokens of one answer, and reports of its rounds if there are any; `Store.answer` makes it.

    `append` only puts a value into a queue. The first one is saved at once, and from then on whatever came is
    saved every `FLUSH_S` seconds. After `finish` nothing may be appended.

    Attributes:
        message: the id of the message.
        problem: None, or why the answer's latest part could not be saved; the writer has then given up.
    """

    def __init__(self, database: Database, message: int, *, lease: Lease | None) -> None:
        self.message = message
        self.problem: StoreError | None = None
        self._database = database
        self._lease = lease
        self._waiting: deque[Tokens | RoundReport] = deque()
        self._texts: list[str] = []
        self._chunks = 0
        self._ending: tuple[MessageState, str | None] | None = None
        self._something_to_do = threading.Event()
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"answer {message}", daemon=True)
        self._thread.start()

    def append(self, event: Tokens | RoundReport) -> None:
        """Take one event of the engine. Never waits."""
        self._waiting.append(event)
        self._something_to_do.set()

    def finish(self, state: MessageState, *, stats: Mapping[str, Any] | None = None) -> None:
        """The answer has ended; the rest is saved in the background. Never waits. A second call does nothing.

        Args:
            state: done, stopped or failed.
            stats: `DecodeStats.as_dict()`, or anything else that JSON can hold.
        """
        if self._ending is None:
            self._ending = (state, None if stats is None else json.dumps(stats))
            self._finishing.set()
            self._something_to_do.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until everything is saved after `finish`. Returns whether it is, within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                self._something_to_do.wait()
                self._something_to_do.clear()
                ending = self._ending  # read before the queue is emptied, so that the last tokens are in it
                self._save(ending)
                if ending:
                    return
                self._finishing.wait(FLUSH_S)
        except StoreError as problem:
            self.problem = problem
        finally:
            if self._lease:
                self._lease.release()

    def _save(self, ending: tuple[MessageState, str | None] | None) -> None:
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        tokens = [event for event in batch if isinstance(event, Tokens)]
        reports = [event for event in batch if isinstance(event, RoundReport)]
        self._texts.extend(event.text for event in tokens)

        def work(db: sqlite3.Connection) -> None:
            if tokens:
                row = (self.message, self._chunks, encoded_tokens(tokens))
                db.execute("INSERT INTO spans (message, seq, body) VALUES (?, ?, ?)", row)
            if reports:
                row = (self.message, self._chunks, encoded_reports(reports))
                db.execute("INSERT INTO rounds (message, seq, body) VALUES (?, ?, ?)", row)
            if ending:
                state, stats = ending
                _end(db, self.message, content="".join(self._texts), state=state, stats=stats)
                db.execute(
                    "UPDATE chats SET updated = ? WHERE id = (SELECT chat FROM messages WHERE id = ?)",
                    (time.time(), self.message),
                )

        self._database.write(work)
        self._chunks += 1


def stop_answers_of(db: sqlite3.Connection, owner: str | None) -> None:
    """Mark as stopped, with what was saved, the answers that a program that is gone was streaming."""
    # Read in the same transaction: the owner may have finished after it was looked for, and ended by itself.
    rows = db.execute("SELECT id FROM messages WHERE state = 'streaming' AND owner IS ?", (owner,)).fetchall()
    for (message,) in rows:
        bodies = db.execute("SELECT body FROM spans WHERE message = ? ORDER BY seq", (message,))
        content = "".join(tokens.text for (body,) in bodies for tokens in decoded_tokens(body))
        _end(db, message, content=content, state=MessageState.STOPPED, stats=None)


def _end(
    db: sqlite3.Connection, message: int, *, content: str, state: MessageState, stats: str | None
) -> None:
    db.execute(
        "UPDATE messages SET content = ?, state = ?, stats = ?, owner = NULL WHERE id = ?",
        (storable(content), state, stats, message),
    )
