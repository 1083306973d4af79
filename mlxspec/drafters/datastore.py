"""What a target answered before, on this machine: looked up while it answers, learnt when it has.

There is a file for each vocabulary, named by its hash, in the folder `datastore` of the data folder. Looking
up happens in the thread that answers and never waits; learning happens in a thread of its own. Trouble with
the file costs guesses and nothing else: it is told in a sentence, and the answer goes on.
"""

from __future__ import annotations

import hashlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from mlxspec.drafters.ngram_database import BUSY, ForeignFile, NewerFile, primary_code
from mlxspec.drafters.ngram_file import DEFAULT_BYTES, Contents, NgramFile, set_aside
from mlxspec.places import Places

CLOSE_S = 3.0
"""How long `close` waits for what is being learnt."""

SUFFIX = ".ngrams"
MOST_REMEMBERED = 50_000  # contexts looked up in one answer, some 10 MB


def datastore_folder(places: Places) -> Path:
    """Where the files are; it may not exist."""
    return places.data / "datastore"


def vocabulary_hash(vocabulary: Mapping[str, int]) -> str:
    """Names a vocabulary, 16 hexadecimal digits: token texts and their ids, in whatever order they come."""
    texts = sorted(vocabulary.items(), key=lambda entry: entry[1])
    return hashlib.sha256("\n".join(f"{i} {text}" for text, i in texts).encode()).hexdigest()[:16]


def datastore_path(places: Places, vocabulary: Mapping[str, int]) -> Path:
    """The file of what was learnt with this vocabulary; it may not exist."""
    return datastore_folder(places) / f"{vocabulary_hash(vocabulary)}{SUFFIX}"


def all_contents(places: Places) -> list[Contents]:
    """What was learnt for each vocabulary. Damaged files are left out, for the next answer sets them aside.

    Raises: NewerFile; OSError or sqlite3.Error when a file cannot be read.
    """
    found = []
    for path in sorted(datastore_folder(places).glob(f"*{SUFFIX}")):
        with suppress(ForeignFile):
            if (file := NgramFile.open_to_read(path)) is not None:
                with closing(file):
                    found.append(file.contents())
    return found


def datastore_bytes(places: Places) -> int:
    """Bytes of everything in the folder, files that were set aside too."""
    return sum(file.stat().st_size for file in datastore_folder(places).glob("*") if file.is_file())


def clear_all(places: Places) -> None:
    """Forget everything, in programs that are running as well.

    Raises: NewerFile; OSError or sqlite3.Error when a file cannot be written.
    """
    for path in sorted(datastore_folder(places).glob(f"*{SUFFIX}")):
        try:
            with closing(NgramFile.open(path)) as file:
                file.clear()
        except ForeignFile:
            set_aside(path)
    for path in datastore_folder(places).glob("*.unusable"):
        path.unlink()


class Datastore:
    """One vocabulary's n-grams, for the thread that answers.

    Attributes:
        tell: gets what goes wrong, a sentence each time, in whichever thread finds it; while it is None
            the sentences wait in `troubles`.

    Args:
        path: the file; it is made when something is learnt.
        target: the model's name, for the statistics.
        vocab_size: width of the logits; ids beyond it are never offered, whatever a file says.
        max_bytes: bound of the file.
    """

    def __init__(self, path: Path, *, target: str, vocab_size: int, max_bytes: int = DEFAULT_BYTES) -> None:
        self.path = path
        self.tell: Callable[[str], None] | None = None
        self._target = target
        self._vocab_size = vocab_size
        self._max_bytes = max_bytes
        self._file: NgramFile | None = None
        self._seen: dict[int, dict[int, int]] = {}
        self._usable = True
        self._troubles: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[tuple[int, ...] | None] = queue.SimpleQueue()
        self._learner: threading.Thread | None = None

    def begin(self) -> None:
        """An answer begins: what was learnt by now is looked up, by whichever program."""
        self._seen = {}
        if self._file is not None and not self._file.is_current():
            self._close_file()
        if self._file is None and self._usable:
            try:
                self._file = NgramFile.open_to_read(self.path)
            except (ForeignFile, NewerFile, OSError, sqlite3.Error) as error:
                self._give_up(error)

    def counts(self, key: int) -> dict[int, int]:
        """How often each token followed the context of this key; not to be changed."""
        found = self._seen.get(key)
        if found is None:
            found = self._look_up(key)
            if len(self._seen) >= MOST_REMEMBERED:
                self._seen.clear()
            self._seen[key] = found
        return found

    def frequencies(self) -> dict[int, int]:
        """How often each token was learnt; empty when nothing was, or when the file cannot be read."""
        self.begin()
        if self._file is None:
            return {}
        try:
            counts = self._file.frequencies()
        except (ForeignFile, sqlite3.Error) as error:
            self._close_file()
            self._give_up(error)
            return {}
        return {token: count for token, count in counts.items() if token < self._vocab_size}

    def rest(self) -> None:
        """Nothing is looked up for now."""
        if self._file is not None:
            self._file.rest()

    def learn(self, tokens: Sequence[int]) -> None:
        """Count this text some time soon, in the background."""
        if not tokens or not self._usable:
            return
        if self._learner is None:
            self._learner = threading.Thread(target=self._learn_all, name="mlxspec-datastore", daemon=True)
            self._learner.start()
        self._work.put(tuple(tokens))

    def troubles(self) -> list[str]:
        """What went wrong since the last call while there was no one to tell."""
        told = []
        while not self._troubles.empty():
            told.append(self._troubles.get())
        return told

    def close(self) -> None:
        """Write what is still to be learnt and close the file; `begin` and `learn` may follow."""
        if self._learner is not None:
            self._work.put(None)
            self._learner.join(CLOSE_S)
            self._learner = None
        self._close_file()

    def _look_up(self, key: int) -> dict[int, int]:
        if self._file is None:
            return {}
        try:
            counts = self._file.counts(key)
        except (ForeignFile, sqlite3.Error) as error:
            self._close_file()
            self._give_up(error)
            return {}
        if any(token >= self._vocab_size for token in counts):
            return {token: count for token, count in counts.items() if token < self._vocab_size}
        return counts

    def _learn_all(self) -> None:
        """The background thread."""
        file: NgramFile | None = None
        while (tokens := self._work.get()) is not None:
            for _ in range(2):  # once more when a damaged file was set aside
                if not self._usable:
                    break
                try:
                    if file is not None and not file.is_current():
                        file.close()
                        file = None
                    file = file or NgramFile.open(self.path, max_bytes=self._max_bytes)
                    file.learn(tokens, self._target)
                    break
                except (ForeignFile, NewerFile, OSError, sqlite3.Error) as error:
                    if file is not None:
                        file.close()
                        file = None
                    self._give_up(error)
        if file is not None:
            file.close()

    def _give_up(self, error: Exception) -> None:
        """Say what is wrong. A file that is no datastore goes out of the way, and a new one may begin."""
        if isinstance(error, ForeignFile):
            try:
                kept = set_aside(self.path)
            except (NewerFile, OSError, sqlite3.Error) as worse:
                error = worse
            else:
                if kept is not None:
                    self._say(f"The datastore was damaged and is now {kept}; a new one begins.")
                return
        if isinstance(error, sqlite3.Error) and primary_code(error) in BUSY:
            return  # somebody writes just now, perhaps the very first lines: the next answer tries again
        self._usable = False
        self._say(f"The datastore is off: {reason(error, self.path)}.")

    def _say(self, trouble: str) -> None:
        (self.tell or self._troubles.put)(trouble)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def reason(error: Exception, path: Path) -> str:
    """Why the datastore at `path` cannot be used, as a sentence without its full stop."""
    if isinstance(error, NewerFile):
        return f"a newer mlxspec wrote {path}"
    if isinstance(error, OSError):
        return f"{path} cannot be used ({error.strerror or error})"
    return f"{path} cannot be used ({error})"
