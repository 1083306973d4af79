"""What a drafter is, and what it hands to the round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from mlxspec.decoding.controller import Option
from mlxspec.decoding.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Proposal:
    """Guesses `tokens` [k] uint32, which may still be on the device, and the rows they were drawn from.

    `q` [k, vocab] is None where every guess was certain (one-hot): copied, or an argmax.
    """

    tokens: mx.array
    q: mx.array | None = None


class Drafter(Protocol):
    """Anything that proposes tokens. Its guesses never change the answer, only its speed.

    An answer begins with `reset`; after each round `committed` tells the tokens that it added. A
    drafter may run ahead of what is committed, and takes its own steps back.
    """

    name: str

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer to `tokens`. Whatever still fits of an earlier answer may be kept."""

    def offer(self) -> Option:
        """What it could do in the next round; cheap, for it is asked before every round."""

    def propose(self, k: int) -> Proposal | None:
        """At most `k` >= 1 guesses for what follows the committed tokens; None when there are none."""

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """`tokens` were added to the sequence; the first `accepted` of them are its own last guesses."""

    def close(self) -> None:
        """Forget the sequence, whatever state it is in; `reset` may follow."""
