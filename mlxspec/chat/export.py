"""A saved chat as Markdown, to be read, or as JSON, to be kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlxspec.chat.records import Chat, MessageState, SavedMessage

if TYPE_CHECKING:
    from mlxspec.chat.store import Store

_ROLE_TITLES = {"user": "User", "assistant": "Assistant", "system": "System"}
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@$^=])")
_BODY_LEVEL = 2  # headings inside messages stand this many levels below their own


def to_json(store: Store, chat: Chat) -> str:
    """The whole chat with all its branches, statistics and the origin of every token.

    `messages` are in the order of their writing; `parent` and `chat.head` give the tree and the way through.
    """
    messages: list[dict[str, Any]] = []
    for message in store.all_messages(chat.id):
        spans = [asdict(tokens) for tokens in store.spans(message.id)]
        messages.append({**asdict(message), "spans": spans} if spans else asdict(message))
    document = {"format": "mlxspec-chat", "version": 1, "chat": asdict(chat), "messages": messages}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def to_markdown(chat: Chat, messages: Iterable[SavedMessage]) -> str:
    """The chat's title as the only first heading, and a second heading for each message of the path.

    Whatever a message holds stays inside its part: its headings are lowered by two levels, its open code
    fence is closed, and a block of HTML is shown as text.
    """
    parts = [f"# {_escaped(chat.title)}", f"{_when(chat.created)} · {_escaped(chat.target)} · chat {chat.id}"]
    if chat.system:
        parts += ["## System", _contained(chat.system)]
    for message in messages:
        unfinished = "" if message.state is MessageState.DONE else f" ({message.state})"
        parts += [
            f"## {_ROLE_TITLES.get(message.role, _escaped(message.role))}{unfinished}",
            _contained(message.content),
        ]
    return "\n\n".join(parts) + "\n"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _escaped(text: str) -> str:
    """Text of one line that Markdown shows as it is."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(text.split()))


def _contained(body: str) -> str:
    from markdown_it import MarkdownIt

    body = (
        body.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}").strip("\n")
    )
    lines = body.split("\n")
    tokens = [token for token in MarkdownIt("commonmark").parse(body) if token.level == 0 and token.map]
    for token in reversed(tokens):  # from the end, so that the line numbers before stay true
        assert token.map
        first, last = token.map
        if token.type == "heading_open":
            level = "#" * min(int(token.tag[1]) + _BODY_LEVEL, 6)
            if token.markup in "=-":
                lines[first:last] = [f"{level} {' '.join(line.strip() for line in lines[first : last - 1])}"]
            else:
                lines[first] = level + lines[first].lstrip(" ").lstrip("#")
        elif token.type == "fence" and not _closes(lines[last - 1] if last - 1 > first else "", token.markup):
            lines.insert(last, token.markup)
        elif token.type == "html_block":
            lines[first] = lines[first].replace("<", "\\<", 1)
    return "\n".join(lines)


def _closes(line: str, fence: str) -> bool:
    return set(line.strip()) == {fence[0]} and len(line.strip()) >= len(fence)
