"""The repo source: models of the Hugging Face Hub, in the Hub's own cache, shared with every other tool.

The real client does the work. What is added: nothing touches the network when the files are there;
a repository that cannot work is refused before its gigabytes are fetched; errors become sentences.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mlxspec.errors import BrokenModel, MlxspecError, NotAModel, NotOnDisk, UnsupportedModel
from mlxspec.events import Downloading
from mlxspec.models.cache_folder import (
    POLL_S,
    alone,
    cancelled_error,
    cannot_write,
    disk_full,
    folder_bytes,
    nearest_existing,
)
from mlxspec.models.hub_errors import AGAIN, explained, is_passing
from mlxspec.models.hub_transfer import Transfer, transfer
from mlxspec.models.model_folder import CONFIG, INDEX, fault_of, fault_of_names, remote_code_of, shards_named
from mlxspec.models.registry import RepoSource
from mlxspec.places import Places

WANTED = ("model*.safetensors", "*.json", "tokenizer.model", "*.tiktoken", "*.jinja", "*.txt")
"""Files of a repository that a model needs; those in its subfolders are never needed."""

UNWANTED = ("*/*",)
PAUSES_S = (1.0, 2.0, 4.0)
"""Waits before the second, third and fourth attempt."""

PATIENCE_S = 60.0
"""No new attempt when no byte has moved for so long: the client itself tried again and again."""


@dataclass(frozen=True, slots=True)
class _Listing:
    commit: str
    sizes: Mapping[str, int]  # bytes of each wanted file
    names: frozenset[str]  # all files at the top of the repository


def find(source: RepoSource) -> Path | None:
    """The snapshot's folder, when all that a model needs is there. No network."""
    if not storage(source).is_dir():  # a quick answer, without the client
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = Path(
            snapshot_download(
                source.repo,
                revision=source.revision,
                local_files_only=True,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
                cache_dir=cache(),
            )
        )
    except (HFValidationError, OSError):  # not in the cache is an OSError
        return None
    return folder if fault_of(folder) is None else None


def pull(
    name: str,
    source: RepoSource,
    places: Places,
    *,
    progress: Callable[[Downloading], None],
    cancelled: Callable[[], bool],
    nearest: Callable[[str], tuple[str, ...]],
) -> Path:
    """Fetch what is missing; returns the snapshot's folder. `sources.pull` names the errors.

    `nearest` gives names of models spelt like a repository that does not exist.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        raise NotOnDisk(
            f"{name} is not on disk, and HF_HUB_OFFLINE keeps mlxspec off the network.",
            hint="Unset HF_HUB_OFFLINE and pull it once.",
        )

    def waiting() -> None:
        progress(Downloading(name, source.repo, disk_bytes(source), None))

    with alone(places, lock_name(source), waiting=waiting, cancelled=cancelled):
        if (folder := find(source)) is not None:  # fetched while this program waited
            return folder
        return _Pull(name, source, progress, cancelled, nearest).run()


class _Pull:
    """One pull: list, check what can be checked before the weights come, fetch, check again."""

    def __init__(
        self,
        name: str,
        source: RepoSource,
        progress: Callable[[Downloading], None],
        cancelled: Callable[[], bool],
        nearest: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._name = name
        self._source = source
        self._progress = progress
        self._cancelled = cancelled
        self._nearest = nearest
        self._transfer = Transfer()

    def run(self) -> Path:
        remove_orphans(self._source)
        self._report()
        listing: _Listing = self._attempts(lambda: _list(self._source))
        self._refuse_by_names(listing)
        self._check_room(listing)
        self._attempts(lambda: self._download((CONFIG, INDEX)))
        self._refuse_by_content(listing)
        folder = Path(self._attempts(lambda: self._download_all(listing)))
        total = sum(listing.sizes.values())
        self._transfer.expect(total, total)  # files of the same content came once
        self._report()
        if (fault := fault_of(folder)) is not None:
            raise fault
        return folder

    def _download_all(self, listing: _Listing) -> str:
        # An attempt counts anew: what an earlier one finished is here now.
        self._transfer.expect(_bytes_here(self._source, listing), sum(listing.sizes.values()))
        return self._download(WANTED)

    def _download(self, patterns: tuple[str, ...]) -> str:
        from huggingface_hub import snapshot_download

        return str(
            snapshot_download(
                self._source.repo,
                revision=self._source.revision,
                allow_patterns=list(patterns),
                ignore_patterns=list(UNWANTED),
                cache_dir=cache(),
                tqdm_class=self._transfer.bar_class(),
            )
        )

    def _attempts(self, step: Callable[[], Any]) -> Any:
        """Do one step; again, after a pause, when it failed in a way that passes."""
        for pause_s in (*PAUSES_S, None):
            try:
                return transfer(
                    step, self._transfer, name=self._name, report=self._report, cancelled=self._cancelled
                )
            except MlxspecError:
                raise
            except Exception as error:
                patient = self._transfer.still_s() < PATIENCE_S
                if pause_s is None or not patient or not is_passing(error):
                    shown = explained(
                        error, name=self._name, repo=self._source.repo, cache=cache(), nearest=self._nearest
                    )
                    if shown is None:
                        raise
                    raise shown from error
            self._pause(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._cancelled():
                raise cancelled_error(self._name, hint=AGAIN)
            time.sleep(min(POLL_S, seconds))

    def _report(self) -> None:
        counted = self._transfer
        self._progress(
            Downloading(self._name, self._source.repo, counted.done_bytes(), counted.total_bytes())
        )

    def _refuse_by_names(self, listing: _Listing) -> None:
        if reason := fault_of_names(set(listing.names)):
            raise NotAModel(f"The repository {self._source.repo} {reason[0]}.", hint=reason[1])

    def _refuse_by_content(self, listing: _Listing) -> None:
        folder = storage(self._source) / "snapshots" / listing.commit
        if (file := remote_code_of(folder / CONFIG)) is not None:
            raise UnsupportedModel(
                f"{self._source.repo} needs its own Python code ({file}), which mlxspec does not run.",
                hint="Use a model of an architecture that mlx-lm knows.",
            )
        if missing := sorted(shards_named(folder / INDEX) - listing.names):
            raise BrokenModel(
                f"The repository {self._source.repo} lacks {len(missing)} of the weight files that it lists, "
                f"the first being {missing[0]}.",
                hint="Tell the repository's owner, or use another conversion.",
            )

    def _check_room(self, listing: _Listing) -> None:
        missing = sum(listing.sizes.values()) - _bytes_here(self._source, listing)
        if shutil.disk_usage(nearest_existing(cache())).free < missing:
            raise disk_full(cache(), missing)


def remove(source: RepoSource) -> None:
    """Remove the repository, all its revisions, from the Hub's cache."""
    from huggingface_hub import scan_cache_dir

    if not cache().is_dir():
        return
    try:
        scanned = scan_cache_dir(cache())
        for repo in scanned.repos:
            if repo.repo_id == source.repo and repo.repo_type == "model":
                scanned.delete_revisions(*(revision.commit_hash for revision in repo.revisions)).execute()
        # What a scan does not count as a repository: one of which only parts ever came.
        for rest in (storage(source), cache() / ".locks" / storage(source).name):
            if rest.is_dir():
                shutil.rmtree(rest)
    except OSError as error:
        raise cannot_write(cache(), error) from error


def disk_bytes(source: RepoSource) -> int:
    """Bytes that the repository takes in the Hub's cache, parts of a download included."""
    return folder_bytes(storage(source))


def remove_orphans(source: RepoSource) -> None:
    """Remove unfinished files that a killed program left: those whose lock nobody holds."""
    from filelock import FileLock, Timeout

    locks = cache() / ".locks" / storage(source).name
    for part in (storage(source) / "blobs").glob("*.incomplete"):
        try:
            locks.mkdir(parents=True, exist_ok=True)
            with FileLock(locks / f"{part.name.split('.')[0]}.lock", timeout=0, mode=0o664):
                part.unlink(missing_ok=True)
        except (Timeout, OSError):  # another program is fetching it, or may not be disturbed
            continue


def cache() -> Path:
    """The Hub's cache folder."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def storage(source: RepoSource) -> Path:
    """The folder of this repository in the Hub's cache."""
    return cache() / f"models--{source.repo.replace('/', '--')}"


def lock_name(source: RepoSource) -> str:
    """The lock of a pull or removal of this repository."""
    return f"hub-{source.repo}"


def _list(source: RepoSource) -> _Listing:
    from huggingface_hub import HfApi, constants

    info = HfApi().model_info(
        source.repo,
        revision=source.revision,
        files_metadata=True,
        timeout=constants.HF_HUB_ETAG_TIMEOUT,
    )
    files = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or ()}
    top = {name: size for name, size in files.items() if "/" not in name}
    wanted = {name: size for name, size in top.items() if any(fnmatch(name, want) for want in WANTED)}
    return _Listing(str(info.sha), wanted, frozenset(top))


def _bytes_here(source: RepoSource, listing: _Listing) -> int:
    folder = storage(source) / "snapshots" / listing.commit
    return sum(size for name, size in listing.sizes.items() if (folder / name).exists())
