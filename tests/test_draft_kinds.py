"""Every kind of draft by its name, through the engine, on tiny models with the real tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from mlxspec.engine import Engine, LoadRequest
from mlxspec.events import Event, Failed, Loaded, Loading, Notice
from tests.test_engine import ask, failed, finished, make_model


class Kinds:
    """One target with many drafts, shared because a tokenizer takes long to load."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.root = root

    def load(self, draft: str) -> list[Event]:
        text = draft.replace("@", f"{self.root}/")
        return list(self.engine.load(LoadRequest(str(self.root / "target"), text, datastore=False)))

    @cache  # noqa: B019
    def plain(self) -> tuple[int, ...]:
        self.load("none")
        return finished(ask(self.engine, "Tell me more")).ids

    def refusal(self, draft: str) -> Failed:
        return failed(self.load(draft))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Kinds]:
    root = tmp_path_factory.mktemp("kinds")
    make_model(root / "target", default_model)
    make_model(root / "other", default_model, seed=5)
    foreign = make_model(root / "foreign", default_model)
    words = json.loads((foreign / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab["Paris"], vocab["London"] = vocab["London"], vocab["Paris"]
    (foreign / "tokenizer.json").write_text(json.dumps(words))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXSPEC_HOME", str(root / "home"))
        engine = Engine()
    with engine:
        yield Kinds(engine, root)


@pytest.mark.parametrize(
    ("draft", "drafter"),
    [
        ("lookahead", "lookahead"),
        ("@foreign --translate", "translated"),
        ("@foreign --translate --draft-vocab 3000", "translated"),
        ("@other --draft-vocab 3000", "draft_model"),
        ("@target --draft-vocab 60000", "draft_model"),
    ],
)
def test_no_kind_changes_a_greedy_answer(draft: str, drafter: str, kinds: Kinds) -> None:
    plain = kinds.plain()
    loaded = kinds.load(draft)[-1]
    assert isinstance(loaded, Loaded)
    assert loaded.draft == draft.replace("@", f"{kinds.root}/"), "so it may be asked for again"
    answer = finished(ask(kinds.engine, "Tell me more"))
    assert answer.ids == plain
    assert answer.stats.drafters[drafter].proposed > 0


def test_what_is_asked_for_again_stays_in_memory(kinds: Kinds) -> None:
    kinds.load("@other --draft-vocab 3000")
    assert not any(isinstance(event, Loading) for event in kinds.load("@other --draft-vocab 3000"))
    assert any(isinstance(event, Loading) for event in kinds.load("@other --draft-vocab 4000"))


def test_a_draft_of_another_vocabulary_is_refused_with_the_option_that_helps(kinds: Kinds) -> None:
    refusal = kinds.refusal("@foreign")
    assert (refusal.kind, refusal.exit_code) == ("IncompatiblePair", 1)
    assert "--translate" in refusal.hint


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("lookahead --translate", "lookahead cannot have --translate"),
        ("none --draft-vocab 9", "none cannot have --draft-vocab"),
        ("auto --translate", "auto is lookup here, which cannot have --translate"),
        ("auto --draft-vocab 9", "auto is lookup here, which cannot have --draft-vocab"),
        ("@other --draft-vocab 0", "--draft-vocab cannot be '0'"),
    ],
)
def test_an_option_that_makes_no_sense_is_wrong_usage(draft: str, words: str, kinds: Kinds) -> None:
    refusal = kinds.refusal(draft)
    assert refusal.exit_code == 2
    assert words in refusal.message


@pytest.mark.parametrize(
    ("content", "words"), [("{", "damaged"), ("[]", "no JSON object"), ('{"kind": "x"}', "'x'")]
)
def test_a_folder_that_says_something_else_is_refused(content: str, words: str, kinds: Kinds) -> None:
    folder = kinds.root / "odd"
    folder.mkdir(exist_ok=True)
    (folder / "mlxspec_draft.json").write_text(content)
    refusal = kinds.refusal("@odd")
    assert refusal.kind == "BrokenModel"
    assert words in refusal.message


@pytest.fixture
def prefer(kinds: Kinds) -> Iterator[Callable[[str], None]]:
    """Write a draft into the settings for one test."""
    file = kinds.root / "home" / "config" / "settings.toml"
    file.parent.mkdir(parents=True, exist_ok=True)

    def write(draft: str) -> None:
        file.write_text(f'draft = "{draft}"\n')

    yield write
    file.unlink(missing_ok=True)


def test_auto_is_the_draft_of_the_settings(kinds: Kinds, prefer: Callable[[str], None]) -> None:
    prefer(f"{kinds.root}/other --draft-vocab 3000")
    loaded = kinds.load("auto")[-1]
    assert isinstance(loaded, Loaded)
    assert loaded.draft == f"{kinds.root}/other --draft-vocab 3000"
    prefer("lookahead")
    assert cast(Loaded, kinds.load("auto")[-1]).draft == "lookahead"
    assert cast(Loaded, kinds.load("lookup")[-1]).draft == "lookup", "what is asked for comes first"
    assert "auto is lookahead here" in kinds.refusal("auto --translate").message


def test_a_preferred_draft_that_cannot_serve_gives_way_to_lookup(
    kinds: Kinds, prefer: Callable[[str], None]
) -> None:
    for draft, words in (("foreign", "cannot draft for"), ("gone", "not on disk"), ("target", "")):
        prefer(f"{kinds.root}/{draft}")
        events = kinds.load("auto")
        assert cast(Loaded, events[-1]).draft == "lookup"
        notices = [event.message for event in events if isinstance(event, Notice)]
        assert any(words in notice for notice in notices) if words else not notices


@pytest.mark.parametrize("draft", ["no-such-model", "exit:x", "lookup --translate", "auto --draft-vocab 9"])
def test_a_preferred_draft_that_means_nothing_is_named_with_its_file(
    draft: str, kinds: Kinds, prefer: Callable[[str], None]
) -> None:
    prefer(draft)
    refusal = kinds.refusal("auto")
    assert refusal.kind == "InvalidSettings"
    assert f"settings.toml: draft is '{draft}'" in refusal.message
