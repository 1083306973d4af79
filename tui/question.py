"""Small questions over the chat: yes or no, or one line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.links import clickable
from tui.shown import shown

_CSS = """
    align: center middle; background: $background 70%;
    & > Vertical {
        width: 90%; max-width: 70; height: auto; border: round $accent; background: $background; padding: 0 1;
    }
    & .hints { color: $muted; margin: 1 0 0 0; }
    & Input { border: none; height: 1; background: $surface; }
"""


class Confirm(ModalScreen[bool]):
    """Asks before something that cannot be taken back; Enter means no."""

    DEFAULT_CSS = f"Confirm {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,enter,escape", "dismiss(False)", show=False),
        Binding("ctrl+c", "dismiss(False)", show=False, priority=True),
    ]

    def __init__(self, question: str, *, yes: str) -> None:
        super().__init__()
        self._question = question
        self._yes = yes

    def compose(self) -> ComposeResult:
        """The question and the two answers, which can be clicked as well."""
        with Vertical():
            yield Static(Content(shown(self._question)))
            answers = [
                clickable(f"Y {self._yes}", "screen.dismiss(True)"),
                clickable("N keep it", "screen.dismiss(False)"),
            ]
            yield Static(Content(" · ").join(answers), classes="hints")


class AskLine(ModalScreen[str | None]):
    """Asks for one line of text."""

    DEFAULT_CSS = f"AskLine {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("ctrl+c", "dismiss(None)", show=False, priority=True),
    ]

    def __init__(self, question: str, *, text: str = "") -> None:
        super().__init__()
        self._question = question
        self._text = text

    def compose(self) -> ComposeResult:
        """The question, the line, the keys."""
        with Vertical():
            yield Static(Content(shown(self._question)))
            yield Input(self._text, compact=True)
            yield Static(Content("Enter takes it · Esc leaves it as it was"), classes="hints")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value)
