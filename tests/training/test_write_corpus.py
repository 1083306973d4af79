"""The program that wrote most of the shipped draft's corpus, on a tiny target."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxspec.models.loading import LoadedModel
from mlxspec.training.corpus import CorpusWriter, read_corpus

FILE = Path(__file__).parents[2] / "recipes" / "smollm2-draft" / "write_corpus.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = util.spec_from_file_location("write_corpus", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "write_corpus", module)
    spec.loader.exec_module(module)
    small = {"SLOTS": 3, "ROOM": 96, "QUESTION_TOKENS": 5, "ANSWER_TOKENS": 12, "TEMPERATURES": (0.0,)}
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_answers_are_the_targets_own(program: Any, target: LoadedModel, tmp_path: Path) -> None:
    author = program.Author(target.tokenizer, target.eos_ids, seed=1)
    steps: Iterator[bool] = iter([True] * 300)
    writer = CorpusWriter(tmp_path / "corpus.jsonl.gz")
    program.write(program.Llama(target.model), author, writer, seed=1, going_on=lambda: next(steps, False))
    conversations = read_corpus(tmp_path / "corpus.jsonl.gz", vocab_size=target.vocab_size)
    assert len(conversations) > 2 * program.SLOTS, "places are used again"
    for conversation in conversations:
        ids, prompt = list(conversation.ids), conversation.prompt_tokens
        assert ids[:prompt][-len(author.after) :] == author.after
        choices = mx.argmax(target.model(mx.array([ids]))[0], axis=-1).tolist()
        assert ids[prompt:] == choices[prompt - 1 : -1]


def test_questions_are_about_what_was_written_before(program: Any, target: LoadedModel) -> None:
    author = program.Author(target.tokenizer, target.eos_ids, seed=1)
    author._texts, author._codes = ["One text."] * 21, ["x = 1"] * 21
    slots = [author.begin() for _ in range(len(program.OPENINGS) + 2)]
    given = [slot for slot in slots if not slot.asks]
    assert len(given) == 2
    for slot in given:
        assert slot.prompt_tokens == len(slot.forced)
        assert slot.forced[-len(author.after) :] == author.after
    written = [target.tokenizer.decode(slot.forced) for slot in given]
    assert any("One text." in text for text in written)
    assert any("x = 1" in text for text in written)
