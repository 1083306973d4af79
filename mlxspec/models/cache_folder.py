"""Making one folder of the cache: alone, and whole or not at all.

What is made is made in a temporary folder beside its final place and moved there in one step, so
nobody ever sees half of it. A lock lets one program at a time do this; the others wait and then find
the finished folder.
"""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlxspec.errors import DownloadCancelled, NotWritable
from mlxspec.places import Places

POLL_S = 0.1
_FULL = (errno.ENOSPC, errno.EDQUOT)


def safe_name(text: str) -> str:
    """`text` as the name of a file, never hidden and never a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "model"


@contextmanager
def alone(
    places: Places, key: str, *, waiting: Callable[[], None], cancelled: Callable[[], bool]
) -> Iterator[None]:
    """Hold the lock `key`, which one program at a time can have.

    `waiting` is called again and again while another program holds it.

    Raises:
        NotWritable: the cache cannot be written.
        DownloadCancelled: `cancelled` said so while another program held the lock.
    """
    # Here and not at the top: it imports asyncio, which `mlxspec --help` does without.
    from filelock import FileLock, Timeout

    folder = places.cache / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{safe_name(key)}.lock", poll_interval=POLL_S)
        while True:
            try:
                lock.acquire(timeout=2 * POLL_S)
                break
            except Timeout:
                if cancelled():
                    raise cancelled_error(key) from None
                waiting()
    except OSError as error:
        raise cannot_write(places.cache, error) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def making(final: Path) -> Iterator[Path]:
    """A temporary folder beside `final`; it and what earlier, killed programs left is removed.

    Call it under the lock of `final`. Move the finished folder to its place with `put`.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{final.name}.making-"
    for leftover in final.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put(made: Path, final: Path) -> None:
    """Move the finished folder `made` to `final`, in place of a damaged one if there is one."""
    if final.exists():
        shutil.rmtree(final)
    made.replace(final)


def being_made_bytes(final: Path) -> int:
    """Bytes that another program has so far for `final`."""
    return sum(folder_bytes(folder) for folder in final.parent.glob(f".{final.name}.making-*"))


def folder_bytes(folder: Path) -> int:
    """Bytes of all files under `folder`, each counted once however many links name it."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        try:
            status = path.stat()
            if path.is_file():
                seen[status.st_dev, status.st_ino] = status.st_size
        except OSError:  # gone since, or a link to nothing
            continue
    return sum(seen.values())


def cannot_write(folder: Path, error: OSError) -> NotWritable:
    """The error to show when `folder` refuses to be written."""
    if error.errno in _FULL:
        return disk_full(folder)
    return NotWritable(
        f"{folder} cannot be written: {error.strerror or error}.",
        hint="Change its permissions, or give mlxspec another folder with MLXSPEC_HOME.",
    )


def disk_full(folder: Path, needed_bytes: int | None = None) -> NotWritable:
    """The error to show when there is no room."""
    message = f"The disk of {folder} is full."
    if needed_bytes is not None:
        free_gb = shutil.disk_usage(nearest_existing(folder)).free / 1e9
        message = (
            f"The disk of {folder} has {free_gb:.1f} GB free, and {needed_bytes / 1e9:.1f} GB are needed."
        )
    return NotWritable(
        message, hint="Free space (`mlxspec rm NAME` removes a model), or use a folder on another disk."
    )


def nearest_existing(folder: Path) -> Path:
    """`folder`, or the nearest folder above it that exists."""
    return next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))


def cancelled_error(name: str, *, hint: str = "Pull it again; it starts anew.") -> DownloadCancelled:
    """The error that ends a download the user stopped."""
    return DownloadCancelled(f"The download of {name} was stopped.", hint=hint)
