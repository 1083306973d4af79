"""Kills a program that streams an answer, again and again, and looks at what was saved.

    python benchmarks/kill_store.py [--times 20] [--json]

A second process streams 200 tokens a second into a chat and says which token it has shown. After 0.2 to 3
seconds it is killed with SIGKILL. Every token that was shown more than a second before must be in the chat,
the answer must be marked as stopped, all earlier answers must be as they were, and SQLite must find the file
and its search index intact.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store, database_path
from mlxspec.events import Origin, Tokens
from mlxspec.places import Places

TOKENS_PER_S = 200
MOST_LOST_S = 1.0  # invariant 9: a killed program loses at most the last second


def stream(home: Path) -> None:
    """The program to be killed."""
    store = Store.open(_places(home))
    chat = store.create_chat(target="target", draft="none")
    question = store.add_message(chat.id, "user", f"A chat to be killed: {chat.id}")
    writer = store.answer(chat.id, after=question.id)
    print(writer.message, flush=True)
    number = 0
    while True:
        writer.append(Tokens((number,), _word(number), Origin.PLAIN, None, number))
        print(number, time.monotonic(), flush=True)  # after it was handed over, as a screen would show it
        number += 1
        time.sleep(1 / TOKENS_PER_S)


def kill_once(home: Path, *, after_s: float) -> dict[str, float]:
    """Start `stream`, kill it, check its answer. Returns tokens shown and saved, and seconds lost."""
    command = [sys.executable, __file__, "--stream", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        message = int(process.stdout.readline())
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        rest = process.stdout.read()
    lines = rest.splitlines(keepends=True)
    shown_at = [float(line.split()[1]) for line in lines if line.endswith("\n")]
    with closing(Store.open(_places(home))) as store:
        answer, spans = store.message(message), store.spans(message)
    saved = len(spans)
    check(answer.state is MessageState.STOPPED, f"the state is {answer.state}")
    check([tokens.ids for tokens in spans] == [(number,) for number in range(saved)], "tokens are missing")
    check(
        answer.content == "".join(_word(number) for number in range(saved)),
        "the text is not that of the tokens",
    )
    check_integrity(home)
    lost = shown_at[saved:]
    return {"shown": len(shown_at), "saved": saved, "lost_s": max(0.0, killed_at - lost[0]) if lost else 0.0}


def check_integrity(home: Path) -> None:
    """Ask SQLite whether the file and both search indexes are intact."""
    with closing(sqlite3.connect(database_path(_places(home)))) as db:
        result = db.execute("PRAGMA integrity_check").fetchall()
        check(result == [("ok",)], f"integrity_check says {result}")
        for table in ("messages_text", "chats_text"):
            db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def check(holds: bool, what: str) -> None:
    """Stop with a message when something that must hold does not."""
    if not holds:
        raise SystemExit(f"kill_store: {what}")


def _word(number: int) -> str:
    return f"word{number} "


def _places(home: Path) -> Places:
    return Places(config=home / "config", data=home / "data", cache=home / "cache")


def _all_answers(home: Path) -> dict[int, str]:
    with closing(Store.open(_places(home))) as store:
        return {
            message.id: message.content for chat in store.recent() for message in store.all_messages(chat.id)
        }


def main() -> None:
    """Kill, check and report."""
    parser = argparse.ArgumentParser(description="Kill a streaming chat and look at what was saved.")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--most-lost-s", type=float, default=MOST_LOST_S)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stream:
        stream(arguments.stream)
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        home, runs = Path(folder), []
        before = _all_answers(home)
        for _ in range(arguments.times):
            runs.append(kill_once(home, after_s=chance.uniform(0.2, 3.0)))
            after = _all_answers(home)
            check(before.items() <= after.items(), "an earlier message changed")
            before = after
            if not arguments.json:
                print(
                    "shown {shown:4.0f}  saved {saved:4.0f}  lost {lost_s:.3f} s".format(**runs[-1]),
                    flush=True,
                )
    worst, mean = max(run["lost_s"] for run in runs), sum(run["lost_s"] for run in runs) / len(runs)
    if arguments.json:
        print(json.dumps({"runs": runs, "worst_lost_s": worst, "mean_lost_s": mean}))
    else:
        print(f"{len(runs)} kills: lost at most {worst:.3f} s, on average {mean:.3f} s; intact each time")
    check(worst <= arguments.most_lost_s, f"lost {worst:.3f} s, more than {arguments.most_lost_s} s")


if __name__ == "__main__":
    main()
