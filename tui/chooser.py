"""A list over the chat to choose from, narrowed by what is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from mlxspec.chat.commands import key_text
from tui.links import clickable
from tui.shown import one_line
from tui.wrapping import breaks, cut_to

LABEL_CELLS, FEW_LABEL_CELLS = 40, 24  # of labels at most; and where what stands beside them is long, too
BOX_SHARE, BOX_CELLS = 0.9, 96  # of the window's width, and at most
FEW_DETAIL_CELLS = 20  # with less beside the label, what stands there goes below
CELLS_AROUND = 9  # border and padding of the box, the bar beside a long list, the spaces before its columns
MOST_ROWS = 24
MOST_LINES_BELOW = 3
ROWS_AROUND, FEW_ROWS_AROUND = 6, 2  # border, what is typed and the hints; what is typed


@dataclass(frozen=True, slots=True)
class Row:
    """Something to choose.

    Attributes:
        id: what the choice is called.
        label: what it says, and `detail` behind it.
        detail: more about it, muted.
        note: a second line, for what needs words; "" for none.
        enabled: whether it may be chosen.
        heading: whether it is a heading.
    """

    id: str
    label: str
    detail: str = ""
    note: str = ""
    enabled: bool = True
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and by which key."""

    id: str
    key: str = "enter"


class Chooser(ModalScreen[Choice | None]):
    """Gives the choice, or None. `find` turns what is typed into rows; without it, `rows` are narrowed."""

    DEFAULT_CSS = """
    Chooser {
        align: center middle; background: $background 70%;
        & > Vertical {
            width: 90%; max-width: 96; height: auto; max-height: 90%;
            border: round $accent; background: $background; padding: 0 1;
        }
        & Input { border: none; height: 1; padding: 0 1; background: $surface; margin: 0 0 1 0; }
        & OptionList {
            height: auto; border: none; padding: 0; background: $background;
            scrollbar-size-vertical: 1; text-wrap: nowrap; text-overflow: ellipsis;
        }
        & OptionList:focus { border: none; background-tint: transparent; }
        & OptionList > .option-list--option-disabled { color: $muted; }
        & OptionList:nocolor > .option-list--option-highlighted { text-style: reverse; }
        & #hints { color: $muted; margin: 1 0 0 0; }
        &.-short > Vertical { max-height: 100%; width: 100%; border: none; }
        &.-short #hints { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("ctrl+c", "dismiss(None)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(
        self,
        title: str,
        rows: Sequence[Row] = (),
        *,
        find: Callable[[str], Sequence[Row]] | None = None,
        keys: Mapping[str, str] | None = None,
        typed: str = "",
        empty: str = "Nothing is here.",
        current: str | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._rows = list(rows)
        self._find = find
        self._keys = dict(keys or {})
        self._typed = typed
        self._empty = empty
        self._current = current

    def compose(self) -> ComposeResult:
        """Title, what is typed, the rows, the keys."""
        box = Vertical()
        box.border_title = Content(one_line(self._title))
        with box:
            yield Input(self._typed, placeholder="type to narrow the list", compact=True)
            yield OptionList(markup=False, compact=True)
            hints = {"enter": "choose", **self._keys, "escape": "close"}
            yield Static(Content(" · ").join(_hint(key, does) for key, does in hints.items()), id="hints")

    def on_mount(self) -> None:
        """Typing narrows at once."""
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self._show(self._typed)

    def on_resize(self, event: events.Resize) -> None:
        """The list leaves room for what stands around it."""
        around = FEW_ROWS_AROUND if self.has_class("-short") else ROWS_AROUND
        height = event.size.height if self.has_class("-short") else int(0.9 * event.size.height)
        self.query_one(OptionList).styles.max_height = max(1, min(MOST_ROWS, height - around))
        self._show(self.query_one(Input).value, self._marked())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Something else is typed."""
        self._show(event.value)

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Enter takes the marked row."""
        self._choose("enter")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A row was clicked."""
        if event.option_id is not None:
            self.dismiss(Choice(event.option_id))

    def on_key(self, event: events.Key) -> None:
        """The keys that do something else with the marked row."""
        if event.key in self._keys:
            event.stop()
            event.prevent_default()
            self._choose(event.key)

    def action_hint(self, key: str) -> None:
        """What a key does was clicked."""
        if key == "escape":
            self.dismiss(None)
        else:
            self._choose(key)

    def action_move(self, steps: int) -> None:
        """Mark another row."""
        rows = self.query_one(OptionList)
        for _ in range(abs(steps)):
            (rows.action_cursor_up if steps < 0 else rows.action_cursor_down)()

    def replace_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows, as what they say has become known."""
        marked = self._marked()
        self._rows = list(rows)
        self._show(self.query_one(Input).value, marked)

    def _choose(self, key: str) -> None:
        marked = self._marked()
        if marked is not None:
            self.dismiss(Choice(marked, key))

    def _marked(self) -> str | None:
        rows = self.query_one(OptionList)
        if rows.highlighted is None:
            return None
        option = rows.get_option_at_index(rows.highlighted)
        return None if option.disabled else option.id

    def _show(self, typed: str, current: str | None = None) -> None:
        rows = self._find(typed) if self._find is not None else _narrowed(self._rows, typed)
        room = min(BOX_CELLS, int(BOX_SHARE * self.size.width)) - CELLS_AROUND
        width = _label_cells(rows, room)
        short = self.has_class("-short")
        if room - width < FEW_DETAIL_CELLS and not short:
            width = 0
        most_below = 1 if short else MOST_LINES_BELOW
        found = self.query_one(OptionList)
        found.clear_options()
        found.add_options([_option(row, width, room, most_below) for row in rows])
        if not rows:
            found.add_option(Option(Content.styled(self._empty, "$muted"), disabled=True))
        wanted = current or self._current
        at = next((i for i, row in enumerate(rows) if row.id == wanted and row.enabled), None)
        if at is None:
            at = next((i for i, row in enumerate(rows) if row.enabled and not row.heading), None)
        found.highlighted = at
        self.call_after_refresh(self._see_what_is_above)

    def _see_what_is_above(self) -> None:
        """Scroll no further than the marked row asks for: what is above it is seen, too."""
        found = self.query_one(OptionList)
        found.scroll_to(y=0, animate=False, immediate=True)
        found.scroll_to_highlight()


def _hint(key: str, does: str) -> Content:
    return clickable(f"{key_text(key)} {does}", f"screen.hint('{key}')")


def _option(row: Row, width: int, room: int, most_below: int) -> Option:
    """A row whose label has so many cells, or for 0 stands alone; lines below it have `room` cells."""
    label = one_line(row.label)
    if row.heading:
        return Option(Content.styled(label, "bold"), id=row.id, disabled=True)
    content, below = Content(f"  {label}"), [row.detail, row.note]
    if row.detail and width:
        label = cut_to(label, width)
        label += " " * (width - cell_len(label))
        content, below = Content.assemble((f"  {label}  ", ""), (one_line(row.detail), "$muted")), [row.note]
    lines = [
        Content.styled(f"    {line}", "$muted")
        for text in below
        for line in _lines(one_line(text), room, most_below)
    ]
    content = Content("\n").join([content, *lines])
    return Option(content, id=row.id, disabled=not row.enabled)


def _lines(text: str, room: int, most: int) -> list[str]:
    """A text in so many lines at most; what does not fit into them is left out."""
    if not text:
        return []
    starts = [0, *breaks(text, room)][:most]
    whole = [text[start:end].rstrip() for start, end in pairwise(starts)]
    return [*whole, cut_to(text[starts[-1] :], room)]


def _label_cells(rows: Sequence[Row], room: int) -> int:
    """The width of the column of labels, in so much room for it and for what stands beside it."""
    beside = [row for row in rows if row.detail and not row.heading]
    longest = max((cell_len(one_line(row.label)) for row in beside), default=0)
    detail = max((cell_len(one_line(row.detail)) for row in beside), default=0)
    return min(longest, LABEL_CELLS, max(FEW_LABEL_CELLS, room - detail))


def _narrowed(rows: Sequence[Row], typed: str) -> list[Row]:
    """The rows that hold every typed word; headings stay as long as something is below them."""
    words = typed.lower().split()
    found: list[Row] = []
    for row in rows:
        if row.heading:
            if found and found[-1].heading:
                found.pop()
            found.append(row)
        elif all(word in f"{row.label} {row.detail} {row.note}".lower() for word in words):
            found.append(row)
    if found and found[-1].heading:
        found.pop()
    return found
