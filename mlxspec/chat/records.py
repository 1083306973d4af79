"""What the store gives back: chats, messages, hits. And the names that they go by."""

from __future__ import annotations

import json
import secrets
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

TITLE_CHARACTERS = 60  # of a title made from a message
TYPED_TITLE_CHARACTERS = 200
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_JOINERS = "\u200c\u200d"  # they hold emoji and Indic letters together


class MessageState(StrEnum):
    """How far a message is."""

    STREAMING = "streaming"
    DONE = "done"
    STOPPED = "stopped"  # by the user, or because the program was killed
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Chat:
    """A saved chat. Times are in seconds since 1970; `head` is the id of the message that it stands at."""

    id: str
    title: str
    created: float
    updated: float
    target: str
    draft: str
    system: str
    params: Mapping[str, Any]
    head: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class SavedMessage:
    """One message of a chat's tree; `parent` is None for a first message. `stats` is an answer's."""

    id: int
    chat: str
    parent: int | None
    role: str
    content: str
    created: float
    state: MessageState
    stats: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a search matched: in a message, or in the title when `message` is None.

    `before + match + after` is a piece of that text on one line.
    """

    chat: str
    title: str
    message: int | None
    role: str | None
    before: str
    match: str
    after: str


def chat_of(row: sqlite3.Row) -> Chat:
    """A row whose columns are the fields of Chat."""
    return Chat(**{**dict(row), "params": json.loads(row["params"])})


def message_of(row: sqlite3.Row) -> SavedMessage:
    """A row of the messages table."""
    columns = {key: row[key] for key in ("id", "chat", "parent", "role", "content", "created")}
    stats = None if row["stats"] is None else json.loads(row["stats"])
    return SavedMessage(**columns, state=MessageState(row["state"]), stats=stats)


def new_id() -> str:
    """Eight letters and digits that are easily told apart and typed."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))


def typed_id(text: str) -> str | None:
    """An ID, or the beginning of one, from capitals and look-alikes (i, l, o) too. None: it can be no ID."""
    plain = text.strip().lower().translate(str.maketrans("ilo", "110"))
    return plain if plain and len(plain) <= 8 and set(plain) <= set(_ID_ALPHABET) else None


def title_from(text: str) -> str:
    """A title out of a chat's first message: its first line with anything on it."""
    for line in text.splitlines():
        if title := clean_title(line, limit=TITLE_CHARACTERS):
            return title
    return "Untitled"


def clean_title(text: str, *, limit: int = TYPED_TITLE_CHARACTERS) -> str:
    """One line without control, bidirectional or other invisible characters, cut to `limit` characters."""
    visible = "".join(
        " " if character.isspace() else character
        for character in text
        if character.isspace()
        or character in _JOINERS
        or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co")
    )
    line = " ".join(visible.split()).strip(_JOINERS)
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    whole_words = cut.rsplit(" ", 1)[0]
    return (whole_words if len(whole_words) > limit // 2 else cut).rstrip(_JOINERS + " ") + "…"


def storable(text: str) -> str:
    """Text that SQLite can hold: half a surrogate pair, as from bytes that are no UTF-8, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
