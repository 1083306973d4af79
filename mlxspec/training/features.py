"""The target's hidden rows for a corpus, computed once and kept on disk in 16 bits.

There is a file for each point (`decoding/hidden.py`), rows one after another, and an index that says how
far all files are whole. What was interrupted goes on; rows of conversations that changed are made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from os import SEEK_END
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxspec.decoding.cache import PromptCache
from mlxspec.errors import NotWritable
from mlxspec.training.corpus import Conversation

INDEX_EVERY = 16  # conversations
LARGEST = 65504.0  # in 16 bits

Progress = Callable[[int, int], None]  # done, total


class Features:
    """Rows [tokens, width] of each conversation at each point.

    Args:
        folder: where the files are.
        conversations: in the corpus's order.
        points: those that are wanted.
        most: tokens of a conversation that count.
    """

    def __init__(
        self, folder: Path, conversations: Sequence[Conversation], points: Sequence[int], *, most: int
    ) -> None:
        self._folder = folder
        self._points = tuple(points)
        self._lengths = [min(len(c.ids), most) for c in conversations]
        self._starts = [0, *np.cumsum(self._lengths).tolist()]
        self._conversations = conversations
        self._maps: dict[int, NDArray[np.float16]] = {}

    def make(self, model: Any, progress: Progress) -> None:
        """Compute what is missing.

        Raises:
            UnsupportedModel: the target's hidden states cannot be reached.
            NotWritable: there is no room for them.
        """
        wanted = [[c.digest, n] for c, n in zip(self._conversations, self._lengths, strict=True)]
        made = {point: _same(self._index(point).get("made", []), wanted) for point in self._points}
        missing = [point for point in self._points if made[point] < len(wanted)]
        if missing:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make(missing, model, wanted, start=min(made[point] for point in missing), progress=progress)
            mx.clear_cache()

    def rows(self, index: int, point: int) -> NDArray[np.float16]:
        """Rows [n, width] of one conversation, read from disk when they are used."""
        if point not in self._maps:
            width = int(self._index(point)["width"])
            self._maps[point] = np.memmap(self._file(point), np.float16, "r").reshape(-1, width)
        return self._maps[point][self._starts[index] : self._starts[index + 1]]

    def width(self, point: int) -> int:
        """Values of a row."""
        return int(self.rows(0, point).shape[1])

    def length(self, index: int) -> int:
        """Tokens of one conversation that have rows."""
        return self._lengths[index]

    def _make(
        self, points: Sequence[int], model: Any, wanted: Sequence[Any], *, start: int, progress: Progress
    ) -> None:
        cache = PromptCache(model)
        cache.watch_hidden(points)
        widths: dict[int, int] = {point: int(self._index(point).get("width", 0)) for point in points}
        try:
            with ExitStack() as files:
                opened = {
                    point: files.enter_context(self._file(point).open("r+b" if start else "wb"))
                    for point in points
                }
                for point, file in opened.items():
                    file.truncate(self._starts[start] * 2 * widths[point])
                    file.seek(0, SEEK_END)
                for i in range(start, len(wanted)):
                    progress(self._starts[i], self._starts[-1])
                    for point, rows in _rows_of(
                        cache, self._conversations[i].ids[: self._lengths[i]]
                    ).items():
                        widths[point] = rows.shape[1]
                        opened[point].write(rows.tobytes())
                    if (i + 1) % INDEX_EVERY == 0 or i + 1 == len(wanted):
                        for point, file in opened.items():
                            file.flush()
                            self._write_index(point, wanted[: i + 1], widths[point])
        except OSError as error:
            raise NotWritable(
                f"The target's hidden states cannot be kept in {self._folder}: {error.strerror or error}.",
                hint="Free some space, or train with fewer --tokens.",
            ) from error
        progress(self._starts[-1], self._starts[-1])

    def _file(self, point: int) -> Path:
        return self._folder / f"point{point}.f16"

    def _index(self, point: int) -> dict[str, Any]:
        try:
            stored = json.loads((self._folder / f"point{point}.json").read_text(encoding="utf-8"))
            return cast(dict[str, Any], stored) if self._file(point).exists() else {}
        except (OSError, ValueError):
            return {}

    def _write_index(self, point: int, made: Sequence[Any], width: int) -> None:
        path = self._folder / f"point{point}.json"
        whole = path.with_suffix(".new")
        whole.write_text(json.dumps({"width": width, "made": made}), encoding="utf-8")
        whole.replace(path)


def _rows_of(cache: PromptCache, ids: Sequence[int]) -> dict[int, NDArray[np.float16]]:
    """One conversation's rows [n, width] by point."""
    cache.clear()
    cache.prefill(mx.array(list(ids), mx.uint32))
    parts = [rows for _, rows in cache.take_hidden(len(ids))]
    return {point: _in_16_bits(mx.concatenate([part[point] for part in parts])) for point in parts[0]}


def _in_16_bits(rows: mx.array) -> NDArray[np.float16]:
    return np.array(mx.clip(rows.astype(mx.float32), -LARGEST, LARGEST).astype(mx.float16))


def _same(have: Sequence[Any], wanted: Sequence[Any]) -> int:
    """How many entries two lists begin with in common."""
    pairs = enumerate(zip(have, wanted, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(have), len(wanted)))
