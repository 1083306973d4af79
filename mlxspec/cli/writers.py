"""The answer on stdout: as text, or as one JSON object a line."""

from __future__ import annotations

import json
from typing import IO, Any, Protocol

from mlxspec.chat.visible import visible
from mlxspec.cli.terminal import has_true_colour
from mlxspec.events import (
    Downloading,
    Event,
    Failed,
    Finished,
    Loaded,
    Notice,
    Origin,
    Prefill,
    Tokens,
)

_RESET = "\x1b[0m"
# Two cues for a resampled token, so that colour is not the only one. 256-colour codes are the nearest.
_TRUE_COLOUR = {Origin.ACCEPTED: "\x1b[38;2;95;175;255m", Origin.RESAMPLED: "\x1b[4;38;2;255;175;0m"}
_256_COLOURS = {Origin.ACCEPTED: "\x1b[38;5;75m", Origin.RESAMPLED: "\x1b[4;38;5;214m"}


class Writer(Protocol):
    """Writes what stdout is for."""

    def event(self, event: Event) -> None:
        """Write this event, if it is one to be written. Raises BrokenPipeError when nobody reads."""
        ...


class TextWriter:
    """The answer's text as it comes, coloured by origin or not, ending with a newline.

    A reader of a pipe gets the model's text as it is; on a terminal, control characters become symbols.
    """

    def __init__(self, stream: IO[str], *, colour: bool, terminal: bool) -> None:
        self._stream = stream
        self._styles = (_TRUE_COLOUR if has_true_colour() else _256_COLOURS) if colour else {}
        self._safe = terminal or colour
        self._open = False  # whether something stands on the last line

    def event(self, event: Event) -> None:
        """Write a piece of the answer; finish the line when it has ended."""
        if isinstance(event, Tokens) and event.text:
            text = visible(event.text) if self._safe else event.text
            style = self._styles.get(event.origin)
            self._stream.write(f"{style}{text}{_RESET}" if style else text)
            self._stream.flush()
            self._open = not event.text.endswith("\n")
        elif isinstance(event, Finished | Failed) and self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False


class JsonWriter:
    """Every event of DESIGN's `--json` as one line; notices of loading stand in "loaded"."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._notices: list[str] = []

    def event(self, event: Event) -> None:
        """Write the event's line, if it has one."""
        if isinstance(event, Notice):
            self._notices.append(event.message)
        elif fields := self._fields(event):
            # Escaped to ASCII, so that the line is safe on a terminal and in any encoding.
            self._stream.write(json.dumps(fields) + "\n")
            self._stream.flush()

    def _fields(self, event: Event) -> dict[str, Any] | None:
        match event:
            case Downloading():
                return {
                    "event": "download",
                    "model": event.model,
                    "file": event.file,
                    "done_bytes": event.done_bytes,
                    "total_bytes": event.total_bytes,
                }
            case Loaded():
                return {
                    "event": "loaded",
                    "target": event.target,
                    "draft": event.draft,
                    "device": event.device,
                    "load_s": event.load_s,
                    "notices": self._notices,
                }
            case Prefill():
                return {"event": "prefill", "done": event.done, "total": event.total, "reused": event.reused}
            case Tokens():
                return {
                    "event": "tokens",
                    "ids": list(event.ids),
                    "text": event.text,
                    "origin": event.origin.value,
                    "drafter": event.drafter,
                    "round": event.round,
                }
            case Finished():
                return {
                    "event": "finished",
                    "reason": event.reason.value,
                    "text": event.text,
                    "ids": list(event.ids),
                    "stats": event.stats.as_dict(),
                }
            case Failed():
                return {
                    "event": "error",
                    "kind": event.kind,
                    "message": event.message,
                    "hint": event.hint,
                }
            case _:
                return None
