"""How far a measurement is, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from mlxspec.cli.narrator import Narrator
from mlxspec.cli.status_line import StatusLine
from mlxspec.cli.terminal import tell
from mlxspec.events import Event

SPARSE_S = 30.0  # between two lines where no line can change in place


class LabProgress:
    """Tells the events of loading, then steps of the measurement with the time that is left."""

    def __init__(self) -> None:
        self._narrator = Narrator(stats=False)
        self._line = StatusLine(sys.stderr)
        self._began: float | None = None
        self._told_at = 0.0

    def __enter__(self) -> LabProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._narrator.close()
        self._line.clear()

    def event(self, event: Event) -> None:
        """An event of loading."""
        self._narrator.before(event)
        self._narrator.event(event)

    def step(self, done: int, total: int, what: str) -> None:
        """`done` of `total` steps are done, and `what` is what comes now."""
        now = time.monotonic()
        if self._began is None:
            self._narrator.close()
            self._began = self._told_at = now
        left = f", {_duration((now - self._began) / done * (total - done))} left" if done else ""
        text = f"{done}/{total}{left}  {what}"
        self._line.show(text)
        if not self._line.live and now - self._told_at >= SPARSE_S:
            self._told_at = now
            tell(text)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
