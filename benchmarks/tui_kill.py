"""Kills the app while it shows an answer, again and again, and looks at what was saved.

    python benchmarks/tui_kill.py [--times 20]

The app runs in a pseudo-terminal with a scripted engine that says numbered words, 100 a second. It is killed
with SIGKILL after 0.5 to 3 seconds. Every word that was on the screen more than a second before must be in
the chat, and SQLite must find the file intact.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui"), str(ROOT / "benchmarks")]

WORDS_PER_S = 100
LOST_S = 1.0


def main() -> None:
    """Kill it and look; exits with 1 when something was lost."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--times", type=int, default=20)
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.inside:
        _inside()
        return
    from bar import against
    from tui_terminal import Terminal, python

    from mlxspec.chat.store import Store, database_path
    from mlxspec.places import Places

    chance = random.Random(1)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        where = Places(home / "config", home / "data", home / "cache")
        for number in range(asked.times):
            shown: list[tuple[float, int]] = []
            begun = threading.Event()

            def seen(
                piece: bytes,
                now: float,
                *,
                shown: list[tuple[float, int]] = shown,
                begun: threading.Event = begun,
            ) -> None:
                words = [int(word) for word in re.findall(rb"w(\d+)w", piece)]
                if words:
                    shown.append((now, max(words)))
                    begun.set()

            terminal = Terminal(python("tui_kill.py", "--inside"), env={"MLXSPEC_HOME": folder}, seen=seen)
            if not begun.wait(60):
                raise SystemExit("the app showed no word")
            time.sleep(chance.uniform(0.5, 3.0))
            os.kill(terminal.pid, signal.SIGKILL)
            killed = time.perf_counter()
            terminal.wait(10)
            due = max((word for at, word in shown if at < killed - LOST_S), default=-1)
            with closing(Store.open(where)) as store:
                chat = store.last()
                saved = store.path(chat.id)[-1].content if chat else ""
            words = [int(word) for word in re.findall(r"w(\d+)w", saved)]
            last = max(words, default=-1)
            lost_since = next((at for at, word in shown if word > last), killed)
            worst = max(worst, killed - lost_since)
            with closing(sqlite3.connect(database_path(where))) as db:
                sound = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            if last < due or words != list(range(len(words))) or not sound:
                raise SystemExit(f"kill {number + 1}: {due} was due, {last} was saved, sound: {sound}")
    against("most_lost_s", worst, LOST_S)
    print(f"{'kills':28} {asked.times}, the database intact after each")


def _inside() -> None:
    from scripted import Script, ScriptedEngine, answer_of

    from tui.app import ChatApp

    answer = answer_of("".join(f"w{number}w " for number in range(5000)))
    script = Script(answers=[answer], tokens_per_s=WORDS_PER_S)

    class Asking(ChatApp):
        def _begin(self) -> None:
            super()._begin()
            self.conversation.ask("go")

    Asking(engine=lambda _: ScriptedEngine(script)).run()


if __name__ == "__main__":
    main()
