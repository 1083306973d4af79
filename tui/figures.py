"""The figures of an answer in words: the line below it, and parts of the status line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "–"


def rate(stats: Mapping[str, Any]) -> float | None:
    """Tokens a second."""
    value = stats.get("tokens_per_s")
    return float(value) if value else None


def speed_up(stats: Mapping[str, Any]) -> float | None:
    """How many times faster than plain decoding on this machine; None while that is unknown."""
    fast, plain = rate(stats), stats.get("plain_tokens_per_s")
    return fast / float(plain) if fast and plain else None


def summary(stats: Mapping[str, Any]) -> list[str]:
    """The figures of one answer, the weightiest first, so that a narrow line can be cut at its end."""
    parts = [f"{number(rate(stats))} tok/s"]
    if (factor := speed_up(stats)) is not None:
        parts.append(f"{times(factor)} plain")
    if stats.get("proposed"):
        parts.append(f"{percent(stats.get('acceptance_rate'))} kept")
    if stats.get("tokens_per_pass"):
        parts.append(f"{stats['tokens_per_pass']:.2f} a pass")
    if names := drafters(stats):
        parts.append(names)
    parts.append(f"{stats.get('tokens', 0)} tokens")
    parts.append(f"first after {seconds(stats.get('ttft_s'))}")
    return parts


def drafters(stats: Mapping[str, Any]) -> str:
    """Who guessed, the busiest first."""
    found = stats.get("drafters") or {}
    busy = sorted(found, key=lambda name: -int(_proposed(found[name])))
    return " + ".join(drafter_text(name) for name in busy if _proposed(found[name]))


def drafter_text(name: str | None) -> str:
    """A drafter's name in words."""
    return {None: "none", "draft_model": "draft"}.get(name, str(name).replace("_", " "))


def number(value: float | None) -> str:
    """Three digits, about."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def times(value: float | None) -> str:
    """A factor."""
    return f"{UNKNOWN if value is None else format(value, '.2f')}×"


def percent(value: float | None) -> str:
    """A share."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def seconds(value: float | None) -> str:
    """A time, in the unit that suits it."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{1000 * value:.1f} ms" if value < 0.00995 else f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    return f"{value // 60:.0f} min {value % 60:.0f} s"


def sparkline(values: list[float], cells: int) -> str:
    """The last `cells` values as bars; the scale begins at 0."""
    bars = "▁▂▃▄▅▆▇█"
    last = values[-cells:]
    top = max(last, default=0) or 1
    return "".join(bars[min(7, int(value / top * 7.99))] for value in last)


def _proposed(drafter: Any) -> int:
    value = drafter.get("proposed", 0) if isinstance(drafter, Mapping) else getattr(drafter, "proposed", 0)
    return int(value)


def size_memory(count: int) -> str:
    """An amount of memory."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
