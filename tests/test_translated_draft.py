"""A draft of another vocabulary over long texts, turns and cancelled answers."""

from __future__ import annotations

import pytest

from mlxspec.drafters.translation import Tongue
from tests.answers import answer, sampler_of, some_prompt
from tests.architecture_checks import Subject, translated


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("llama")


def test_a_round_of_a_long_answer_spells_only_the_end_of_the_text(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelt: list[int] = []
    encode = Tongue.encode

    def watched(self: Tongue, text: str, *, within: bool) -> list[int]:
        spelt.append(len(text))
        return encode(self, text, within=within)

    monkeypatch.setattr(Tongue, "encode", watched)
    given = answer(subject.state(), some_prompt(300), drafters=[translated(subject.model)], tokens=500)
    assert given.accepted == given.proposed > 0
    assert sum(length > 200 for length in spelt) == 1, "the prompt is spelt once"


def test_the_next_turn_goes_on_from_what_the_draft_has_read(subject: Subject) -> None:
    state, drafter = subject.state(), translated(subject.model)
    said = answer(state, some_prompt(200), drafters=[drafter], tokens=60).ids
    drafter.reset([*some_prompt(200), *said, 5, 9], sampler_of(0.0), lambda: False)
    assert drafter.propose(2) is not None
    read_before = 200 + 60 - 4 * 48
    assert drafter._draft._cache.length >= read_before
    assert drafter.offer().catch_up < 60


def test_a_draft_that_is_full_offers_nothing(subject: Subject) -> None:
    drafter = translated(subject.model, context_tokens=50)
    given = answer(subject.state(), some_prompt(30), drafters=[drafter], tokens=60)
    assert given.ids == answer(subject.state(), some_prompt(30), tokens=60).ids
    assert 0 < given.proposed < 30
    assert drafter.offer().max_k == 0


def test_a_cancel_while_the_draft_reads_a_long_prompt_ends_the_answer(subject: Subject) -> None:
    drafter = translated(subject.model)
    drafter.reset(some_prompt(200), sampler_of(0.0), lambda: True)
    assert drafter.propose(3) is None
    state = subject.state()
    assert answer(state, some_prompt(200), drafters=[drafter], tokens=8).accepted > 0
