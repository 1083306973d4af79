"""A line of text as it stands on the screen, and how it is cut out of longer text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from tui.wrapping import breaks

if TYPE_CHECKING:
    from tui.palette import Palette

Piece = tuple[str, str]  # text without newlines, and the name of its style


@dataclass(slots=True)
class Line:
    """One line at one width.

    Attributes:
        pieces: what is written.
        start: where it begins in its flow, in characters.
        gutter: what stands in front of it and is no part of the text.
        continues: whether the next line belongs to the same paragraph.
        fill: the style of the rest of the row.
    """

    pieces: list[Piece]
    start: int = 0
    gutter: tuple[Piece, ...] = ()
    continues: bool = False
    fill: str = ""
    _strip: Strip | None = field(default=None, repr=False)
    _drawn_for: object = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The text without its gutter."""
        return "".join(text for text, _ in self.pieces)

    @property
    def gutter_cells(self) -> int:
        """The width of the gutter."""
        return sum(cell_len(text) for text, _ in self.gutter)

    def strip(self, palette: Palette, width: int, *, end: Piece | None = None) -> Strip:
        """The line drawn `width` cells wide, and `end` behind it; kept until one of them changes."""
        key = (palette, width, end)
        if self._strip is None or self._drawn_for != key:
            style = palette.style
            segments = [Segment(text, style(name)) for text, name in (*self.gutter, *self.pieces) if text]
            strip = Strip(segments).adjust_cell_length(width, style(self.fill))
            if end is not None:
                strip = Strip([*strip, Segment(end[0], style(end[1]))], width + cell_len(end[0]))
            self._strip = strip
            self._drawn_for = key
        return self._strip

    def restyled(self, start: int, stop: int, style: str) -> Line:
        """A copy whose characters from `start` to `stop` have another style on top."""
        inside = [cut for cut in (start, stop) if 0 < cut < len(self.text)]
        pieces: list[Piece] = []
        for part, offset in split_pieces(self.pieces, inside):
            on = start <= offset < stop
            pieces.extend((text, f"{name} {style}" if on else name) for text, name in part)
        return Line(pieces, start=self.start, gutter=self.gutter, continues=self.continues, fill=self.fill)

    def changed(self) -> None:
        """The pieces are others now."""
        self._strip = None


def wrapped(
    pieces: list[Piece],
    width: int,
    *,
    gutter: tuple[Piece, ...] = (),
    hanging: tuple[Piece, ...] | None = None,
    fill: str = "",
    start: int = 0,
) -> list[Line]:
    """One paragraph as lines of at most `width` cells; `hanging` is the gutter of all lines but the first."""
    text = "".join(text for text, _ in pieces)
    inner = width - sum(cell_len(part) for part, _ in gutter)
    cuts = breaks(text, inner)
    lines = []
    for number, (part, offset) in enumerate(split_pieces(pieces, cuts)):
        lines.append(
            Line(
                part,
                start=start + offset,
                gutter=gutter if number == 0 or hanging is None else hanging,
                continues=number < len(cuts),
                fill=fill,
            )
        )
    return lines


def split_pieces(pieces: list[Piece], cuts: list[int]) -> list[tuple[list[Piece], int]]:
    """The pieces cut at the given offsets of their joined text, each part with its offset."""
    if not cuts:
        return [(pieces, 0)]
    parts: list[tuple[list[Piece], int]] = []
    current: list[Piece] = []
    started = at = 0
    remaining = iter([*cuts, -1])
    cut = next(remaining)
    for text, style in pieces:
        while 0 <= cut <= at + len(text):
            head, text = text[: cut - at], text[cut - at :]
            if head:
                current.append((head, style))
            parts.append((current, started))
            current, started, at = [], cut, cut
            cut = next(remaining)
        if text:
            current.append((text, style))
            at += len(text)
    parts.append((current, started))
    return parts
