"""The draft that comes with mlxspec, on the model that it was made for."""

from __future__ import annotations

from pathlib import Path

from mlxspec.lab.audit import Audit
from mlxspec.lab.drafts import load_draft, wanted
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.models.loading import load_model
from mlxspec.places import places

NAME = "smollm2-draft"


def test_it_guesses_for_the_default_model_and_changes_nothing(default_model: Path) -> None:
    asked = wanted(None, ["auto"], places())
    assert asked.drafts == (NAME,)
    target = load_model(asked.target.name, default_model)
    draft = load_draft(NAME, target, asked, places(), lambda _event: None, measure=False)
    prompt = BenchPrompt("math", "Solve 5x + 2 = 17 step by step.")
    check = Audit(target, draft, k=2, max_tokens=32).text(prompt, temperature=0.0)
    assert check.difference is None
    assert check.accepted > check.proposed / 5, "it was trained on what this target says"
