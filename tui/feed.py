"""Events of the engine's jobs, fetched at most 30 times a second and all at once.

What a frame costs, from fetching to painting, is measured as this thread's processor time. Frames come
less often when they would take more than 2 % of the time, so that watching an answer does not slow it down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mlxspec.events import Event

FRAME_S = 1 / 30
SLOWEST_FRAME_S = 0.25
SHARE = 0.02


class JobLike(Protocol):
    """What the app needs of a job of the engine."""

    @property
    def done(self) -> bool:
        """Has the engine said its last event?"""
        ...

    def drain(self) -> list[Event]:
        """The events that have come; never waits."""
        ...

    def cancel(self) -> None:
        """Ask the engine to stop."""
        ...


class Feed:
    """Hands a job's events on, frame by frame, until the job is done or `stop` is called."""

    def __init__(self, job: JobLike, handle: Callable[[Sequence[Event]], None]) -> None:
        self.job = job
        self._handle = handle
        self._stopped = False

    def stop(self) -> None:
        """Hand nothing on any more."""
        self._stopped = True

    async def run(self) -> None:
        """To be awaited by one task."""
        interval = FRAME_S
        while not self._stopped:
            before = time.thread_time()
            done = self.job.done  # before draining, so that nothing is left behind
            if events := self.job.drain():
                self._handle(events)
            if done:
                return
            await asyncio.sleep(interval)
            # The sleep holds the painting of this frame, and the keys that came.
            cost = time.thread_time() - before
            wanted = min(SLOWEST_FRAME_S, max(FRAME_S, cost / SHARE))
            interval += (wanted - interval) / 4
