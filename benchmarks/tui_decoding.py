"""What watching costs: decoding speed in the app against `mlxspec run --json` to a file, default model.

    python benchmarks/tui_decoding.py [--pairs 5] [--max-tokens 120] [--threads 1] [--draft lookup] [--k 4]

The same greedy answer is made both ways in turn, nothing being learnt from it; the app runs in a pseudo-
terminal of 120 by 40. `--threads 1` leaves a core to the app on a machine with two; `--threads 2` keeps
both busy. `--k` fixes the guesses of a round, so that every round has a proposal to be reported. The speeds
are those of the answers' own statistics.

Bar: with a core left to the app, 97 % of the speed without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

BAR = 0.97
SEED = "1"
PROMPT = "Write a long story about a fox who learns to sail. Describe every day of the journey."


def main() -> None:
    """Measure in pairs and print the medians."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--pairs", type=int, default=6)
    arguments.add_argument("--max-tokens", type=int, default=120)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--draft", default="lookup")
    arguments.add_argument("--k", type=int)
    arguments.add_argument("--temp", type=float)
    arguments.add_argument("--inside", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.inside:
        _inside(asked, Path(asked.inside))
        return
    from bar import against

    with tempfile.TemporaryDirectory() as folder:
        home = os.environ.get("MLXSPEC_HOME", folder)
        threads = {name: str(asked.threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
        environment = {"MLXSPEC_HOME": home, **threads}
        result = Path(folder) / "result.json"
        pairs = []
        for number in range(asked.pairs + 1):
            watched = _in_the_app(asked, environment, result) if number % 2 else 0.0
            alone = _to_a_file(asked, environment, folder)
            pairs.append((alone, watched or _in_the_app(asked, environment, result)))
        del pairs[0]  # it fetches, converts and calibrates
    ratio = statistics.median(watched / alone for alone, watched in pairs)
    if asked.threads < (os.cpu_count() or 1):
        against("app_to_json_speed", ratio, least=BAR)
    else:
        print(f"{'app_to_json_speed':28} {ratio:.3f}   no bar: no core is left to the app")
    print(f"{'pairs':28} {' '.join(f'{watched / alone:.3f}' for alone, watched in pairs)}")
    print(f"{'json_tokens_per_s':28} {statistics.median(alone for alone, _ in pairs):.2f}")
    print(f"{'app_tokens_per_s':28} {statistics.median(watched for _, watched in pairs):.2f}")
    print(f"{'load':28} {os.getloadavg()[0]:.1f}")


def _to_a_file(asked: argparse.Namespace, environment: dict[str, str], folder: str) -> float:
    program = Path(sys.executable).with_name("mlxspec")
    file = Path(folder) / "answer.jsonl"
    options = [
        "--draft",
        asked.draft,
        "--seed",
        SEED,
        "--max-tokens",
        str(asked.max_tokens),
        "--no-datastore",
    ]
    for name, value in (("--num-draft", asked.k), ("--temp", asked.temp)):
        options += [] if value is None else [name, str(value)]
    with file.open("w") as out:
        subprocess.run(
            [program, "run", "--json", *options, PROMPT],
            stdout=out,
            stdin=subprocess.DEVNULL,
            env=os.environ | environment,
            check=True,
        )
    last = json.loads(file.read_text().splitlines()[-1])
    return float(last["stats"]["tokens_per_s"])


def _in_the_app(asked: argparse.Namespace, environment: dict[str, str], result: Path) -> float:
    from tui_terminal import Terminal, python

    result.unlink(missing_ok=True)
    command = python(
        "tui_decoding.py",
        f"--inside={result}",
        f"--draft={asked.draft}",
        f"--max-tokens={asked.max_tokens}",
        *(f"--{name}={value}" for name, value in (("k", asked.k), ("temp", asked.temp)) if value is not None),
    )
    Terminal(command, env=environment).wait(600)
    return float(json.loads(result.read_text())["tokens_per_s"])


def _inside(asked: argparse.Namespace, result: Path) -> None:
    from tui.answer import AnswerEntry
    from tui.app import ChatApp
    from tui.options import ChatOptions
    from tui.page import Page

    class Asking(ChatApp):
        def _begin(self) -> None:
            super()._begin()
            self.page = AskingPage(self, coloured=False)
            self.conversation.ask(PROMPT)

    class AskingPage(Page):
        def answer_ended(self, answer: AnswerEntry) -> None:
            super().answer_ended(answer)
            result.write_text(json.dumps(answer.stats))
            app.exit()

    values: dict[str, object] = {"seed": int(SEED), "max_tokens": asked.max_tokens}
    values |= {
        name: value for name, value in (("k", asked.k), ("temperature", asked.temp)) if value is not None
    }
    app = Asking(ChatOptions(draft=asked.draft, values=values, datastore=False))
    app.run()


if __name__ == "__main__":
    main()
