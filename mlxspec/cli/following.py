"""Waiting for a job of the engine, while Ctrl-C stops the job and not the program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from mlxspec.events import Event, Failed

if TYPE_CHECKING:
    from mlxspec.engine import Engine, Job


INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended


def open_engine() -> Engine:
    """A new engine. Here alone, so that tests can put another in its place."""
    from mlxspec.engine import Engine

    return Engine()


def follow(job: Job, *handlers: Callable[[Event], None]) -> bool:
    """Give every event of the job to all handlers; True when the user stopped it.

    The first Ctrl-C cancels the job, whose last events then come; the second kills the program. An error
    that ends a job because it was stopped is no news and is not handed on.
    """
    with Interruptible(job.cancel) as interrupt:
        try:
            for event in job:
                if interrupt.seen and isinstance(event, Failed):
                    continue
                for handle in handlers:
                    handle(event)
        except BaseException:
            job.cancel()
            raise
    return interrupt.seen


class Interruptible:
    """While it is open, the first Ctrl-C calls `cancel` and the second kills the program.

    Attributes:
        seen: whether there was a Ctrl-C.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self.seen = False

    def __enter__(self) -> Interruptible:
        self._in_main = threading.current_thread() is threading.main_thread()
        if self._in_main:
            self._before: Any = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_main:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.seen:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self.seen = True
        self._cancel()
