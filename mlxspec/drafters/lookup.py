"""Prompt lookup: what followed these words before is guessed to follow them again.

Before means in this chat and, where a datastore is given, in earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mlx.core as mx

from mlxspec.decoding.cache import common_prefix
from mlxspec.decoding.controller import Option
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.drafters.datastore import Datastore
from mlxspec.drafters.ngram_rows import MAX_ORDER, context_keys

MOST_GUESSES = 16

CHAT_WEIGHT = 4
"""What was said once in this chat counts as much as this many times in earlier answers. See
benchmarks/datastore.py."""

Context = tuple[int, ...]


class NgramIndex:
    """Counts of what followed each context of 1 to `max_order` tokens in one sequence.

    Most contexts of a long text were followed by one token only, so the value of a context is that
    token until a second one comes, and a table of counts after that: a third of the memory.
    """

    def __init__(self, max_order: int = MAX_ORDER) -> None:
        self.max_order = max_order
        self.tokens: list[int] = []
        self._counts: list[dict[Context, tuple[int, int] | dict[int, int]]] = [{} for _ in range(max_order)]

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens at the end. About 3 microseconds a token."""
        for token in tokens:
            end = len(self.tokens)
            for order in range(1, min(self.max_order, end) + 1):
                self._add(tuple(self.tokens[end - order :]), token)
            self.tokens.append(token)

    def shorten(self, length: int) -> None:
        """Take the tokens after the first `length` out again, and what they were counted for."""
        while len(self.tokens) > length:
            token = self.tokens.pop()
            end = len(self.tokens)
            for order in range(1, min(self.max_order, end) + 1):
                self._remove(tuple(self.tokens[end - order :]), token)

    def best(self, context: Sequence[int]) -> tuple[int, float, int] | None:
        """The likeliest next token after `context`, its confidence, and the length of the match.

        The longest context that was seen decides; confidence = count / (total + 1).
        """
        for order in range(min(self.max_order, len(context)), 0, -1):
            found = self._counts[order - 1].get(tuple(context[-order:]))
            if found is None:
                continue
            if isinstance(found, tuple):
                token, count = found
                return token, count / (count + 1), order
            # The youngest of the most frequent: what was said last is said again.
            token = max(reversed(found), key=found.__getitem__)
            return token, found[token] / (sum(found.values()) + 1), order
        return None

    def counts(self, context: Sequence[int]) -> Mapping[int, int]:
        """How often each token followed all of `context`, the one that came last at the end."""
        found = self._counts[len(context) - 1].get(tuple(context))
        if found is None:
            return {}
        return {found[0]: found[1]} if isinstance(found, tuple) else found

    def _add(self, context: Context, token: int) -> None:
        table = self._counts[len(context) - 1]
        found = table.get(context)
        if found is None:
            table[context] = (token, 1)
        elif isinstance(found, tuple):
            if found[0] == token:
                table[context] = (token, found[1] + 1)
            else:
                table[context] = {found[0]: found[1], token: 1}
        else:
            found[token] = found.pop(token, 0) + 1

    def _remove(self, context: Context, token: int) -> None:
        table = self._counts[len(context) - 1]
        found = table[context]
        if isinstance(found, tuple):
            if found[1] == 1:
                del table[context]
            else:
                table[context] = (token, found[1] - 1)
        elif found[token] > 1:
            found[token] -= 1
        else:
            del found[token]
            if not found:
                del table[context]


class Lookup:
    """Guesses chains of tokens from the n-grams of this chat, prompt and answer so far.

    A chain ends where nothing is known or where the product of its confidences falls below `floor`.

    Attributes:
        datastore: what is known from earlier answers, or None; it is not closed here.
        max_order: tokens of the longest context.
    """

    name = "lookup"

    def __init__(
        self, *, floor: float = 1e-3, max_order: int = MAX_ORDER, datastore: Datastore | None = None
    ) -> None:
        self.datastore = datastore
        self.max_order = max_order
        self._floor = floor
        self._index = NgramIndex(max_order)
        self._chain: list[int] | None = None
        self._confidences: list[float] = []
        self._match_length = 0

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Index `tokens`; what they have in common with the last sequence is indexed already."""
        del sampler, cancelled
        common = common_prefix(self._index.tokens, list(tokens))
        self._index.shorten(common)
        self._index.extend(tokens[common:])
        self._chain = None
        if self.datastore is not None:
            self.datastore.begin()

    def offer(self) -> Option:
        """The chain that would be proposed now."""
        chain = self._follow()
        return Option(
            self.name,
            max_k=len(chain),
            confidences=tuple(self._confidences),
            match_length=self._match_length,
        )

    def propose(self, k: int) -> Proposal | None:
        """The first `k` tokens of the chain."""
        chain = self._follow()[:k]
        return Proposal(mx.array(chain, mx.uint32)) if chain else None

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """Index the new tokens."""
        del accepted
        self._index.extend(tokens)
        self._chain = None

    def close(self) -> None:
        """Forget the sequence."""
        self._index = NgramIndex(self.max_order)
        self._chain = None

    def best(self, context: Sequence[int], longest: int) -> tuple[int, float, int] | None:
        """The likeliest token after `context`, its confidence, and the length of the match.

        At most `longest` tokens of context count. After some calls the datastore wants to `rest`.
        """
        if self.datastore is None:
            return self._index.best(context)
        return self._best(self.datastore, context, longest)

    def _follow(self) -> list[int]:
        if self._chain is not None:
            return self._chain
        chain: list[int] = []
        self._confidences = []
        self._match_length = 0
        most = longest = self.max_order
        context = self._index.tokens[-most:]
        datastore = self.datastore
        product = 1.0
        while len(chain) < MOST_GUESSES:
            found = self.best(context, longest)
            if found is None:
                break
            token, confidence, order = found
            product *= confidence
            if product < self._floor:
                break
            if not chain:
                self._match_length = order
            chain.append(token)
            self._confidences.append(confidence)
            context = [*context[-(most - 1) :], token]
            # A context of two more tokens would have been seen with its first part, which was not.
            longest = min(most, order + 1)
        if datastore is not None:
            datastore.rest()
        self._chain = chain
        return chain

    def _best(
        self, datastore: Datastore, context: Sequence[int], longest: int
    ) -> tuple[int, float, int] | None:
        """As `NgramIndex.best`, of the chat and the datastore together, from `longest` tokens of context."""
        keys = context_keys(context[-longest:])
        for order in range(len(keys), 0, -1):
            said = self._index.counts(context[-order:])
            learnt = datastore.counts(keys[order - 1])
            if not said and not learnt:
                continue
            counts = learnt if not said else dict(learnt)
            for token, count in said.items():
                counts[token] = counts.pop(token, 0) + CHAT_WEIGHT * count
            # The youngest of the most frequent, and the chat's before the others.
            token = next(iter(counts)) if len(counts) == 1 else max(reversed(counts), key=counts.__getitem__)
            return token, counts[token] / (sum(counts.values()) + CHAT_WEIGHT), order
        return None
