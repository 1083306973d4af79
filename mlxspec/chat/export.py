"""A saved chat as Markdown, to be read, or as JSON, to be kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

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
    body = body.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
    lines = body.strip("\n").split("\n")
    # What was inside HTML may be a heading, or more HTML, once its tags are text.
    while html := [block for block in _blocks(lines) if block.type == "html_block"]:
        for block in html:
            lines[block.first : block.last] = map(_tag_as_text, lines[block.first : block.last])
    for block in reversed(_blocks(lines)):  # from the end, so that the line numbers before stay true
        if block.type == "heading_open":
            level = "#" * min(int(block.tag[1]) + _BODY_LEVEL, 6)
            if block.markup in "=-":
                text = " ".join(line.strip() for line in lines[block.first : block.last - 1])
                lines[block.first : block.last] = [f"{level} {text}"]
            else:
                lines[block.first] = level + lines[block.first].lstrip(" ").lstrip("#")
        elif block.type == "fence" and not _closes(lines[block.first + 1 : block.last], block.markup):
            lines.insert(block.last, block.markup)
    return "\n".join(lines)


class _Block(NamedTuple):
    """A top-level block of Markdown over the lines [first, last)."""

    type: str
    tag: str
    markup: str
    first: int
    last: int


def _blocks(lines: list[str]) -> list[_Block]:
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse("\n".join(lines))
    return [
        _Block(token.type, token.tag, token.markup, *token.map)
        for token in tokens
        if token.level == 0 and token.map
    ]


def _tag_as_text(line: str) -> str:
    return line.replace("<", "\\<", 1) if line.lstrip().startswith("<") else line


def _closes(inside: list[str], fence: str) -> bool:
    last = inside[-1].strip() if inside else ""
    return set(last) == {fence[0]} and len(last) >= len(fence)
