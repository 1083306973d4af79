"""Every colour of the app: three themes, and the named styles that text is drawn in.

All colours are of the 256 that most terminals have, so that these show them as they are, the lightest
greys a shade darker. What a model wrote is coloured by where it came from: blue for guesses that were kept
(the draft model's deep, lookup's pale), amber for the target's own word (strong and underlined where it
replaced a guess, pale for the bonus after all guesses were kept), the text colour for plain rounds. Blue and
amber stay apart for eyes that confuse red and green. Without colours weight, slant and underline say it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.style import Style

from mlxspec.events import Origin

if TYPE_CHECKING:
    from textual.theme import Theme

THEMES = ("dark", "light", "black")
SELECTED = ("#ffffff", "#005f87")  # text marked with the mouse, and behind it


@dataclass(frozen=True, slots=True)
class Colours:
    """One theme: foregrounds by name, and the few backgrounds they stand on."""

    dark: bool
    background: str
    surface: str  # the user's messages, code, panels
    marked: str  # the round that is inspected
    foregrounds: dict[str, str]


_DARK = {
    "draft": "#5fafff",
    "lookup": "#afd7ff",
    "resampled": "#ffaf00",
    "bonus": "#ffd787",
    "plain": "#d0d0d0",
    "text": "#d0d0d0",
    "strong": "#eeeeee",
    "muted": "#949494",
    "accent": "#5fafff",
    "user": "#d0d0d0",
    "error": "#ff8787",
    "warning": "#ffd787",
    "good": "#87d787",
    "heading": "#ffffff",
    "code": "#d7d7af",
    "link": "#87afff",
    "keyword": "#87afff",
    "string": "#afd787",
    "number": "#ffaf87",
    "name": "#ffd787",
    "comment": "#8a8a8a",
    "bar": "#585858",
}
_LIGHT = {
    "draft": "#005f87",
    "lookup": "#005fff",
    "resampled": "#af5f00",
    "bonus": "#870000",
    "plain": "#303030",
    "text": "#303030",
    "strong": "#121212",
    "muted": "#626262",
    "accent": "#005f87",
    "user": "#303030",
    "error": "#af0000",
    "warning": "#875f00",
    "good": "#005f00",
    "heading": "#000000",
    "code": "#5f5f00",
    "link": "#005faf",
    "keyword": "#0000af",
    "string": "#005f00",
    "number": "#870087",
    "name": "#875f00",
    "comment": "#626262",
    "bar": "#b2b2b2",
}
COLOURS = {
    "dark": Colours(True, "#121212", "#1c1c1c", marked="#303030", foregrounds=_DARK),
    "light": Colours(False, "#ffffff", "#eeeeee", marked="#ffffd7", foregrounds=_LIGHT),
    "black": Colours(
        True,
        "#000000",
        "#121212",
        marked="#303030",
        foregrounds=_DARK | {"text": "#eeeeee", "plain": "#dadada", "muted": "#a8a8a8"},
    ),
}

# What carries the meaning beside colour, always; and what carries it alone.
_ATTRIBUTES = {
    "resampled": "underline",
    "strong": "bold",
    "emphasis": "italic",
    "struck": "strike",
    "heading": "bold",
    "title": "bold underline",
    "link": "underline",
    "comment": "italic",
    "marked": "",
    "selected": "",
    "reverse": "reverse",
}
_ATTRIBUTES_ALONE = {
    "draft": "bold",
    "lookup": "bold italic",
    "resampled": "underline",
    "bonus": "italic",
    "error": "bold",
    "warning": "bold",
    "keyword": "bold",
    "accent": "bold",
    "marked": "reverse",
    "selected": "reverse",
    "muted": "dim",
    "bar": "dim",
}


class Palette:
    """The named styles of one theme; `style("strong link")` is both at once."""

    def __init__(self, theme: str, *, colour: bool = True) -> None:
        self.theme = theme if theme in COLOURS else "dark"
        self.colour = colour
        self.colours = COLOURS[self.theme]
        text, background = self.colours.foregrounds["text"], self.colours.background
        self._base = Style.parse(f"{text} on {background}") if colour else Style()
        self.style = lru_cache(maxsize=None)(self._style)

    def _style(self, names: str) -> Style:
        style = self._base
        for name in names.split():
            style += self._one(name)
        return style

    def _one(self, name: str) -> Style:
        attributes = _ATTRIBUTES.get(name, "")
        if not self.colour:
            attributes = f"{attributes} {_ATTRIBUTES_ALONE.get(name, '')}"
            return Style.parse(attributes) if attributes.strip() else Style()
        colours = self.colours
        background = {
            "on-surface": colours.surface,
            "marked": colours.marked,
            "selected": SELECTED[1],
        }.get(name)
        foreground = SELECTED[0] if name == "selected" else colours.foregrounds.get(name)
        words = [attributes, foreground or "", f"on {background}" if background else ""]
        return Style.parse(" ".join(word for word in words if word)) if any(words) else Style()


def origin_style(origin: Origin, drafter: str | None) -> str:
    """The name of the style of a token of this origin."""
    if origin is Origin.ACCEPTED:
        return "lookup" if drafter == "lookup" else "draft"
    return origin.value


def textual_theme(name: str) -> Theme:
    """The theme as Textual's own widgets need it."""
    from textual.theme import Theme

    colours = COLOURS[name]
    fg = colours.foregrounds
    return Theme(
        name=name,
        dark=colours.dark,
        primary=fg["accent"],
        secondary=fg["link"],
        accent=fg["accent"],
        warning=fg["warning"],
        error=fg["error"],
        success=fg["good"],
        foreground=fg["text"],
        background=colours.background,
        surface=colours.surface,
        panel=colours.surface,
        text_alpha=1.0,
        variables={
            "muted": fg["muted"],
            "marked": colours.marked,
            "border": fg["muted"],
            "border-blurred": fg["muted"],
            "footer-background": colours.background,
            "input-selection-background": SELECTED[1],
            "input-selection-foreground": SELECTED[0],
            "block-cursor-background": fg["accent"],
            "block-cursor-foreground": colours.background,
            "block-cursor-text-style": "none",
            "scrollbar": fg["bar"],
            "scrollbar-hover": fg["muted"],
            "scrollbar-active": fg["muted"],
            "scrollbar-background": colours.background,
        },
    )


def theme_for(setting: str) -> str:
    """The theme that a setting names; "auto" goes by what the terminal says of its background, else dark."""
    if setting in COLOURS:
        return setting
    background = os.environ.get("COLORFGBG", "").rsplit(";", 1)[-1]
    return "light" if background in ("7", "15") else "dark"
