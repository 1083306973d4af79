"""What the colours of tokens mean."""

from __future__ import annotations

from collections.abc import Collection

from tui.lines import Piece

MEANINGS = {
    "draft": "draft's guess, kept",
    "lookup": "copied from the text, kept",
    "resampled": "put where a guess was wrong",
    "bonus": "extra, after all were kept",
    "plain": "without guessing",
}


def pieces(origins: Collection[str]) -> list[Piece]:
    """One line that explains the colours that occur, each word in its own colour."""
    found: list[Piece] = []
    for style, meaning in MEANINGS.items():
        if style in origins:
            # Held together by spaces that do not break.
            found += [(f"■ {meaning}".replace(" ", "\u00a0"), style), ("   ", "")]
    return found[:-1]
