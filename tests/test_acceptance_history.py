"""How often guesses are kept: what is remembered, and what is peculiar to one answer."""

from __future__ import annotations

import json
import random

import pytest

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.controller import Option

DRAFT = Option("draft_model", max_k=4)


def copies(confidence: float, *, match_length: int = 0, k: int = 4) -> Option:
    return Option("lookup", max_k=k, confidences=(confidence,) * k, match_length=match_length)


def play(history: AcceptanceHistory, option: Option, alpha: float, *, rounds: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    for _ in range(rounds):
        accepted = 0
        while accepted < option.max_k and rng.random() < alpha:
            accepted += 1
        history.record(
            option.drafter,
            accepted,
            proposed=option.max_k,
            confidences=option.confidences,
            match_length=option.match_length,
        )
        history.tick()


def first(history: AcceptanceHistory, option: Option) -> float:
    return next(history.alphas(option))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_acceptance_is_learnt_at_every_position(alpha: float) -> None:
    history = AcceptanceHistory()
    play(history, DRAFT, alpha, rounds=400)
    history.begin_answer()
    assert first(history, DRAFT) == pytest.approx(alpha, abs=0.08)


def test_a_position_that_was_never_tried_is_like_the_one_before_it() -> None:
    history = AcceptanceHistory()
    play(history, Option("draft_model", max_k=1), 0.9, rounds=100)
    one, two, *_ = history.alphas(DRAFT)
    assert two == pytest.approx(one, abs=0.01)


def test_guesses_behind_a_rejected_one_were_not_tried() -> None:
    history = AcceptanceHistory()
    for _ in range(50):
        history.record("draft_model", 1, proposed=4)
    alphas = list(history.alphas(DRAFT))
    assert alphas[0] > 0.8
    assert alphas[1] < 0.2
    assert len(history.to_dict()["draft_model"]) == 2


def test_a_text_that_goes_badly_is_noticed_within_a_few_rounds() -> None:
    history = AcceptanceHistory()
    play(history, DRAFT, 0.85, rounds=300)
    history.begin_answer()
    before = first(history, DRAFT)
    for _ in range(8):
        history.record("draft_model", 0, proposed=4)
    assert first(history, DRAFT) < before - 0.3


def test_what_was_peculiar_to_an_answer_ends_with_it() -> None:
    history = AcceptanceHistory()
    play(history, DRAFT, 0.85, rounds=300)
    history.begin_answer()
    for _ in range(8):
        history.record("draft_model", 0, proposed=4)
    during = first(history, DRAFT)
    history.begin_answer()
    assert first(history, DRAFT) > during + 0.25


def test_a_bad_mood_fades_while_nothing_is_observed() -> None:
    history = AcceptanceHistory()
    for _ in range(6):
        history.record("draft_model", 0, proposed=1)
    after_failures = first(history, DRAFT)
    for _ in range(100):
        history.tick()
    assert first(history, DRAFT) > after_failures + 0.1


def test_hope_grows_with_what_is_not_known() -> None:
    history = AcceptanceHistory()
    unknown = next(history.alphas(DRAFT, optimism=1.0)) - first(history, DRAFT)
    play(history, DRAFT, 0.6, rounds=50)
    known = next(history.alphas(DRAFT, optimism=1.0)) - first(history, DRAFT)
    assert unknown > known > 0.0


def test_a_copy_is_believed_as_its_confidence_says_until_it_is_known() -> None:
    assert first(AcceptanceHistory(), copies(0.7)) == pytest.approx(0.7)


def test_a_copy_with_a_long_match_is_believed_more_than_one_with_a_short_match() -> None:
    history = AcceptanceHistory()
    believed = [first(history, copies(0.5, match_length=n)) for n in (1, 2, 3, 5, 9)]
    assert believed == sorted(believed)
    assert believed[0] < 0.3
    assert believed[-1] > 0.8


def test_every_kept_guess_makes_the_match_longer() -> None:
    alphas = list(AcceptanceHistory().alphas(copies(0.5, match_length=1)))
    assert alphas == sorted(alphas)


def test_a_lookup_that_is_too_sure_is_found_out() -> None:
    history = AcceptanceHistory()
    play(history, copies(0.9, match_length=3, k=1), 0.2, rounds=200)
    history.begin_answer()
    assert first(history, copies(0.9, match_length=3)) == pytest.approx(0.2, abs=0.1)
    assert first(history, copies(0.5, match_length=1)) < 0.3  # its other guesses are judged by themselves


def test_the_history_goes_on_in_the_next_run() -> None:
    history = AcceptanceHistory()
    play(history, DRAFT, 0.9, rounds=100)
    play(history, copies(0.5, match_length=2), 0.1, rounds=100)
    again = AcceptanceHistory.from_dict(json.loads(json.dumps(history.to_dict())))
    history.begin_answer()
    for option in (DRAFT, copies(0.5, match_length=2)):
        assert list(again.alphas(option)) == list(history.alphas(option))


@pytest.mark.parametrize(
    "stored",
    [[], {"lookup": 1}, {"lookup": [[1, 2, 3]]}, {"lookup": [[1, 2, 5.0, 3.0]]}, {"lookup": [[1, 2, "x", 3]]},
     {"lookup": [[1, 2, 0.0, float("nan")]]}, {"lookup": [[1, 2, 1.0, 1e9]]}],
)  # fmt: skip
def test_what_is_no_stored_history_is_a_value_error(stored: object) -> None:
    with pytest.raises(ValueError, match="not a stored acceptance history"):
        AcceptanceHistory.from_dict(stored)  # type: ignore[arg-type]
