"""The answer that streams: from the request to the screen, the saved chat and the figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlxspec.errors import NothingLoaded
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
from tui.choices import turns
from tui.entry import Entry, UserEntry
from tui.feed import Feed
from tui.loader import OTHER_MODELS
from tui.meter import Meter

if TYPE_CHECKING:
    from mlxspec.chat.answer_writer import AnswerWriter
    from mlxspec.chat.records import SavedMessage
    from tui.app import ChatApp

SAVING_S = 10.0  # more than a write takes, another program's turn included
_NOTES = {
    FinishReason.LENGTH: "Ended at the most tokens that were allowed, max-tokens.",
    FinishReason.CONTEXT: "Ended because the context is full.",
    FinishReason.CANCELLED: "Stopped.",
}


class Answering:
    """One answer at a time; `conversation` hears how each ended.

    Attributes:
        answer: the answer that streams, None while there is none.
        meter: the figures of the answer that streams, or of the last one.
        context_used: tokens in the context after the last answer; None while that is unknown.
        last_stats: the figures of the last complete answer.
        plain_tokens_per_s: of the loaded target on this machine, as known last; None while that is unknown.
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self.answer: AnswerEntry | None = None
        self.meter: Meter | None = None
        self.context_used: int | None = None
        self.last_stats: dict[str, object] | None = None
        self.plain_tokens_per_s: float | None = None
        self._target = ""
        self._feed: Feed | None = None
        self._writer: AnswerWriter | None = None
        self._asked_of_models_to_come = False

    def begin(self, messages: Sequence[SavedMessage], *, before: Entry | None) -> None:
        """Answer the last of these messages; the answer stands before this entry, or at the end."""
        question, loading = messages[-1], self._app.loader.doing
        answer = AnswerEntry(coloured=self._app.page.coloured)
        answer.waiting = loading or "reading the prompt"
        self._asked_of_models_to_come = bool(loading)
        self._writer = self._app.saved.answer(question.id)
        answer.message = self._writer.message
        answer.versions = self._app.saved.versions().get(answer.message, (1, 1))
        self.answer = answer
        self.meter = Meter(time.perf_counter)
        self._app.page.put_answer(answer, before=before)
        try:
            request = self._app.choices.generate_request(turns(messages))
            job = self._app.engine.generate(request)
        except Exception as error:
            self._end("failed", stats=None, note="It failed.")
            self._app.page.say(str(error), kind="error")
            return
        self._feed = Feed(job, self._app.troubles.safely(self._handle))
        self._app.run_worker(self._feed.run(), exit_on_error=True)

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

    def wait_for(self, doing: str) -> None:
        """Say in an answer that has not begun what it waits for; "" for nothing else than before."""
        if self.answer is not None and not self.answer.text and doing and self.answer.waiting != doing:
            self.answer.waiting = doing
            self.answer.changed()
            self._app.page.refresh()

    def take_figures(self, entries: Sequence[Entry]) -> None:
        """Other entries are shown: what is known of their last answer, and of the context behind it."""
        answers = [entry for entry in entries if isinstance(entry, AnswerEntry)]
        stats = answers[-1].stats if answers else None
        self.meter, self.last_stats, self.context_used = None, None, None
        if stats:
            self.last_stats = dict(stats)
            self.context_used = int(stats.get("prompt_tokens", 0)) + int(stats.get("tokens", 0))

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
                    self._failed(event)
                case _:
                    pass
        if self._writer is not None:
            self._app.saved.look(self._writer)
        self._app.page.answer_grew()

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

    def _failed(self, event: Failed) -> None:
        self._end("failed", stats=None, note="It failed.")
        # Of models that could not be loaded the loader has said so, and why.
        if event.kind != NothingLoaded.__name__:
            self._app.page.say(event.message, event.hint, kind="error")
        elif not self._asked_of_models_to_come:
            self._app.page.say(event.message, kind="error", actions=OTHER_MODELS)

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
        self._app.conversation.answer_ended(state)

    async def _see_saved(self, writer: AnswerWriter) -> None:
        """Say so if the end of an answer, which is written in the background, cannot be saved."""
        await asyncio.to_thread(writer.wait, SAVING_S)
        if self._writer is None:
            self._app.saved.look(writer)
            self._app.page.show_status()

    def _look_up_plain_speed(self) -> None:
        """What earlier answers taught; measured once, while the first answer of a target is on its way."""
        from mlxspec.engine.plain_speed import plain_tokens_per_s

        if self.plain_tokens_per_s is None and self._target:
            self.plain_tokens_per_s = plain_tokens_per_s(self._target, self._app.places)

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


def _prefill_text(event: Prefill) -> str:
    if event.done >= event.total - 1:  # the last one is read with the first round
        return "waiting for the first token"
    known = f", {event.reused} of them known already" if event.reused else ""
    return f"reading the prompt: {event.done} of {event.total} tokens{known}"
