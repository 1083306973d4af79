"""Prints a measured figure beside the bar that it must reach."""

from __future__ import annotations


def against(name: str, figure: float, most: float | None = None, *, least: float | None = None) -> None:
    """One line: the figure, the bar (at most `most`, or at least `least`), and whether it is reached."""
    reached = (most is None or figure <= most) and (least is None or figure >= least)
    bar = f"at least {least:g}" if least is not None else f"at most {most:g}"
    print(f"{name:28} {figure:.3f}   bar: {bar}   {'reached' if reached else 'MISSED'}")
