"""A draft may serve a target when both mean the same text by a token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.nn as nn
from gguf_files import MERGES, TOKENS, tiny_model

from mlxspec.models.compatibility import incompatibility
from mlxspec.models.loading import LoadedModel, load_model


def model(
    name: str, texts: Mapping[int, str] | list[str], *, width: int | None = None, eos: int = 0
) -> LoadedModel:
    """A loaded model of which only tokenizer and width of the logits count."""
    by_id = dict(enumerate(texts)) if isinstance(texts, list) else texts
    tokenizer: Any = SimpleNamespace(get_vocab=lambda: {text: i for i, text in by_id.items()})
    return LoadedModel(
        name=name,
        folder=Path(name),
        model=nn.Identity(),
        tokenizer=tokenizer,
        config={},
        vocab_size=max(by_id) + 1 if width is None else width,
        context_tokens=128,
        weight_bytes=0,
        defaults={},
        has_chat_template=False,
        eos_ids=frozenset({eos}),
    )


WORDS = [f"w{i}" for i in range(1000)]


def test_the_same_vocabulary_serves() -> None:
    assert incompatibility(model("big", WORDS), model("small", WORDS)) is None


def test_logits_padded_to_other_widths_serve() -> None:
    """Qwen2.5: 151,665 tokens, 152,064 logits in the large models and 151,936 in the small ones."""
    big, small = model("big", WORDS, width=1520), model("small", WORDS, width=1519)
    assert incompatibility(big, small) is None
    assert incompatibility(small, big) is None


def test_one_changed_token_is_found_and_named() -> None:
    changed = [*WORDS[:500], "other", *WORDS[501:]]
    assert incompatibility(model("big", WORDS), model("small", changed)) == (
        "1 of 1000 tokens differ, the first is token 500: 'w500' in big, 'other' in small"
    )


def test_the_first_of_many_differences_is_named() -> None:
    shifted = ["<pad>", *WORDS[:-1]]
    assert incompatibility(model("big", WORDS), model("small", shifted)) == (
        "1000 of 1000 tokens differ, the first is token 0: 'w0' in big, '<pad>' in small"
    )


def test_tokens_added_to_one_of_them_serve() -> None:
    assert incompatibility(model("big", [*WORDS, "<think>", "</think>"]), model("small", WORDS)) is None


def test_an_added_token_in_the_place_of_another_is_found() -> None:
    big, small = model("big", [*WORDS, "<think>"]), model("small", [*WORDS, "<tool>"])
    assert incompatibility(big, small) == (
        "1 of 1001 tokens differ, the first is token 1000: '<think>' in big, '<tool>' in small"
    )


def test_tokens_that_a_model_cannot_emit_do_not_count() -> None:
    changed = [*WORDS[:990], *(f"x{i}" for i in range(10))]
    assert incompatibility(model("big", WORDS), model("small", changed, width=990)) is None


def test_another_end_of_answer_serves() -> None:
    assert incompatibility(model("chat", WORDS, eos=2), model("base", WORDS, eos=0)) is None


def test_vocabularies_without_a_common_id_do_not_serve() -> None:
    assert incompatibility(model("big", {0: "a"}), model("small", {5: "a"})) is not None


def test_line_breaks_in_a_token_do_not_break_the_sentence() -> None:
    reason = incompatibility(model("big", ["\n\x1b[31m"]), model("small", ["b"]))
    assert reason is not None
    assert reason.isprintable()


def test_merges_do_not_matter_but_the_order_of_tokens_does(tmp_path: Path) -> None:
    target = load_model("target", tiny_model(tmp_path / "target"))
    fewer = load_model("fewer", tiny_model(tmp_path / "fewer", tokenizer__ggml__merges=MERGES[:1]))
    assert incompatibility(target, fewer) is None
    swapped = [*TOKENS[:-2], TOKENS[-1], TOKENS[-2]]
    other = load_model("other", tiny_model(tmp_path / "other", tokenizer__ggml__tokens=swapped))
    reason = incompatibility(target, other)
    assert reason is not None
    assert f"token {len(TOKENS) - 2}: 'hello' in target, 'Ġw' in other" in reason
