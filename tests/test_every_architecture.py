"""Lossless with every kind of cache: as a target, as a draft, turn after turn, and after failures.

Some architecture of each kind runs here; `MLXSPEC_ALL_ARCHITECTURES=1` runs all of the table, and
`python -m benchmarks.architectures` runs them longer and writes what it found into the docs.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from mlxspec.decoding.cache import PromptCache
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.errors import UnsupportedCache
from tests.answers import fill, loop, some_prompt
from tests.architecture_checks import (
    Subject,
    check_closed,
    check_draft,
    check_draft_keeps_nothing_rejected,
    check_failures,
    check_kv_bits,
    check_target,
    check_turns,
)
from tests.tiny_models import ARCHITECTURES, LEFT_OUT, build

ONE_OF_EACH_KIND = (
    "llama",  # attention over all tokens
    "gpt_oss",  # a window beside it
    "plamo3",  # a window with one token more
    "llama4",  # chunks
    "mamba",  # recurrent state alone
    "recurrent_gemma",  # recurrent state beside a window
    "qwen3_5",  # recurrent state beside attention over all tokens
    "baichuan_m1",  # lists of state and windows
    "deepseek_v32",  # lists of attention caches
    "gemma4_text",  # fewer caches than layers
    "deepseek_v41",  # a kind of its own
    "phi3small",  # only passes of one row are right
)

NAMES = tuple(ARCHITECTURES) if os.environ.get("MLXSPEC_ALL_ARCHITECTURES") else ONE_OF_EACH_KIND
FEW = NAMES if NAMES != ONE_OF_EACH_KIND else ("llama", "gpt_oss", "qwen3_5")


@cache
def subject(name: str) -> Subject:
    return Subject(name)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_ids_are_those_of_plain_decoding(name: str) -> None:
    k = {"llama": 8, "mamba": 1}.get(name, 4)
    given = check_target(subject(name), draft="erring", k=k, temperature=0.0, tokens=30)
    assert 0 < given.accepted < given.proposed, "the draft must be right at times and wrong at times"


@pytest.mark.parametrize("name", NAMES)
def test_coupled_ids_are_those_of_plain_decoding_with_that_seed(name: str) -> None:
    given = check_target(subject(name), draft="erring", k=3, temperature=1.0, tokens=12)
    assert given.proposed > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_that_is_the_target_is_always_right(name: str) -> None:
    check_target(subject(name), draft="itself", k=4, temperature=0.0, tokens=12)


@pytest.mark.parametrize("draft", ["lookup", "lookahead"])
@pytest.mark.parametrize("name", NAMES)
def test_what_needs_no_model_changes_no_id(name: str, draft: str) -> None:
    given = check_target(subject(name), draft=draft, k=4, temperature=0.0, tokens=12)
    assert given.proposed > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_of_other_tokens_that_is_the_target_is_always_right(name: str) -> None:
    check_target(subject(name), draft="translated itself", k=4, temperature=0.0, tokens=8)


@pytest.mark.parametrize("draft", ["translated", "trimmed"])
@pytest.mark.parametrize("name", FEW)
def test_drafts_of_other_vocabularies_change_no_id(name: str, draft: str) -> None:
    for temperature in (0.0, 1.0):
        given = check_target(subject(name), draft=draft, k=4, temperature=temperature, tokens=20)
        assert 0 < given.accepted < given.proposed


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_drafts_for_another_one(name: str) -> None:
    check_draft(subject(name), subject("llama"), k=3, temperature=1.0, tokens=8)


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_keeps_no_guess_that_was_rejected(name: str) -> None:
    check_draft_keeps_nothing_rejected(subject(name), tokens=16)


@pytest.mark.parametrize("name", NAMES)
def test_later_turns_equal_cold_runs_and_reuse_what_was_read(name: str) -> None:
    assert check_turns(subject(name), tokens=9)[0] > 0


@pytest.mark.parametrize("draft", ["erring", "lookahead", "translated"])
@pytest.mark.parametrize("name", FEW)
def test_the_answer_after_any_failure_is_a_fresh_one(name: str, draft: str) -> None:
    check_failures(subject(name), draft=draft, tokens=3)


@pytest.mark.parametrize("draft", ["erring", "lookahead", "translated"])
@pytest.mark.parametrize("name", FEW)
def test_the_answer_after_one_that_was_left_is_a_fresh_one(name: str, draft: str) -> None:
    assert check_closed(subject(name), draft=draft) == 6


def test_what_a_recurrent_target_carries_does_not_add_up_without_end() -> None:
    prompt, drafter = some_prompt(), DraftModel(subject("mamba").erring)
    state = subject("mamba").state()
    fill(state, prompt)
    carried = [landed.carried for landed in loop(state, drafters=[drafter], k=6, tokens=60).rounds()]
    assert 0 < max(carried) < 16  # two rounds that keep nearly all


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_quantised_caches_give_the_ids_of_plain_decoding(name: str) -> None:
    assert check_kv_bits(name) == "yes"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gpt_oss", "keeps RotatingKVCache"),
        ("llama4", "keeps ChunkedKVCache"),
        ("deepseek_v32", "keeps CacheList"),
        ("mamba", "nothing can be quantised"),
        ("llama", "heads of 8 values"),
        ("gemma2", "attention of this model reads"),
    ],
)
def test_a_cache_that_cannot_be_quantised_is_refused_by_name(name: str, reason: str) -> None:
    wide = {"head_dim": 64} if name == "gemma2" else {}
    with pytest.raises(UnsupportedCache, match=reason):
        PromptCache(build(name, **wide), kv_bits=4)


def test_the_table_covers_the_models_of_the_library() -> None:
    assert len(ARCHITECTURES) >= 120
    assert not set(ARCHITECTURES) & set(LEFT_OUT)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_of_the_tiny_models_is_not_monotonous(name: str) -> None:
    assert len(set(subject(name).plain(0.0))) > len(some_prompt()) // 4
