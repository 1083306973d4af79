"""The saved chats.

    store = Store.open_or_unsaved(places())    # never refuses; `store.unsaved`: None, or why nothing is saved
    chat = store.create_chat(target="smollm2-135m", draft="auto")
    store.add_message(chat.id, "user", "Why is the sky blue?")       # gives the chat its title, too
    writer = store.answer(chat.id)
    writer.append(event)                        # `Tokens`, or a `RoundReport`; never waits for the disk
    writer.finish(MessageState.DONE, stats=finished.stats.as_dict())
    store.path(chat.id)                         # the messages from the first one to the chat's head
    store.close()

A chat is a tree of messages and stands at its head. To regenerate an answer, call `answer(chat,
after=QUESTION)`; to edit a message, `edit(MESSAGE, text)`. Both make a branch beside the old one and move the
head to it. `branches` lists what stands side by side, and `set_head(newest_leaf(MESSAGE))` goes to another
branch.

A write waits for the disk for milliseconds, and for another program's write for up to five seconds. When the
disk refuses, a store that was opened by `open_or_unsaved` goes on in memory and says why in `unsaved`: look
there after writing. Every method may be called from any thread and may raise StoreError: StoreDamaged when
the file breaks while in use, UnknownChat when another program deleted the chat.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mlxspec.chat import searching, tree
from mlxspec.chat.answer_writer import AnswerWriter, stop_answers_of
from mlxspec.chat.database import Database
from mlxspec.chat.database import set_aside as set_file_aside
from mlxspec.chat.lease import Lease, is_held
from mlxspec.chat.records import (
    Chat,
    Hit,
    MessageState,
    SavedMessage,
    chat_of,
    clean_title,
    message_of,
    new_id,
    storable,
    typed_id,
)
from mlxspec.chat.streamed import decoded_reports, decoded_tokens
from mlxspec.chat.trouble import explain
from mlxspec.errors import StoreError, UnknownChat, UsageError
from mlxspec.events import RoundReport, Tokens
from mlxspec.places import Places


class Store:
    """All chats of one user. See the module's docstring for how to use it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._leases = database.path.parent / "leases"
        self._writers: list[AnswerWriter] = []
        self._settle_abandoned()

    @classmethod
    def open(cls, places: Places) -> Store:
        """The store on disk, for a command that makes no sense without it.

        Raises: StoreNotWritable, StoreNotReadable, StoreDamaged, StoreTooNew.
        """
        return cls(Database.open(database_path(places)))

    @classmethod
    def open_or_unsaved(cls, places: Places) -> Store:
        """The store on disk, or else one in memory with the reason in `unsaved`, for a chat that must go on.

        On a disk that can be read but not written, the saved chats are there too.
        """
        return cls(Database.open_or_unsaved(database_path(places)))

    @classmethod
    def in_memory(cls, reason: StoreError) -> Store:
        """An empty store that saves nothing, for a chat that goes on when its store broke."""
        return cls(Database.in_memory(reason))

    @property
    def unsaved(self) -> StoreError | None:
        """None while everything is saved; else why nothing is, from now on."""
        return self._database.unsaved

    def close(self) -> None:
        """Save what is pending, stop answers that still stream, and close the file."""
        for writer in self._writers:
            writer.finish(MessageState.STOPPED)
            writer.wait()
        self._database.close()

    # Chats

    def create_chat(
        self, *, target: str, draft: str, system: str = "", params: Mapping[str, Any] | None = None
    ) -> Chat:
        """A new, empty chat. Lists leave it out until it has a message. `params` may hold what JSON can."""
        chat, now = new_id(), time.time()
        row = (chat, now, now, target, draft, storable(system), json.dumps(dict(params or {})))
        self._write(
            "INSERT INTO chats (id, created, updated, target, draft, system, params) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            *row,
        )
        return self.chat(chat)

    def chat(self, chat: str) -> Chat:
        """The chat of exactly this ID. Raises UnknownChat."""
        if rows := self._database.read(f"{_SELECT_CHAT} WHERE id = ?", chat):
            return chat_of(rows[0])
        raise UnknownChat(f"There is no saved chat {chat!r}.", hint=_LIST)

    def find_chat(self, typed: str) -> Chat:
        """The chat of an ID, or of the beginning of one, as a user typed it. Raises UnknownChat."""
        beginning = typed_id(typed)
        rows = (
            self._database.read(f"{_SELECT_CHAT} WHERE id GLOB ? LIMIT 2", f"{beginning}*")
            if beginning
            else []
        )
        if len(rows) > 1:
            raise UnknownChat(f"More than one saved chat has an ID that begins with {typed!r}.", hint=_LIST)
        if not rows:
            raise UnknownChat(f"There is no saved chat {typed!r}.", hint=_LIST)
        return chat_of(rows[0])

    def recent(self, limit: int | None = None) -> list[Chat]:
        """The chats that have messages, the one used last first."""
        sql = f"{_SELECT_CHAT} WHERE head IS NOT NULL ORDER BY updated DESC, number DESC LIMIT ?"
        return [chat_of(row) for row in self._database.read(sql, -1 if limit is None else limit)]

    def last(self) -> Chat | None:
        """The chat used last, for `--continue`."""
        return next(iter(self.recent(1)), None)

    def rename(self, chat: str, title: str) -> Chat:
        """Give the chat another title. Raises UnknownChat; UsageError when nothing of it can be seen."""
        cleaned = clean_title(title)
        if not cleaned:
            raise UsageError("The title is empty.", hint="Give a title that can be seen.")
        self._change_chat("title = ?", cleaned, chat=chat)
        return self.chat(chat)

    def update(
        self,
        chat: str,
        *,
        target: str | None = None,
        draft: str | None = None,
        system: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Chat:
        """Remember what the chat goes on with; None leaves a thing as it is. Raises UnknownChat."""
        known = self.chat(chat)
        self._change_chat(
            "target = ?, draft = ?, system = ?, params = ?",
            known.target if target is None else target,
            known.draft if draft is None else draft,
            storable(known.system if system is None else system),
            json.dumps(dict(known.params if params is None else params)),
            chat=chat,
        )
        return self.chat(chat)

    def delete(self, chat: str) -> None:
        """Delete the chat with all branches; its text leaves the disk, too. Raises UnknownChat."""
        if not self._write("DELETE FROM chats WHERE id = ?", chat):
            raise UnknownChat(f"There is no saved chat {chat!r}.", hint=_LIST)
        self._database.forget_deleted()

    # Messages

    def add_message(self, chat: str, role: str, content: str, *, after: int | None = None) -> SavedMessage:
        """Add a finished message after the head, or after the message `after`, and make it the head.

        The chat's first user message gives the chat its title. Raises UnknownChat.
        """
        new = tree.NewMessage(chat, role, content=storable(content))
        return self.message(self._database.write(partial(tree.insert, new=new, after=after)))

    def answer(self, chat: str, *, after: int | None = None, role: str = "assistant") -> AnswerWriter:
        """Begin an answer after the head, or after `after`, and make it the head. Raises UnknownChat."""
        lease = None
        if not self.unsaved:
            try:
                lease = Lease(self._leases)
            except OSError as error:
                self._database.go_unsaved(explain(error, self._leases))
        streaming = MessageState.STREAMING
        new = tree.NewMessage(chat, role, content="", state=streaming, owner=lease.token if lease else None)
        try:
            message = self._database.write(partial(tree.insert, new=new, after=after))
        except BaseException:
            if lease:
                lease.release()
            raise
        writer = AnswerWriter(self._database, message, lease=lease)
        self._writers = [earlier for earlier in self._writers if not earlier.wait(0)] + [writer]
        return writer

    def edit(self, message: int, content: str) -> SavedMessage:
        """Put another wording beside a message, as a branch that becomes the head. Raises UnknownChat."""
        old = self.message(message)
        new = tree.NewMessage(old.chat, old.role, content=storable(content))
        return self.message(self._database.write(partial(tree.insert, new=new, beside=message)))

    def message(self, message: int) -> SavedMessage:
        """The message of this id, with what is saved so far if it streams. Raises UnknownChat."""
        if found := self._messages("SELECT * FROM messages WHERE id = ?", message):
            return found[0]
        raise tree.gone()

    def path(self, chat: str) -> list[SavedMessage]:
        """The messages from the first one to the chat's head: what is shown and given to the model."""
        return self._messages(tree.PATH, chat)

    def all_messages(self, chat: str) -> list[SavedMessage]:
        """The messages of all branches, oldest first."""
        return self._messages("SELECT * FROM messages WHERE chat = ? ORDER BY id", chat)

    def branches(self, message: int) -> list[SavedMessage]:
        """The message and its alternatives, which have the same parent, oldest first. Raises UnknownChat."""
        this = self.message(message)
        sql = "SELECT * FROM messages WHERE chat = ? AND parent IS ? ORDER BY id"
        return self._messages(sql, this.chat, this.parent)

    def newest_leaf(self, message: int) -> int:
        """The id of the newest end of a branch through this message; its own if nothing follows."""
        return int(self._database.read(tree.NEWEST_LEAF, message)[0]["id"])

    def set_head(self, message: int) -> None:
        """Let the chat stand at this message; what follows it stays as a branch. Raises UnknownChat."""
        chat = self.message(message).chat
        self._change_chat("head = ?", message, chat=chat)

    def spans(self, message: int) -> list[Tokens]:
        """The tokens of an answer with their origins, as they were streamed; empty for other messages."""
        rows = self._database.read("SELECT body FROM spans WHERE message = ? ORDER BY seq", message)
        return [tokens for row in rows for tokens in decoded_tokens(row["body"])]

    def reports(self, message: int) -> list[RoundReport]:
        """Why the tokens of an answer are there, round by round; empty where nobody reported it."""
        rows = self._database.read("SELECT body FROM rounds WHERE message = ? ORDER BY seq", message)
        return [report for row in rows for report in decoded_reports(row["body"])]

    def search(self, query: str, *, limit: int = 50) -> list[Hit]:
        """Where all words of the query stand, in any case, inside longer words too. Nothing is an operator.

        Titles come first, then messages, the newest first.
        """
        return searching.search(self._database, storable(query), limit=limit)

    # Inside

    def _write(self, sql: str, *arguments: object) -> int:
        return self._database.write(lambda db: db.execute(sql, arguments).rowcount)

    def _change_chat(self, assignment: str, *values: object, chat: str) -> None:
        if not self._write(f"UPDATE chats SET {assignment} WHERE id = ?", *values, chat):
            raise UnknownChat(f"There is no saved chat {chat!r}.", hint=_LIST)

    def _messages(self, sql: str, *arguments: object) -> list[SavedMessage]:
        messages = [message_of(row) for row in self._database.read(sql, *arguments)]
        return [
            replace(message, content="".join(tokens.text for tokens in self.spans(message.id)))
            if message.state is MessageState.STREAMING
            else message
            for message in messages
        ]

    def _settle_abandoned(self) -> None:
        """Mark as stopped what programs that are gone were streaming."""
        for row in self._database.read("SELECT DISTINCT owner FROM messages WHERE state = 'streaming'"):
            alive = row["owner"] is not None and not self.unsaved and is_held(self._leases, row["owner"])
            if not alive:
                self._database.write(partial(stop_answers_of, owner=row["owner"]))


def database_path(places: Places) -> Path:
    """Where the chats are saved."""
    return places.data / "sessions.db"


def set_aside(places: Places) -> Path | None:
    """Rename a damaged or foreign sessions.db, on its owner's word alone, so that a new one can be begun.

    Returns: where it is now, or None when there is none. Raises: StoreNotWritable.
    """
    path = database_path(places)
    return set_file_aside(path) if path.exists() else None


_SELECT_CHAT = """SELECT id, title, created, updated, target, draft, system, params, head,
    (SELECT count(*) FROM messages WHERE chat = chats.id) AS messages FROM chats"""
_LIST = "Run `mlxspec sessions list` to see all IDs."
