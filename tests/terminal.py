"""A real terminal around a program, for tests: a pty, with what was written and a keyboard."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parent.parent
PATIENCE_S = 60.0  # much more than any machine needs
CTRL_C, CTRL_D = "\x03", "\x04"

SCRIPT = "from tests.fakes import *; from mlxspec.events import *; run_scripted(ScriptedEngine({}))"


def command(engine: str, *args: str) -> list[str]:
    """The program with a scripted engine, whose arguments are given as Python writes them."""
    return [sys.executable, "-c", SCRIPT.format(engine), *args]


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, as a terminal with 256 colours would set it."""
    return {
        **os.environ,
        "TERM": "xterm-256color",
        "COLORTERM": "",
        "NO_COLOR": "",
        "PYTHONPATH": str(ROOT),
        "LC_ALL": "C.UTF-8",
        **(changes or {}),
    }


class Terminal:
    """A program whose stdin, stdout and stderr are one terminal."""

    def __init__(self, *args: str, changes: Mapping[str, str] | None = None) -> None:
        self._keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            args,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=ROOT,
            env=environment(changes),
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)
        self.screen = ""
        self._seen = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._keyboard)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._keyboard, text.encode())

    def wait_for(self, text: str) -> str:
        """Wait until this text comes behind what was waited for before; all between, and the text."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.screen[self._seen :]:
            assert self._read(end), f"{text!r} did not come; there was {self.screen!r}"
        begin, self._seen = self._seen, self.screen.index(text, self._seen) + len(text)
        return self.screen[begin : self._seen]

    def wait(self) -> int:
        """Read until the program has ended; its exit code."""
        end = time.monotonic() + PATIENCE_S
        while self._read(end):
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self, end: float) -> bool:
        """Read what there is; False when the program has ended or patience has."""
        while time.monotonic() < end:
            if select.select([self._keyboard], [], [], 0.1)[0]:
                try:
                    content = os.read(self._keyboard, 1 << 16)
                except OSError:  # the other side is closed
                    return False
                self.screen += content.decode("utf-8", "replace")
                return bool(content)
            if self.process.poll() is not None:
                return False
        return False


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A test runner in the background of a shell hands down a Ctrl-C that is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
