"""Whether the program that is writing an answer still lives.

A program holds a lock on a file of its own for as long as an answer streams. The system drops the lock when
the program ends, in whatever way, so a lock that can be taken belongs to nobody. A process id would not do:
it may be used again.
"""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from mlxspec.chat.records import new_id


class Lease:
    """Held from its making until `release`.

    Raises: OSError when the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token = new_id()
        self._file = _file(folder, self.token)
        # It is let go in another thread than it was taken in.
        self._lock = FileLock(self._file, timeout=0, mode=0o600, thread_local=False)
        self._lock.acquire()

    def release(self) -> None:
        """Let go, and take the file away."""
        self._file.unlink(missing_ok=True)
        self._lock.release()


def is_held(folder: Path, token: str) -> bool:
    """Whether a living program, this one included, holds the lease; where that cannot be told, yes."""
    file = _file(folder, token)
    if not file.exists():
        return False
    lock = FileLock(file, timeout=0, mode=0o600)
    try:
        lock.acquire()
    except (Timeout, OSError):
        return True
    file.unlink(missing_ok=True)
    lock.release()
    return False


def _file(folder: Path, token: str) -> Path:
    return folder / f"{token}.lock"
