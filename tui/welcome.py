"""What stands in an empty chat."""

from __future__ import annotations

from tui.choices import Choices
from tui.entry import PageEntry
from tui.legend import MEANINGS
from tui.lines import Piece


def welcome(choices: Choices) -> PageEntry:
    """A few words and the colours."""
    page: list[list[Piece]] = [
        [],
        [("mlxspec", "heading"), ("  a local chat that shows where each token came from", "muted")],
        [],
        [("Type a message and press Enter. ", "text"), ("/", "accent"), (" lists the commands, ", "text")],
        [("F1", "accent"), (" explains the keys, ", "text"), ("@path", "accent"), (" adds a file.", "text")],
        [],
        [("While an answer streams, colours say where its tokens came from:", "muted")],
    ]
    page += [[("■ ", style), (meaning, style)] for style, meaning in MEANINGS.items()]
    if choices.system:
        page += [[], [("System prompt: ", "muted"), (choices.system.split("\n")[0], "muted")]]
    return PageEntry(page)
