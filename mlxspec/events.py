"""What the engine says while it works: plain values, in the order in which things happen.

A load says `Downloading` any number of times, then `Loaded` or `Failed`. A generation says
`Prefill` and then `Tokens` any number of times, then `Finished` or `Failed`. `Notice` may
stand anywhere: something that the user should know, such as why speculation is off.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxspec.decoding.stats import DecodeStats


class Origin(StrEnum):
    """Where a token came from."""

    ACCEPTED = "accepted"
    RESAMPLED = "resampled"
    BONUS = "bonus"
    PLAIN = "plain"


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"  # the end-of-sequence token, or a stop string
    LENGTH = "length"  # max_tokens
    CONTEXT = "context"  # the context is full
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Downloading:
    """Progress of one file of one model. `total_bytes` is None while it is unknown."""

    model: str
    file: str
    done_bytes: int
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class Loading:
    """A model's weights are being read."""

    model: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user. `left_out_turns` of the oldest turns are not in this answer's prompt."""

    message: str
    left_out_turns: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """Both models are in memory.

    `draft` is the draft model's name, "lookup" or "none". `context_tokens` is how many tokens
    prompt and answer may have together.
    """

    target: str
    draft: str
    device: str
    load_s: float
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """`done` of `total` prompt tokens are in the cache, `reused` of them from an earlier turn."""

    done: int
    total: int
    reused: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one origin and one round, and the text that they add.

    A token that ends inside a character adds no text; the one that completes it adds it all.
    `drafter` is the name of the drafter that proposed in this round, None in a plain round.
    """

    ids: tuple[int, ...]
    text: str
    origin: Origin
    drafter: str | None
    round: int


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Why these tokens: one round, for whoever asked with `GenerateRequest.report_rounds`.

    `accepted` of the `guesses` were kept, then the target put `next_id` there. `p` and `q` are the
    probabilities of each guess under target and draft (q = 1 for a guess that was certain), `p_next`
    that of `next_id`. `draft_s` is estimated from the rounds that are timed; `verify_s` is the rest.
    """

    round: int
    drafter: str | None
    guesses: tuple[int, ...]
    guess_texts: tuple[str, ...]
    accepted: int
    next_id: int
    next_text: str
    p: tuple[float, ...]
    q: tuple[float, ...]
    p_next: float | None
    draft_s: float
    verify_s: float
    round_s: float
    parked: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The whole answer: `text` is the joined text of all `Tokens`, `ids` all their ids."""

    reason: FinishReason
    text: str
    ids: tuple[int, ...]
    stats: DecodeStats


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended with an error of `mlxspec.errors`; the engine can take the next one."""

    kind: str
    message: str
    hint: str
    exit_code: int


Event = Downloading | Loading | Notice | Loaded | Prefill | Tokens | RoundReport | Finished | Failed
