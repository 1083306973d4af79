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


def entries_of(
    messages: Sequence[SavedMessage], saved: SavedChat, *, shown: Sequence[Entry], coloured: bool
) -> list[Entry]:
    """One entry a message. The tokens of answers are fetched when their colours are asked for.

    Complete answers that are `shown` already are taken over, as their reader folded and coloured them.
    """
    versions = saved.versions()
    complete = {
        entry.message: entry
        for entry in shown
        if isinstance(entry, AnswerEntry) and entry.settled and entry.message is not None
    }
    entries: list[Entry] = []
    for message in messages:
        version = versions.get(message.id, (1, 1))
        if message.role == "user":
            entries.append(UserEntry(message.content, message=message.id, versions=version))
        elif message.id in complete:
            entries.append(_taken_over(complete[message.id], message.id, version))
        else:
            entries.append(_answer(message, saved, versions=version, coloured=coloured))
    return entries


def _taken_over(answer: AnswerEntry, message: int, versions: tuple[int, int]) -> AnswerEntry:
    answer.message, answer.versions = message, versions
    answer.marked = answer.last_answer = answer.outside = False
    answer.changed()
    return answer


def _answer(
    message: SavedMessage, saved: SavedChat, *, versions: tuple[int, int], coloured: bool
) -> AnswerEntry:
    answer = AnswerEntry.saved(
        message.content, partial(saved.rounds, message.id), message=message.id, versions=versions
    )
    answer.stats = message.stats
    answer.note = _NOTES.get(message.state, "")
    if coloured:
        answer.colour(True)
    return answer
