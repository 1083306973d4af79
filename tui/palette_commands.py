"""Ctrl+P: the table of commands as Textual's command palette shows it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from mlxspec.chat.commands import COMMANDS, Command, Takes

if TYPE_CHECKING:
    from tui.app import ChatApp


class PaletteCommands(Provider):
    """All commands; one that needs an argument is written into the composer."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for command in COMMANDS:
            yield DiscoveryHit(_text(command), partial(self._do, command), help=command.summary)

    async def search(self, query: str) -> Hits:
        """Those whose name or summary matches."""
        matcher = self.matcher(query)
        for command in COMMANDS:
            text = f"{_text(command)}  {command.summary}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), partial(self._do, command))

    def _do(self, command: Command) -> None:
        app = cast("ChatApp", self.app)
        if command.takes is Takes.VALUE:
            app.composer.put(f"/{command.name} ")
            app.composer.focus()
        else:
            app.action_command(command.name)


def _text(command: Command) -> str:
    return f"/{command.name}"
