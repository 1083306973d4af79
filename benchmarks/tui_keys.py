"""From a key to its picture, while an answer streams below a chat of 200 messages.

    python benchmarks/tui_keys.py [--keys 120] [--rate 50]

The app runs in a pseudo-terminal of 120 by 40 with a scripted engine. A letter is pressed every 100 to
200 ms; measured is the time until that letter comes back in what the app draws.

Bar: 95 of 100 within 50 ms.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui"), str(ROOT / "benchmarks")]

MESSAGES = 200
BAR_MS = 50.0
LETTERS = [chr(code) for code in range(0x0410, 0x0450)]  # Cyrillic: none of them is in the answer


def main() -> None:
    """Press keys and print the percentiles."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--keys", type=int, default=120)
    arguments.add_argument("--rate", type=float, default=50.0)
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.inside:
        _inside(asked.rate, asked.keys)
        return
    from bar import against
    from tui_terminal import Terminal, python

    waiting = {"letter": "", "at": 0.0}
    came = threading.Event()
    begun = threading.Event()
    times: list[float] = []

    def seen(piece: bytes, now: float) -> None:
        text = piece.decode(errors="replace")
        if "streaming" in text:
            begun.set()
        if waiting["letter"] and str(waiting["letter"]) in text:
            times.append(now - float(waiting["at"]))
            waiting["letter"] = ""
            came.set()

    with tempfile.TemporaryDirectory() as folder:
        command = python("tui_keys.py", f"--rate={asked.rate}", f"--keys={asked.keys}", "--inside")
        terminal = Terminal(command, env={"MLXSPEC_HOME": folder}, seen=seen)
        if not begun.wait(60):
            raise SystemExit("the app did not begin to stream")
        chance = random.Random(1)
        for number in range(asked.keys):
            letter = LETTERS[number % len(LETTERS)]
            if number % len(LETTERS) == 0 and number:
                terminal.press("\x15")  # nothing of the first letters is left on the screen
                time.sleep(0.5)
            time.sleep(chance.uniform(0.1, 0.2))
            came.clear()
            waiting["letter"], waiting["at"] = letter, time.perf_counter()
            terminal.press(letter)
            if not came.wait(5):
                raise SystemExit(f"{letter} never came back")
        terminal.press("\x11")
        terminal.wait(20)
    times.sort()
    against("key_to_paint_p95_ms", 1000 * times[int(0.95 * len(times))], BAR_MS)
    print(f"{'keys':28} {len(times)}")
    print(f"{'median_ms':28} {1000 * statistics.median(times):.1f}")
    print(f"{'worst_ms':28} {1000 * times[-1]:.1f}")
    print(f"{'load':28} {os.getloadavg()[0]:.1f}")


def _inside(rate: float, keys: int) -> None:
    from scripted import Script, ScriptedEngine, answer_of

    from mlxspec.chat.store import Store
    from mlxspec.places import places
    from tui.app import ChatApp
    from tui.options import ChatOptions

    text = "Some **words** and `code` that stand in every answer of this chat, " * 6
    store = Store.open(places())
    chat = store.create_chat(target="tiny", draft="auto")
    for number in range(MESSAGES // 2):
        store.add_message(chat.id, "user", f"question {number}")
        store.add_message(chat.id, "assistant", f"answer {number}\n\n{text}\n\n```python\nx = {number}\n```")
    store.close()
    answer = answer_of("streaming " * int(rate * keys * 0.6 + 500))

    class Asking(ChatApp):
        def _begin(self) -> None:
            super()._begin()
            self.set_timer(0.5, lambda: self.conversation.ask("go"))

    script = Script(answers=[answer], tokens_per_s=rate)
    Asking(ChatOptions(resume=True), engine=lambda _: ScriptedEngine(script)).run()


if __name__ == "__main__":
    main()
