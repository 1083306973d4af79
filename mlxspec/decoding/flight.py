"""A round while it is on the device, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from mlxspec.decoding.controller import Choice, Option, Outcome
from mlxspec.events import Origin


@dataclass(frozen=True, slots=True)
class Round:
    """What one round added: `tokens` with their origins, and how it came to them.

    `accepted` of the `guesses` were kept by the rule; fewer may have been emitted where the answer
    ended inside them. `carried` tokens were fed to the target once more. Seconds are of wall time;
    `draft_s` is an estimate but for the rounds that are timed. `p` and `q` hold the probability of each
    guess under target and draft, and `p_next` that of the token after the kept ones, when asked for.
    """

    index: int
    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    drafter: str | None
    guesses: tuple[int, ...]
    accepted: int
    next_token: int
    carried: int
    parked: bool
    draft_s: float
    round_s: float
    p: tuple[float, ...] = ()
    q: tuple[float, ...] = ()
    p_next: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What comes back from the device."""

    packed: mx.array  # [3 + k]: sure, accepted, next token, guesses; and [k + 1] choices for their readers
    probabilities: mx.array | None  # [2k + 1]: p and q of each guess, p of the next token

    def wait(self) -> list[int]:
        """What is packed. This is the one sync of a round."""
        return cast(list[int], self.packed.tolist())


@dataclass(frozen=True, slots=True)
class Flight:
    """A round that is on the device. `base`: committed tokens before its first new one."""

    reading: Reading
    read_whole: Callable[[], Reading]  # the verdict made again, when it was not sure
    base: int
    owed: int
    choice: Choice
    option: Option | None
    proposed: int
    draft_s: float | None
    context: int

    @property
    def queued(self) -> bool:
        """Its pass was queued before the token that it starts from had been read."""
        return self.owed == 0

    def outcome(self, accepted: int, emitted: int, round_s: float, *, followed: bool) -> Outcome:
        """For the controller. `followed`: another pass had been queued behind it before it was read.

        Queueing a pass can block until the one before is nearly done, as on the CPU. Then the first of a row
        of queued passes lands late and the last one early, and their times are not their own.
        """
        option = self.option
        return Outcome(
            choice=self.choice,
            proposed=self.proposed,
            accepted=accepted,
            emitted=emitted,
            rows=self.owed + self.proposed,
            context=self.context,
            confidences=option.confidences[: self.proposed] if option else (),
            match_length=option.match_length if option else 0,
            draft_s=self.draft_s,
            round_s=round_s if self.queued == followed else None,
            queued=self.queued,
        )
