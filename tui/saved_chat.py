"""The chat that is on the screen, and its place among the saved ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mlxspec.errors import StoreError, UnknownChat

if TYPE_CHECKING:
    from mlxspec.chat.answer_writer import AnswerWriter
    from mlxspec.chat.records import Chat, MessageState, SavedMessage
    from mlxspec.chat.store import Store
    from mlxspec.events import RoundReport, Tokens

T = TypeVar("T")


class SavedChat:
    """One chat at a time, which begins with its first question.

    When another program deletes the chat, it goes on as a new one with the same messages; when the store
    breaks, in memory. `warn` is told each kind of trouble once, and `moved` the new ids of messages, by the
    old ones, when they had to be saved once more.

    Attributes:
        store: all saved chats.
        chat: this one; None before its first question.
    """

    def __init__(
        self,
        store: Store,
        *,
        warn: Callable[[StoreError], None],
        moved: Callable[[Mapping[int, int]], None],
    ) -> None:
        self.store = store
        self.chat: Chat | None = None
        self._warn = warn
        self._moved = moved
        self._told: set[type[StoreError]] = set()
        self._known: list[SavedMessage] = []
        self._ended: dict[int, SavedMessage] = {}  # answers of this run, whole
        self._new_ids: dict[int, int] = {}  # while something is tried once more
        self._lost_answer = False
        self.look()

    @property
    def unsaved(self) -> bool:
        """Whether what happens now is not being saved."""
        return self._lost_answer or self.store.unsaved is not None

    def look(self, writer: AnswerWriter | None = None) -> None:
        """Say so if nothing is being saved, or if this answer is not."""
        problem = None if writer is None else writer.problem
        self._lost_answer = problem is not None
        for trouble in (problem, self.store.unsaved):
            if trouble is not None:
                self._tell(trouble)

    @property
    def id(self) -> str | None:
        """The chat's ID."""
        return None if self.chat is None else self.chat.id

    def path(self) -> list[SavedMessage]:
        """The messages on the screen, from the first one."""
        if self.chat is None:
            return []
        try:
            # What has ended is written in the background, and may not be there yet.
            self._known = [self._ended.get(saved.id, saved) for saved in self.store.path(self.chat.id)]
        except StoreError as error:
            self._tell(error)
        return self._known

    def open(self, chat: Chat | None) -> list[SavedMessage]:
        """Go to another chat, or to a new one that is not begun. Returns its messages."""
        self.chat, self._known = chat, []
        return self.path()

    def ask(
        self, text: str, *, target: str, draft: str, system: str, params: Mapping[str, Any]
    ) -> SavedMessage:
        """Save a question; the first one begins the chat."""

        def save() -> SavedMessage:
            if self.chat is None:
                self.chat = self.store.create_chat(target=target, draft=draft, system=system, params=params)
            else:
                self.store.update(self.chat.id, target=target, draft=draft, system=system, params=params)
            return self.store.add_message(self.chat.id, "user", text)

        return self._try(save)

    def edit(self, message: SavedMessage, text: str) -> SavedMessage:
        """Put another wording beside a question; the chat then stands at it."""
        return self._try(lambda: self.store.edit(self._now(message.id), text))

    def answer(self, question: int) -> AnswerWriter:
        """Begin an answer to a question."""

        def begin() -> AnswerWriter:
            assert self.chat is not None
            return self.store.answer(self.chat.id, after=self._now(question))

        return self._try(begin)

    def remember(
        self, answer: int, text: str, *, state: MessageState, stats: Mapping[str, Any] | None
    ) -> None:
        """Know an answer that has ended, whatever becomes of its saving."""
        from mlxspec.chat.records import SavedMessage

        parent = self._known[-1].id if self._known else None
        chat = self.id or ""
        message = SavedMessage(answer, chat, parent, "assistant", text, time.time(), state, stats)
        self._ended[answer] = message
        self._known = [known for known in self._known if known.id != answer] + [message]

    def versions(self) -> dict[int, tuple[int, int]]:
        """Which of how many versions each message of the chat is, from 1, by id."""
        if self.chat is None:
            return {}
        side_by_side: dict[int | None, list[int]] = {}
        try:
            for message in self.store.all_messages(self.chat.id):
                side_by_side.setdefault(message.parent, []).append(message.id)
        except StoreError as error:
            self._tell(error)
        return {
            message: (number, len(group))
            for group in side_by_side.values()
            for number, message in enumerate(group, start=1)
        }

    def go_to_version(self, message: int, steps: int) -> list[SavedMessage]:
        """Stand at the newest end of a branch beside this message. Returns the messages then."""
        try:
            side_by_side = self.store.branches(message)
            at = next(i for i, other in enumerate(side_by_side) if other.id == message)
            other = side_by_side[(at + steps) % len(side_by_side)]
            self.store.set_head(self.store.newest_leaf(other.id))
        except StoreError as error:
            self._tell(error)
        return self.path()

    def rounds(self, message: int) -> tuple[list[Tokens], list[RoundReport]]:
        """The tokens of a saved answer, and the reports of its rounds."""
        try:
            return self.store.spans(message), self.store.reports(message)
        except StoreError as error:
            self._tell(error)
            return [], []

    def _now(self, message: int) -> int:
        return self._new_ids.get(message, message)

    def _try(self, work: Callable[[], T]) -> T:
        """Do it; when the chat or the store is gone, do it in a new chat with the same messages."""
        try:
            done = work()
        except StoreError as error:
            self._tell(error)
            self._begin_again(error)
            done = work()
            self._new_ids = {}
        self.look()
        return done

    def _begin_again(self, error: StoreError) -> None:
        from mlxspec.chat.store import Store

        known, old = self._known, self.chat
        if not isinstance(error, UnknownChat):
            # Not opened again: what has just failed may seem sound, and fail with the next write.
            self.store = Store.in_memory(error)
        self._ended = {}  # by ids that may come again
        if old is None:
            return
        self.chat = self.store.create_chat(
            target=old.target, draft=old.draft, system=old.system, params=old.params
        )
        for message in known:
            copy = self.store.add_message(self.chat.id, message.role, message.content)
            self._new_ids[message.id] = copy.id
        self._moved(self._new_ids)
        self.path()

    def _tell(self, error: StoreError) -> None:
        if type(error) not in self._told or isinstance(error, UnknownChat):
            self._told.add(type(error))
            self._warn(error)
