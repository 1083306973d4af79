"""A complete answer as rendered Markdown: text -> blocks, and blocks -> lines at a width."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tui.code import highlighted
from tui.lines import Line, Piece, wrapped
from tui.shown import shown
from tui.table import table_lines

if TYPE_CHECKING:
    from markdown_it.token import Token

QUOTE: Piece = ("▎ ", "muted")
BULLETS = ("•", "◦", "▪")
LEAST_WIDTH = 8  # deeper nesting than this leaves room for is drawn flat


@dataclass(slots=True)
class Block:
    """A piece of the page.

    Attributes:
        kind: "text", "code", "rule" or "table".
        paragraphs: of text and code one list of pieces a line; of a table one a cell.
        gutter, hanging: what stands in front of its first line, and of all others.
        gap: what stands in front of the empty line before it; None when there is no such line.
        columns: of a table, how many.
        language: of code.
    """

    kind: str
    paragraphs: list[list[Piece]]
    gutter: tuple[Piece, ...] = ()
    hanging: tuple[Piece, ...] = ()
    gap: tuple[Piece, ...] | None = ()
    columns: int = 0
    language: str = ""


@dataclass(slots=True)
class _Container:
    """A quote or a list item around blocks."""

    first: Piece
    hanging: Piece
    tight: bool = False
    used: bool = False  # whether its first line is written


@dataclass(slots=True)
class _Walk:
    blocks: list[Block] = field(default_factory=list)
    containers: list[_Container] = field(default_factory=list)
    lists: list[int | None] = field(default_factory=list)  # the next number, None for bullets
    list_begins: bool = False  # whether nothing of the outermost list is written yet
    heading: int = 0
    cells: list[list[Piece]] | None = None
    columns: int = 0

    def add(self, kind: str, paragraphs: list[list[Piece]], *, language: str = "") -> None:
        gutter = tuple(c.hanging if c.used else c.first for c in self.containers)
        gap = tuple(c.hanging for c in self.containers if c.used)
        tight = bool(self.containers) and self.containers[-1].tight and not self.list_begins
        self.list_begins = False
        for container in self.containers:
            container.used = True
        self.blocks.append(
            Block(
                kind,
                paragraphs,
                gutter=gutter,
                hanging=tuple(c.hanging for c in self.containers),
                gap=None if tight else gap,
                columns=self.columns,
                language=language,
            )
        )


def blocks(text: str) -> list[Block]:
    """The blocks of a Markdown text. HTML in it is text; every control character is made visible."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    walk = _Walk()
    for token in parser.parse(text):
        _step(walk, token)
    return walk.blocks


def render(page: list[Block], width: int, *, indent: tuple[Piece, ...] = ()) -> list[Line]:
    """The blocks as lines of at most `width` cells, each behind `indent`."""
    lines: list[Line] = []
    for block in page:
        gutter, hanging = indent + block.gutter, indent + block.hanging
        if width - _cells(hanging) < LEAST_WIDTH:
            gutter = hanging = ()
        if block.gap is not None and lines:
            lines.append(Line([], gutter=indent + block.gap))
        if block.kind == "rule":
            lines.append(Line([("─" * max(3, width - _cells(gutter)), "muted")], gutter=gutter))
        elif block.kind == "table":
            lines.extend(table_lines(block.paragraphs, block.columns, width=width, gutter=hanging))
        elif block.kind == "code":
            lines.extend(_code_lines(block, width, hanging))
        else:
            for number, pieces in enumerate(block.paragraphs):
                first = gutter if number == 0 else hanging
                lines.extend(wrapped(pieces, width, gutter=first, hanging=hanging))
    return lines


def _code_lines(block: Block, width: int, gutter: tuple[Piece, ...]) -> list[Line]:
    edge: Piece = ("  ", "on-surface")
    lines = []
    if block.language:
        label = [(block.language, "muted on-surface")]
        lines.append(Line([], gutter=(*gutter, edge, *label), fill="on-surface"))
    for pieces in block.paragraphs:
        surfaced = [(text, f"{style} on-surface") for text, style in pieces]
        lines.extend(wrapped(surfaced, width, gutter=(*gutter, edge), fill="on-surface"))
    return lines


def _step(walk: _Walk, token: Token) -> None:
    match token.type:
        case "inline":
            paragraphs = _inline(token.children or [], _heading_style(walk.heading))
            if walk.cells is not None:
                walk.cells.append([piece for pieces in paragraphs for piece in pieces])
            else:
                walk.add("text", paragraphs)
        case "heading_open":
            walk.heading = int(token.tag[1])
        case "heading_close":
            walk.heading = 0
        case "fence" | "code_block":
            language = shown(token.info.split()[0]) if token.info.strip() else ""
            code = shown(token.content.rstrip("\n"))
            walk.add("code", highlighted(code, language), language=language)
        case "hr":
            walk.add("rule", [])
        case "blockquote_open":
            walk.containers.append(_Container(QUOTE, QUOTE))
        case "bullet_list_open" | "ordered_list_open":
            walk.list_begins = not walk.lists
            ordered = token.type == "ordered_list_open"
            walk.lists.append(int(token.attrGet("start") or 1) if ordered else None)
        case "list_item_open":
            walk.containers.append(_item(walk))
        case "blockquote_close" | "list_item_close":
            if not walk.containers[-1].used:
                walk.add("text", [[]])
            walk.containers.pop()
        case "bullet_list_close" | "ordered_list_close":
            walk.lists.pop()
        case "paragraph_open":
            if walk.containers:
                walk.containers[-1].tight = token.hidden
        case "table_open":
            walk.cells, walk.columns = [], 0
        case "th_open":
            walk.columns += 1
        case "table_close":
            cells, walk.cells = walk.cells or [], None
            walk.add("table", cells)


def _item(walk: _Walk) -> _Container:
    number = walk.lists[-1]
    if number is None:
        marker = f"{BULLETS[(len(walk.lists) - 1) % len(BULLETS)]} "
    else:
        marker = f"{number}. "
        walk.lists[-1] = number + 1
    return _Container((marker, "accent"), (" " * len(marker), ""))


def _heading_style(level: int) -> str:
    return {0: "text", 1: "heading title", 2: "heading"}.get(level, "strong")


def _inline(children: list[Token], base: str) -> list[list[Piece]]:
    """The paragraphs of inline tokens: a line break, soft ones too, begins another."""
    paragraphs: list[list[Piece]] = [[]]
    styles: list[str] = [base]
    targets: list[str] = []
    for token in children:
        kind = token.type
        if kind == "text":
            paragraphs[-1].append((shown(token.content), " ".join(styles)))
        elif kind == "code_inline":
            paragraphs[-1].append((shown(token.content), " ".join([*styles, "code"])))
        elif kind in ("softbreak", "hardbreak"):
            paragraphs.append([])
        elif kind == "link_open":
            targets.append(shown(str(token.attrGet("href") or "")))
            styles.append("link")
        elif kind == "link_close":
            styles.pop()
            target = targets.pop()
            if target and not "".join(text for text, _ in paragraphs[-1]).endswith(target):
                paragraphs[-1].append((f" ({target})", "muted"))
        elif kind == "image":
            paragraphs[-1].append((f"[image: {shown(token.content)}]", "muted"))
        elif kind in _SPANS:
            styles.append(_SPANS[kind])
        elif kind.endswith("_close"):
            styles.pop()
        elif token.content:
            paragraphs[-1].append((shown(token.content), " ".join(styles)))
    return paragraphs


def _cells(gutter: tuple[Piece, ...]) -> int:
    return sum(len(text) for text, _ in gutter)


_SPANS = {"strong_open": "strong", "em_open": "emphasis", "s_open": "struck"}
