"""An answer's tokens as coloured lines that grow at the end only.

A line that is full, or that a newline ends, is sealed: it is never measured, wrapped or drawn again. So
a token costs the same at the end of a long answer as at its beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tui.lines import Line, Piece, split_pieces
from tui.wrapping import breaks


@dataclass(frozen=True, slots=True)
class Span:
    """The text that tokens of one origin and one round added; without tabs and control characters."""

    text: str
    style: str
    round: int


class SpanFlow:
    """Spans laid out at one width; the last line is open until the next one begins.

    Attributes:
        lines: the lines so far; the last one is empty after a newline.
        spans: all spans in order.
    """

    def __init__(self, width: int = 80, *, gutter: tuple[Piece, ...] = ()) -> None:
        self.spans: list[Span] = []
        self._starts: list[int] = []
        self._length = 0
        self._gutter = gutter
        self._open_chars = 0
        self._width = width
        self.lines: list[Line] = [Line([], gutter=gutter)]

    def set_width(self, width: int) -> None:
        """Lay everything out anew, if the width is another."""
        if width == self._width:
            return
        self._width = width
        self.lines = [Line([], gutter=self._gutter)]
        self._open_chars = 0
        spans, self.spans, self._starts, self._length = self.spans, [], [], 0
        for span in spans:
            self.append(span)

    def append(self, span: Span) -> None:
        """Add a span at the end."""
        self.spans.append(span)
        self._starts.append(self._length)
        self._length += len(span.text)
        if "\n" not in span.text:
            self._write(span.text, span.style)
            return
        first, *others = span.text.split("\n")
        self._write(first, span.style)
        offset = self._starts[-1] + len(first)
        for part in others:
            offset += 1
            self.lines.append(Line([], start=offset, gutter=self._gutter))
            self._open_chars = 0
            self._write(part, span.style)
            offset += len(part)

    def _write(self, text: str, style: str) -> None:
        if not text:
            return
        line = self.lines[-1]
        pieces = line.pieces
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + text, style)
        else:
            pieces.append((text, style))
        line.changed()
        self._open_chars += len(text)
        # No character is wider than two cells, so a short line needs no measuring.
        if self._open_chars * 2 <= self._width:
            return
        cuts = breaks(line.text, self._width)
        if not cuts:
            return
        (line.pieces, _), *rest = split_pieces(pieces, cuts)
        start = line.start
        for part, offset in rest:
            self.lines[-1].continues = True
            self.lines.append(Line(part, start=start + offset, gutter=self._gutter))
        self._open_chars = sum(len(text) for text, _ in self.lines[-1].pieces)

    def round_at(self, offset: int) -> int | None:
        """The round whose text holds the character at `offset`; None before the first span."""
        index = bisect_right(self._starts, offset) - 1
        return self.spans[index].round if index >= 0 else None

    def extent(self, round_number: int) -> tuple[int, int] | None:
        """Where the text of a round begins and ends, in characters; None when it has none here."""
        first = bisect_right(self.spans, round_number - 1, key=lambda span: span.round)
        last = bisect_right(self.spans, round_number, key=lambda span: span.round)
        if first == last:
            return None
        return self._starts[first], self._starts[last - 1] + len(self.spans[last - 1].text)

    def line_at(self, offset: int) -> int:
        """Which line holds the character at `offset`."""
        return bisect_right(self.lines, offset, key=lambda line: line.start) - 1

    def holds(self, line: Line) -> bool:
        """Whether this very line is one of the flow's."""
        nth = self.line_at(line.start)
        return nth >= 0 and self.lines[nth] is line
