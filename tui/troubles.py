"""What goes wrong inside the app becomes a notice in the transcript, where the app can go on at all."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from textual.worker import WorkerFailed

from mlxspec.errors import MlxspecError
from mlxspec.faults import report_fault

if TYPE_CHECKING:
    from tui.app import ChatApp

T = TypeVar("T")


class Troubles:
    """Guards work, and remembers the fault that the app could not live with.

    Attributes:
        fatal: what ended the app; None while nothing did.
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self.fatal: MlxspecError | None = None

    def safely(self, work: Callable[[T], object]) -> Callable[[T], None]:
        """The same work, but what goes wrong becomes a notice, and the app lives on."""

        def guarded(value: T) -> None:
            try:
                work(value)
            except MlxspecError as error:
                self.tell(error, kind="warning")
            except Exception as error:
                self.tell(report_fault(error, self._app.places))

        return guarded

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside everything else, as safely."""

        async def guarded() -> None:
            try:
                await work
            except MlxspecError as error:
                self.tell(error)
            except Exception as error:
                self.tell(report_fault(error, self._app.places))

        self._app.run_worker(guarded())

    def tell(self, error: MlxspecError, *, kind: str = "error") -> None:
        """Say in the transcript what happened and what to do."""
        self._app.page.say(error.message, error.hint, kind=kind)

    def give_up(self, error: Exception) -> None:
        """The app cannot go on. The first reason is the one that counts."""
        if isinstance(error, WorkerFailed):
            error = error.error if isinstance(error.error, Exception) else error
        if self.fatal is None:
            self.fatal = error if isinstance(error, MlxspecError) else report_fault(error, self._app.places)
