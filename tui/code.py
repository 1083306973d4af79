"""Source code as coloured pieces, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tui.lines import Piece

MOST_CHARACTERS = 200_000  # longer code is shown without colours


def highlighted(code: str, language: str) -> list[list[Piece]]:
    """The lines of `code`; of one colour where the language is unknown."""
    lines: list[list[Piece]] = [[]]
    for text, style in _tokens(code, language):
        first, *others = text.split("\n")
        if first:
            lines[-1].append((first, style))
        lines.extend([(part, style)] if part else [] for part in others)
    return lines


def _tokens(code: str, language: str) -> Iterator[Piece]:
    lexer = _lexer(language) if len(code) <= MOST_CHARACTERS else None
    if lexer is None:
        yield code, "text"
        return
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    styles: dict[Any, str] = {
        Keyword: "keyword",
        Operator.Word: "keyword",
        Name.Tag: "keyword",
        String: "string",
        Number: "number",
        Name.Constant: "number",
        Name.Function: "name",
        Name.Class: "name",
        Name.Decorator: "name",
        Name.Builtin: "name",
        Name.Attribute: "name",
        Comment: "comment",
    }
    found: dict[Any, str] = {}
    for kind, text in lexer.get_tokens(code):
        style = found.get(kind)
        if style is None:
            style = found[kind] = next(
                (styles[part] for part in reversed(kind.split()) if part in styles), "text"
            )
        yield text, style


def _lexer(language: str) -> Any:
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
