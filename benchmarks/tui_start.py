"""From the command to the first picture, and until a key shows.

    python benchmarks/tui_start.py [--times 10]

`mlxspec run` in a pseudo-terminal of 120 by 40, its model on disk or not: the picture does not wait for it.
A key is pressed as soon as there is something to see.

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


def main() -> None:
    """Start it again and again, and print the times."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--times", type=int, default=10)
    asked = arguments.parse_args()
    from tui_terminal import Terminal

    program = Path(sys.executable).with_name("mlxspec")
    pictures: list[float] = []
    keys: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(asked.times + 1):
            picture, key = threading.Event(), threading.Event()
            at = {"picture": 0.0, "key": 0.0}

            def seen(
                piece: bytes,
                now: float,
                *,
                picture: threading.Event = picture,
                key: threading.Event = key,
                at: dict[str, float] = at,
            ) -> None:
                if b"sk anything" in piece and not picture.is_set():
                    at["picture"] = now
                    picture.set()
                if "Щ".encode() in piece and not key.is_set():
                    at["key"] = now
                    key.set()

            environment = {"MLXSPEC_HOME": os.environ.get("MLXSPEC_HOME", folder)}
            terminal = Terminal([str(program), "run"], env=environment, seen=seen)
            if not picture.wait(30):
                raise SystemExit("there was no picture within 30 s")
            pressed = time.perf_counter()
            terminal.press("Щ")
            if not key.wait(30):
                raise SystemExit("the key did not show within 30 s")
            pictures.append(at["picture"] - terminal.started)
            keys.append(at["key"] - pressed)
            terminal.press("\x11")
            terminal.wait(30)
    del pictures[0], keys[0]  # the first one reads the disk
    print(f"first_picture_s   median {statistics.median(pictures):.3f}  worst {max(pictures):.3f}")
    print(f"first_key_s       median {statistics.median(keys):.3f}  worst {max(keys):.3f}")
    print(f"load              {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
