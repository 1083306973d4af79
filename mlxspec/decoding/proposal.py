"""What a drafter is, and what it hands to the round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import mlx.core as mx

from mlxspec.decoding.controller import Option
from mlxspec.decoding.sampling import Sampler

if TYPE_CHECKING:
    from mlxspec.decoding.cache import PromptCache


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


class TargetReader(Drafter, Protocol):
    """A drafter that guesses from what the target itself computed.

    Attributes:
        needs_hidden: the points (`hidden.py`) whose rows it wants; none where the cache is enough.
    """

    needs_hidden: tuple[int, ...]

    def attach(self, target: PromptCache) -> None:
        """Guess for the sequence in this cache; called before every `reset`."""

    def read_hidden(self, start: int, rows: Mapping[int, mx.array]) -> None:
        """Rows [n, width] by point for the committed tokens from position `start` on.

        They may still be on the device. They come after `reset` for what was read of the prompt, and
        after each pass; some may come twice, and those of a reused prompt never.
        """


class ChoiceReader(Drafter, Protocol):
    """A drafter that learns from what the target would say behind guesses, wrong ones too."""

    def read_choices(self, guesses: Sequence[int], choices: Sequence[int], accepted: int) -> None:
        """Called after each pass over guesses, whoever made them, and before `committed`.

        `choices` [k + 1] are the target's own tokens after the pending token and after each of the k
        guesses, the first `accepted` of which were kept.
        """


def choice_readers(drafters: Iterable[Drafter]) -> list[ChoiceReader]:
    """Those of the drafters that learn from the target's choices."""
    return [cast(ChoiceReader, drafter) for drafter in drafters if hasattr(drafter, "read_choices")]


def target_readers(drafters: Iterable[Drafter]) -> list[TargetReader]:
    """Those of the drafters that read from the target."""
    return [cast(TargetReader, drafter) for drafter in drafters if hasattr(drafter, "read_hidden")]


def hidden_points(drafters: Iterable[Drafter]) -> tuple[int, ...]:
    """The points whose rows some of the drafters want."""
    return tuple(sorted({point for reader in target_readers(drafters) for point in reader.needs_hidden}))
