"""All rounds of an answer as a row of bars, as high as the tokens that each of them gave."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.style import Style

from mlxspec.events import Origin
from tui.palette import Palette, origin_style
from tui.rounds import Round

BARS = "▁▂▃▄▅▆▇█"
_AT = "round"  # what a bar remembers: which one it is


def strip(rounds: Sequence[Round], at: int, cells: int, palette: Palette) -> Content:
    """As many bars as fit around the round `at`, a pointer below it.

    A bar has the colour of the guesses that were kept, or else of the target's own token.
    """
    first = max(0, min(at - cells // 2, len(rounds) - cells))
    seen = rounds[first : first + cells]
    top = max((one.tokens for one in rounds), default=1) or 1
    bars = [
        Content.styled(_bar(one.tokens / top), _style(one, palette) + Style.from_meta({_AT: first + nth}))
        for nth, one in enumerate(seen)
    ]
    return Content("\n").join([Content("").join(bars), Content(" " * (at - first) + "▲")])


def picked_round(event: events.Click) -> int | None:
    """The round whose bar was clicked."""
    found = event.style.meta.get(_AT)
    return found if isinstance(found, int) else None


def _bar(share: float) -> str:
    return BARS[max(0, min(len(BARS) - 1, round(share * len(BARS)) - 1))]


def _style(one: Round, palette: Palette) -> Style:
    if not palette.colour:
        return Style()
    origin = Origin.ACCEPTED if one.kept else one.next_origin or Origin.PLAIN
    return Style.parse(palette.colours.foregrounds[origin_style(origin, one.drafter)])
