"""Prompt lookup: what it guesses, that it forgets, and that long chats stay cheap."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.drafters.lookup import Lookup, NgramIndex

SAMPLER = Sampler(SamplingParams(temperature=0), vocab_size=100, rule=Rule.BLOCK, seed=0)


def guesses_after(tokens: list[int], k: int = 8, floor: float = 0.1) -> list[int]:
    lookup = Lookup(floor=floor)
    lookup.reset(tokens, SAMPLER, lambda: False)
    proposal = lookup.propose(k)
    return [] if proposal is None else proposal.tokens.tolist()  # type: ignore[return-value]


def test_it_copies_what_followed_the_same_words() -> None:
    assert guesses_after([1, 2, 3, 4, 5, 6, 1, 2, 3], 3, floor=0.05) == [4, 5, 6]


def test_it_offers_nothing_for_words_it_has_not_seen() -> None:
    lookup = Lookup()
    lookup.reset([1, 2, 3], SAMPLER, lambda: False)
    assert lookup.offer().max_k == 0
    assert lookup.propose(4) is None


def test_the_longest_context_decides() -> None:
    assert guesses_after([1, 2, 3, 9, 2, 7, 9, 2, 7, 1, 2], 1) == [3]


def test_the_most_frequent_continuation_wins_and_the_youngest_among_equals() -> None:
    assert guesses_after([5, 1, 5, 2, 5, 2, 5, 1, 5, 1, 9, 5], 1) == [1]
    assert guesses_after([5, 1, 5, 2, 9, 5], 1) == [2]


def test_confidence_is_count_over_total_plus_one() -> None:
    index = NgramIndex()
    index.extend([1, 2, 8, 1, 2, 9, 1, 3])
    assert index.best([8, 1]) == (2, 0.5, 2)
    assert index.best([7, 1]) == (2, 2 / 4, 1)


def test_a_chain_stops_where_its_confidence_falls_below_the_floor() -> None:
    once = list(range(50)) + list(range(5))
    assert len(guesses_after(once, 16, floor=0.1)) == 3  # 1/2 each: 0.5, 0.25, 0.125
    twice = list(range(50)) * 2 + list(range(5))
    assert len(guesses_after(twice, 16, floor=0.1)) == 5  # 2/3 each


def test_committed_tokens_are_looked_up_too() -> None:
    lookup = Lookup()
    lookup.reset([1, 2], SAMPLER, lambda: False)
    lookup.committed([3, 1, 2], 0)
    proposal = lookup.propose(1)
    assert proposal is not None
    assert proposal.tokens.tolist() == [3]


def contents(index: NgramIndex) -> list[dict[tuple[int, ...], dict[int, int]]]:
    return [
        {
            context: dict([found]) if isinstance(found, tuple) else dict(found)
            for context, found in table.items()
        }
        for table in index._counts
    ]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 40))
def test_what_is_taken_out_was_never_there(tokens: list[int], length: int) -> None:
    kept = tokens[:length]
    fresh, shortened = NgramIndex(), NgramIndex()
    fresh.extend(kept)
    shortened.extend(tokens)
    shortened.shorten(len(kept))
    assert shortened.tokens == fresh.tokens
    assert contents(shortened) == contents(fresh)


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30))
def test_a_new_answer_forgets_what_the_chat_no_longer_holds(first: list[int], second: list[int]) -> None:
    lookup, fresh = Lookup(), Lookup()
    lookup.reset(first, SAMPLER, lambda: False)
    lookup.reset(second, SAMPLER, lambda: False)
    fresh.reset(second, SAMPLER, lambda: False)
    assert contents(lookup._index) == contents(fresh._index)


def test_a_proposal_costs_no_more_in_a_chat_a_hundred_times_as_long() -> None:
    """A ratio within one run, far from its bound: a linear search would give about 100."""
    rng = random.Random(1)

    def seconds(length: int) -> float:
        lookup = Lookup()
        lookup.reset([int(rng.paretovariate(0.7)) % 5000 for _ in range(length)], SAMPLER, lambda: False)
        best = float("inf")
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(20):
                lookup._chain = None
                lookup.offer()
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(50_000) < 20 * seconds(500)
