"""The list above the composer: what a command, name or path may be completed to."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from mlxspec.chat.commands import Completion
from tui.shown import one_line

MOST_ROWS = 8


class Suggestions(Widget):
    """Shows at most `MOST_ROWS` of what is offered, around the current one."""

    DEFAULT_CSS = """
    Suggestions {
        display: none; height: auto; max-height: 8; padding: 0 1; margin: 0 1;
        background: $surface; color: $foreground;
    }
    """

    class Chosen(Message):
        """A suggestion was clicked."""

        def __init__(self, completion: Completion) -> None:
            super().__init__()
            self.completion = completion

    def __init__(self) -> None:
        super().__init__()
        self._all: list[Completion] = []
        self._at = 0
        self.chosen_by_hand = False

    @property
    def offered(self) -> bool:
        """Whether anything is shown."""
        return bool(self._all)

    @property
    def current(self) -> Completion:
        """The one that Tab takes."""
        return self._all[self._at]

    def offer(self, completions: list[Completion]) -> None:
        """Show these; hide when there are none."""
        self._all = completions
        self._at = 0
        self.chosen_by_hand = False
        self.display = bool(completions)
        self.refresh(layout=True)

    def hide(self) -> None:
        """Show nothing."""
        if self._all:
            self.offer([])

    def move(self, steps: int) -> None:
        """Make another one the current one."""
        self._at = (self._at + steps) % len(self._all)
        self.chosen_by_hand = True
        self.refresh()

    def render(self) -> Content:
        """The rows, the current one marked."""
        width = max((len(item.line) for item in self._all), default=0)
        rows = []
        for number in self._visible():
            item = self._all[number]
            mark = "› " if number == self._at else "  "
            style = "bold $accent" if number == self._at else ""
            label = one_line(item.line).ljust(min(width, 28))
            rows.append(Content.assemble((mark + label, style), ("  " + one_line(item.summary), "$muted")))
        return Content("\n").join(row.truncate(max(1, self.size.width), ellipsis=True) for row in rows)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:  # noqa: ARG002
        """One row each."""
        return len(self._visible())

    def on_click(self, event: events.Click) -> None:
        """Take the row that was clicked."""
        rows = list(self._visible())
        if 0 <= event.y < len(rows):
            event.stop()
            self.post_message(self.Chosen(self._all[rows[event.y]]))

    def _visible(self) -> range:
        rows = min(
            MOST_ROWS, self.styles.max_height.cells or MOST_ROWS if self.styles.max_height else MOST_ROWS
        )
        first = max(0, min(self._at - rows // 2, len(self._all) - rows))
        return range(first, min(len(self._all), first + rows))
