"""A terminal without a screen, for the benchmarks of the app: it takes what is drawn and can press keys."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class Terminal:
    """Runs a command in a pseudo-terminal and reads all that it writes.

    Attributes:
        written: bytes so far.
        seen: called with each piece as it comes, and the time.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 40,
        env: dict[str, str] | None = None,
        seen: Callable[[bytes, float], None] | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | (env or {})
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.written = 0
        self._seen = seen
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def press(self, keys: str) -> None:
        """Send keys as a terminal does."""
        os.write(self._ours, keys.encode())

    def wait(self, timeout_s: float) -> int:
        """Wait for the command to end; it is ended when it takes longer. Returns its exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            return self._process.wait(10)

    @property
    def pid(self) -> int:
        """Of the command."""
        return self._process.pid

    def _read(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self._ours], [], [], 1.0)
                if not ready:
                    if self._process.poll() is not None:
                        return
                    continue
                piece = os.read(self._ours, 1 << 16)
            except OSError:
                return
            if not piece:
                return
            self.written += len(piece)
            if self._seen is not None:
                self._seen(piece, time.perf_counter())


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs one of these benchmarks as the program in the terminal."""
    return [sys.executable, str(Path(__file__).with_name(script)), *arguments]
