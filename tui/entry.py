"""What stands in the transcript: things that turn into lines at a width.

A piece whose style holds a word such as `@view` is a control: a click on it does that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tui.attachments import split_attachments
from tui.lines import Line, Piece, wrapped
from tui.shown import shown

INDENT: tuple[Piece, ...] = (("  ", ""),)
_ACTION = re.compile(r"@([a-z-]+)")


class Entry:
    """Laid out when it is first seen, and again when it changed or the width did."""

    def __init__(self) -> None:
        self._width = 0
        self._parts: list[list[Line]] | None = None
        self.marked = False
        self.last_answer = False
        self.outside = False  # whether it has left the prompt, because the context is full

    def parts_at(self, width: int) -> list[list[Line]]:
        """The lines of the entry, in parts that follow each other; the last line is empty."""
        if self._parts is None or width != self._width:
            self._width = width
            self._parts = self.lay_out(width)
        return self._parts

    def height_at(self, width: int) -> int:
        """How many lines it has."""
        return sum(map(len, self.parts_at(width)))

    def guessed_height(self, width: int) -> int:
        """The height, if it is known, else a guess that needs no layout."""
        if self._parts is not None and width == self._width:
            return sum(map(len, self._parts))
        return 1 + self.characters // max(8, width) + 1

    @property
    def laid_out(self) -> bool:
        """Whether its lines are there, at some width."""
        return self._parts is not None

    @property
    def characters(self) -> int:
        """About how long its text is."""
        return 0

    def changed(self) -> None:
        """Lay it out anew when it is next seen."""
        self._parts = None

    def lay_out(self, width: int) -> list[list[Line]]:
        """The lines at this width."""
        raise NotImplementedError

    def plain_text(self) -> str:
        """Its text, to be copied."""
        return ""


class UserEntry(Entry):
    """What the user sent.

    Attributes:
        text: all of it, attached files too.
        message: the id under which it is saved, None while it is not.
        versions: which of how many versions of this message it is.
        queued: whether it waits for an answer to end.
    """

    def __init__(self, text: str, *, message: int | None = None, versions: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.text = text
        self.message = message
        self.versions = versions
        self.queued = False

    @property
    def characters(self) -> int:
        """About how long its text is."""
        return len(self.text)

    def lay_out(self, width: int) -> list[list[Line]]:
        """A block of its own colour, with the attached files as one line each."""
        typed, files = split_attachments(self.text)
        bar: Piece = ("┃ " if self.marked else "▌ ", "accent on-surface")
        lines = []
        for paragraph in shown(typed).split("\n"):
            lines.extend(wrapped([(paragraph, "user on-surface")], width, gutter=(bar,), fill="on-surface"))
        for file in files:
            chip = f"▤ {shown(file.path)} · {file.size}"
            lines.extend(wrapped([(chip, "muted on-surface")], width, gutter=(bar,), fill="on-surface"))
        footer: list[Piece] = []
        if self.queued:
            footer.append(("to be sent next; Esc stops the answer and gives it back  ", "muted"))
        if self.outside:
            footer.append(("no longer in the prompt: the context is full  ", "warning"))
        if self.versions[1] > 1:
            this, all_versions = self.versions
            footer += [("‹ ", "accent @branch-before"), (f"{this}/{all_versions}", "muted")]
            footer += [(" ›", "accent @branch-after"), ("  ", "")]
        if self.marked:
            footer.append(("edit", "accent @edit"))
        if footer:
            lines.extend(wrapped(footer, width, gutter=INDENT))
        return [lines, [Line([])]]

    def plain_text(self) -> str:
        """What was typed and attached."""
        return self.text


class NoticeEntry(Entry):
    """A word of the program's own: `kind` is "muted", "warning" or "error"."""

    def __init__(
        self, message: str, hint: str = "", *, kind: str = "muted", actions: Sequence[Piece] = ()
    ) -> None:
        super().__init__()
        self.message = message
        self.hint = hint
        self.kind = kind
        self.actions = list(actions)

    @property
    def characters(self) -> int:
        """About how long its text is."""
        return len(self.message) + len(self.hint)

    def lay_out(self, width: int) -> list[list[Line]]:
        """The message behind a dot, the hint below."""
        lines = []
        for number, paragraph in enumerate(shown(self.message).split("\n")):
            dot: Piece = ("● " if number == 0 else "  ", self.kind)
            lines += wrapped([(paragraph, "text")], width, gutter=(dot,), hanging=INDENT)
        for paragraph in shown(self.hint).split("\n") if self.hint else []:
            lines += wrapped([(paragraph, "muted")], width, gutter=INDENT)
        if self.actions:
            lines += wrapped(self.actions, width, gutter=INDENT)
        return [lines, [Line([])]]

    def plain_text(self) -> str:
        """Message and hint."""
        return f"{self.message}\n{self.hint}".rstrip()


class PageEntry(Entry):
    """Paragraphs of ready pieces, as the welcome is."""

    def __init__(self, paragraphs: list[list[Piece]]) -> None:
        super().__init__()
        self.paragraphs = paragraphs

    @property
    def characters(self) -> int:
        """About how long its text is."""
        return sum(len(text) for pieces in self.paragraphs for text, _ in pieces)

    def lay_out(self, width: int) -> list[list[Line]]:
        """Each paragraph wrapped."""
        lines = [line for pieces in self.paragraphs for line in wrapped(pieces, width, gutter=INDENT)]
        return [lines, [Line([])]]

    def plain_text(self) -> str:
        """The paragraphs without colours."""
        return "\n".join("".join(text for text, _ in pieces) for pieces in self.paragraphs)


def action_of(style: str) -> str | None:
    """What a click on a piece of this style does."""
    match = _ACTION.search(style)
    return match[1] if match else None
