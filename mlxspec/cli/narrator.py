"""Tells on stderr what the engine does: progress, notices, errors, figures. Answers are not its business."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mlxspec.cli.status_line import StatusLine
from mlxspec.cli.terminal import complain, tell
from mlxspec.events import Downloading, Event, Failed, Finished, Loaded, Loading, Notice, Prefill, Tokens
from mlxspec.places import places

if TYPE_CHECKING:
    from mlxspec.decoding.stats import DecodeStats

LONG_PROMPT_TOKENS = 512  # shorter ones are read before a progress would be
_BAR_CELLS = 24
_SPARSE_STEP = 0.25  # of a download, between two lines where no line can change in place


class Narrator:
    """One for a whole run. Give it every event: `before` the answer's writer gets it, and then to `event`."""

    def __init__(self, *, stats: bool) -> None:
        self._line = StatusLine(sys.stderr)
        self._stats = stats
        self._target = ""
        self._files: dict[str, float] = {}  # file -> how much of it was told, in lines

    def before(self, event: Event) -> None:
        """Make room for what is to be written."""
        if not isinstance(event, Downloading | Loading | Prefill) and not (
            isinstance(event, Tokens) and not event.text
        ):
            self._line.clear()

    def event(self, event: Event) -> None:
        """Tell what there is to tell."""
        match event:
            case Downloading():
                self._downloading(event)
            case Loading():
                self._line.show(f"Loading {event.model}", now=True)
            case Prefill():
                self._prefill(event)
            case Notice():
                tell(event.message)
            case Failed():
                complain(event.message, event.hint)
            case Loaded():
                self._target = event.target
            case Finished() if self._stats:
                tell(stats_line(event.stats, target=self._target))

    def close(self) -> None:
        """Leave nothing unfinished on the screen."""
        self._line.clear()

    def _downloading(self, event: Downloading) -> None:
        total = event.total_bytes
        share = min(1.0, event.done_bytes / total) if total else 0.0
        of = f" of {megabytes(total)}" if total else ""
        if self._line.live:
            bar = f"{progress_bar(share)} {share:4.0%} " if total else ""
            text = f"Fetching {event.model} {bar} {megabytes(event.done_bytes)}{of}  {event.file}"
            self._line.show(text, now=event.done_bytes == total)
        elif event.file not in self._files or share >= self._files[event.file] + _SPARSE_STEP:
            self._files[event.file] = share
            tell(f"Fetching {event.model}: {event.file}, {megabytes(event.done_bytes)}{of}")

    def _prefill(self, event: Prefill) -> None:
        if event.total - event.reused > LONG_PROMPT_TOKENS and event.done < event.total:
            self._line.show(f"Reading the prompt: {event.done} of {event.total} tokens", now=True)
        else:
            self._line.clear()


def stats_line(stats: DecodeStats, *, target: str) -> str:
    """The figures of one answer in one line; what has no value is left out."""
    from mlxspec.engine.plain_speed import plain_tokens_per_s

    parts = [f"{stats.tokens} tokens"]
    if stats.tokens_per_s is not None:
        parts.append(f"{stats.tokens_per_s:.1f} tok/s")
        if plain := plain_tokens_per_s(target, places()):
            parts.append(f"{stats.tokens_per_s / plain:.2f}× plain")
    if stats.acceptance_rate is not None:
        parts.append(f"acceptance {stats.acceptance_rate:.0%}")
    if stats.tokens_per_pass is not None:
        parts.append(f"{stats.tokens_per_pass:.2f} tokens per pass")
    parts.append(f"first token after {stats.ttft_s:.2f} s")
    used = [
        f"{name} {part.accepted}/{part.proposed} in {part.rounds} rounds"
        for name, part in stats.drafters.items()
        if part.rounds
    ]
    parts.append("drafters: " + ("; ".join(used) or "none"))
    return " · ".join(parts)


def progress_bar(share: float) -> str:
    """A bar of which this share, 0 to 1, is full."""
    full = round(share * _BAR_CELLS)
    return "█" * full + "░" * (_BAR_CELLS - full)


def megabytes(count: int) -> str:
    """A number of bytes in the unit that suits it, 10^6 or 10^9 bytes."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
