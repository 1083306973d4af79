"""The seat of a controller in the round loop, and the controller of `--num-draft N`.

Before each round the loop describes the `Situation`; the controller answers with a `Choice`; after
the round it hears the `Outcome`. No clock, file or random number is used here: every decision is a
function of the numbers that come in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

LOOKUP = "lookup"
LONG_MATCH = 3  # tokens: from here on a fixed k trusts a copied text more than a draft model

CARRYING_ROWS = 8
"""Rows of a pass that carries tokens, with a fixed k. Up to here passes cost nearly the same; without a
limit what a recurrent target carries adds up, to 8 times the cost of plain decoding."""


@dataclass(frozen=True, slots=True)
class Option:
    """What one drafter could do this round.

    Attributes:
        drafter: its name, "draft_model", "lookup" and so on.
        max_k: the most guesses it could make now; 0 when it has nothing to offer.
        confidences: its own confidence in each guess that it would make, in order; empty when it has none.
        match_length: tokens of the context that lookup found again; 0 for other drafters.
        catch_up: tokens that a draft model must be fed before it can guess.
    """

    drafter: str
    max_k: int
    confidences: tuple[float, ...] = ()
    match_length: int = 0
    catch_up: int = 0


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known before a round.

    Attributes:
        owed: committed tokens that the target's cache lacks: the pending one and those carried.
        context: tokens in the target's cache.
        room: tokens that may still be emitted, at least 1.
        options: the drafters that are there.
        ahead: the plain pass before this round is still on the device, so the options are one token
            old; the answer can only be to queue a plain pass behind it (parked) or to wait (not parked).
    """

    owed: int
    context: int
    room: int
    options: tuple[Option, ...]
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do this round.

    Attributes:
        drafter: who proposes; None for a plain round.
        k: how many guesses; 0 exactly when `drafter` is None.
        parked: plain because speculation does not pay here; the loop may queue the next plain pass
            without asking the drafters.
    """

    drafter: str | None
    k: int = 0
    parked: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did.

    Attributes:
        choice: what the controller asked for.
        proposed: guesses made; they may be fewer than `choice.k`.
        accepted: guesses kept.
        emitted: tokens that the round added to the answer.
        rows: rows of the target's pass, `owed + proposed`.
        context: tokens in the target's cache before the pass.
        confidences: as in the option that was taken, for the guesses that were made.
        match_length: as in the option that was taken.
        draft_s: seconds of drafting; None when they were not measured apart.
        round_s: seconds of the whole round; None where they cannot be told from its neighbours'.
        queued: a plain pass that was queued before the token before it was read.
    """

    choice: Choice
    proposed: int
    accepted: int
    emitted: int
    rows: int
    context: int
    confidences: tuple[float, ...]
    match_length: int
    draft_s: float | None
    round_s: float | None
    queued: bool = False


class Controller(Protocol):
    """Decides who guesses, and how many tokens."""

    def choose(self, situation: Situation) -> Choice:
        """The plan of the coming round."""

    def observe(self, outcome: Outcome) -> None:
        """Learn from the round that has just ended."""


class FixedController:
    """`--num-draft N`: always `k` guesses, or as many as there are to have.

    Lookup proposes when its match is long or when nobody else can; otherwise the drafter that can
    offer the most. While a recurrent target carries tokens there are fewer guesses, at least one, and
    none when more than `CARRYING_ROWS` are owed: that pass feeds them all and makes a new checkpoint.
    """

    def __init__(self, k: int) -> None:
        self.k = k

    def choose(self, situation: Situation) -> Choice:
        """The same number of guesses every round, within the room that is left."""
        able = [option for option in situation.options if option.max_k > 0]
        if not able or situation.owed > CARRYING_ROWS:
            return Choice(drafter=None)
        best = max(able, key=self._preference)
        k = min(self.k, best.max_k, situation.room - 1)
        if situation.owed > 1:
            k = min(k, max(1, CARRYING_ROWS - situation.owed))
        return Choice(best.drafter, k) if k > 0 else Choice(drafter=None)

    def observe(self, outcome: Outcome) -> None:
        """Nothing: a fixed plan does not learn."""

    def _preference(self, option: Option) -> tuple[int, int]:
        """Copies with a long match, then models, then copies with a short match; the longer offer first."""
        if option.drafter == LOOKUP:
            return (2 if option.match_length >= LONG_MATCH else 0, min(option.max_k, self.k))
        return (1, min(option.max_k, self.k))
