"""Text of people, models and files as it may stand on a screen."""

from __future__ import annotations

from mlxspec.chat.visible import visible
from tui.wrapping import TAB


def shown(text: str) -> str:
    """The text with control characters as symbols and tabs as spaces; newlines stay."""
    if text.isascii() and text.isprintable():
        return text
    return visible(text.replace("\r\n", "\n")).replace("\t", TAB)


def one_line(text: str) -> str:
    """The text on one line, for titles and lists."""
    return " ".join(shown(text).split())
