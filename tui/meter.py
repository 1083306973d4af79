"""The figures of an answer while it streams, from its events and a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mlxspec.events import Event, Origin, Prefill, RoundReport, Tokens

WINDOW_S = 2.0
FEW_ROUNDS = 3
LEAST_SPAN_S = 0.2  # a rate over less would say more about the clock
MOST_PASSES = 64


class Meter:
    """Rates over the last two seconds, counts since the answer began. `clock` gives seconds.

    Attributes:
        tokens: emitted so far.
        accepted: of them, guesses that were kept.
        proposed: guesses in the rounds that were reported.
        passes: tokens of each of the last rounds.
        drafter: of the last round; None for a plain one.
        guesses: in the last round that was reported, None before.
        parked: whether speculation paused in the last round that was reported.
        prompt_tokens: of the prompt; 0 while unknown.
        first_s: from asking to the first token; None before it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._recent: deque[tuple[float, int]] = deque()
        self._round = -1
        self._rounds = 0
        self.tokens = 0
        self.accepted = 0
        self.proposed = 0
        self.passes: deque[int] = deque(maxlen=MOST_PASSES)
        self.drafter: str | None = None
        self.guesses: int | None = None
        self.parked = False
        self._plain_rounds_s: deque[float] = deque(maxlen=MOST_PASSES)
        self.prompt_tokens = 0
        self.first_s: float | None = None

    def take(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Tokens():
                self._take_tokens(event)
            case RoundReport():
                self.proposed += len(event.guesses)
                self.guesses = len(event.guesses)
                self.parked = event.parked
                if not event.guesses:
                    self._plain_rounds_s.append(event.round_s)
            case Prefill():
                self.prompt_tokens = event.total
            case _:
                pass

    @property
    def tokens_per_s(self) -> float | None:
        """Of the last two seconds; None until there are some."""
        now = self._clock()
        while self._recent and now - self._recent[0][0] > WINDOW_S:
            self._recent.popleft()
        if len(self._recent) < 2:
            return None
        first, last = self._recent[0], self._recent[-1]
        # What came with the first event came before the time that is measured.
        count = sum(number for _, number in self._recent) - first[1]
        span = last[0] - first[0]
        return count / span if span >= LEAST_SPAN_S else None

    @property
    def plain_tokens_per_s(self) -> float | None:
        """Of the plain rounds so far, which is what this machine does without guesses; None for few."""
        if len(self._plain_rounds_s) < FEW_ROUNDS:
            return None
        spent = sum(self._plain_rounds_s)
        return len(self._plain_rounds_s) / spent if spent > 0 else None

    @property
    def acceptance_rate(self) -> float | None:
        """Kept guesses of all guesses."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Since the answer began."""
        return self.tokens / self._rounds if self._rounds else None

    def _take_tokens(self, tokens: Tokens) -> None:
        now, count = self._clock(), len(tokens.ids)
        if self.first_s is None:
            self.first_s = now - self._began
        self._recent.append((now, count))
        self.tokens += count
        if tokens.origin is Origin.ACCEPTED:
            self.accepted += count
        if tokens.round != self._round:
            self._round = tokens.round
            self._rounds += 1
            self.passes.append(0)
        self.passes[-1] += count
        self.drafter = tokens.drafter
