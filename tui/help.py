"""F1: keys and commands, made from the table."""

from __future__ import annotations

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

_NAME_CELLS = 24


class Help(ModalScreen[None]):
    """Scrolls; any of the usual keys closes it."""

    DEFAULT_CSS = """
    Help {
        align: center middle; background: $background 70%;
        & > VerticalScroll {
            width: 90%; max-width: 100; height: 90%;
            border: round $accent; background: $background; padding: 0 2; scrollbar-size-vertical: 1;
        }
    }
    .-short Help > VerticalScroll { border: none; width: 100%; height: 100%; }
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
            yield Static(help_text(self._palette))


def help_text(palette: Palette) -> Content:
    """Keys, commands by their groups, and what the colours mean."""
    lines = [Content.styled("Keys", "bold")]
    lines += [_entry(key_text(key.key), key.summary) for key in KEYS]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines += [Content(""), Content.styled(group, "bold")]
        for command in COMMANDS:
            if command.group == group:
                key = f"  {key_text(command.key)}" if command.key else ""
                lines.append(_entry(command.written, command.summary + "." + key))
    lines += [Content(""), Content.styled("Colours", "bold")]
    for style, meaning in MEANINGS.items():
        colour = palette.colours.foregrounds[style] if palette.colour else ""
        lines.append(Content.assemble((f"  ■ {style:<{_NAME_CELLS - 4}}", colour), meaning))
    lines += [
        Content(""),
        Content("A message that begins with a slash is a command; a space in front sends it as it is."),
        Content("@path in a message adds that text file. Marking with the mouse and Ctrl+C copies."),
    ]
    return Content("\n").join(lines)


def _entry(name: str, summary: str) -> Content:
    return Content.assemble((f"  {name:<{_NAME_CELLS}} ", "$accent"), summary)
