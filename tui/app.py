"""The Textual app: which widgets stand where, and what the keys do. What commands do is in `actions`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content

from mlxspec.chat.commands import parse
from mlxspec.errors import InvalidSettings, MlxspecError
from mlxspec.places import Places, places
from mlxspec.settings import Settings, change_setting, load_settings
from tui.actions import Actions
from tui.answer import AnswerEntry
from tui.choices import Choices
from tui.composer import Composer
from tui.conversation import Conversation
from tui.engine_port import EngineLike, real_engine
from tui.entry import Entry, NoticeEntry
from tui.inspector import Inspector
from tui.keys import BINDINGS, Keys
from tui.lines import Piece
from tui.loader import Loader
from tui.options import ChatOptions
from tui.palette import THEMES, Palette, textual_theme, theme_for
from tui.prompt_history import PromptHistory
from tui.saved_chat import SavedChat
from tui.status import status_of
from tui.status_line import StatusLine
from tui.suggestions import Suggestions
from tui.transcript import Transcript
from tui.welcome import welcome

if TYPE_CHECKING:
    from textual.command import Provider


LONG_ANSWER = 20_000  # characters
T = TypeVar("T")
HINT_S = 2.0


def _palette_commands() -> type[Provider]:
    from tui.palette_commands import PaletteCommands

    return PaletteCommands


class ChatApp(App[int]):
    """The chat. `engine` makes the engine when the first picture is on the screen."""

    TITLE = "mlxspec"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMANDS: ClassVar = {_palette_commands}
    CSS = """
    #main { height: 1fr; align-horizontal: center; layout: vertical; }
    .-wide #main { layout: horizontal; }
    .-wide Inspector { width: 52; height: 1fr; }
    .-short Inspector { height: 50%; border: none; border-top: solid $accent; }
    .-short Composer { border: none; min-height: 1; max-height: 3; padding: 0; }
    .-short Suggestions { max-height: 3; }
    .-short StatusLine { padding: 0; }
    #column { width: 1fr; max-width: 124; height: 1fr; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (14, "-tall")]  # noqa: RUF012
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (84, "-middle"), (116, "-wide")]  # noqa: RUF012
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
        self.settings, self._settings_problem = _settings(self.places)
        for name in THEMES:
            self.register_theme(textual_theme(name))
        self.theme = theme_for(self.settings.theme)
        self.palette = Palette(self.theme, colour=not self.no_color)
        self.choices = Choices(
            target=self.options.target,
            draft=self.options.draft or "auto",
            context=self.options.context,
            kv_bits=self.options.kv_bits,
            datastore=self.options.datastore,
            system=self.options.system or "",
            values=dict(self.options.values),
        )
        self.coloured = self.settings.view == "coloured"
        self.actions = Actions(self)
        self.transcript = Transcript(self.palette)
        self.suggestions = Suggestions()
        history = self.places.data / "history.jsonl" if self.settings.history else None
        self.composer = Composer(PromptHistory(history), self.suggestions, complete=self.actions.complete)
        self.inspector = Inspector(self.palette)
        self.status_line = StatusLine()
        self.loader = Loader(self)
        self.conversation = Conversation(self)
        self.saved: SavedChat
        self.engine: EngineLike
        self.marked: Entry | None = None
        self._make_engine = engine or real_engine
        self.keys = Keys(self)
        self.begun = False
        self._measured_target = ""
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

    def on_mount(self) -> None:
        """Keys go to the composer from the first picture on."""
        self.composer.focus()
        self._show_welcome()

    def on_ready(self) -> None:
        """The first picture is painted; everything that takes time begins now."""
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        from mlxspec.chat.store import Store

        def reopen() -> Store:
            return Store.open_or_unsaved(self.places)

        self.saved = SavedChat(reopen(), reopen=reopen, warn=self._warn_of_store)
        if self._settings_problem is not None:
            self.say(self._settings_problem.message, self._settings_problem.hint, kind="warning")
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
            self.conversation.close()
            self.saved.store.close()
            self.engine.close()

    # What the parts tell the app

    def say(
        self,
        message: str,
        hint: str = "",
        *,
        kind: str = "muted",
        before: Entry | None = None,
        actions: Sequence[Piece] = (),
    ) -> None:
        """Put a word of the program's own into the transcript."""
        self.put_notice(NoticeEntry(message, hint, kind=kind, actions=actions), before=before)

    def safely(self, work: Callable[[T], object]) -> Callable[[T], None]:
        """The same work, but what goes wrong becomes a notice."""

        def guarded(value: T) -> None:
            try:
                work(value)
            except MlxspecError as error:
                self.say(error.message, error.hint, kind="warning")

        return guarded

    def put_notice(self, entry: NoticeEntry, *, before: Entry | None = None) -> None:
        """Put a notice into the transcript."""
        self.transcript.put(entry, before=before)
        self.transcript.update_rows()

    def put_answer(self, answer: AnswerEntry, *, before: Entry | None) -> None:
        """An answer begins."""
        for entry in self.transcript.entries:
            if entry.last_answer:
                entry.last_answer = False
                entry.changed()
        answer.last_answer = True
        self.transcript.put(answer, before=before)
        self.transcript.update_rows()
        self.show_status()

    def show_entries(self, entries: list[Entry]) -> None:
        """Show a chat."""
        self.marked = None
        answers = [entry for entry in entries if isinstance(entry, AnswerEntry)]
        if answers:
            answers[-1].last_answer = True
        if entries:
            self.transcript.show_entries(entries)
        else:
            self._show_welcome()
        self.chat_changed()
        self.show_status()

    def _show_welcome(self) -> None:
        self.transcript.show_entries([welcome(self.choices)])
        self.transcript.to_start()

    def answer_grew(self) -> None:
        """Events came."""
        self.transcript.update_rows()
        self.show_status()

    def answer_ended(self, answer: AnswerEntry) -> None:
        """An answer is complete: a long one settles when its Markdown has been read, away from the keys."""
        if answer.characters > LONG_ANSWER and not answer.coloured:
            self.run_worker(self._settle(answer), exit_on_error=False)
        else:
            answer.settle()
        self.transcript.update_rows()
        self.show_status()

    async def _settle(self, answer: AnswerEntry) -> None:
        import asyncio

        await asyncio.to_thread(answer.read)
        answer.settle()
        self.transcript.update_rows()

    def waiting_for(self, doing: str) -> None:
        """Say in an answer that has not begun what it waits for."""
        answer = self.conversation.answer
        if answer is not None and not answer.text and doing and answer.waiting != doing:
            answer.waiting = doing
            answer.changed()
            self.transcript.update_rows()

    def models_loaded(self) -> None:
        """Other models are in memory."""
        # What loading left behind stays; looking through it again and again would hold up keys and decoding.
        gc.freeze()
        loaded = self.loader.loaded
        if loaded is not None and loaded.target != self._measured_target:
            self._measured_target, self.conversation.plain_tokens_per_s = loaded.target, None
        answer = self.conversation.answer
        if answer is not None and not answer.text:
            answer.waiting = "reading the prompt"
            answer.changed()
        self.transcript.update_rows()

    def chat_changed(self) -> None:
        """Another chat, or another title."""
        chat = self.saved.chat
        self.title = f"{chat.title} – mlxspec" if chat is not None and chat.title else "mlxspec"

    def show_status(self) -> None:
        """Bring the status line up to date."""
        self.status_line.show(status_of(self))

    def _warn_of_store(self, error: MlxspecError) -> None:
        self.say(f"This chat is not being saved: {error.message}", error.hint, kind="warning")

    # Messages of widgets

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """A message or a command."""
        try:
            call = parse(event.text)
        except MlxspecError as error:
            self.say(error.message, error.hint, kind="warning")
            return
        text = self.composer.take().strip()
        self.composer.prompts.add(text)
        if call is not None:
            self.action_command(call.command.name, call.argument)
        elif self.begun:
            self.safely(self._send)(text)
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
        self.safely(partial(self.actions.clicked, event.entry))(event.action)

    def on_status_line_clicked(self, event: StatusLine.Clicked) -> None:
        """The names of the models lead to the picker, the rest to all commands."""
        if event.models:
            self.action_command("target")
        else:
            self.action_command_palette()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The chat's keys mean nothing while something else is over it."""
        del parameters
        return not (action in ("command", "key") and self.screen.is_modal)

    def action_command(self, name: str, argument: str = "") -> None:
        """Do a command of the table."""
        if not self.begun:
            return
        self.safely(partial(self.actions.do, name))(argument)
        self.show_status()

    def action_key(self, name: str) -> None:
        """Do what a key does that is no command."""
        self.keys.do(name)

    def mark(self, entry: Entry | None) -> None:
        """Let commands go to this entry; None for the last one."""
        for other in (self.marked, entry):
            if other is not None:
                other.marked = other is entry
                other.changed()
        self.marked = entry
        self.transcript.update_rows()

    def selected_text(self) -> str:
        """What is marked in the transcript or the composer."""
        return self.transcript.selected_text() or self.composer.selected_text

    def clear_selected_text(self) -> None:
        """Mark nothing any more."""
        self.transcript.clear_selection()
        self.composer.move_cursor(self.composer.cursor_location)

    def hint(self, text: str) -> None:
        """Say something that goes away by itself."""
        self.notify(Content(text).plain, timeout=HINT_S, markup=False)

    def use_theme(self, name: str) -> None:
        """Change the colours, and remember it."""
        self.theme = theme_for(name)
        self.palette = self.inspector.palette = Palette(self.theme, colour=not self.no_color)
        self.transcript.use_palette(self.palette)
        self.remember("theme", name)

    def remember(self, setting: str, value: str) -> None:
        """Keep a setting for the next time."""

        def change(value: str) -> None:
            self.settings = change_setting(self.places, setting, value)

        self.safely(change)(value)


def _settings(where: Places) -> tuple[Settings, InvalidSettings | None]:
    try:
        return load_settings(where), None
    except InvalidSettings as error:
        return Settings(), error


def run(**options: Any) -> int:
    """Open the chat; see `ChatOptions` for the options. Returns the exit code."""
    if os.environ.get("NO_COLOR") == "":
        # Set but empty means colours (no-color.org).
        del os.environ["NO_COLOR"]
    load = options.pop("load", None)
    if load is not None:
        options |= {name: getattr(load, name) for name in ("target", "context", "kv_bits", "datastore")}
        options["draft"] = None if load.draft == "auto" else load.draft
    return ChatApp(ChatOptions(**options)).run() or 0
