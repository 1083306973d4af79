"""F1: keys and commands, made from the table."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from mlxspec.chat.commands import COMMANDS, KEYS, key_text
from tui.legend import MEANINGS
from tui.palette import Palette
from tui.wrapping import breaks

_NAME_CELLS = 27


class Help(ModalScreen[None]):
    """Scrolls; any of the usual keys closes it."""

    DEFAULT_CSS = """
    Help {
        align: center middle; background: $background 70%;
        & > VerticalScroll {
            width: 90%; max-width: 100; height: 90%;
            border: round $accent; background: $background; padding: 0 2; scrollbar-size-vertical: 1;
        }
        &.-short > VerticalScroll { border: none; width: 100%; height: 100%; padding: 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss(None)", show=False),
        Binding("ctrl+c", "dismiss(None)", show=False, priority=True),
    ]

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette

    def compose(self) -> ComposeResult:
        """One long text."""
        box = VerticalScroll()
        box.border_title = "Help"
        box.border_subtitle = "Esc closes"
        with box:
            yield Static(id="text")

    def on_resize(self) -> None:
        """Wrap to the width that there is."""
        width = self.query_one(VerticalScroll).scrollable_content_region.width - 1
        self.query_one("#text", Static).update(help_text(self._palette, width))


def help_text(palette: Palette, width: int) -> Content:
    """Keys, commands by their groups, and what the colours mean, wrapped to `width` cells."""
    lines = [Content.styled("Keys", "bold")]
    for known in KEYS:
        lines += _entry(key_text(known.key), known.summary, width)
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines += [Content(""), Content.styled(group, "bold")]
        for command in COMMANDS:
            if command.group == group:
                key = f"  {key_text(command.key)}" if command.key else ""
                lines += _entry(command.written, command.summary + key, width)
    lines += [Content(""), Content.styled("Colours", "bold")]
    for style, meaning in MEANINGS.items():
        colour = palette.colours.foregrounds[style] if palette.colour else ""
        lines.append(Content.styled(f"  ■ {meaning}", colour))
    lines += [Content(""), *_paragraph(_SLASH, width, ""), *_paragraph(_FILES, width, "")]
    return Content("\n").join(lines)


def _entry(name: str, summary: str, width: int) -> list[Content]:
    """A name and what it means, beside it or, where there is no room, below it."""
    if width < 2 * _NAME_CELLS:
        return [Content.styled(name, "$accent"), *_paragraph(summary, width, "  ")]
    if len(name) > _NAME_CELLS - 3:
        return [Content.styled(f"  {name}", "$accent"), *_paragraph(summary, width, " " * _NAME_CELLS)]
    first, *others = _paragraph(summary, width, " " * _NAME_CELLS)
    return [Content.styled(f"  {name:<{_NAME_CELLS - 2}}", "$accent") + first[_NAME_CELLS:], *others]


def _paragraph(text: str, width: int, indent: str) -> list[Content]:
    inner = max(8, width - len(indent))
    cuts = [0, *breaks(text, inner), len(text)]
    return [Content(indent + text[start:end].rstrip()) for start, end in pairwise(cuts)]


_SLASH = "A message that begins with a slash is a command; a space in front sends it as it is."
_FILES = "@path in a message adds that text file. What is marked with the mouse, Ctrl+C copies."
