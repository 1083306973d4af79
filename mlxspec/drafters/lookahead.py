"""Lookahead: guesses from what the target said behind wrong guesses. No second model, no training.

Fu et al. 2024, "Break the sequential dependency of LLM inference using lookahead decoding", in the form
that one plain row of guesses allows:

- A round's guesses are one Jacobi window. The pass that verifies them also computes, behind each wrong
  guess, what the target would say there: the next Jacobi iterate of the window, at no further cost.
- Each such token is kept in a pool, with the one to four tokens that the target read before it. A
  proposal follows the pool and the chat's own n-grams (as lookup does, the datastore's too), whichever
  knows the longer context; where neither knows any, the window's last iterate stands in.
- Guesses are certain (one-hot), so that every acceptance rule stays exact.

What is left out: the separate lookahead branch with its two-dimensional window, and verifying several
n-grams of the pool in one pass. Both need an attention mask of their own, which windows, recurrent
states and quantised caches have no place for. Here one row of guesses serves as both branches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import mlx.core as mx

from mlxspec.decoding.acceptance_history import MATCH_ODDS
from mlxspec.decoding.controller import Option
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.drafters.lookup import MOST_GUESSES, Lookup

MAX_ORDER = 4
"""Longest context of the pool. 3 and 5 differed by less than noise on the benchmark's prompts."""

MOST_CONTEXTS = 40_000
"""Contexts that the pool remembers, some 8 MB."""

POOL_CONFIDENCE = (0.0, 0.35, 0.56, 0.71, 0.8)
"""How often the pool was right, by the length of the context that it knew."""

WINDOW_CONFIDENCE = 0.09
SEED_CONFIDENCE = 0.01
"""The same of the window's last iterate, and of the tokens of the prompt that begin a window. All measured
on eight answers of SmolLM2-135M with 8 guesses a round; the controller corrects them as it goes."""

Context = tuple[int, ...]


class Pool:
    """The token that last followed each context of one to `MAX_ORDER` tokens, for the youngest contexts."""

    def __init__(self, most: int = MOST_CONTEXTS) -> None:
        self._most = most
        self._next: OrderedDict[Context, int] = OrderedDict()

    def add(self, context: Sequence[int], token: int) -> None:
        """`token` was said behind `context`, of which the last tokens count."""
        for order in range(1, min(MAX_ORDER, len(context)) + 1):
            key = tuple(context[-order:])
            self._next[key] = token
            self._next.move_to_end(key)
        while len(self._next) > self._most:
            self._next.popitem(last=False)

    def best(self, context: Sequence[int]) -> tuple[int, int] | None:
        """The token after the longest known part of `context`, and the length of that part."""
        for order in range(min(MAX_ORDER, len(context)), 0, -1):
            token = self._next.get(tuple(context[-order:]))
            if token is not None:
                return token, order
        return None

    def __len__(self) -> int:
        return len(self._next)


class Lookahead:
    """Guesses from the pool, the chat and the window. See the top of the file.

    Args:
        copies: the lookup that serves the same answers, before or after this drafter in the list; its
            n-grams are read and never changed here.
    """

    name = "lookahead"

    def __init__(self, copies: Lookup) -> None:
        self._copies = copies
        self._tokens: list[int] = []
        self._prompt_tokens = 0
        self._pool = Pool()
        self._window: list[int] = []  # the last iterate, for the tokens after the committed ones
        self._next_window: list[int] | None = None  # what the pass that has just ended says of it
        self._guesses: list[int] | None = None
        self._confidences: list[float] = []

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer. The pool is not carried on: what an answer says must not depend on the last."""
        del sampler, cancelled
        self.close()
        self._tokens = list(tokens)
        self._prompt_tokens = len(tokens)

    def offer(self) -> Option:
        """A full row of guesses, each with its confidence."""
        guesses = self._row()
        return Option(self.name, max_k=len(guesses), confidences=tuple(self._confidences))

    def propose(self, k: int) -> Proposal | None:
        """The first `k` guesses of the row."""
        guesses = self._row()[:k]
        return Proposal(mx.array(guesses, mx.uint32)) if guesses else None

    def read_choices(self, guesses: Sequence[int], choices: Sequence[int], accepted: int) -> None:
        """Take what the target says behind the wrong ones of anybody's guesses."""
        before = self._tokens[-MAX_ORDER:]
        read = [*before, *guesses]
        for i in range(accepted + 1, len(guesses) + 1):
            self._pool.add(read[max(0, len(before) + i - MAX_ORDER) : len(before) + i], choices[i])
        self._next_window = list(choices[accepted + 1 :])

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """Move on behind the new tokens."""
        del accepted
        self._tokens.extend(tokens)
        self._window = self._window[len(tokens) :] if self._next_window is None else self._next_window
        self._next_window = None
        self._guesses = None

    def close(self) -> None:
        """Forget the sequence."""
        self._tokens = []
        self._pool = Pool()
        self._window = []
        self._next_window = None
        self._guesses = None

    def _row(self) -> list[int]:
        if self._guesses is None:
            self._guesses, self._confidences = [], []
            self._fill(self._guesses, self._confidences)
            if self._copies.datastore is not None:
                self._copies.datastore.rest()
        return self._guesses

    def _fill(self, guesses: list[int], confidences: list[float]) -> None:
        context = self._tokens[-self._copies.max_order :]
        longest = self._copies.max_order
        for place in range(MOST_GUESSES):
            said, copied = self._pool.best(context), self._copies.best(context, longest)
            order = said[1] if said else 0
            copied_order = copied[2] if copied else 0
            # Of two contexts of one length the pool's was read by the target in this very answer.
            if said is not None and order >= copied_order:
                token, confidence = said[0], POOL_CONFIDENCE[order]
            elif copied is not None:
                token, confidence = copied[0], _confidence_of_copy(copied[1], copied_order)
            elif place < len(self._window):
                token, confidence = self._window[place], WINDOW_CONFIDENCE
            else:
                token, confidence = self._seed(place), SEED_CONFIDENCE
            guesses.append(token)
            confidences.append(confidence)
            context = [*context[1 - self._copies.max_order :], token]
            # As in lookup: a context of two more tokens would have been seen with its first part.
            longest = min(self._copies.max_order, copied_order + 1)

    def _seed(self, place: int) -> int:
        """A token of the prompt, as the paper begins its windows: any will do, but always the same one."""
        return self._tokens[(len(self._tokens) + place) * 7919 % max(1, self._prompt_tokens)]


def _confidence_of_copy(confidence: float, order: int) -> float:
    """A copy's confidence with what the length of its match says about it."""
    odds = MATCH_ODDS[min(order, len(MATCH_ODDS) - 1)] * confidence
    return odds / (1.0 - confidence + odds)
