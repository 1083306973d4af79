"""From the command to the first picture, and from keys to their pictures while the model loads.

    python benchmarks/tui_start.py [--times 10]

`mlxspec run` in a pseudo-terminal of 120 by 40, its model on disk or not: the picture does not wait for it.
From the first picture on a letter is pressed as soon as the one before it is on the screen, and 30 ms later,
until the model is loaded or 3 s have passed.

Bar: 0.6 s to the first picture; keys work from then on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bar import against
from tui_terminal import Terminal

PICTURE, LOADED = "sk anything", " + "  # the composer's hint; target and drafter in the status line
LETTERS = [chr(code) for code in range(0x0410, 0x0450)]
PAUSE_S = 0.03
LOADING_S = 3.0
BAR_S = 0.6


class Start:
    """One start: `picture_s` to the first picture, `keys_s` from each key to its picture."""

    def __init__(self, home: str) -> None:
        self._picture, self._loaded, self._came = threading.Event(), threading.Event(), threading.Event()
        self._letter, self._at = "", 0.0
        self.keys_s: list[float] = []
        program = Path(sys.executable).with_name("mlxspec")
        self._terminal = Terminal([str(program), "run"], env={"MLXSPEC_HOME": home}, seen=self._seen)
        if not self._picture.wait(30):
            raise SystemExit("there was no picture within 30 s")
        self._press_keys()
        self._terminal.press("\x11")
        self._terminal.wait(30)

    def _press_keys(self) -> None:
        until = time.perf_counter() + LOADING_S
        for letter in LETTERS:
            if self._loaded.is_set() or time.perf_counter() > until:
                return
            self._came.clear()
            self._letter, self._at = letter, time.perf_counter()
            self._terminal.press(letter)
            if not self._came.wait(30):
                raise SystemExit(f"{letter} did not show within 30 s")
            time.sleep(PAUSE_S)

    def _seen(self, piece: bytes, now: float) -> None:
        text = piece.decode(errors="replace")
        if PICTURE in text and not self._picture.is_set():
            self.picture_s = now - self._terminal.started
            self._picture.set()
        if LOADED in text:
            self._loaded.set()
        if self._letter and self._letter in text:
            self.keys_s.append(now - self._at)
            self._letter = ""
            self._came.set()


def main() -> None:
    """Start it again and again, and print the times."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--times", type=int, default=10)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = os.environ.get("MLXSPEC_HOME", folder)
        starts = [Start(home) for _ in range(asked.times + 1)][1:]  # the first one reads the disk
    pictures = [start.picture_s for start in starts]
    first = [start.keys_s[0] for start in starts]
    keys = sorted(key for start in starts for key in start.keys_s)
    against("first_picture_s", statistics.median(pictures), BAR_S)
    print(f"{'starts':28} {len(starts)}, the slowest {max(pictures):.3f}")
    print(f"{'first_key_s':28} {statistics.median(first):.3f}, the slowest {max(first):.3f}")
    print(f"{'keys_while_loading':28} {len(keys)}, every one was shown")
    print(f"{'key_while_loading_p95_s':28} {keys[int(0.95 * len(keys))]:.3f}, the slowest {keys[-1]:.3f}")
    print(f"{'load':28} {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
