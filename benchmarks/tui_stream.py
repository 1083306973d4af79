"""What the screen costs while an answer streams: milliseconds of the app's thread for each token.

    python benchmarks/tui_stream.py [--rate 1000] [--tokens 6000] [--every-frame]

A scripted engine says 6,000 tokens at 1,000 a second, a code fence of 1,000 lines among them, to the app in
a pseudo-terminal of 120 by 40. Counted is the processor time of the thread that draws. `--every-frame` draws
30 times a second whatever it costs; without it frames come less often when they cost more than 2 % of the
time, as they do for users.

Bars: at most 0.3 ms a token; the last tenth at most 1.2 times the first tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui"), str(ROOT / "benchmarks")]

FIGURES = ("ms_per_token", "first_tenth_ms_per_token", "last_tenth_ms_per_token")
BAR_MS, BAR_GROWTH = 0.3, 1.2


def main() -> None:
    """Run the app in a terminal and print what it measured."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rate", type=float, default=1000.0)
    arguments.add_argument("--tokens", type=int, default=6000)
    arguments.add_argument("--every-frame", action="store_true")
    arguments.add_argument("--inside", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.inside:
        _inside(asked.rate, asked.tokens, asked.every_frame, Path(asked.inside))
        return
    from bar import against
    from tui_terminal import Terminal, python

    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = python(
            "tui_stream.py", f"--rate={asked.rate}", f"--tokens={asked.tokens}", f"--inside={result}"
        )
        if asked.every_frame:
            command.append("--every-frame")
        terminal = Terminal(command, env={"MLXSPEC_HOME": folder})
        terminal.wait(60 + 3 * asked.tokens / asked.rate)
        measured = json.loads(result.read_text())
    per_token, first, last = (measured.pop(name) for name in FIGURES)
    against("ms_per_token", per_token, BAR_MS)
    against("last_tenth_to_first_tenth", last / first, BAR_GROWTH)
    measured["bytes_written"] = terminal.written
    for name, value in measured.items():
        print(f"{name:28} {value:.4f}" if isinstance(value, float) else f"{name:28} {value}")


def text_of(tokens: int) -> str:
    """Paragraphs, then a fence of 1,000 lines, then paragraphs: about so many tokens."""
    sentence = "The quick brown fox jumps over the lazy dog while **nobody** is watching it at all. "
    prose = sentence * 4 + "\n\n"
    code = "".join(f"total+=weight[{i}]*x # row\n" for i in range(1000))
    fence = f"```python\ndef dot(x):\n{code}\n```\n\n"
    from scripted import pieces

    a_prose, a_fence = len(pieces(prose)), len(pieces(fence))
    paragraphs = max(2, (tokens - a_fence) // a_prose)
    return prose * (paragraphs // 2) + fence + prose * (paragraphs - paragraphs // 2)


def _inside(rate: float, tokens: int, every_frame: bool, result: Path) -> None:
    from scripted import Script, ScriptedEngine, answer_of

    from mlxspec.events import Tokens
    from tui import feed
    from tui.app import ChatApp
    from tui.page import Page

    if every_frame:
        feed.SHARE = 10.0
    answer = answer_of(text_of(tokens))
    total = sum(len(event.ids) for event in answer if isinstance(event, Tokens))
    script = Script(answers=[answer], tokens_per_s=rate)
    marks: list[tuple[int, float, float]] = []  # tokens, the thread's seconds, the clock

    class Measured(ChatApp):
        def _begin(self) -> None:
            super()._begin()
            self.page = MeasuredPage(self, coloured=False)
            self.set_timer(1.0, lambda: self.conversation.ask("go"))

    class MeasuredPage(Page):
        def answer_grew(self) -> None:
            meter = app.answering.meter
            if meter is not None:
                marks.append((meter.tokens, time.thread_time(), time.perf_counter()))
            super().answer_grew()
            if app.answering.answer is None:
                app.set_timer(1.0, app.exit)

    app = Measured(engine=lambda _: ScriptedEngine(script))
    app.run()

    def at(share: float) -> tuple[float, float]:
        found = next(mark for mark in marks if mark[0] >= share * total)
        return found[1], found[0]

    def cost(start: float, end: float) -> float:
        (first_s, first), (last_s, last) = at(start), at(end)
        return 1000 * (last_s - first_s) / (last - first)

    streaming = [mark for mark in marks if mark[0] < total]
    wall = streaming[-1][2] - streaming[0][2]
    result.write_text(
        json.dumps(
            {
                "tokens": total,
                "tokens_per_s": total / wall,
                "frames_per_s": len(streaming) / wall,
                "ms_per_token": cost(0.0, 0.99),
                "first_tenth_ms_per_token": cost(0.02, 0.12),
                "last_tenth_ms_per_token": cost(0.89, 0.99),
                "share_of_time": cost(0.0, 0.99) * rate / 1000,
                "load": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
