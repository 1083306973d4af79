"""The draft that comes with mlxspec, on the model that it was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from mlxspec.drafters.trained import IDS, WEIGHTS
from mlxspec.lab.audit import Audit
from mlxspec.lab.drafts import load_draft, wanted
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.models.loading import load_model
from mlxspec.models.registry import ShippedSource
from mlxspec.places import places
from mlxspec.training.corpus import read_corpus
from mlxspec.training.vocabulary import frequent_ids

NAME = "smollm2-draft"
RECIPE = Path(__file__).parents[1] / "recipes" / NAME


def test_it_guesses_for_the_default_model_and_changes_nothing(default_model: Path) -> None:
    asked = wanted(None, ["auto"], places())
    assert asked.drafts == (NAME,)
    target = load_model(asked.target.name, default_model)
    draft = load_draft(NAME, target, asked, places(), lambda _event: None, measure=False)
    alone = replace(draft, drafters=draft.drafters[:1])
    prompt = BenchPrompt("math", "Solve 5x + 2 = 17 step by step.")
    check = Audit(target, alone, k=1, max_tokens=48).text(prompt, temperature=0.0)
    assert check.difference is None
    assert check.accepted > check.proposed / 4, "it was trained on what this target says"


def test_it_can_guess_the_tokens_that_its_corpus_has_most_of(default_model: Path) -> None:
    """The corpus in the repository is the one that it was trained on."""
    target = load_model("smollm2-135m", default_model)
    conversations = read_corpus(RECIPE / "corpus.jsonl.gz", vocab_size=target.vocab_size)
    arrays = mx.load(str(ShippedSource(NAME).path / WEIGHTS))
    assert isinstance(arrays, dict)
    columns = arrays[IDS].shape[0]
    ids = frequent_ids(conversations, columns, vocab_size=target.vocab_size, always=target.eos_ids)
    assert ids is not None
    assert ids.tolist() == arrays[IDS].tolist()
