"""The transcript: all entries of a chat, drawn line by line, with its own scrolling and marking.

One widget draws everything. It keeps what it drew, and asks Textual for the rows that are others now: while
an answer streams that is one row, or all rows when the text moves up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.answer import AnswerEntry
from tui.entry import Entry, UserEntry, action_of
from tui.lines import Line, Piece
from tui.palette import Palette
from tui.selection import Place, Selection
from tui.viewport import Row, Viewport
from tui.wrapping import column_to_offset

SCROLL_LINES = 3
_THUMB: Piece = ("▐", "bar")
_NO_THUMB: Piece = (" ", "")


class Transcript(Widget):
    """See the module's docstring. Change entries through its methods, then call `update_rows`."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "Transcript { height: 1fr; }"

    class Clicked(Message):
        """A control of an entry was clicked, or the entry itself: then `action` is "mark"."""

        def __init__(self, entry: Entry, action: str) -> None:
            super().__init__()
            self.entry = entry
            self.action = action

    class RoundPicked(Message):
        """A coloured token of an answer was clicked."""

        def __init__(self, entry: AnswerEntry, round_number: int) -> None:
            super().__init__()
            self.entry = entry
            self.round = round_number

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.view = Viewport()
        self.selection: Selection | None = None
        self._round: tuple[AnswerEntry, int] | None = None
        self._rows: list[Row] = []
        self._strips: list[Strip] = []
        self._dragging_bar = False

    # Entries

    @property
    def entries(self) -> list[Entry]:
        """The entries, first to last. Not to be changed directly."""
        return self.view.entries

    def put(self, entry: Entry, *, before: Entry | None = None) -> None:
        """Put an entry at the end, or before another."""
        at = self.entries.index(before) if before is not None else len(self.entries)
        self.entries.insert(at, entry)

    def take_out(self, entry: Entry) -> None:
        """Take an entry out, if it is there."""
        if entry in self.entries:
            self.entries.remove(entry)
            self.selection = None

    def show_entries(self, entries: list[Entry]) -> None:
        """Show these and no others, from their end."""
        self.view.entries = entries
        self.view.follow = True
        self.selection = self._round = None
        self.update_rows()

    def messages_moved(self, new_ids: Mapping[int, int]) -> None:
        """Messages are saved under other ids now; those that are not among them are not saved any more."""
        for entry in self.entries:
            if isinstance(entry, UserEntry | AnswerEntry) and entry.message is not None:
                entry.message = new_ids.get(entry.message)

    def use_palette(self, palette: Palette) -> None:
        """Draw in other colours."""
        self.palette = palette
        self.update_rows()

    # Where it stands

    @property
    def following(self) -> bool:
        """Whether the end is on the screen and stays there."""
        return self.view.follow

    def scroll_rows(self, lines: int) -> None:
        """Scroll; down is positive."""
        self.view.scroll(lines)
        self.update_rows()

    def scroll_pages(self, pages: int) -> None:
        """Scroll by the height of the window, less a line."""
        self.scroll_rows(pages * max(1, self.view.height - 1))

    def to_start(self) -> None:
        """Go to the first line."""
        self.view.to_start()
        self.update_rows()

    def to_end(self) -> None:
        """Go to the end and stay there."""
        self.view.follow = True
        self.update_rows()

    def show_entry(self, entry: Entry) -> None:
        """Bring the beginning of an entry onto the screen."""
        self.view.show(self.entries.index(entry), 0)
        self.update_rows()

    def show_round(self, entry: AnswerEntry | None, round_number: int = 0) -> None:
        """Mark a round of an answer and bring it onto the screen; None takes the mark away."""
        self._round = None if entry is None else (entry, round_number)
        if entry is not None and entry in self.entries:
            nth = entry.line_of_round(round_number, self.view.width)
            if nth is not None:
                self.view.show(self.entries.index(entry), nth)
        self.update_rows()

    def selected_text(self) -> str:
        """What is marked with the mouse, "" for nothing."""
        if self.selection is None or self.selection.empty:
            return ""
        return self.selection.text(self.entries, self.view.width)

    def clear_selection(self) -> None:
        """Take the mark away."""
        self.selection = None
        self.update_rows()

    # Drawing

    def update_rows(self) -> None:
        """Find out which lines are on the screen now, and draw those that are not there yet."""
        width, height = self.size
        if not width or not height:
            return
        self.view.width, self.view.height = max(4, width - 2), height
        rows = self.view.rows()
        strips = self._draw(rows, width)
        old = self._strips if len(self._strips) == height else [None] * height
        changed = [y for y in range(height) if strips[y] is not old[y]]
        self._rows, self._strips = rows, strips
        if changed:
            self.refresh(Region(0, changed[0], width, changed[-1] - changed[0] + 1))

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows as they are; nothing is put around them."""
        if len(self._strips) != self.size.height:
            self.update_rows()
        strips = self._strips[crop.y : crop.bottom]
        if crop.x or crop.width != self.size.width:
            return [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """One row."""
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _draw(self, rows: list[Row], width: int) -> list[Strip]:
        palette, height = self.palette, self.size.height
        thumb = self.view.fraction()
        top, bottom = (
            (0, 0) if thumb is None else (round(thumb[0] * height), max(1, round(thumb[1] * height)))
        )
        top = min(top, height - 1)
        strips = []
        for y in range(height):
            end = _THUMB if thumb and top <= y < max(bottom, top + 1) else _NO_THUMB
            line = self._overlaid(rows[y]) if y < len(rows) else _EMPTY
            strips.append(line.strip(palette, width - 1, end=end))
        return strips

    def _overlaid(self, row: Row) -> Line:
        line = row.line
        if self._round is not None and self.entries[row.entry] is self._round[0]:
            extent = self._round_on_line(self._round[0], line)
            if extent is not None:
                line = line.restyled(*extent, "marked")
        if self.selection is not None and not self.selection.empty:
            extent = self.selection.on_line(row.entry, row.nth, len(line.text))
            if extent is not None:
                line = line.restyled(*extent, "selected")
        return line

    def _round_on_line(self, entry: AnswerEntry, line: Line) -> tuple[int, int] | None:
        if self._round is None or not entry.shows_tokens:
            return None
        for flow in entry.flows:
            extent = flow.extent(self._round[1])
            if extent is not None and flow.holds(line):
                start, stop = extent[0] - line.start, extent[1] - line.start
                if start < len(line.text) and stop > 0:
                    return max(0, start), min(len(line.text), stop)
        return None

    # Mouse

    def on_resize(self, _event: events.Resize) -> None:
        """Other lines fit now."""
        self.selection = None
        self.update_rows()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        event.stop()
        self.scroll_rows(-SCROLL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        event.stop()
        self.scroll_rows(SCROLL_LINES)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to mark, or to drag the scrollbar."""
        event.stop()
        self.capture_mouse()
        self._dragging_bar = event.x >= self.size.width - 1
        if self._dragging_bar:
            self._drag_bar(event.y)
        else:
            place = self._place(event.x, event.y)
            self.selection = None if place is None else Selection(place)
            self.update_rows()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Mark up to here, scrolling at the edges."""
        if self.app.mouse_captured is not self:
            return
        if self._dragging_bar:
            self._drag_bar(event.y)
        elif self.selection is not None:
            if not 0 <= event.y < self.size.height:
                self.view.scroll(-1 if event.y < 0 else 1)
                self._rows = self.view.rows()
            place = self._place(event.x, max(0, min(event.y, len(self._rows) - 1)))
            if place is not None:
                self.selection.end = place
            self.update_rows()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """What was no marking was a click."""
        self.release_mouse()
        if self._dragging_bar:
            self._dragging_bar = False
        elif self.selection is None or self.selection.empty:
            self.selection = None
            if 0 <= event.y < len(self._rows):
                self._click(self._rows[event.y], event.x)

    def _click(self, row: Row, x: int) -> None:
        entry, line = self.entries[row.entry], row.line
        at = x - line.gutter_cells
        offset = column_to_offset(line.text, at)
        passed = 0
        for text, style in line.pieces if at >= 0 else ():
            passed += len(text)
            if offset < passed:
                if action := action_of(style):
                    self.post_message(self.Clicked(entry, action))
                    return
                break
        if isinstance(entry, AnswerEntry) and entry.shows_tokens and 0 <= offset < len(line.text):
            for flow in entry.flows:
                if flow.holds(line):
                    found = flow.round_at(line.start + offset)
                    if found is not None:
                        self.post_message(self.RoundPicked(entry, found))
                        return
        self.post_message(self.Clicked(entry, "mark"))

    def _place(self, x: int, y: int) -> Place | None:
        if not 0 <= y < len(self._rows):
            return None
        row = self._rows[y]
        return Place(row.entry, row.nth, column_to_offset(row.line.text, x - row.line.gutter_cells))

    def _drag_bar(self, y: int) -> None:
        self.view.go_to_fraction(max(0.0, min(1.0, y / max(1, self.size.height - 1))))
        self.update_rows()


_EMPTY = Line([])
