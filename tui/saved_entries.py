"""The messages of a saved chat as entries of the transcript."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tui.answer import AnswerEntry
from tui.entry import Entry, UserEntry

if TYPE_CHECKING:
    from mlxspec.chat.records import SavedMessage
    from tui.saved_chat import SavedChat

_NOTES = {"stopped": "Stopped.", "failed": "It failed."}


def entries_of(messages: Sequence[SavedMessage], saved: SavedChat, *, coloured: bool) -> list[Entry]:
    """One entry a message. The tokens of answers are fetched when their colours are asked for."""
    versions = saved.versions()
    entries: list[Entry] = []
    for message in messages:
        version = versions.get(message.id, (1, 1))
        if message.role == "user":
            entries.append(UserEntry(message.content, message=message.id, versions=version))
            continue
        answer = AnswerEntry.saved(
            message.content, partial(saved.spans, message.id), message=message.id, versions=version
        )
        answer.stats = message.stats
        answer.note = _NOTES.get(message.state, "")
        if coloured:
            answer.colour(True)
        entries.append(answer)
    return entries
