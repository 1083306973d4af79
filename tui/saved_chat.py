"""The chat that is on the screen, and its place among the saved ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mlxspec.errors import StoreError

if TYPE_CHECKING:
    from mlxspec.chat.answer_writer import AnswerWriter
    from mlxspec.chat.records import Chat, MessageState, SavedMessage
    from mlxspec.chat.store import Store
    from mlxspec.events import Tokens

T = TypeVar("T")


class SavedChat:
    """One chat at a time, which begins with its first question.

    When the store breaks, or another program deletes the chat, the chat goes on as a new one with the same
    messages. `warn` is told each reason once.

    Attributes:
        store: all saved chats.
        chat: this one; None before its first question.
    """

    def __init__(
        self, store: Store, *, reopen: Callable[[], Store], warn: Callable[[StoreError], None]
    ) -> None:
        self.store = store
        self.chat: Chat | None = None
        self._reopen = reopen
        self._warn = warn
        self._told: set[str] = set()
        self._known: list[SavedMessage] = []
        self._ended: dict[int, SavedMessage] = {}  # answers of this run, whole
        self._new_ids: dict[int, int] = {}  # of messages that had to be saved once more
        self.look()

    def look(self) -> None:
        """Say so if nothing is being saved."""
        if self.store.unsaved is not None:
            self._tell(self.store.unsaved)

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
        message = self._now(message)
        try:
            side_by_side = self.store.branches(message)
            at = next(i for i, other in enumerate(side_by_side) if other.id == message)
            other = side_by_side[(at + steps) % len(side_by_side)]
            self.store.set_head(self.store.newest_leaf(other.id))
        except StoreError as error:
            self._tell(error)
        return self.path()

    def spans(self, message: int) -> list[Tokens]:
        """The tokens of a saved answer."""
        try:
            return self.store.spans(self._now(message))
        except StoreError as error:
            self._tell(error)
            return []

    def _try(self, work: Callable[[], T]) -> T:
        """Do it; when the chat is gone, do it in a new chat with the same messages."""
        try:
            done = work()
        except StoreError as error:
            self._tell(error)
            self._begin_again()
            done = work()
        self.look()
        return done

    def _begin_again(self) -> None:
        known, old = self._known, self.chat
        try:
            self.store.recent(1)
        except StoreError:
            self.store = self._reopen()
        if old is None:
            return
        self.chat = self.store.create_chat(
            target=old.target, draft=old.draft, system=old.system, params=old.params
        )
        for message in known:
            copy = self.store.add_message(self.chat.id, message.role, message.content)
            self._new_ids[message.id] = copy.id
        self.path()

    def _now(self, message: int) -> int:
        while message in self._new_ids:
            message = self._new_ids[message]
        return message

    def _tell(self, error: StoreError) -> None:
        if error.message not in self._told:
            self._told.add(error.message)
            self._warn(error)
