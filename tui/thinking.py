"""Which part of an answer is thinking: what stands between <think> and </think>."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Parts:
    """Offsets into an answer's text; thinking is empty where there is none.

    `thinking_end` is where the thinking ends, `answer_start` where what follows begins.
    """

    thinking_start: int
    thinking_end: int
    answer_start: int
    open: bool  # whether the thinking may go on

    @property
    def any(self) -> bool:
        """Whether there is any thinking."""
        return self.answer_start > 0


def parts(text: str) -> Parts:
    """Where thinking and answer stand.

    Thinking is only at the beginning. A template may have written <think> into the prompt already, so a
    </think> alone ends thinking too.
    """
    lead = len(text) - len(text.lstrip())
    opened = text.startswith(OPEN, lead)
    start = lead + len(OPEN) if opened else 0
    end = text.find(CLOSE, start)
    if end < 0:
        return Parts(start, len(text), len(text), open=True) if opened else Parts(0, 0, 0, open=False)
    if not opened and "\n```" in text[:end]:
        return Parts(0, 0, 0, open=False)  # the tag is being written about, in code
    return Parts(start, end, end + len(CLOSE), open=False)


def has_tag(tail: str) -> bool:
    """Whether the end of a text, as it streams, may have changed what is thinking."""
    return OPEN in tail or CLOSE in tail


def answer_of(text: str) -> str:
    """The answer without its thinking."""
    return text[parts(text).answer_start :].lstrip("\n")
