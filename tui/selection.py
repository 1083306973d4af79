"""Text that is marked with the mouse in the transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tui.entry import Entry


class Place(NamedTuple):
    """A character: an entry, one of its lines, an offset in the line's text."""

    entry: int
    nth: int
    offset: int


class Selection:
    """From where the button went down to where the pointer is."""

    def __init__(self, start: Place) -> None:
        self.start = start
        self.end = start

    @property
    def empty(self) -> bool:
        """Whether nothing is marked."""
        return self.start == self.end

    def on_line(self, entry: int, nth: int, length: int) -> tuple[int, int] | None:
        """Which characters of a line are marked."""
        first, last = sorted((self.start, self.end))
        if not first[:2] <= (entry, nth) <= last[:2]:
            return None
        begin = first.offset if first[:2] == (entry, nth) else 0
        end = last.offset if last[:2] == (entry, nth) else length
        return (begin, end) if begin < end else None

    def text(self, entries: Sequence[Entry], width: int) -> str:
        """What is marked, without what the screen added: gutters, and the ends of wrapped lines."""
        first, last = sorted((self.start, self.end))
        written: list[str] = []
        for number in range(first.entry, min(last.entry + 1, len(entries))):
            nth = 0
            for part in entries[number].parts_at(width):
                for line in part:
                    if first[:2] <= (number, nth) <= last[:2]:
                        begin = first.offset if first[:2] == (number, nth) else 0
                        end = last.offset if last[:2] == (number, nth) else None
                        written.append(line.text[begin:end])
                        if not line.continues:
                            written.append("\n")
                    nth += 1
        return "".join(written).rstrip("\n")
