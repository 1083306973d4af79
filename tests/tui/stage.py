"""The app on a stage: without a terminal, with a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from scripted import Script, ScriptedEngine
from textual.pilot import Pilot

from mlxspec.engine.job import LAST_EVENTS
from tui.answer import AnswerEntry
from tui.app import ChatApp
from tui.entry import NoticeEntry, UserEntry
from tui.options import ChatOptions

PATIENCE_S = 60.0


class Stage:
    """The app, the pilot who presses its keys, and the script that its engine follows."""

    def __init__(self, app: ChatApp, pilot: Pilot[Any], script: Script) -> None:
        self.app = app
        self.pilot = pilot
        self.script = script

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds, however slow the machine is today."""
        for _ in range(int(PATIENCE_S / 0.01)):
            if condition():
                await self.pilot.pause()
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"it did not happen\n{self.screen}")

    async def press(self, *keys: str) -> None:
        """Press keys by their names."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        """Put a text into the composer as a paste does."""
        self.app.composer.insert(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Write and press Enter, suggestions or not."""
        self.app.composer.put(text)
        await self.press("enter")

    async def ask(self, text: str) -> AnswerEntry:
        """Send, and wait for the whole answer."""
        before = len(self.answers)
        await self.send(text)
        await self.until(lambda: len(self.answers) > before and not self.answers[-1].streaming)
        return self.answers[-1]

    @property
    def answers(self) -> list[AnswerEntry]:
        """The answers in the transcript."""
        return [entry for entry in self.app.transcript.entries if isinstance(entry, AnswerEntry)]

    @property
    def questions(self) -> list[UserEntry]:
        """The user's messages in the transcript."""
        return [entry for entry in self.app.transcript.entries if isinstance(entry, UserEntry)]

    @property
    def notices(self) -> str:
        """What the program said, all of it."""
        return "\n".join(
            entry.plain_text() for entry in self.app.transcript.entries if isinstance(entry, NoticeEntry)
        )

    @property
    def screen(self) -> str:
        """The text on the screen, without the spaces at the ends of lines."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    @property
    def status(self) -> str:
        """The status line."""
        return self.app.status_line.content().plain


@asynccontextmanager
async def stage(
    script: Script | None = None, *, size: tuple[int, int] = (100, 30), options: ChatOptions | None = None
) -> AsyncIterator[Stage]:
    """The app, begun and with its models loaded."""
    script = script or Script()
    app = ChatApp(options, engine=lambda _: ScriptedEngine(script))
    async with app.run_test(size=size, tooltips=False) as pilot:
        on_stage = Stage(app, pilot, script)
        await on_stage.until(lambda: app.begun)
        if isinstance(script.load[-1], LAST_EVENTS):
            await on_stage.until(lambda: not app.loader.doing)
        yield on_stage
