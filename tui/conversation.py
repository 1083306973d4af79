"""The chat on the screen: asking, trying again, changing, and going from branch to branch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tui.answer import AnswerEntry
from tui.attachments import attach
from tui.entry import Entry, UserEntry
from tui.saved_entries import entries_of

if TYPE_CHECKING:
    from mlxspec.chat.records import Chat, SavedMessage
    from tui.app import ChatApp

NEARLY_FULL = 0.85


class Conversation:
    """Turns what the user does into saved messages and entries of the transcript; `answering` answers them.

    Attributes:
        queue: messages that wait until the answer is complete.
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self.queue: list[UserEntry] = []
        self._warned_of_context = False

    def ask(self, text: str) -> None:
        """Send a message, after the answer that streams if there is one."""
        message, problems = attach(text, Path.cwd())
        for problem in problems:
            self._app.page.say(problem, kind="warning")
        entry = UserEntry(message)
        entry.queued = self._app.answering.answer is not None
        self._app.transcript.put(entry)
        self._app.transcript.to_end()
        if entry.queued:
            self.queue.append(entry)
        else:
            self._begin(entry)

    def retry(self, entry: Entry | None = None) -> bool:
        """Answer a question once more, beside the answer that it has. False when there is none."""
        self._app.answering.stop(at_once=True)
        messages = self._app.saved.path()
        at = self._index_of(_message_of(entry), messages) if entry is not None else len(messages) - 1
        while at >= 0 and messages[at].role != "user":
            at -= 1
        if at < 0:
            return False
        self._show(messages[: at + 1])
        self._answer(messages[at])
        return True

    def edit(self, entry: UserEntry, text: str) -> None:
        """Put another wording in the place of a question, and answer it; the old branch stays."""
        self._app.answering.stop(at_once=True)
        messages = self._app.saved.path()
        at = self._index_of(entry.message, messages)
        if at < 0:
            self.ask(text)
            return
        message, problems = attach(text, Path.cwd())
        edited = self._app.saved.edit(messages[at], message)
        self._show(self._app.saved.path())
        for problem in problems:
            self._app.page.say(problem, kind="warning")
        self._answer(edited)

    def go_to_version(self, entry: UserEntry | AnswerEntry, steps: int) -> None:
        """Show another branch."""
        if entry.message is None:
            return
        self._app.answering.stop(at_once=True)
        self._show(self._app.saved.go_to_version(entry.message, steps))

    def open(self, chat: Chat | None) -> None:
        """Show a saved chat, or begin a new one."""
        self._app.answering.stop(at_once=True)
        self.queue.clear()
        self._warned_of_context = False
        self._show(self._app.saved.open(chat))

    def answer_ended(self, state: str) -> None:
        """An answer is done, stopped or failed: the next message is asked, or given back."""
        self._warn_of_full_context()
        if state == "done" and self.queue:
            self._begin(self.queue.pop(0))
        elif self.queue:
            self._give_queue_back()

    def _begin(self, entry: UserEntry) -> None:
        choices = self._app.choices
        question = self._app.saved.ask(
            entry.text,
            target=choices.target or "",
            draft=choices.draft,
            system=choices.system,
            params=choices.params(),
        )
        entry.message, entry.queued = question.id, False
        entry.changed()
        self._app.page.chat_changed()
        self._answer(question)

    def _answer(self, question: SavedMessage) -> None:
        messages = self._app.saved.path()
        up_to_it = messages[: 1 + self._index_of(question.id, messages)]
        self._app.answering.begin(up_to_it, before=self.queue[0] if self.queue else None)

    def _give_queue_back(self) -> None:
        """What was to be sent next goes back to where it was written."""
        texts = [entry.text for entry in self.queue]
        for entry in self.queue:
            self._app.transcript.take_out(entry)
        self.queue.clear()
        written = self._app.composer.text
        self._app.composer.put("\n\n".join([*texts, written] if written else texts))

    def _warn_of_full_context(self) -> None:
        holds, used = self._app.loader.context_tokens, self._app.answering.context_used
        if not holds or used is None or self._warned_of_context:
            return
        if used > NEARLY_FULL * holds:
            self._warned_of_context = True
            share = 100 * used / holds
            self._app.page.say(
                f"The context is {share:.0f} % full.",
                "The oldest turns will soon leave the prompt; they stay on the screen. /new begins afresh.",
                kind="warning",
            )

    def _show(self, messages: Sequence[SavedMessage]) -> None:
        entries = entries_of(
            messages,
            self._app.saved,
            shown=self._app.transcript.entries,
            coloured=self._app.page.coloured,
        )
        self._app.answering.take_figures(entries)
        self._app.page.show_entries(entries)

    def _index_of(self, wanted: int | None, messages: Sequence[SavedMessage]) -> int:
        return next((at for at, message in enumerate(messages) if message.id == wanted), -1)


def _message_of(entry: Entry) -> int | None:
    return entry.message if isinstance(entry, UserEntry | AnswerEntry) else None
