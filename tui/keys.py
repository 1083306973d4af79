"""The keys of the chat: those of the table of commands, and those that are no commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.binding import Binding, BindingType

from mlxspec.chat.commands import COMMANDS

if TYPE_CHECKING:
    from tui.app import ChatApp

TWICE_S = 2.0  # the second Ctrl+C must come within this time

_KEYS = {
    "ctrl+c": "interrupt",
    "ctrl+r": "recall",
    "ctrl+g": "write_in_editor",
    "ctrl+p": "commands",
    "pageup": "page_up",
    "pagedown": "page_down",
    "shift+up": "row_up",
    "shift+down": "row_down",
    "ctrl+home": "to_start",
    "ctrl+end": "to_end",
    "alt+up": "mark_above",
    "alt+down": "mark_below",
    "f6": "fold",
    "f7": "copy_code",
}

BINDINGS: list[BindingType] = [
    *(
        Binding(command.key, f"command('{command.name}')", command.summary, show=False, priority=True)
        for command in COMMANDS
        if command.key
    ),
    *(Binding(key, f"key('{name}')", show=False, priority=True) for key, name in _KEYS.items()),
    # After the composer, where Esc closes suggestions first.
    Binding("escape", "key('escape')", show=False),
]


class Keys:
    """What the keys do that are no commands."""

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self._interrupted_at = -TWICE_S
        self._does: dict[str, Callable[[], object]] = {
            "interrupt": self.interrupt,
            "escape": self.escape,
            "recall": app.actions.recall,
            "write_in_editor": app.actions.write_in_editor,
            "commands": app.actions.choose_command,
            "page_up": lambda: app.transcript.scroll_pages(-1),
            "page_down": lambda: app.transcript.scroll_pages(1),
            "row_up": lambda: app.transcript.scroll_rows(-1),
            "row_down": lambda: app.transcript.scroll_rows(1),
            "to_start": app.transcript.to_start,
            "to_end": app.transcript.to_end,
            "mark_above": lambda: app.actions.answers.mark_next(-1),
            "mark_below": lambda: app.actions.answers.mark_next(1),
            "fold": lambda: app.actions.answers.fold(app.page.marked),
            "copy_code": lambda: app.action_command("copy", "code"),
        }

    def do(self, name: str) -> None:
        """What the key of this name does."""
        self._does[name]()

    def interrupt(self) -> None:
        """Ctrl+C: copy, stop, or leave the second time."""
        app = self._app
        now = time.monotonic()
        if text := app.selected_text():
            app.actions.answers.copy_text(text, "the marked text")
            app.clear_selected_text()
        elif app.begun and (app.answering.stop() or app.loader.cancel()):
            self._interrupted_at = -TWICE_S
        elif now - self._interrupted_at < TWICE_S:
            app.exit(0)
        else:
            self._interrupted_at = now
            app.page.hint("Press Ctrl+C once more to leave")

    def escape(self) -> None:
        """Esc: stop the answer, or a download, and keep everything; else close the inspector."""
        app = self._app
        if app.actions.answers.give_up_editing() or not app.begun:
            return
        if not (app.answering.stop() or app.loader.cancel() or app.actions.models.cancel_pull()):
            app.inspector.close()
            app.page.mark(None)
