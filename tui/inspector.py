"""Why this token? The proposal and the verdict of one round of an answer."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from tui.answer import AnswerEntry
from tui.links import clickable
from tui.palette import Palette
from tui.round_strip import picked_round, strip
from tui.round_text import round_text
from tui.rounds import Round, plain_round_s, rounds_of

_KEYS = Content("").join(
    [
        clickable("←", "focused.move(-1)"),
        Content(" "),
        clickable("→", "focused.move(1)"),
        Content(" rounds · "),
        clickable("↑", "focused.rejected(-1)"),
        Content(" "),
        clickable("↓", "focused.rejected(1)"),
        Content(" rejected ones · "),
        clickable("Esc closes", "focused.close"),
    ]
)


class Inspector(VerticalScroll, can_focus=True):
    """Beside the chat where there is room, else below it. Takes the keys while it is open."""

    DEFAULT_CSS = """
    Inspector {
        display: none; width: 100%; height: 14; padding: 0 1; scrollbar-size-vertical: 1;
        border: round $accent; background: $background;
    }
    Inspector:focus { background-tint: transparent; }
    Inspector #why { margin: 0 0 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", show=False),
        Binding("right", "move(1)", show=False),
        Binding("home", "go(0)", show=False),
        Binding("end", "go(-1)", show=False),
        Binding("down", "rejected(1)", show=False),
        Binding("up", "rejected(-1)", show=False),
        Binding("escape", "close", show=False),
    ]

    class Moved(Message):
        """Another round is looked at."""

        def __init__(self, entry: AnswerEntry, round_number: int) -> None:
            super().__init__()
            self.entry = entry
            self.round = round_number

    class Typed(Message):
        """A character was typed, which is meant for the composer."""

        def __init__(self, character: str) -> None:
            super().__init__()
            self.character = character

    class Closed(Message):
        """It is no longer open."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._entry: AnswerEntry | None = None
        self._rounds: list[Round] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        """All rounds, and the one that is looked at."""
        yield Static(id="rounds")
        yield Static(id="why")
        yield Static(_KEYS.stylize_before("$muted"), id="keys")

    @property
    def entry(self) -> AnswerEntry | None:
        """The answer that is looked at, None while it is closed."""
        return self._entry

    def open(self, entry: AnswerEntry, round_number: int | None = None) -> None:
        """Look at a round, by default at the first one in which a guess was rejected."""
        entry.fetch_tokens()
        self._entry = entry
        self._rounds = rounds_of(entry.tokens, entry.reports)
        self.display = True
        self.focus()
        if round_number is None:
            at = next((i for i, found in enumerate(self._rounds) if found.rejected), 0)
        else:
            at = next((i for i, found in enumerate(self._rounds) if found.number == round_number), 0)
        self.action_go(at)

    def close(self) -> None:
        """Look at nothing."""
        if self._entry is not None:
            self._entry = None
            self.display = False
            self.post_message(self.Closed())

    def refresh_rounds(self) -> None:
        """More rounds may have come."""
        if self._entry is not None and len(self._entry.tokens):
            self._rounds = rounds_of(self._entry.tokens, self._entry.reports)

    def action_move(self, steps: int) -> None:
        """Look at a round before or behind."""
        if steps > 0 and self._at == len(self._rounds) - 1:
            self.refresh_rounds()
        self.action_go(max(0, min(self._at + steps, len(self._rounds) - 1)))

    def action_go(self, at: int) -> None:
        """Look at this round; -1 is the last one."""
        if at < 0:
            self.refresh_rounds()
            at = len(self._rounds) - 1
        self._at = at
        self._show()

    def action_rejected(self, steps: int) -> None:
        """Look at the next round, or the one before, in which a guess was rejected."""
        self.refresh_rounds()
        at = self._at + steps
        while 0 <= at < len(self._rounds):
            if self._rounds[at].rejected:
                self.action_go(at)
                return
            at += steps

    def action_close(self) -> None:
        """Esc."""
        self.close()

    def on_key(self, event: events.Key) -> None:
        """Nobody types in vain."""
        if event.is_printable and event.character:
            event.stop()
            event.prevent_default()
            self.post_message(self.Typed(event.character))

    def on_click(self, event: events.Click) -> None:
        """A click gives it the keys; one on a bar looks at that round."""
        event.stop()
        self.focus()
        if (at := picked_round(event)) is not None and at < len(self._rounds):
            self.action_go(at)

    def on_resize(self) -> None:
        """More or less fits beside each other."""
        if self._entry is not None and self._rounds:
            self._show_round(self._entry)

    def _show(self) -> None:
        if not self._rounds or self._entry is None:
            self.query_one("#why", Static).update(
                Content.styled("Nothing is known of this answer's rounds.", "$muted")
            )
            return
        self.border_title = "Why this token?"
        self.border_subtitle = f"round {self._at + 1} of {len(self._rounds)}"
        self._show_round(self._entry)
        self.scroll_home(animate=False)
        self.post_message(self.Moved(self._entry, self._rounds[self._at].number))

    def _show_round(self, entry: AnswerEntry) -> None:
        width = max(1, self.scrollable_content_region.width)
        plain_s = plain_round_s(entry.reports, entry.stats)
        self.query_one("#rounds", Static).update(strip(self._rounds, self._at, width, self.palette))
        self.query_one("#why", Static).update(
            round_text(self._rounds[self._at], self.palette, plain_s=plain_s, width=width)
        )
