"""Keeping what is asked and answered on the command line among the saved chats, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING

from mlxspec.chat.conversation import Message
from mlxspec.cli.terminal import complain
from mlxspec.errors import StoreError, UnknownChat
from mlxspec.events import Event, Failed, Finished, FinishReason, Tokens

if TYPE_CHECKING:
    from mlxspec.chat.answer_writer import AnswerWriter
    from mlxspec.chat.records import Chat, SavedMessage
    from mlxspec.chat.store import Store
    from mlxspec.decoding.stats import DecodeStats


class Unsaved:
    """Keeps nothing."""

    def question(self, text: str, *, target: str, draft: str, system: str) -> None:
        """A message of the user, about to be answered."""

    def answer(self, event: Event) -> None:
        """An event of the answer."""

    def close(self) -> None:
        """The end of the run."""


class Saved(Unsaved):
    """Keeps one chat at a time, which begins with its first question.

    A store that cannot be written says so once, on stderr, and the chat goes on.
    """

    def __init__(self, store: Store, chat: Chat | None = None) -> None:
        self.store = store
        self.chat = chat
        self._writer: AnswerWriter | None = None
        self._warned = False

    def question(self, text: str, *, target: str, draft: str, system: str) -> None:
        """Save the question and be ready for its answer."""
        try:
            if self.chat is None:
                self.chat = self.store.create_chat(target=target, draft=draft, system=system)
            else:
                self.store.update(self.chat.id, target=target, draft=draft, system=system)
            self.store.add_message(self.chat.id, "user", text)
            self._writer = self.store.answer(self.chat.id)
        except StoreError as error:
            self._warn(error)
        if self.store.unsaved:
            self._warn(self.store.unsaved)

    def edited(self, question: SavedMessage, text: str) -> None:
        """Put another wording beside a question, and be ready for its answer."""
        try:
            self.store.edit(question.id, text)
            self._writer = self.store.answer(question.chat)
        except StoreError as error:
            self._warn(error)

    def again(self, question: SavedMessage) -> None:
        """Be ready for another answer to a question, beside the one that it has."""
        try:
            self._writer = self.store.answer(question.chat, after=question.id)
        except StoreError as error:
            self._warn(error)

    def answer(self, event: Event) -> None:
        """Save a piece of the answer, or how it ended."""
        from mlxspec.chat.records import MessageState

        if self._writer is None:
            return
        match event:
            case Tokens():
                self._writer.append(event)
            case Finished():
                stopped = event.reason is FinishReason.CANCELLED
                state = MessageState.STOPPED if stopped else MessageState.DONE
                self._writer.finish(state, stats=event.stats.as_dict())
            case Failed():
                self._writer.finish(MessageState.FAILED)

    def close(self) -> None:
        """Wait until everything is saved."""
        self.store.close()
        if self._writer is not None and self._writer.problem:
            self._warn(self._writer.problem)

    def _warn(self, error: StoreError) -> None:
        if not self._warned:
            self._warned = True
            complain(f"This chat is not being saved: {error.message}", error.hint)


def open_store() -> Store:
    """The saved chats; in memory, with a reason, when they cannot be opened."""
    from mlxspec.chat.store import Store
    from mlxspec.places import places

    return Store.open_or_unsaved(places())


def wanted_chat(store: Store, *, session: str | None, last: bool) -> Chat | None:
    """The chat of `--session` or `--continue`, None without them.

    Raises: UnknownChat when there is no such chat.
    """
    if session is not None:
        return store.find_chat(session)
    if not last:
        return None
    if (chat := store.last()) is None:
        raise UnknownChat("There is no saved chat to go on with.", hint="Start one with `mlxspec run`.")
    return chat


def answered(messages: Sequence[SavedMessage]) -> list[tuple[SavedMessage, SavedMessage]]:
    """The questions that were answered, each with its answer."""
    return [
        (question, answer)
        for question, answer in pairwise(messages)
        if (question.role, answer.role) == ("user", "assistant") and answer.content
    ]


def history(messages: Sequence[SavedMessage]) -> list[Message]:
    """The turns to give to the model: questions that were answered, and their answers."""
    turns = answered(messages)
    return [Message(message.role, message.content) for turn in turns for message in turn]


def last_stats(messages: Sequence[SavedMessage]) -> DecodeStats | None:
    """The figures of the last answer, without what other versions add; None when it has none."""
    from mlxspec.decoding.stats import DecodeStats, DrafterStats

    turns = answered(messages)
    saved = turns[-1][1].stats if turns else None
    if saved is None:
        return None
    known = {field.name: saved[field.name] for field in fields(DecodeStats) if field.name in saved}
    drafters = {name: DrafterStats(**part) for name, part in saved.get("drafters", {}).items()}
    return DecodeStats(**{**known, "drafters": drafters})
