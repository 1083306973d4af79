"""Commands about messages and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxspec.errors import UsageError
from tui import clipboard, figures
from tui.answer import AnswerEntry
from tui.attachments import split_attachments
from tui.entry import Entry, UserEntry
from tui.shown import one_line

if TYPE_CHECKING:
    from tui.app import ChatApp


class AnswerActions:
    """They go to the marked message, else to the last one."""

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self._editing: UserEntry | None = None

    def retry(self, _argument: str) -> None:
        """/retry."""
        if not self._app.conversation.retry(self._app.page.marked):
            raise UsageError("There is nothing to answer again.", hint="Ask something first.")

    def edit(self, argument: str) -> None:
        """/edit: by number, of the marked question, else chosen from a list."""
        questions = self._questions()
        if argument:
            self._edit(self._numbered(questions, argument))
        elif isinstance(self._app.page.marked, UserEntry):
            self._edit(self._app.page.marked)
        elif questions:
            self._choose_question(questions)
        else:
            raise UsageError("There is no message to change.", hint="Ask something first.")

    def branch(self, argument: str) -> None:
        """/branch: the next version of a message."""
        if argument:
            entry: Entry | None = self._numbered(self._questions(), argument)
        else:
            marked = self._app.page.marked
            entry = marked if isinstance(marked, UserEntry | AnswerEntry) else self._last_branched()
        if not isinstance(entry, UserEntry | AnswerEntry) or entry.versions[1] < 2:
            raise UsageError("There is one version of it only.", hint="/retry and /edit make others.")
        self._app.conversation.go_to_version(entry, 1)

    def copy(self, argument: str) -> None:
        """/copy: the marked message or the last answer, or the last code block."""
        marked = self._app.page.marked
        if argument != "code" and marked is not None:
            self.copy_text(marked.plain_text(), "the marked message")
            return
        answer = self._last_answer()
        if answer is None:
            raise UsageError("There is no answer to copy.", hint="Ask something first.")
        if argument != "code":
            self.copy_text(answer.plain_text(), "the answer")
            return
        for entry in reversed(self._answers()):
            if (code := clipboard.last_code_block(entry.plain_text())) is not None:
                self.copy_text(code, "the code block")
                return
        raise UsageError("There is no code block in this chat.", hint="/copy copies the whole answer.")

    def copy_text(self, text: str, what: str) -> None:
        """Copy by the system's program, else by the terminal; say what was done."""

        async def work() -> None:
            import asyncio

            if not await asyncio.to_thread(clipboard.copy, text):
                self._app.copy_to_clipboard(text)
            self._app.page.hint(f"Copied {what}, {len(text)} characters")

        self._app.troubles.in_background(work())

    def view(self, argument: str) -> None:
        """/view: the other view of the marked answer, else of the last one; or the view of all."""
        if argument:
            self._view_of_all(argument == "tokens")
            return
        entry = self._marked_or_last()
        if entry is None or entry.streaming:
            self._app.page.coloured = not self._app.page.coloured
            if entry is not None:
                entry.coloured = self._app.page.coloured
            view = "coloured tokens" if self._app.page.coloured else "Markdown"
            self._app.page.hint(f"Complete answers are shown as {view}")
            return
        entry.colour(not entry.coloured)
        self._app.transcript.update_rows()

    def _view_of_all(self, coloured: bool) -> None:
        self._app.page.coloured = coloured
        for answer in self._answers():
            if answer.settled:
                answer.colour(coloured)
            else:
                answer.coloured = coloured
        self._app.transcript.update_rows()
        self._app.remember("view", "coloured" if coloured else "markdown")

    def inspect(self, _argument: str) -> None:
        """/inspect."""
        inspector = self._app.inspector
        if inspector.entry is not None:
            inspector.close()
            return
        entry = self._marked_or_last()
        if entry is None:
            raise UsageError("There is no answer to look into.", hint="Ask something first.")
        self.look_into(entry, None)

    def look_into(self, entry: AnswerEntry, round_number: int | None) -> None:
        """Open the inspector at a round of an answer, whose tokens are then shown."""
        entry.fetch_tokens()
        if not entry.tokens:
            self._app.page.hint("Nothing of this answer has come yet")
            return
        if not entry.shows_tokens:
            entry.colour(True)
        self._app.inspector.open(entry, round_number)

    def stats(self, _argument: str) -> None:
        """/stats."""
        answers = [entry.stats for entry in self._answers() if entry.stats]
        if not answers:
            raise UsageError("There are no figures yet.", hint="Ask something first.")
        lines = ["The last answer: " + " · ".join(figures.summary(answers[-1]))]
        tokens = sum(int(stats.get("tokens", 0)) for stats in answers)
        seconds = sum(float(stats.get("decode_s", 0.0)) for stats in answers)
        proposed = sum(int(stats.get("proposed", 0)) for stats in answers)
        accepted = sum(int(stats.get("accepted", 0)) for stats in answers)
        whole = f"This chat: {len(answers)} answers · {tokens} tokens"
        if seconds:
            whole += f" · {figures.number(tokens / seconds)} tok/s"
        if proposed:
            whole += f" · {figures.percent(accepted / proposed)} of {proposed} guesses kept"
        last = answers[-1]
        counts = ("accepted", "resampled", "bonus", "plain", "rounds", "target_passes", "prompt_tokens")
        lines += [whole, " · ".join(f"{name.replace('_', ' ')} {last.get(name, 0)}" for name in counts)]
        if last.get("seed") is not None:
            lines.append(f"seed {last['seed']} · rule {last.get('accept', figures.UNKNOWN)}")
        self._app.page.say("\n".join(lines))

    def fold(self, entry: Entry | None) -> None:
        """Fold or unfold the thinking of an answer."""
        answer = entry if isinstance(entry, AnswerEntry) else self._last_answer()
        if answer is not None:
            answer.folded = not answer.folded
            answer.changed()
            self._app.transcript.update_rows()

    def mark_next(self, step: int) -> None:
        """Mark the message above or below the marked one."""
        entries = [e for e in self._app.transcript.entries if isinstance(e, UserEntry | AnswerEntry)]
        if not entries:
            return
        marked = self._app.page.marked
        if marked in entries:
            at = entries.index(marked) + step
        else:
            at = len(entries) - 1 if step < 0 else len(entries)
        if at >= len(entries):
            self._app.page.mark(None)
            self._app.transcript.to_end()
            return
        entry = entries[max(0, at)]
        self._app.page.mark(entry)
        self._app.transcript.show_entry(entry)

    def sent(self, text: str) -> bool:
        """Whether what was sent is another wording of an earlier message; then it is put there."""
        entry, self._editing = self._editing, None
        if entry is None or entry not in self._app.transcript.entries:
            return False
        self._app.page.mark(None)
        self._app.composer.border_title = ""
        self._app.conversation.edit(entry, text)
        return True

    def give_up_editing(self) -> bool:
        """Esc: what is written is a new message again."""
        if self._editing is None:
            return False
        self._editing = None
        self._app.composer.border_title = ""
        return True

    def _edit(self, entry: UserEntry) -> None:
        self._editing = entry
        typed, _files = split_attachments(entry.text)
        self._app.page.mark(entry)
        self._app.composer.put(typed)
        self._app.composer.border_title = "Change the marked message; Esc writes a new one instead"
        self._app.composer.focus()
        self._app.transcript.show_entry(entry)

    def _choose_question(self, questions: list[UserEntry]) -> None:
        from tui.chooser import Choice, Chooser, Row

        rows = [
            Row(str(number), f"{number}  {one_line(entry.text)[:70]}")
            for number, entry in enumerate(questions, start=1)
        ]

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._edit(questions[int(choice.id) - 1])

        self._app.push_screen(Chooser("Change which message?", list(reversed(rows))), chosen)

    def _numbered(self, questions: list[UserEntry], argument: str) -> UserEntry:
        if not argument.isascii() or not argument.isdigit() or not 1 <= int(argument) <= len(questions):
            raise UsageError(
                f"There is no message {argument!r}.",
                hint=f"Messages are numbered from 1 to {len(questions)}.",
            )
        return questions[int(argument) - 1]

    def _questions(self) -> list[UserEntry]:
        return [e for e in self._app.transcript.entries if isinstance(e, UserEntry) and not e.queued]

    def _answers(self) -> list[AnswerEntry]:
        return [entry for entry in self._app.transcript.entries if isinstance(entry, AnswerEntry)]

    def _marked_or_last(self) -> AnswerEntry | None:
        marked = self._app.page.marked
        return marked if isinstance(marked, AnswerEntry) else self._last_answer()

    def _last_answer(self) -> AnswerEntry | None:
        return next(reversed(self._answers()), None)

    def _last_branched(self) -> Entry | None:
        return next(
            (
                entry
                for entry in reversed(self._app.transcript.entries)
                if isinstance(entry, UserEntry | AnswerEntry) and entry.versions[1] > 1
            ),
            None,
        )
