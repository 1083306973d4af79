"""The errors of the Hub's client, said in sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlxspec.errors import (
    DownloadFailed,
    GatedModel,
    MlxspecError,
    NotOnDisk,
    UnknownModel,
)
from mlxspec.models.cache_folder import cannot_write

_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
AGAIN = "Pull it again: finished files are kept, an unfinished one starts anew."
"""What a user can do after a download that did not end."""


def is_passing(error: BaseException) -> bool:
    """Is this an error that another attempt may not meet?"""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    error = _root(error)
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _PASSING_STATUS
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return False
    return isinstance(error, httpx2.TransportError) or _is_short_file(error)


def explained(
    error: BaseException,
    *,
    name: str,
    repo: str,
    cache: Path,
    nearest: Callable[[str], tuple[str, ...]],
) -> MlxspecError | None:
    """The error to show instead of `error`; None when it is none of the client's."""
    import httpx2
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    error = _root(error)
    if isinstance(error, GatedRepoError):
        return _gated(repo, f"{repo} is given only to those who asked for it.")
    if isinstance(error, RevisionNotFoundError):
        return UnknownModel(
            f"The repository {repo} has no such revision.", hint="Correct the key revision in models.toml."
        )
    if isinstance(error, RepositoryNotFoundError) or _status(error) == 404:
        return _unknown(repo, nearest(repo))
    if isinstance(error, HFValidationError):
        return UnknownModel(f"{repo} is no Hub id.", hint="A Hub id looks like org/name.")
    if _status(error) in (401, 403):
        return _gated(repo, f"The Hub does not give {repo} to you ({_status(error)}).")
    if isinstance(error, HfHubHTTPError):
        return DownloadFailed(
            f"The Hub answered {_status(error)} for {repo}.", hint="Wait a while and pull it again."
        )
    if isinstance(error, httpx2.ProxyError):
        return DownloadFailed(
            f"The proxy between here and the Hub failed: {_line(error)}.", hint="Check HTTPS_PROXY."
        )
    if isinstance(error, httpx2.ConnectError):
        return NotOnDisk(
            f"{name} is not wholly on disk, and the Hub cannot be reached ({_line(error)}).",
            hint="Connect to the network and pull it once; after that none is needed.",
        )
    if isinstance(error, httpx2.TransportError):
        return DownloadFailed(f"The download of {name} broke off ({type(error).__name__}).", hint=AGAIN)
    if isinstance(error, OSError) and error.errno is not None:
        return cannot_write(cache, error)
    if _is_short_file(error):
        return DownloadFailed(f"The download of {name} was cut short.", hint=AGAIN)
    return None


def _root(error: BaseException) -> BaseException:
    """What the client met, under the "not found in the cache" that it wraps around it."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    while isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_short_file(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno is None and "Consistency check failed" in str(error)


def _gated(repo: str, message: str) -> GatedModel:
    return GatedModel(
        message,
        hint=f"Ask for it at https://huggingface.co/{repo}, log in with `hf auth login`, and pull it again.",
    )


def _unknown(repo: str, near: tuple[str, ...]) -> UnknownModel:
    return UnknownModel(
        f"The Hub has no repository {repo} that is open to you"
        + (f"; near it are {', '.join(near)}." if near else "."),
        hint="Check the name; if it is private, log in with `hf auth login`.",
    )


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def _line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
