"""Text files that go with a message: `@path` in what is typed adds the file behind the message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20
_MENTION = re.compile(r"(?:(?<=\s)|^)@(?:\"([^\"\n]+)\"|((?:\\ |[^\s\"])+))")
_ATTACHED = re.compile(r"\n\n<file path=\"([^\"\n]*)\">\n(.*?)\n</file>(?=\n\n<file path=|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file inside a message."""

    path: str
    characters: int

    @property
    def size(self) -> str:
        """Its size in words."""
        return size_text(self.characters)


def attach(typed: str, folder: Path) -> tuple[str, list[str]]:
    """The message with the mentioned files behind it, and one sentence for each that cannot be added.

    Only what names an existing file, or looks like a path, is a mention: "@home" in a sentence stays text.
    """
    problems: list[str] = []
    parts = [typed]
    seen: set[str] = set()
    for name in mentions(typed):
        if not name or name in seen:
            continue
        seen.add(name)
        path = Path(name).expanduser()
        path = path if path.is_absolute() else folder / path
        try:
            if not path.exists() and "/" not in name and "." not in name:
                continue
            parts.append(f'<file path="{name.replace(chr(34), chr(39))}">\n{_read(path, name)}\n</file>')
        except _Unreadable as problem:
            problems.append(str(problem))
        except OSError as error:
            problems.append(f"{name} was not added: {error.strerror or error}.")
    return "\n\n".join(parts), problems


def mentions(typed: str) -> list[str]:
    """The paths that are mentioned, as typed, without quotes and escapes."""
    return [
        (match[1] or match[2].replace("\\ ", " ").rstrip(".,;:!?)")) for match in _MENTION.finditer(typed)
    ]


def split_attachments(message: str) -> tuple[str, list[Attachment]]:
    """What was typed, and the files behind it."""
    first = _ATTACHED.search(message)
    if first is None:
        return message, []
    files = [Attachment(match[1], len(match[2])) for match in _ATTACHED.finditer(message)]
    return message[: first.start()], files


def complete_path(typed: str, folder: Path, *, limit: int = 50) -> list[str]:
    """The paths that a mention at the end of `typed` may become, folders with a slash at their end."""
    match = re.search(r"(?:(?<=\s)|^)@((?:\\ |[^\s\"])*)$", typed)
    if match is None:
        return []
    stem = match[1].replace("\\ ", " ")
    head, _, tail = stem.rpartition("/")
    base = Path(f"{head}/" if stem.startswith("/") else head or ".").expanduser()
    base = base if base.is_absolute() else folder / base
    found = []
    try:
        for path in sorted(base.iterdir(), key=lambda path: (not path.is_dir(), path.name.lower())):
            if not path.name.startswith(tail) or (path.name.startswith(".") and not tail.startswith(".")):
                continue
            name = f"{head}/{path.name}" if head or stem.startswith("/") else path.name
            found.append(name.replace(" ", "\\ ") + ("/" if path.is_dir() else ""))
            if len(found) >= limit:
                break
    except OSError:
        return []
    return found


def size_text(count: int) -> str:
    """A number of bytes or characters, as people write it."""
    if count < 1000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1000:.1f} kB"
    return f"{count / 1_000_000:.1f} MB" if count < 1_000_000_000 else f"{count / 1e9:.1f} GB"


class _Unreadable(Exception):
    pass


def _read(path: Path, name: str) -> str:
    if path.is_dir():
        raise _Unreadable(f"{name} was not added: it is a folder.")
    if not path.is_file() and path.exists():
        raise _Unreadable(f"{name} was not added: it is no ordinary file.")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise _Unreadable(
            f"{name} was not added: it has {size_text(size)}, and {size_text(MOST_BYTES)} is the most."
        )
    body = path.read_bytes()
    if b"\0" in body:
        raise _Unreadable(f"{name} was not added: it is no text.")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise _Unreadable(f"{name} was not added: it is no text in UTF-8.") from None
