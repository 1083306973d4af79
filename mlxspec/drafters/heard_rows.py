"""Which of a target's hidden rows a drafter has heard of, and which of them it has read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

CHUNK = 512
"""Rows that are read at once; a cancel waits for one chunk at most."""


class HeardRows:
    """Positions first..read-1 stand in the drafter's own cache, read..end-1 wait to be read.

    Rows of a reused prompt may never come. Then what is known begins behind the gap: attention layers
    whose positions are relative do not mind.
    """

    def __init__(self) -> None:
        self.first = 0
        self.read = 0
        self._waiting: list[mx.array] = []  # [n, width] each

    @property
    def waiting(self) -> int:
        """How many rows wait to be read."""
        return sum(rows.shape[0] for rows in self._waiting)

    @property
    def end(self) -> int:
        """The position after the last row that was heard of."""
        return self.read + self.waiting

    def hear(self, start: int, rows: mx.array) -> None:
        """Add the rows [n, width] of positions from `start` on; those known already are left out.

        Where rows between are missing, all that was known before is forgotten.
        """
        if start > self.end or self.end == self.first:
            self.forget(start)
        if (new := start + rows.shape[0] - self.end) > 0:
            self._waiting.append(rows[rows.shape[0] - new :])

    def read_into(
        self, cache: Any, read: Callable[[int, mx.array], None], cancelled: Callable[[], bool]
    ) -> bool:
        """Take guesses out of the cache and have the rows that wait read; False when cancelled before.

        `read` is given the position of the first row, and rows [n, width].
        """
        cache.trim(cache.offset - (self.read - self.first))
        while self._waiting:
            if cancelled():
                return False
            rows = self._waiting[0] if len(self._waiting) == 1 else mx.concatenate(self._waiting)
            now, rest = rows[:CHUNK], rows[CHUNK:]
            read(self.read, now)
            self.read += now.shape[0]
            self._waiting = [rest] if rest.shape[0] else []
            if self._waiting:
                mx.eval(cache.state)
        return True

    def keep(self, length: int) -> None:
        """Forget the rows of positions from `length` on."""
        if length <= self.first:
            self.forget(length)
            return
        left = length - self.read
        if left <= 0:
            self.read = min(self.read, length)
            self._waiting = []
        elif left < self.waiting:
            self._waiting = [mx.concatenate(self._waiting)[:left]]

    def forget(self, start: int = 0) -> None:
        """Nothing is known; what comes next begins at `start`."""
        self.first = self.read = start
        self._waiting = []
