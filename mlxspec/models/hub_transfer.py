"""Running one call of the Hub's client so that it can be watched and stopped.

The client downloads in threads of its own and waits for them, through Ctrl-C too. So the call runs
in a thread, while the caller's thread reports the bytes and looks whether to stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from mlxspec.errors import DownloadFailed
from mlxspec.models.cache_folder import POLL_S, cancelled_error
from mlxspec.models.hub_errors import AGAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""Progress and stopping take effect once a chunk; the client's own ten mebibytes take too long."""

STALL_S = 120.0
_END_S = 3.0


class Stopped(Exception):
    """Raised in the client's threads to end them."""


class Transfer:
    """Bytes of one pull, counted from the client's progress bars."""

    def __init__(self) -> None:
        self.stopping = False
        self._lock = threading.Lock()
        self._here = 0
        self._total: int | None = None
        self._bars: list[_Bar] = []
        self._moved_at = time.monotonic()

    def expect(self, here: int, total: int) -> None:
        """`total` bytes make the model, `here` of them are on disk."""
        with self._lock:
            self._here, self._total, self._bars = here, total, []
        self.touch()

    def touch(self) -> None:
        """Something moved."""
        self._moved_at = time.monotonic()

    def still_s(self) -> float:
        """Seconds since anything moved."""
        return time.monotonic() - self._moved_at

    def total_bytes(self) -> int | None:
        """Bytes of the whole model, None until they are known."""
        return self._total

    def done_bytes(self) -> int:
        """Bytes of the model that are here."""
        with self._lock:
            # Two bars count the same bytes, as they come from the network and as they reach the disk.
            done = self._here + max((bar.n for bar in self._bars), default=0)
        return done if self._total is None else min(done, self._total)

    def bar_class(self) -> type[_Bar]:
        """A class that the client can use for its progress bars."""
        with self._lock:
            self._bars = []

        class Bar(_Bar):
            transfer = self

        return Bar

    def add_bar(self, bar: _Bar) -> None:
        """Count this bar's bytes from now on."""
        with self._lock:
            self._bars.append(bar)

    def advance(self, bar: _Bar, amount: float) -> None:
        """Count `amount` more on this bar.

        Raises:
            Stopped: the transfer is to end.
        """
        if self.stopping:
            raise Stopped
        with self._lock:
            bar.n += int(amount)
        self.touch()


class _Bar:
    """What the client needs of tqdm's class; it draws nothing."""

    transfer: ClassVar[Transfer]

    def __init__(
        self, *_args: object, total: float | None = None, unit: str = "", **_options: object
    ) -> None:
        self.n = 0
        self.total = total
        self.format_dict: dict[str, Any] = {}
        if unit == "B":
            self.transfer.add_bar(self)

    def update(self, amount: float | None = 1) -> None:
        self.transfer.advance(self, amount or 0)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_error: object) -> None:
        return

    def close(self) -> None:
        return

    def refresh(self) -> None:
        return

    def set_description(self, *_args: object, **_options: object) -> None:
        return

    set_description_str = set_postfix_str = set_description


def transfer(
    step: Callable[[], Any],
    counted: Transfer,
    *,
    name: str,
    report: Callable[[], None],
    cancelled: Callable[[], bool],
) -> Any:
    """Run `step` in a thread and return what it returns; `report` is called a few times a second.

    Raises:
        DownloadCancelled: `cancelled` said so.
        DownloadFailed: nothing moved for two minutes.
        Exception: whatever `step` raised.
    """
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(step())
        except BaseException as error:
            failure.append(error)

    counted.touch()
    thread = threading.Thread(target=run, name="mlxspec-pull", daemon=True)
    with _quiet_client():
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                report()
                if cancelled():
                    raise cancelled_error(name, hint=AGAIN)
                if counted.still_s() > STALL_S:
                    raise DownloadFailed(f"The download of {name} stands still.", hint=AGAIN)
        finally:
            if thread.is_alive():
                _stop(counted, thread)
    if failure:
        raise failure[0]
    return outcome[0]


def _stop(counted: Transfer, thread: threading.Thread) -> None:
    counted.stopping = True
    with suppress(Exception):  # what another release of the client may not have
        from huggingface_hub.utils._xet import abort_xet_session

        abort_xet_session()
    thread.join(_END_S)


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Small chunks, and no warnings on the terminal: they would stand in the progress bar."""
    from huggingface_hub import constants

    logger = logging.getLogger("huggingface_hub")
    level, size = logger.level, constants.DOWNLOAD_CHUNK_SIZE
    logger.setLevel(logging.CRITICAL)
    constants.DOWNLOAD_CHUNK_SIZE = min(size, CHUNK_BYTES)
    try:
        yield
    finally:
        logger.setLevel(level)
        constants.DOWNLOAD_CHUNK_SIZE = size
