"""One line on stderr that changes in place, and a few plain lines where it cannot."""

from __future__ import annotations

import os
import time
from typing import IO

from mlxspec.chat.visible import visible_line
from mlxspec.cli.terminal import is_terminal

LEAST_S = 0.1  # between two changes of the line
FALLBACK_COLUMNS = 80


class StatusLine:
    """Shows what is being done; `clear` takes it away before anything else is written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.live = is_terminal(stream) and os.environ.get("TERM") != "dumb"
        self._width = 0
        self._shown_at = 0.0

    def show(self, text: str, *, now: bool = False) -> None:
        """Put a text in the place of the one before. `now` shows it even if that one is very fresh."""
        if not self.live:
            return
        clock = time.monotonic()
        if not now and clock - self._shown_at < LEAST_S:
            return
        self._shown_at = clock
        text = visible_line(text)[: self._columns() - 1]
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Leave an empty line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or FALLBACK_COLUMNS
        except (OSError, ValueError):
            return FALLBACK_COLUMNS
