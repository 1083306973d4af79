"""Full-text search over messages and titles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlxspec.chat.records import Hit

if TYPE_CHECKING:
    from mlxspec.chat.database import Database

BEFORE_CHARACTERS = 30
AFTER_CHARACTERS = 60
_WILDCARD, _ESCAPED = re.compile(r"([\\%_])"), r"\\\1"
_TRIGRAM = (
    3  # the index holds pieces of this many characters; shorter words are looked for in the text itself
)


def search(database: Database, query: str, *, limit: int) -> list[Hit]:
    """Hits in titles, then in messages, newest first, at most `limit`. See `Store.search`."""
    words = query.replace("\0", " ").split()
    if not words:
        return []
    condition, arguments = _matching("chats", "number", column="title", words=words)
    titles = database.read(
        f"SELECT id, title, title AS text, NULL AS message, NULL AS role FROM chats "
        f"WHERE {condition} AND head IS NOT NULL ORDER BY updated DESC LIMIT ?",
        *arguments,
        limit,
    )
    condition, arguments = _matching("messages", "m.id", column="content", words=words)
    messages = database.read(
        f"SELECT c.id, c.title, m.content AS text, m.id AS message, m.role "
        f"FROM messages m JOIN chats c ON m.chat = c.id WHERE {condition} ORDER BY m.id DESC LIMIT ?",
        *arguments,
        limit - len(titles),
    )
    return [
        Hit(row["id"], row["title"], row["message"], row["role"], *_snippet(row["text"], words))
        for row in (*titles, *messages)
    ]


def _matching(table: str, key: str, *, column: str, words: list[str]) -> tuple[str, list[str]]:
    """A condition that every word is in the column, and its arguments."""
    conditions: list[str] = []
    arguments: list[str] = []
    indexed = [word for word in words if len(word) >= _TRIGRAM]
    if indexed:
        conditions.append(f"{key} IN (SELECT rowid FROM {table}_text WHERE {table}_text MATCH ?)")
        # Inside double quotes FTS5 knows no operators.
        arguments.append(" ".join(f'"{word.replace(chr(34), chr(34) * 2)}"' for word in indexed))
    for word in words:
        if len(word) < _TRIGRAM:
            conditions.append(rf"{column} LIKE ? ESCAPE '\'")
            arguments.append(f"%{_WILDCARD.sub(_ESCAPED, word)}%")
    return " AND ".join(conditions), arguments


def _snippet(text: str, words: list[str]) -> tuple[str, str, str]:
    """The text just before the first match, the match, and what follows, on one line."""
    found = re.search("|".join(re.escape(word) for word in words), text, re.IGNORECASE)
    start, end = found.span() if found else (0, 0)
    before = _one_line(text[max(0, start - BEFORE_CHARACTERS) : start])
    after = _one_line(text[end : end + AFTER_CHARACTERS])
    left = "…" if start > BEFORE_CHARACTERS else ""
    right = "…" if end + AFTER_CHARACTERS < len(text) else ""
    return left + before, text[start:end], after + right


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
