"""Words that can be clicked."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style


def clickable(text: str, action: str) -> Content:
    """The text as it is; a click on it does the action."""
    return Content.styled(text, Style.from_meta({"@click": action}))
