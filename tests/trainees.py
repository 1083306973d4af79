"""A tiny target, its corpus, and trainings of drafts for it that take no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from gguf_files import tiny_model

from mlxspec.lab.prompts import BenchPrompt
from mlxspec.models.loading import LoadedModel, load_model
from mlxspec.places import places
from mlxspec.training import outcome, self_chat
from mlxspec.training.corpus import Conversation, CorpusWriter
from mlxspec.training.distilling import Ears, Wish, distill
from mlxspec.training.outcome import Outcome

PROMPTS = (BenchPrompt("code", "hello"), BenchPrompt("chat", "12"))
CONVERSATIONS = 24


_made: dict[str, Any] = {}


def tiny_target(folders: pytest.TempPathFactory) -> LoadedModel:
    """A target whose distributions are sharp enough to be learnt; one for all tests."""
    if "target" not in _made:
        folder = tiny_model(folders.mktemp("target") / "tiny")
        file = str(folder / "model.safetensors")
        arrays: Any = mx.load(file)
        arrays["model.norm.weight"] = arrays["model.norm.weight"] * 12.0
        mx.save_safetensors(file, arrays, metadata={"format": "mlx"})
        _made["target"] = load_model("tiny", folder)
    target: LoadedModel = _made["target"]
    return target


def tiny_corpus(folders: pytest.TempPathFactory) -> Path:
    """Its greedy answers to some prompts."""
    if "corpus" not in _made:
        prompts = [[1, 5 + i, 9, 20 + i % 3] for i in range(CONVERSATIONS)]
        answers = self_chat.SelfChat(tiny_target(folders), seed=1).greedy_answers(prompts, 40)
        _made["corpus"] = folders.mktemp("corpus") / "corpus.jsonl.gz"
        said = [Conversation(4, 0.0, (*p, *a)) for p, a in zip(prompts, answers, strict=True)]
        CorpusWriter(_made["corpus"]).add(said)
    corpus: Path = _made["corpus"]
    return corpus


def make_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little text, and no seconds of measuring."""
    for module, name, value in (
        (self_chat, "WAVE", 8),
        (self_chat, "ANSWER_TOKENS", 16),
        (self_chat, "QUESTION_TOKENS", 4),
        (outcome, "CURVE_S", 0.01),
        (outcome, "TRIAL_TOKENS", 24),
    ):
        monkeypatch.setattr(module, name, value)


def some_wish(corpus: Path, **changes: Any) -> Wish:
    return replace(Wish(kind="head", corpus=str(corpus), steps=4, vocabulary=128, seed=3), **changes)


def silent(step: Any = lambda _report: None) -> Ears:
    return Ears(lambda _event: None, lambda _stage: None, step, lambda _text: None)


def distilled(
    wish: Wish, out: Path, target: LoadedModel, *, resume: bool = False, step: Any = lambda _: None
) -> Outcome:
    wish = replace(wish, target=str(target.folder))
    return distill(wish, out, places(), silent(step), resume=resume, prompts=PROMPTS)
