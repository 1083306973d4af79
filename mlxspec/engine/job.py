"""One request on its way through the engine, as the thread that asked for it sees it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from mlxspec.events import Event, Failed, Finished, Loaded

LAST_EVENTS = (Loaded, Finished, Failed)


class Job:
    """Iterate it to wait for its events, or `drain` it now and then. The last one is kept as `result`."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self.result: Event | None = None

    def __iter__(self) -> Iterator[Event]:
        """Every event, waiting for each, up to `Loaded`, `Finished` or `Failed`."""
        while True:
            event = self._events.get()
            yield event
            if isinstance(event, LAST_EVENTS):
                return

    def drain(self) -> list[Event]:
        """The events that have come since the last call; never waits."""
        events: list[Event] = []
        while True:
            try:
                events.append(self._events.get_nowait())
            except queue.Empty:
                return events

    def cancel(self) -> None:
        """Ask the engine to stop; it does so within one round, prefill chunk or piece of a download."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        """Was `cancel` called?"""
        return self._cancelled.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine has said its last event; False when `timeout_s` ran out first."""
        return self._ended.wait(timeout_s)

    @property
    def done(self) -> bool:
        """Has the engine said its last event? There may still be events to drain."""
        return self._ended.is_set()

    def emit(self, event: Event) -> None:
        """For the engine: say an event."""
        last = isinstance(event, LAST_EVENTS)
        if last:
            self.result = event
        self._events.put(event)
        if last:
            self._ended.set()
