"""The corpus: a target's own conversations, one a line of a JSON Lines file, gzipped or not.

A line is [length of the prompt in tokens, temperature of the answer, ids of prompt and answer].
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxspec.errors import NotWritable, UsageError

GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt and the answer to it: `ids`, the first `prompt_tokens` of which are the prompt."""

    prompt_tokens: int
    temperature: float
    ids: tuple[int, ...]

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer."""
        return len(self.ids) - self.prompt_tokens

    @property
    def digest(self) -> int:
        """Tells conversations apart."""
        return zlib.crc32(json.dumps([self.prompt_tokens, self.ids]).encode())


def read_corpus(path: Path, *, vocab_size: int | None = None) -> list[Conversation]:
    """The conversations of a file; a last line that was cut short is left out.

    Raises:
        UsageError: the file cannot be read, or a line is no conversation of this vocabulary.
    """
    conversations = []
    for number, line in enumerate(_lines(path), start=1):
        conversation = _parsed(line)
        if conversation is None or (vocab_size is not None and max(conversation.ids) >= vocab_size):
            raise UsageError(
                f"Line {number} of {path} is no conversation of this target.",
                hint="A line is [length of the prompt, temperature, [ids]], written by `mlxspec distill`.",
            )
        conversations.append(conversation)
    return conversations


def answer_tokens(conversations: Iterable[Conversation]) -> int:
    """Tokens of all answers."""
    return sum(conversation.answer_tokens for conversation in conversations)


class CorpusWriter:
    """Adds conversations to a file, each whole or not at all, so that a killed program loses few.

    Raises:
        NotWritable: the file cannot be written.
        UsageError: what is there is no corpus.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists():
            self._mend()
        else:
            self._write([], mode="wb")

    def add(self, conversations: Sequence[Conversation]) -> None:
        """Append conversations, as one gzip member."""
        self._write(conversations, mode="ab")

    def _mend(self) -> None:
        """Take out a tail that was cut short: nothing could be read behind it."""
        conversations = read_corpus(self._path)
        whole = Path(f"{self._path}.whole")
        keeper = CorpusWriter.__new__(CorpusWriter)
        keeper._path = whole
        keeper._write(conversations, mode="wb")
        whole.replace(self._path)

    def _write(self, conversations: Sequence[Conversation], *, mode: str) -> None:
        text = "".join(
            json.dumps([c.prompt_tokens, c.temperature, c.ids], separators=(",", ":")) + "\n"
            for c in conversations
        )
        data = text.encode()
        if self._path.name.removesuffix(".whole").endswith(".gz"):
            data = gzip.compress(data, 9, mtime=0) if data else b""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open(mode) as file:
                file.write(data)
        except OSError as error:
            raise NotWritable(
                f"{self._path} cannot be written: {error.strerror or error}.",
                hint="Free some space, or give a file in another folder.",
            ) from error


def _lines(path: Path) -> list[bytes]:
    """Whole lines, as far as the file can be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.", hint="Give a corpus that is there."
        ) from error
    if data[:2] == GZIP:
        data = _unzipped(data)
    *whole, _ = data.split(b"\n")
    return [line for line in whole if line.strip()]


def _unzipped(data: bytes) -> bytes:
    """All members, the last one as far as it goes."""
    text = b""
    while data[:2] == GZIP:
        member = zlib.decompressobj(wbits=31)
        try:
            text += member.decompress(data)
        except zlib.error:
            break
        data = member.unused_data
    return text


def _parsed(line: bytes) -> Conversation | None:
    try:
        prompt_tokens, temperature, ids = json.loads(line)
        conversation = Conversation(int(prompt_tokens), float(temperature), tuple(int(i) for i in ids))
    except (ValueError, TypeError):
        return None
    fits = 0 <= conversation.prompt_tokens < len(conversation.ids) and min(conversation.ids) >= 0
    return conversation if fits else None
