"""A Markdown table as lines: columns as wide as they need, narrower and wrapped where they must."""

from __future__ import annotations

from rich.cells import cell_len

from tui.lines import Line, Piece, wrapped

_BETWEEN = 2
_LEAST_COLUMN = 4


def table_lines(
    cells: list[list[Piece]], columns: int, *, width: int, gutter: tuple[Piece, ...] = ()
) -> list[Line]:
    """The rows of a table whose `cells` come row by row, the first row being its head."""
    if not columns:
        return []
    rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    room = width - sum(cell_len(text) for text, _ in gutter)
    widths = _widths(rows, columns, room)
    lines: list[Line] = []
    for number, row in enumerate(rows):
        if number == 0:
            row = [[(text, f"{style} strong") for text, style in cell] for cell in row]
        lines.extend(_row(row, widths, gutter))
        if number == 0:
            lines.append(
                Line([("─" * min(room, sum(widths) + _BETWEEN * (columns - 1)), "muted")], gutter=gutter)
            )
    return lines


def _row(row: list[list[Piece]], widths: list[int], gutter: tuple[Piece, ...]) -> list[Line]:
    columns = [wrapped(cell, width) for cell, width in zip(row, widths, strict=False)]
    lines = []
    for y in range(max(map(len, columns), default=0)):
        pieces: list[Piece] = []
        for column, width in zip(columns, widths, strict=False):
            part = column[y].pieces if y < len(column) else []
            used = sum(cell_len(text) for text, _ in part)
            pieces.extend([*part, (" " * (max(0, width - used) + _BETWEEN), "")])
        lines.append(Line(pieces[:-1], gutter=gutter))
    return lines


def _widths(rows: list[list[list[Piece]]], columns: int, room: int) -> list[int]:
    widths = [
        max((sum(cell_len(text) for text, _ in row[i]) for row in rows if i < len(row)), default=1) or 1
        for i in range(columns)
    ]
    room -= _BETWEEN * (columns - 1)
    while sum(widths) > room and max(widths) > _LEAST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths
