"""The last line of the screen: what the engine does, how fast, and how full the context is."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tui.figures import drafter_text, number, percent, seconds, size_memory, sparkline, times
from tui.shown import one_line

SPARK_CELLS = 12
METER_CELLS, METER_FROM = 6, 100  # the context's bar, and the width from which there is one
NEARLY_FULL = 0.8
PLAIN = 4  # the weight of the speed-up, from which on parts come in their order or not at all


@dataclass(slots=True)
class Status:
    """What the status line shows; None where it is not known, or not yet.

    Attributes:
        models: the target and what drafts for it.
        doing: what the engine is doing, "" when it is idle.
        tokens_per_s, speed_up, acceptance, per_pass: of the answer that streams, or of the last one.
        guessing: the drafter and its guesses a round, or why there are none.
        passes: tokens of each of the last target passes.
        context_used, context_tokens: tokens in the context, and how many it holds.
        first_s: time to the first token.
        memory_bytes: the most that the engine has used.
        unsaved: whether chats are not being saved.
    """

    models: str = ""
    doing: str = ""
    tokens_per_s: float | None = None
    speed_up: float | None = None
    acceptance: float | None = None
    per_pass: float | None = None
    guessing: str = ""
    passes: tuple[int, ...] = ()
    context_used: int | None = None
    context_tokens: int | None = None
    first_s: float | None = None
    memory_bytes: int | None = None
    unsaved: bool = False


class StatusLine(Widget):
    """One line; what matters least goes first when the window is narrow."""

    ALLOW_SELECT = False

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 2; color: $muted; }"

    def __init__(self) -> None:
        super().__init__()
        self.status = Status()
        self._drawn = Content("")

    def show(self, status: Status) -> None:
        """Show other figures."""
        self.status = status
        text = self.content()
        if not text.is_same(self._drawn):
            self._drawn = text
            self.refresh()

    class Clicked(Message):
        """It was clicked; `models` says whether on the names of the models."""

        def __init__(self, *, models: bool) -> None:
            super().__init__()
            self.models = models

    def on_click(self, event: events.Click) -> None:
        """The mouse reaches models and commands by it."""
        self.post_message(self.Clicked(models=event.x < 2 + len(self.status.models or self.status.doing)))

    def render(self) -> Content:
        """The line."""
        return self.content()

    def content(self) -> Content:
        """As much as fits, in the order of its weight."""
        room = max(0, self.size.width)
        chosen: list[tuple[int, Content]] = []
        used = 0
        for place, part in sorted(enumerate(self._parts()), key=lambda item: item[1][0]):
            content = part[1]
            cells = content.cell_length + (3 if chosen else 0)
            if used + cells <= room:
                chosen.append((place, content))
                used += cells
            elif part[0] >= PLAIN:
                break  # what weighs less would not make up for it
        if not chosen and self._parts():
            return self._parts()[0][1].truncate(room, ellipsis=True)
        return Content(" · ").join(content for _, content in sorted(chosen, key=lambda item: item[0]))

    def _parts(self) -> list[tuple[int, Content]]:
        """The parts from left to right, each with its weight: 0 is the weightiest."""
        s = self.status
        parts: list[tuple[int, Content]] = []
        if s.doing:
            parts.append((0, Content.styled(one_line(s.doing), "$accent")))
        elif s.models:
            parts.append((0, Content.styled(one_line(s.models), "")))
        if s.unsaved:
            parts.append((1, Content.styled("not saved", "$warning")))
        if s.tokens_per_s is not None:
            parts.append((2, Content.styled(f"{number(s.tokens_per_s)} tok/s", "$foreground")))
        if s.per_pass is not None or s.tokens_per_s is not None:
            parts.append((PLAIN, Content(f"{times(s.speed_up)} plain")))
        if s.acceptance is not None:
            parts.append((5, Content(f"{percent(s.acceptance)} kept")))
        if s.per_pass is not None:
            parts.append((6, Content(f"{s.per_pass:.2f} a pass")))
        if s.passes:
            bars = sparkline([float(count) for count in s.passes], SPARK_CELLS)
            parts.append((8, Content.styled(bars, "$accent")))
        if s.guessing:
            parts.append((7, Content(one_line(s.guessing))))
        if s.context_used is not None and s.context_tokens:
            parts.append((3, _context_meter(s.context_used / s.context_tokens, self.size.width)))
        if s.first_s is not None:
            parts.append((9, Content(f"first after {seconds(s.first_s)}")))
        if s.memory_bytes:
            parts.append((10, Content(size_memory(s.memory_bytes))))
        return parts


def _context_meter(share: float, room: int) -> Content:
    """How full the context is, with a bar where there is room for one."""
    colour = "$warning" if share > NEARLY_FULL else "$accent"
    text = Content.styled(percent(share), colour if share > NEARLY_FULL else "")
    if room < METER_FROM:
        return Content("context ") + text
    full = min(METER_CELLS, round(share * METER_CELLS + 0.4))
    bar = Content.styled("━" * full, colour) + Content("╌" * (METER_CELLS - full))
    return Content("context ") + bar + Content(" ") + text


def guessing_text(drafter: str | None, guesses: int | None, *, parked: bool, speculate: bool) -> str:
    """Who guesses, and how much."""
    if not speculate:
        return "speculation off"
    if parked:
        return "parked: does not pay here"
    if drafter is None and not guesses:
        return "plain"
    many = "" if guesses is None else f" k={guesses}"
    return f"{drafter_text(drafter)}{many}"
