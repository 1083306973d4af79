"""Make the README's picture: the chat with the default model, a real answer, its round inspector.

python benchmarks/screenshot.py docs/chat.svg [KEY ...]     # keys are pressed after the answer
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tui.answer import AnswerEntry
from tui.app import ChatApp
from tui.options import ChatOptions

QUESTION = (
    "Copy this text: The draft guesses a few tokens ahead, and the target checks all of them in one pass. "
    "Right guesses are nearly free. Where a guess is wrong, the target puts its own token."
)
SIZE = (112, 30)
TIMEOUT_S = 300


async def picture() -> str:
    """The SVG of the app after one answer, with its tokens coloured."""
    app = ChatApp(ChatOptions(values={"k": 4, "temperature": 0.0, "max_tokens": 72}))
    async with app.run_test(size=SIZE) as pilot:
        app.composer.put(QUESTION)
        await pilot.press("enter")
        for _ in range(TIMEOUT_S * 10):
            await asyncio.sleep(0.1)
            answers = [entry for entry in app.transcript.entries if isinstance(entry, AnswerEntry)]
            if answers and not answers[-1].streaming:
                break
        for key in sys.argv[2:]:
            await pilot.press(key)
            await pilot.pause(0.5)
        # Without the links to fonts on the web: the reader's own are good enough.
        return re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(title="mlxspec"), flags=re.DOTALL)


def main() -> None:
    """Write the picture."""
    Path(sys.argv[1]).write_text(asyncio.run(picture()), encoding="utf-8")


if __name__ == "__main__":
    main()
