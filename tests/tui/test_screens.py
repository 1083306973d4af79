"""Screens as they are to look: their text, and of two of them a picture.

Set UPDATE_SCREENS=1 to write them anew, and look at what changed before you commit it.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from scripted import Script, answer_of
from stage import Stage, stage

from mlxspec.events import Downloading, Failed

SCREENS = Path(__file__).with_name("screens")
ANSWER = """A **rainbow** has an angle of `42°`.

1. Light enters a drop
2. It is *reflected*

```python
def angle(colour: str) -> float:
    return 42.0  # degrees
```

> 日本語 and [/] and 👩‍👩‍👧‍👦"""


def compare(name: str, shown: str) -> None:
    file = SCREENS / name
    if os.environ.get("UPDATE_SCREENS"):
        SCREENS.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8"), f"{name} looks different; see UPDATE_SCREENS"


def compare_picture(s: Stage, name: str) -> None:
    """Pictures are the same only with the Textual and the Rich that made them."""
    made_with, here = SCREENS / "made-with.txt", f"textual {version('textual')}, rich {version('rich')}\n"
    if os.environ.get("UPDATE_SCREENS"):
        made_with.write_text(here)
    if made_with.read_text() == here:
        compare(name, picture(s))


def picture(s: Stage) -> str:
    """The SVG without what differs from run to run."""
    svg = s.app.export_screenshot(simplify=True)
    return re.sub(r"terminal-\d+", "terminal", svg)


async def hide_cursor(s: Stage) -> None:
    s.app.composer.cursor_blink = False
    s.app.composer.show_cursor = False
    await s.pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 6)], ids=str)
async def test_the_welcome(size: tuple[int, int]) -> None:
    async with stage(size=size) as s:
        compare(f"welcome-{size[0]}.txt", s.screen)


async def test_a_chat_in_both_views() -> None:
    async with stage(Script([answer_of(ANSWER)]), size=(80, 34)) as s:
        await s.ask("Tell me about rainbows.")
        compare("markdown.txt", s.screen)
        await hide_cursor(s)
        await s.press("ctrl+t")
        compare("tokens.txt", s.screen)
        compare_picture(s, "tokens.svg")


async def test_the_inspector() -> None:
    async with stage(Script([answer_of(ANSWER)]), size=(130, 24)) as s:
        await s.ask("Tell me about rainbows.")
        await hide_cursor(s)
        await s.press("ctrl+o")
        compare("inspector.txt", s.screen)
        compare_picture(s, "inspector.svg")


async def test_suggestions() -> None:
    async with stage(size=(80, 20)) as s:
        await s.press("slash", "t")
        compare("suggestions.txt", s.screen)


async def test_the_parameters() -> None:
    async with stage(size=(100, 26)) as s:
        s.app.choices.set("temperature", 0.5)
        await s.press("f4")
        compare("parameters.txt", s.screen)


async def test_the_first_run() -> None:
    script = Script(load=[Downloading("smollm2-135m", "SmolLM2.gguf", 40_000_000, 92_900_000)])
    async with stage(script, size=(100, 24)) as s:
        await s.until(lambda: "Fetching" in s.screen)
        compare("first-run.txt", s.screen)


async def test_offline_with_nothing_on_disk() -> None:
    failed = Failed(
        "NotOnDisk",
        "smollm2-135m is not on disk and the network does not answer.",
        "Connect once, or give --target a model folder that is here.",
        1,
    )
    async with stage(Script(load=[failed]), size=(80, 24)) as s:
        await s.until(lambda: "not on disk" in s.screen)
        compare("offline.txt", s.screen)
