"""Commands about saved chats."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlxspec.errors import StoreError, UnknownChat, UsageError

if TYPE_CHECKING:
    from mlxspec.chat.records import Chat, Hit
    from tui.app import ChatApp
    from tui.chooser import Choice, Row

MOST_IDS = 20  # that completion offers
FIRST_WORDS = 2  # letters that a search needs


class ChatActions:
    """Listing, opening, naming, deleting, exporting."""

    def __init__(self, app: ChatApp) -> None:
        self._app = app

    @property
    def ids(self) -> list[str]:
        """Of the chats used last, for completion; none while they cannot be read."""
        try:
            return [chat.id for chat in self._app.saved.store.recent(MOST_IDS)]
        except StoreError:
            return []

    def resume(self) -> None:
        """Go on with the chat that the command line names. What cannot be found is said."""
        options, store = self._app.options, self._app.saved.store
        try:
            if options.session is not None:
                self._open(store.find_chat(options.session), load=False)
            elif options.resume:
                chat = store.last()
                if chat is None:
                    raise UnknownChat("There is no saved chat to go on with.", hint="This is a new one.")
                self._open(chat, load=False)
        except StoreError as error:
            self._app.page.say(error.message, error.hint, kind="warning")

    def new(self, _argument: str) -> None:
        """/new."""
        self._app.conversation.open(None)
        self._app.composer.focus()

    def list(self, argument: str) -> None:
        """/chats: one by its ID, or a list."""
        store = self._app.saved.store
        if argument:
            self._open(store.find_chat(argument))
            return
        from tui.chooser import Chooser

        rows = [self._row(chat) for chat in store.recent()]
        screen = Chooser(
            "Chats",
            rows,
            keys={"ctrl+t": "rename", "ctrl+d": "delete"},
            empty="No chat is saved yet.",
            current=self._app.saved.id,
        )
        self._app.push_screen(screen, self._app.troubles.safely(self._chosen))

    def search(self, argument: str) -> None:
        """/search."""
        from tui.chooser import Chooser

        screen = Chooser(
            "Search all chats",
            find=self._hits,
            typed=argument,
            empty="Type words; all of them must be there.",
        )
        self._app.push_screen(screen, self._app.troubles.safely(self._chosen))

    def rename(self, argument: str) -> None:
        """/rename."""
        self._app.saved.chat = self._app.saved.store.rename(self._chat().id, argument)
        self._app.page.chat_changed()
        self._app.page.hint(f"This chat is called {self._app.saved.chat.title}")

    def delete(self, _argument: str) -> None:
        """/delete."""
        self._ask_to_delete(self._chat())

    def export(self, argument: str) -> None:
        """/export."""
        from mlxspec.chat.export import to_json, to_markdown

        chat, store = self._chat(), self._app.saved.store
        file = Path(argument).expanduser()
        text = to_json(store, chat) if file.suffix == ".json" else to_markdown(chat, store.path(chat.id))
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(text)
        except OSError as error:
            raise UsageError(
                f"{file} cannot be written: {error.strerror or error}.", hint="Give another name or folder."
            ) from error
        self._app.page.say(f"Written to {file.absolute()}")

    def _chat(self) -> Chat:
        chat = self._app.saved.chat
        if chat is None:
            raise UsageError("This chat is empty.", hint="Ask something first.")
        return self._app.saved.store.chat(chat.id)

    def _open(self, chat: Chat, *, load: bool = True) -> None:
        choices = self._app.choices
        before = (choices.target, choices.draft)
        choices.go_on_with(chat)
        options = self._app.options
        if not load:  # what the command line says goes before what the chat remembers
            choices.target = options.target or choices.target
            choices.draft = options.draft or choices.draft
            choices.system = choices.system if options.system is None else options.system
            choices.values.update(options.values)
        self._app.conversation.open(chat)
        if load and (choices.target, choices.draft) != before:
            self._app.loader.load()

    def _chosen(self, choice: Choice | None) -> None:
        if choice is None:
            return
        store = self._app.saved.store
        chat_id, _, message = choice.id.partition(":")
        chat = store.chat(chat_id)
        if choice.key == "ctrl+d":
            self._ask_to_delete(chat)
        elif choice.key == "ctrl+t":
            self._ask_for_title(chat)
        else:
            if message and int(message) not in [one.id for one in store.path(chat.id)]:
                store.set_head(store.newest_leaf(int(message)))
            self._open(store.chat(chat.id))
            if message:
                self._show_message(int(message))

    def _show_message(self, message: int) -> None:
        for entry in self._app.transcript.entries:
            if getattr(entry, "message", None) == message:
                self._app.page.mark(entry)
                self._app.transcript.show_entry(entry)

    def _ask_to_delete(self, chat: Chat) -> None:
        from tui.question import Confirm

        def answered(yes: bool | None) -> None:
            if not yes:
                return
            self._app.answering.stop(at_once=chat.id == self._app.saved.id)
            self._app.saved.store.delete(chat.id)
            if chat.id == self._app.saved.id:
                self.new("")
            self._app.page.hint("The chat is deleted")

        question = f"Delete “{chat.title}” with its {chat.messages} messages?"
        self._app.push_screen(Confirm(question, yes="delete it"), self._app.troubles.safely(answered))

    def _ask_for_title(self, chat: Chat) -> None:
        from tui.question import AskLine

        def answered(title: str | None) -> None:
            if title is None:
                return
            renamed = self._app.saved.store.rename(chat.id, title)
            if chat.id == self._app.saved.id:
                self._app.saved.chat = renamed
                self._app.page.chat_changed()
            self.list("")

        self._app.push_screen(AskLine("The new title:", text=chat.title), self._app.troubles.safely(answered))

    def _row(self, chat: Chat) -> Row:
        from tui.chooser import Row

        return Row(chat.id, chat.title, f"{when(chat.updated)} · {chat.messages} messages · {chat.id}")

    def _hits(self, typed: str) -> Sequence[Row]:
        from tui.chooser import Row

        if len(typed.strip()) < FIRST_WORDS:
            return []
        return [
            Row(_hit_id(hit), hit.title, hit.role or "title", note=hit.before + hit.match + hit.after)
            for hit in self._app.saved.store.search(typed)
        ]


def when(seconds: float) -> str:
    """A time as it is said about chats: the hour for today, else the day."""
    then = time.localtime(seconds)
    today = time.localtime()
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%d %b" if then[0] == today[0] else "%d %b %Y", then)


def _hit_id(hit: Hit) -> str:
    return hit.chat if hit.message is None else f"{hit.chat}:{hit.message}"
