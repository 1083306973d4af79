"""What stands on the screen: the entries of the transcript, which of them is marked, title and status line.

The parts of the app that do the work tell it what has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from tui.answer import AnswerEntry
from tui.entry import Entry, NoticeEntry
from tui.status import status_of
from tui.welcome import welcome

if TYPE_CHECKING:
    from textual.timer import Timer

    from tui.app import ChatApp
    from tui.lines import Piece

LONG_ANSWER = 20_000  # characters
HINT_S = 2.0
STATUS_S = 0.4  # between two changes of the status line while an answer streams


class Page:
    """See the module's docstring.

    Attributes:
        marked: the entry that commands go to; None for the last one.
        coloured: whether complete answers are shown as coloured tokens.
    """

    def __init__(self, app: ChatApp, *, coloured: bool) -> None:
        self._app = app
        self.marked: Entry | None = None
        self.coloured = coloured
        self._status_due: Timer | None = None

    # Words of the program's own

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

    def put_notice(self, entry: NoticeEntry, *, before: Entry | None = None) -> None:
        """Put a notice into the transcript."""
        self._app.transcript.put(entry, before=before)
        self._app.transcript.update_rows()

    def hint(self, text: str) -> None:
        """Say something that goes away by itself."""
        self._app.notify(Content(text).plain, timeout=HINT_S, markup=False)

    # Chats

    def show_entries(self, entries: list[Entry]) -> None:
        """Show a chat."""
        self.marked = None
        answers = [entry for entry in entries if isinstance(entry, AnswerEntry)]
        if answers:
            answers[-1].last_answer = True
        if entries:
            self._app.transcript.show_entries(entries)
        else:
            self.show_welcome()
        self.chat_changed()
        self.show_status()

    def show_welcome(self) -> None:
        """Show what stands in an empty chat."""
        self._app.transcript.show_entries([welcome(self._app.choices)])
        self._app.transcript.to_start()

    def chat_changed(self) -> None:
        """Another chat, or another title."""
        chat = self._app.saved.chat
        self._app.title = f"{chat.title} – mlxspec" if chat is not None and chat.title else "mlxspec"

    def mark(self, entry: Entry | None) -> None:
        """Let commands go to this entry; None for the last one."""
        for other in (self.marked, entry):
            if other is not None:
                other.marked = other is entry
                other.changed()
        self.marked = entry
        self._app.transcript.update_rows()

    # Answers

    def put_answer(self, answer: AnswerEntry, *, before: Entry | None) -> None:
        """An answer begins."""
        for entry in self._app.transcript.entries:
            if entry.last_answer:
                entry.last_answer = False
                entry.changed()
        answer.last_answer = True
        self._app.transcript.put(answer, before=before)
        self.refresh()

    def answer_grew(self) -> None:
        """Events of the answer that streams came.

        The status line follows by itself now and then: if both change, Textual draws all between them.
        """
        self._app.transcript.update_rows()
        if self._status_due is None:
            self._status_due = self._app.set_timer(STATUS_S, self.show_status)

    def refresh(self) -> None:
        """Entries have grown or changed: bring transcript and status line up to date."""
        self._app.transcript.update_rows()
        self.show_status()

    def answer_ended(self, answer: AnswerEntry) -> None:
        """An answer is complete: a long one settles when its Markdown has been read, away from the keys."""
        if answer.characters > LONG_ANSWER and not answer.coloured:
            self._app.troubles.in_background(self._settle(answer))
        else:
            answer.settle()
        self.refresh()

    def show_status(self) -> None:
        """Bring the status line up to date."""
        if self._status_due is not None:
            self._status_due.stop()
            self._status_due = None
        self._app.status_line.show(status_of(self._app))

    async def _settle(self, answer: AnswerEntry) -> None:
        await asyncio.to_thread(answer.read)
        answer.settle()
        self._app.transcript.update_rows()
