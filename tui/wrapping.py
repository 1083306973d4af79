"""Where the lines of a paragraph break at a given width in cells."""

from __future__ import annotations

from rich.cells import cell_len, split_graphemes

TAB = "    "


def breaks(text: str, width: int) -> list[int]:
    """The offsets at which the second and later lines of `text` begin.

    `text` has no newline. A line is `text[previous break : break]`; the spaces that it breaks at stay at its
    end and may stand beyond `width`. A word longer than a line is cut, never inside a grapheme.
    Wide characters (CJK, emoji) may be broken around. Greedy: text added at the end moves no break but
    the last.
    """
    width = max(1, width)
    if text.isascii():
        return _ascii_breaks(text, width)
    if cell_len(text) <= width:
        return []
    return _grapheme_breaks(text, width)


def cut_to(text: str, width: int) -> str:
    """`text`, or as much of it as fits into `width` cells with an ellipsis at its end."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    used = 0
    for start, _, cells in split_graphemes(text)[0]:
        if used + cells > width - 1:
            return text[:start] + "…"
        used += cells
    return text


def column_to_offset(text: str, column: int) -> int:
    """The offset in `text` of the grapheme at cell `column`; its length when the column is behind it."""
    if text.isascii():
        return max(0, min(column, len(text)))
    used = 0
    for start, _, cells in split_graphemes(text)[0]:
        used += cells
        if used > column:
            return start
    return len(text)


def _ascii_breaks(text: str, width: int) -> list[int]:
    found = []
    start, length = 0, len(text)
    while length - start > width:
        space = text.rfind(" ", start, start + width + 1)
        # Breaking inside the indentation of code would leave an empty line behind.
        cut = space + 1 if space > start and not text[start:space].isspace() else start + width
        while cut < length and text[cut] == " ":
            cut += 1
        if cut >= length:
            break
        found.append(cut)
        start = cut
    return found


def _grapheme_breaks(text: str, width: int) -> list[int]:
    found: list[int] = []
    used = 0  # cells of the line so far
    candidate = 0  # where the line may break, 0 for nowhere
    since = 0  # cells behind the candidate
    started = False  # whether anything but spaces is on the line
    for start, end, cells in split_graphemes(text)[0]:
        space = text[start:end] == " "
        if cells == 2 and used and started:
            candidate, since = start, 0
        if used + cells > width and not space:
            if candidate:
                used, started = since, since > 0
            else:
                candidate, used, started = start, 0, False
            if candidate > (found[-1] if found else 0):
                found.append(candidate)
            candidate, since = 0, 0
        used += cells
        since += cells
        if space and started:
            candidate, since = end, 0
        elif not space:
            started = True
            if cells == 2:
                candidate, since = end, 0
    if found and found[-1] >= len(text):
        found.pop()
    return found
