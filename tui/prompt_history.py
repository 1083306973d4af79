"""What the user sent, from run to run."""

from __future__ import annotations

import json
import os
from pathlib import Path

MOST_KEPT = 1000
_TRIM_AT = 2 * MOST_KEPT


class PromptHistory:
    """A list that grows at its end, and where in it the user is looking.

    A file that cannot be read or written is no error: then there is a history of this run only.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._texts: list[str] | None = None
        self._at: int | None = None
        self._unsent = ""

    @property
    def texts(self) -> list[str]:
        """All of it, oldest first; read when it is first needed."""
        if self._texts is None:
            self._texts = _read(self._file)
        return self._texts

    @property
    def recalling(self) -> bool:
        """Whether an earlier text stands where a new one would be written."""
        return self._at is not None

    def add(self, text: str) -> None:
        """Remember a text that was sent."""
        self.back_to_now()
        if self.texts and self.texts[-1] == text:
            return
        self.texts.append(text)
        if self._file is not None:
            _append(self._file, text)

    def earlier(self, unsent: str) -> str | None:
        """The text before the one that is looked at, None at the oldest. `unsent` comes back at the end."""
        at = len(self.texts) if self._at is None else self._at
        if at == 0:
            return None
        if self._at is None:
            self._unsent = unsent
        self._at = at - 1
        return self.texts[self._at]

    def later(self) -> str | None:
        """The text after the one that is looked at, in the end the unsent one."""
        if self._at is None:
            return None
        self._at += 1
        if self._at < len(self.texts):
            return self.texts[self._at]
        self._at = None
        return self._unsent

    def back_to_now(self) -> None:
        """Look at nothing earlier."""
        self._at = None
        self._unsent = ""


def _read(file: Path | None) -> list[str]:
    if file is None:
        return []
    texts = []
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            text = json.loads(line)
        except ValueError:
            continue
        if isinstance(text, str):
            texts.append(text)
    if len(lines) > _TRIM_AT:
        _write(file, texts[-MOST_KEPT:])
    return texts[-MOST_KEPT:]


def _append(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as opened:
            opened.write(json.dumps(text) + "\n")
    except OSError:
        pass


def _write(file: Path, texts: list[str]) -> None:
    temporary = file.with_suffix(".new")
    try:
        handle = os.open(temporary, os.O_TRUNC | os.O_CREAT | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.writelines(json.dumps(text) + "\n" for text in texts)
        temporary.replace(file)
    except OSError:
        pass
