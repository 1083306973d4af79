"""Which lines of a long list of entries are on the screen.

Nothing above or below the screen is laid out, so a chat of any length costs what is visible. The view is
tied to its end, or to one line of one entry; heights that are not known yet matter to the scrollbar only.
"""

from __future__ import annotations

from typing import NamedTuple

from tui.entry import Entry
from tui.lines import Line


class Row(NamedTuple):
    """One row of the screen: a line, and which line of which entry it is."""

    entry: int
    nth: int
    line: Line


class Viewport:
    """Entries, the size of the window on them, and where it stands.

    Attributes:
        follow: whether the window stays at the end.
        width, height: of the window, in cells.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.follow = True
        self.width = 80
        self.height = 24
        self._top = (0, 0)  # an entry and one of its lines, while not following

    def rows(self) -> list[Row]:
        """The lines in the window, from above; fewer than its height where the entries end before."""
        if self.follow:
            rows = self._rows_to_end()
            if rows:
                self._top = (rows[0].entry, rows[0].nth)
            return rows
        rows = self._rows_from(*self._top)
        if len(rows) < self.height:
            self.follow = True
            return self.rows()
        return rows

    def scroll(self, lines: int) -> None:
        """Move the window down by so many lines, up if it is a negative number."""
        entry, index = self._top
        index += lines
        if lines < 0:
            self.follow = False
            while index < 0 and entry > 0:
                entry -= 1
                index += self._height(entry)
            self._top = (entry, max(0, index))
        elif not self.follow:
            while entry < len(self.entries) and index >= self._height(entry):
                index -= self._height(entry)
                entry += 1
            self._top = (entry, index)

    def to_start(self) -> None:
        """Go to the first line."""
        self.follow = False
        self._top = (0, 0)

    def show(self, entry: int, index: int) -> None:
        """Move as little as brings this line, and a little around it, into the window."""
        rows = self.rows()
        margin = min(2, self.height // 4)
        first, last = rows[0], rows[-1]
        if (entry, index) < (first.entry, first.nth + (margin if first[:2] != (0, 0) else 0)):
            self.follow = False
            self._top = (entry, index)
            self.scroll(-margin)
        elif (entry, index) > (last.entry, last.nth - (0 if self.follow else margin)):
            self.follow = False
            self._top = (entry, index)
            self.scroll(margin + 1 - self.height)

    def fraction(self) -> tuple[float, float] | None:
        """Which part of the whole is in the window, from 0 to 1; None when all of it is."""
        heights = [entry.guessed_height(self.width) for entry in self.entries]
        total = sum(heights)
        if total <= self.height:
            return None
        entry, index = self._top
        start = total - self.height if self.follow else sum(heights[:entry]) + index
        return start / total, min(1.0, (start + self.height) / total)

    def go_to_fraction(self, part: float) -> None:
        """Put the middle of the window at this part of the whole."""
        heights = [entry.guessed_height(self.width) for entry in self.entries]
        line = max(0, int(part * sum(heights)) - self.height // 2)
        self.follow = False
        for entry, height in enumerate(heights):
            if line < height:
                self._top = (entry, min(line, self._height(entry) - 1))
                return
            line -= height
        self.follow = True

    def _rows_to_end(self) -> list[Row]:
        rows: list[Row] = []
        for number in range(len(self.entries) - 1, -1, -1):
            if len(rows) >= self.height:
                break
            rows.extend(self._backwards(number, self.height - len(rows)))
        rows.reverse()
        return rows

    def _backwards(self, number: int, most: int) -> list[Row]:
        """The last lines of an entry, the last one first."""
        parts = self.entries[number].parts_at(self.width)
        index = sum(map(len, parts))
        rows: list[Row] = []
        for part in reversed(parts):
            for line in reversed(part):
                index -= 1
                rows.append(Row(number, index, line))
                if len(rows) == most:
                    return rows
        return rows

    def _rows_from(self, number: int, index: int) -> list[Row]:
        rows: list[Row] = []
        while number < len(self.entries) and len(rows) < self.height:
            at = 0
            for part in self.entries[number].parts_at(self.width):
                for i in range(max(0, index - at), len(part)):
                    rows.append(Row(number, at + i, part[i]))
                    if len(rows) == self.height:
                        return rows
                at += len(part)
            number, index = number + 1, 0
        return rows

    def _height(self, number: int) -> int:
        return self.entries[number].height_at(self.width)
