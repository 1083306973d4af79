"""The chat on the screen: asking, answering, stopping, trying again, and going from branch to branch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlxspec.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    Notice,
    Prefill,
    RoundReport,
    Tokens,
)
from tui.answer import AnswerEntry
from tui.attachments import attach
from tui.choices import turns
from tui.entry import Entry, UserEntry
from tui.feed import Feed
from tui.meter import Meter
from tui.saved_entries import entries_of

if TYPE_CHECKING:
    from mlxspec.chat.answer_writer import AnswerWriter
    from mlxspec.chat.records import Chat, SavedMessage
    from tui.app import ChatApp

NEARLY_FULL = 0.85
SAVING_S = 10.0  # more than a write takes, another program's turn included
_NOTES = {
    FinishReason.LENGTH: "Ended at the most tokens that were allowed, max-tokens.",
    FinishReason.CONTEXT: "Ended because the context is full.",
    FinishReason.CANCELLED: "Stopped.",
}


class Conversation:
    """Turns what the user does into saved messages, requests and entries of the transcript.

    Attributes:
        answer: the answer that streams, None while there is none.
        queue: messages that wait until the answer is complete.
        meter: the figures of the answer that streams, or of the last one.
        context_used: tokens in the context after the last answer; None while that is unknown.
        last_stats: the figures of the last complete answer.
        plain_tokens_per_s: of the loaded target on this machine, as known last; None while that is unknown.
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self.answer: AnswerEntry | None = None
        self.queue: list[UserEntry] = []
        self.meter: Meter | None = None
        self.context_used: int | None = None
        self.last_stats: dict[str, object] | None = None
        self.plain_tokens_per_s: float | None = None
        self._target = ""
        self._feed: Feed | None = None
        self._writer: AnswerWriter | None = None
        self._warned_of_context = False

    # Asking

    def ask(self, text: str) -> None:
        """Send a message, after the answer that streams if there is one."""
        message, problems = attach(text, Path.cwd())
        for problem in problems:
            self._app.page.say(problem, kind="warning")
        entry = UserEntry(message)
        entry.queued = self.answer is not None
        self._app.transcript.put(entry)
        self._app.transcript.to_end()
        if entry.queued:
            self.queue.append(entry)
        else:
            self._begin(entry)

    def retry(self, entry: Entry | None = None) -> bool:
        """Answer a question once more, beside the answer that it has. False when there is none."""
        self.stop(at_once=True)
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
        self.stop(at_once=True)
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
        self.stop(at_once=True)
        self._show(self._app.saved.go_to_version(entry.message, steps))

    def open(self, chat: Chat | None) -> None:
        """Show a saved chat, or begin a new one."""
        self.stop(at_once=True)
        self.queue.clear()
        self._warned_of_context = False
        self._show(self._app.saved.open(chat))

    def stop(self, *, at_once: bool = False) -> bool:
        """Stop the answer that streams; what stands there stays. False when there is none.

        The engine needs up to a round, and then gives the figures; `at_once` does without them.
        """
        answer, feed = self.answer, self._feed
        if answer is None or feed is None:
            return False
        feed.job.cancel()
        if at_once or not answer.text:  # the engine may still be loading, or reading a prompt
            feed.stop()
            self._handle(feed.job.drain())
            if self.answer is not None:
                self._end("stopped", stats=None, note="Stopped.")
        return True

    def close(self) -> None:
        """The app ends. What has come of an answer is saved when the store closes."""
        if self._feed is not None:
            self._feed.stop()
            self._feed.job.cancel()

    def models_loaded(self, loaded: Loaded) -> None:
        """Other models are in memory."""
        if loaded.target != self._target:
            self._target, self.plain_tokens_per_s = loaded.target, None
            self._look_up_plain_speed()
        self.wait_for("reading the prompt")

    # Answering

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
        messages = messages[: 1 + self._index_of(question.id, messages)]
        answer = AnswerEntry(coloured=self._app.page.coloured)
        answer.waiting = self._app.loader.doing or "reading the prompt"
        self._writer = self._app.saved.answer(question.id)
        answer.message = self._writer.message
        answer.versions = self._app.saved.versions().get(answer.message, (1, 1))
        self.answer = answer
        self.meter = Meter(time.perf_counter)
        self._app.page.put_answer(answer, before=self.queue[0] if self.queue else None)
        try:
            request = self._app.choices.generate_request(turns(messages))
            job = self._app.engine.generate(request)
        except Exception as error:
            self._end("failed", stats=None, note="It failed.")
            self._app.page.say(str(error), kind="error")
            return
        self._feed = Feed(job, self._app.troubles.safely(self._handle))
        self._app.run_worker(self._feed.run(), exit_on_error=True)

    def _handle(self, events: Sequence[Event]) -> None:
        answer = self.answer
        if answer is None:
            return
        for event in events:
            if self.meter is not None:
                self.meter.take(event)
            match event:
                case Tokens():
                    if not answer.tokens:
                        self._look_up_plain_speed()
                    answer.append(event)
                    if self._writer is not None:
                        self._writer.append(event)
                case RoundReport():
                    answer.reports[event.round] = event
                    if self._writer is not None:
                        self._writer.append(event)
                case Prefill():
                    self.wait_for(_prefill_text(event))
                case Notice():
                    self._notice(event)
                case Finished():
                    self._finished(event)
                case Failed():
                    self._end("failed", stats=None, note="It failed.")
                    self._app.page.say(event.message, event.hint, kind="error")
                case _:
                    pass
        if self._writer is not None:
            self._app.saved.look(self._writer)
        self._app.page.answer_grew()

    def wait_for(self, doing: str) -> None:
        """Say in an answer that has not begun what it waits for; "" for nothing else than before."""
        if self.answer is not None and not self.answer.text and doing and self.answer.waiting != doing:
            self.answer.waiting = doing
            self.answer.changed()
            self._app.page.refresh()

    def _finished(self, event: Finished) -> None:
        stats = event.stats.as_dict()
        if self.meter is not None and self.meter.plain_tokens_per_s is not None:
            self.plain_tokens_per_s = self.meter.plain_tokens_per_s
        if self.plain_tokens_per_s is not None:
            stats.setdefault("plain_tokens_per_s", self.plain_tokens_per_s)
        self.last_stats = stats
        self.context_used = event.stats.prompt_tokens + event.stats.tokens
        state = "stopped" if event.reason is FinishReason.CANCELLED else "done"
        self._end(state, stats=stats, note=_NOTES.get(event.reason, ""))
        self._warn_of_full_context()

    def _look_up_plain_speed(self) -> None:
        """What earlier answers taught; measured once, while the first answer of a target is on its way."""
        from mlxspec.engine.plain_speed import plain_tokens_per_s

        if self.plain_tokens_per_s is None and self._target:
            self.plain_tokens_per_s = plain_tokens_per_s(self._target, self._app.places)

    def _end(self, state: str, *, stats: dict[str, object] | None, note: str) -> None:
        from mlxspec.chat.records import MessageState

        answer, writer = self.answer, self._writer
        self.answer = self._feed = self._writer = None
        if answer is None:
            return
        answer.finish(stats=stats, note=note)
        if writer is not None:
            writer.finish(MessageState(state), stats=stats)
            self._app.saved.remember(writer.message, answer.text, state=MessageState(state), stats=stats)
            self._app.troubles.in_background(self._see_saved(writer))
        self._app.page.answer_ended(answer)
        if state == "done" and self.queue:
            self._begin(self.queue.pop(0))
        elif self.queue:
            self._give_queue_back()

    async def _see_saved(self, writer: AnswerWriter) -> None:
        """Say so if the end of an answer, which is written in the background, cannot be saved."""
        await asyncio.to_thread(writer.wait, SAVING_S)
        if self._writer is None:
            self._app.saved.look(writer)
            self._app.page.show_status()

    def _give_queue_back(self) -> None:
        """What was to be sent next goes back to where it was written."""
        texts = [entry.text for entry in self.queue]
        for entry in self.queue:
            self._app.transcript.take_out(entry)
        self.queue.clear()
        written = self._app.composer.text
        self._app.composer.put("\n\n".join([*texts, written] if written else texts))

    def _notice(self, event: Notice) -> None:
        if event.left_out_turns:
            self._mark_outside(event.left_out_turns)
        kind = "warning" if event.left_out_turns else "muted"
        self._app.page.say(event.message, kind=kind, before=self.answer)

    def _mark_outside(self, count: int) -> None:
        """Mark the oldest turns as no longer in the prompt."""
        seen = 0
        for entry in self._app.transcript.entries:
            if isinstance(entry, UserEntry):
                seen += 1
                if seen > count:
                    break
            if isinstance(entry, UserEntry | AnswerEntry) and entry is not self.answer:
                entry.outside = True
                entry.changed()

    def _warn_of_full_context(self) -> None:
        holds = self._app.loader.context_tokens
        if not holds or self.context_used is None or self._warned_of_context:
            return
        if self.context_used > NEARLY_FULL * holds:
            self._warned_of_context = True
            share = 100 * self.context_used / holds
            self._app.page.say(
                f"The context is {share:.0f} % full.",
                "The oldest turns will soon leave the prompt; they stay on the screen. /new begins afresh.",
                kind="warning",
            )

    # Showing

    def _show(self, messages: Sequence[SavedMessage]) -> None:
        entries = entries_of(
            messages,
            self._app.saved,
            shown=self._app.transcript.entries,
            coloured=self._app.page.coloured,
        )
        self._take_figures(entries)
        self._app.page.show_entries(entries)

    def _take_figures(self, entries: Sequence[Entry]) -> None:
        """What is known of the chat's last answer, and of the context behind it."""
        answers = [entry for entry in entries if isinstance(entry, AnswerEntry)]
        stats = answers[-1].stats if answers else None
        self.meter, self.last_stats, self.context_used = None, None, None
        if stats:
            self.last_stats = dict(stats)
            self.context_used = int(stats.get("prompt_tokens", 0)) + int(stats.get("tokens", 0))

    def _index_of(self, wanted: int | None, messages: Sequence[SavedMessage]) -> int:
        return next((at for at, message in enumerate(messages) if message.id == wanted), -1)


def _message_of(entry: Entry) -> int | None:
    return entry.message if isinstance(entry, UserEntry | AnswerEntry) else None


def _prefill_text(event: Prefill) -> str:
    if event.done >= event.total - 1:  # the last one is read with the first round
        return "waiting for the first token"
    known = f", {event.reused} of them known already" if event.reused else ""
    return f"reading the prompt: {event.done} of {event.total} tokens{known}"
