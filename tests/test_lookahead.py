"""Lookahead: what the target says behind wrong guesses comes back as guesses."""

from __future__ import annotations

from collections.abc import Sequence

from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.drafters.lookahead import Lookahead, Pool
from mlxspec.drafters.lookup import Lookup

SAMPLER = Sampler(SamplingParams(temperature=0.0), vocab_size=100, rule=Rule.BLOCK, seed=0)


def lookahead(*tokens: int) -> Lookahead:
    copies = Lookup()
    drafter = Lookahead(copies)
    for each in (copies, drafter):
        each.reset(tokens, SAMPLER, lambda: False)
    return drafter


def guesses(drafter: Lookahead, k: int) -> list[int]:
    proposal = drafter.propose(k)
    assert proposal is not None
    assert proposal.q is None, "guesses are certain"
    return [int(token) for token in proposal.tokens.tolist()]  # type: ignore[union-attr]


def after_a_pass(drafter: Lookahead, read: Sequence[int], choices: Sequence[int], accepted: int) -> None:
    drafter.read_choices(read, choices, accepted)
    drafter.committed([*read[:accepted], choices[accepted]], accepted)


def test_the_pool_follows_the_longest_context_and_the_youngest_token() -> None:
    pool = Pool()
    pool.add([1, 2], 3)
    pool.add([9, 2], 4)
    assert pool.best([1, 2]) == (3, 2)
    assert pool.best([7, 2]) == (4, 1)
    assert pool.best([2, 7]) is None


def test_the_pool_forgets_its_oldest_contexts() -> None:
    pool = Pool(most=2)
    for token in (1, 2, 3):
        pool.add([token], 50)
    assert len(pool) == 2
    assert pool.best([1]) is None


def test_what_follows_a_wrong_guess_is_guessed_when_that_guess_comes_true() -> None:
    drafter = lookahead(10, 11, 12)
    after_a_pass(drafter, read=[20, 21], choices=[30, 40, 50], accepted=0)  # 20 and 21 were wrong
    drafter.committed([20], 0)
    assert guesses(drafter, 1) == [40]  # behind 20 the target said 40


def test_the_rest_of_a_pass_is_the_next_window() -> None:
    drafter = lookahead(10, 11, 12)
    after_a_pass(drafter, read=[20, 21, 22], choices=[30, 40, 50, 60], accepted=0)
    assert guesses(drafter, 3) == [40, 50, 60]


def test_the_window_moves_on_with_a_plain_round() -> None:
    drafter = lookahead(10, 11, 12)
    after_a_pass(drafter, read=[20, 21, 22], choices=[30, 40, 50, 60], accepted=0)
    drafter.committed([70], 0)
    assert guesses(drafter, 2) == [50, 60]


def test_what_was_accepted_is_no_news() -> None:
    drafter = lookahead(10, 11, 12)
    after_a_pass(drafter, read=[20, 21], choices=[20, 21, 30], accepted=2)
    assert drafter._window == []
    assert len(drafter._pool) == 0


def test_a_row_is_full_and_says_how_sure_it_is_of_each_guess() -> None:
    option = lookahead(10, 11, 12).offer()
    assert option.max_k == len(option.confidences) == 16
    assert all(0 < confidence < 1 for confidence in option.confidences)


def test_an_answer_does_not_depend_on_the_one_before() -> None:
    drafter = lookahead(10, 11, 12)
    fresh = guesses(drafter, 8)
    after_a_pass(drafter, read=fresh, choices=[30, 40, 50, 60, 70, 80, 90, 91, 92], accepted=0)
    drafter.reset([10, 11, 12], SAMPLER, lambda: False)
    assert guesses(drafter, 8) == fresh
