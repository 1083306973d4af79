"""The bench's speed-ups as a picture: bars by domain, a colour a draft and temperature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from mlxspec.lab.bench_results import DraftResult

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")

BAR_WIDTH = 18
GAP = 22  # between domains
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 44, 62
HEIGHT = 260  # of the drawing area
LEGEND_LINE = 18


def svg(results: Sequence[DraftResult], title: str) -> str:
    """An SVG document, complete in itself.

    Args:
        results: at least one; all of the same prompts.
        title: the first line, such as the models and the machine.
    """
    domains = [summary.domain for summary in results[0].domains()]
    groups = [*domains, "all"]
    speeds = [[s.speedup for s in (*result.domains(), result.summary())] for result in results]
    top_value = math.ceil(max(1.0, *(speed for row in speeds for speed in row)) * 2) / 2
    group_width = BAR_WIDTH * len(results) + GAP
    width = max(LEFT + group_width * len(groups) + RIGHT, LEFT + 7 * len(title))
    height = TOP + HEIGHT + BOTTOM + LEGEND_LINE * len(results)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - value / top_value)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f"<title>{_text(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{_text(title)}</text>',
    ]
    for step in range(int(top_value * 2) + 1):
        value = step / 2
        parts.append(
            f'<line x1="{LEFT}" x2="{width - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="{"#444" if value == 1 else "#ddd"}"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}x</text>'
        )
    for g, group in enumerate(groups):
        left = LEFT + GAP / 2 + g * group_width
        for i, row in enumerate(speeds):
            x = left + i * BAR_WIDTH
            parts.append(
                f'<rect x="{x:.1f}" y="{y(row[g]):.1f}" width="{BAR_WIDTH - 2}" '
                f'height="{y(0) - y(row[g]):.1f}" fill="{COLOURS[i % len(COLOURS)]}">'
                f"<title>{_text(group)}: {row[g]:.2f}x</title></rect>"
            )
        middle = left + BAR_WIDTH * len(results) / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="end" '
            f'transform="rotate(-30 {middle:.1f} {TOP + HEIGHT + 16})">{_text(group)}</text>'
        )
    for i, result in enumerate(results):
        line = TOP + HEIGHT + BOTTOM + LEGEND_LINE * i
        label = f"{result.draft}, temperature {result.temperature:g}: {result.summary().speedup:.2f}x"
        parts.append(
            f'<rect x="{LEFT}" y="{line}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>'
            f'<text x="{LEFT + 18}" y="{line + 11}">{_text(label)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def png(document: str) -> bytes:
    """An SVG document as a PNG, twice as large for sharp screens. Needs resvg-py."""
    import resvg_py

    image: bytes = resvg_py.svg_to_bytes(svg_string=document, zoom=2)
    return image


def _text(text: str) -> str:
    """Text for XML, which knows no control characters."""
    return escape("".join(letter if letter.isprintable() else " " for letter in text))
