"""The path source: a model folder that is there already, or a GGUF file to convert into the cache."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from mlxspec.errors import BrokenModel, NotAModel
from mlxspec.models.cache_folder import alone, cannot_write, making, put, safe_name
from mlxspec.models.model_folder import fault_of, is_draft
from mlxspec.models.registry import PathSource
from mlxspec.places import Places


def find(source: PathSource, places: Places) -> Path | None:
    """The folder of a model or a draft: the path itself, or what was made of the GGUF file as it is now."""
    folder = source.path
    if is_gguf(folder):
        try:
            folder = place(folder, places)
        except OSError:  # not there, or not for this user
            return None
    return folder if is_draft(folder) or fault_of(folder) is None else None


def pull(source: PathSource, places: Places, *, cancelled: Callable[[], bool]) -> Path:
    """Convert a GGUF file if need be; returns the model folder. `sources.pull` names the errors."""
    path = source.path
    try:
        path.stat()
    except OSError as error:
        raise NotAModel(
            f"{path} cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from error
    if not is_gguf(path):
        if not path.is_dir():
            raise NotAModel(f"{path} is neither a model folder nor a .gguf file.", hint="Give one of these.")
        if not is_draft(path) and (fault := fault_of(path)) is not None:
            raise fault
        return path

    folder = place(path, places)
    with alone(places, lock_name(path), waiting=lambda: None, cancelled=cancelled):
        if fault_of(folder) is None:
            return folder
        try:
            with making(folder) as temporary:
                _convert(path, temporary / "model")
                if place(path, places) != folder:
                    raise BrokenModel(
                        f"{path} changed while it was read.", hint="Try again when it is whole."
                    )
                remove(path, places)
                put(temporary / "model", folder)
        except OSError as error:
            raise cannot_write(places.models, error) from error
    return folder


def is_gguf(path: Path) -> bool:
    """Is this a GGUF file, by its name?"""
    return path.suffix.lower() == ".gguf" and not path.is_dir()


def place(gguf: Path, places: Places) -> Path:
    """Where the folder made of this file is, or will be: keyed by its path, size and time."""
    status = gguf.stat()
    return places.models / f"{_prefix(gguf)}-{_short_hash(f'{status.st_size} {status.st_mtime_ns}')}"


def lock_name(gguf: Path) -> str:
    """The lock of converting this file or removing what was made of it."""
    return _prefix(gguf)


def made_of(gguf: Path, places: Places) -> list[Path]:
    """All folders made of this file, as it is or as it was."""
    return list(places.models.glob(f"{_prefix(gguf)}-*"))


def remove(gguf: Path, places: Places) -> None:
    """Remove what was made of this file; the file stays."""
    for folder in made_of(gguf, places):
        shutil.rmtree(folder)


def _prefix(gguf: Path) -> str:
    return f"{safe_name(gguf.stem)}-{_short_hash(str(gguf.resolve()))}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _convert(gguf: Path, folder: Path) -> None:
    from mlxspec.models.gguf import convert

    convert(gguf, folder)
