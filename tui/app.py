"""The Textual app: which widgets there are, how it begins and ends, and who gets their messages.

What is on the screen is in `page`, what commands do in `actions`, what asking means in `conversation`,
and how an answer comes in `answering`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from mlxspec.chat.commands import parse
from mlxspec.errors import MlxspecError, StoreError, UnknownChat
from mlxspec.places import Places, places
from tui import collector, layout
from tui.actions import Actions
from tui.answering import Answering
from tui.choices import Choices
from tui.composer import Composer
from tui.conversation import Conversation
from tui.engine_port import EngineLike, real_engine
from tui.inspector import Inspector
from tui.keys import BINDINGS, Keys
from tui.loader import Loader
from tui.options import ChatOptions
from tui.page import Page
from tui.palette import THEMES, Palette, textual_theme, theme_for
from tui.preferences import Preferences
from tui.prompt_history import PromptHistory
from tui.saved_chat import SavedChat
from tui.status_line import StatusLine
from tui.suggestions import Suggestions
from tui.transcript import Transcript
from tui.troubles import Troubles


class ChatApp(App[int]):
    """The chat. `engine` makes the engine when the first picture is on the screen."""

    TITLE = "mlxspec"
    ENABLE_COMMAND_PALETTE = False  # `Keys` opens one of our own
    CSS = layout.CSS
    VERTICAL_BREAKPOINTS = layout.HEIGHTS
    HORIZONTAL_BREAKPOINTS = layout.WIDTHS
    BINDINGS: ClassVar[list[BindingType]] = BINDINGS

    def __init__(
        self,
        options: ChatOptions | None = None,
        *,
        engine: Callable[[Places], EngineLike] | None = None,
        where: Places | None = None,
    ) -> None:
        # Without colours Textual is to send none at all; else it would send shades of grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.options = options or ChatOptions()
        self.places = where or places()
        self.troubles = Troubles(self)
        self.preferences = Preferences(self.places)
        for name in THEMES:
            self.register_theme(textual_theme(name))
        self.theme = theme_for(self.preferences.settings.theme)
        self.palette = Palette(self.theme, colour=not self.no_color)
        self.choices = Choices.of(self.options)
        self.page = Page(self, coloured=self.preferences.settings.view == "coloured")
        self.actions = Actions(self)
        self.transcript = Transcript(self.palette)
        self.suggestions = Suggestions()
        history = self.places.data / "history.jsonl" if self.preferences.settings.history else None
        self.composer = Composer(PromptHistory(history), self.suggestions, complete=self.actions.complete)
        self.inspector = Inspector(self.palette)
        self.status_line = StatusLine()
        self.loader = Loader(self)
        self.answering = Answering(self)
        self.conversation = Conversation(self)
        self.keys = Keys(self)
        self.saved: SavedChat
        self.engine: EngineLike
        self.begun = False
        self._make_engine = engine or real_engine
        self._waiting: list[str] = []  # sent before anything was there to take it

    def compose(self) -> ComposeResult:
        """The widgets, from above."""
        with Container(id="main"):
            with Vertical(id="column"):
                yield self.transcript
                yield self.suggestions
                yield self.composer
                yield self.status_line
            yield self.inspector

    # Beginning and ending

    def on_mount(self) -> None:
        """Keys go to the composer from the first picture on."""
        self.composer.focus()
        self.page.show_welcome()

    def on_ready(self) -> None:
        """The first picture is painted; everything that takes time begins now."""
        if not self.is_headless:
            for sign in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(sign, self.exit, 128 + sign)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        from mlxspec.chat.store import Store

        self.saved = SavedChat(
            Store.open_or_unsaved(self.places), warn=self._warn_of_store, moved=self.transcript.messages_moved
        )
        if self.preferences.problem is not None:
            self.troubles.tell(self.preferences.problem, kind="warning")
        self.engine = self._make_engine(self.places)
        self.actions.chats.resume()
        self.loader.load()
        self.begun = True
        for text in self._waiting:
            self.conversation.ask(text)
        self._waiting.clear()

    def on_unmount(self) -> None:
        """Save what is pending and let the engine go."""
        if self.begun:
            self.answering.close()
            self.saved.store.close()
            self.engine.close()
            collector.reset()

    def _handle_exception(self, error: Exception) -> None:
        """Textual's way out; whoever runs the app looks at `troubles.fatal`."""
        self.troubles.give_up(error)
        super()._handle_exception(error)
        self._exit_renderables.clear()

    def _fatal_error(self) -> None:
        """No picture of the traceback, which Textual would print with all local variables."""
        self._close_messages_no_wait()

    def _warn_of_store(self, error: StoreError) -> None:
        message, hint = f"This chat is not being saved: {error.message}", error.hint
        if isinstance(error, UnknownChat):
            message = "This chat was deleted by another program."
            hint = "It goes on as a new chat with the same messages."
        self.page.say(message, hint, kind="warning", before=self.answering.answer)

    # Messages of widgets

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """A message or a command."""
        try:
            call = parse(event.text)
        except MlxspecError as error:
            self.troubles.tell(error, kind="warning")
            self.transcript.to_end()
            return
        text = self.composer.take().strip()
        self.composer.prompts.add(text)
        if call is not None:
            self.action_command(call.command.name, call.argument)
        elif self.begun:
            self.troubles.safely(self._send)(text)
        else:
            self._waiting.append(text)

    def _send(self, text: str) -> None:
        if not self.actions.answers.sent(text):
            self.conversation.ask(text)

    def on_transcript_round_picked(self, event: Transcript.RoundPicked) -> None:
        """A token was clicked."""
        self.actions.answers.look_into(event.entry, event.round)

    def on_inspector_moved(self, event: Inspector.Moved) -> None:
        """Another round is looked at: show where it stands."""
        self.transcript.show_round(event.entry, event.round)

    def on_inspector_typed(self, event: Inspector.Typed) -> None:
        """Keys go to the composer, from this one on."""
        self.composer.focus()
        self.composer.insert(event.character)

    def on_inspector_closed(self, _event: Inspector.Closed) -> None:
        """Keys go back to the composer."""
        self.transcript.show_round(None)
        self.composer.focus()

    def on_transcript_clicked(self, event: Transcript.Clicked) -> None:
        """A control, or an entry."""
        self.troubles.safely(partial(self.actions.clicked, event.entry))(event.action)

    def on_status_line_clicked(self, event: StatusLine.Clicked) -> None:
        """The names of the models lead to the picker, the rest to all commands."""
        if event.models:
            self.action_command("target")
        else:
            self.action_key("commands")

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The chat's keys mean nothing while something else is over it."""
        del parameters
        return not (action in ("command", "key") and self.screen.is_modal)

    def action_command(self, name: str, argument: str = "") -> None:
        """Do a command of the table."""
        if not self.begun:
            return
        before = len(self.transcript.entries)
        self.troubles.safely(partial(self.actions.do, name))(argument)
        if len(self.transcript.entries) > before:  # something was said, to be seen wherever the reader is
            self.transcript.to_end()
        self.page.show_status()

    def action_key(self, name: str) -> None:
        """Do what a key does that is no command."""
        self.keys.do(name)

    # What is marked, and in which colours

    def selected_text(self) -> str:
        """What is marked in the transcript or the composer."""
        return self.transcript.selected_text() or self.composer.selected_text

    def clear_selected_text(self) -> None:
        """Mark nothing any more."""
        self.transcript.clear_selection()
        self.composer.move_cursor(self.composer.cursor_location)

    def use_theme(self, name: str) -> None:
        """Change the colours, and remember it."""
        self.theme = theme_for(name)
        self.palette = self.inspector.palette = Palette(self.theme, colour=not self.no_color)
        self.transcript.use_palette(self.palette)
        self.remember("theme", name)

    def remember(self, setting: str, value: str) -> None:
        """Keep a setting for the next time."""
        self.troubles.safely(partial(self.preferences.change, setting))(value)
