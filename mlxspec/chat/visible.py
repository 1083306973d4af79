"""Characters that steer a terminal, shown as symbols instead.

Text of models, users and file names may hold escape sequences (which colour, move the cursor, set titles or
answer questions in the user's name) and bidirectional overrides (which let text read as something else).
"""

from __future__ import annotations

_LINE_CONTROLS = "\t\n"

# C0 and DEL have pictures of their own in Unicode (U+2400..U+2421).
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_NAMED = [
    *range(0x80, 0xA0),  # C1: some terminals take U+009B for ESC [
    *range(0x202A, 0x202F),  # bidirectional embeddings and overrides
    *range(0x2066, 0x206A),  # bidirectional isolates
    *range(0xD800, 0xE000),  # bytes of names and arguments that are not UTF-8
]
_LINE = _PICTURES | {code: f"⟦U+{code:04X}⟧" for code in _NAMED}
_TEXT = {code: symbol for code, symbol in _LINE.items() if chr(code) not in _LINE_CONTROLS}


def visible(text: str) -> str:
    """The text, safe to write on a terminal: newline and tab stay, other control characters become symbols.

    ESC becomes "␛", U+202E becomes "⟦U+202E⟧". Joiners and marks that writing systems and emoji need stay.
    """
    return text.translate(_TEXT)


def visible_line(text: str) -> str:
    """The same for names and titles, which stand on one line: newline and tab become symbols, too."""
    return text.translate(_LINE)
