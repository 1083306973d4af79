"""The tree of a chat's messages: where a new one is put, and the ways through it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlxspec.chat.records import MessageState, title_from
from mlxspec.errors import UnknownChat

if TYPE_CHECKING:
    import sqlite3

# The rows of messages from the root to the head of the chat of this id.
PATH = """
    WITH RECURSIVE way (id, parent, depth) AS (
        SELECT m.id, m.parent, 0 FROM messages m JOIN chats c ON m.id = c.head WHERE c.id = ?
        UNION ALL
        SELECT m.id, m.parent, way.depth + 1 FROM messages m JOIN way ON m.id = way.parent
    )
    SELECT messages.* FROM messages JOIN way USING (id) ORDER BY way.depth DESC
"""

# The id of the last message that was put below the message of this id, or its own: nothing is below that one.
# that one.
NEWEST_LEAF = """
    WITH RECURSIVE below (id) AS (
        SELECT ? UNION ALL SELECT m.id FROM messages m JOIN below ON m.parent = below.id
    )
    SELECT max(id) AS id FROM below
"""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What is to become a message; `owner` is the token of the lease of the program that streams it."""

    chat: str
    role: str
    content: str
    state: MessageState = MessageState.DONE
    owner: str | None = None


def insert(
    db: sqlite3.Connection, new: NewMessage, *, after: int | None = None, beside: int | None = None
) -> int:
    """Put a message after `after`, or beside `beside`, or else after the head; it becomes the head.

    A user message gives a chat without a title its title. Returns: its id. Raises: UnknownChat.
    """
    now = time.time()
    chat = db.execute("SELECT title, head FROM chats WHERE id = ?", (new.chat,)).fetchone()
    if chat is None:
        raise gone()
    neighbour = beside if beside is not None else after if after is not None else chat["head"]
    parent = None
    if neighbour is not None:
        row = db.execute(
            "SELECT id, parent FROM messages WHERE id = ? AND chat = ?", (neighbour, new.chat)
        ).fetchone()
        if row is None:
            raise gone()
        parent = row["parent"] if beside is not None else row["id"]
    message = db.execute(
        "INSERT INTO messages (chat, parent, role, content, created, state, owner) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (new.chat, parent, new.role, new.content, now, new.state, new.owner),
    ).lastrowid
    assert message is not None
    title = chat["title"] or (title_from(new.content) if new.role == "user" else "")
    db.execute(
        "UPDATE chats SET head = ?, updated = ?, title = ? WHERE id = ?", (message, now, title, new.chat)
    )
    return message


def gone() -> UnknownChat:
    """For an id that was known and is not any more."""
    return UnknownChat(
        "This chat or message is not there any more.", hint="Start a new chat or open another."
    )
