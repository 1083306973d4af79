"""The picker's rows: what answers, what drafts, and why a draft cannot serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_files import HIDDEN, TOKENS, tiny_model
from stage import stage

from mlxspec.drafters.datastore import vocabulary_hash
from mlxspec.models.registry import ShippedSource
from mlxspec.places import places
from tui.chooser import Row
from tui.model_rows import model_names, model_rows
from tui.options import ChatOptions

OURS = vocabulary_hash({token: i for i, token in enumerate(TOKENS)})


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`mine` answers; `own` comes with mlxspec; `distilled` was made for it."""
    monkeypatch.setattr(ShippedSource, "path", property(lambda source: tmp_path / source.folder))
    tiny_model(tmp_path / "mine")
    trained(tmp_path / "own")
    trained(tmp_path / "distilled")
    places().config.mkdir(parents=True)
    places().user_models.write_text(
        f'default_target = "mine"\n[models.mine]\npath = "{tmp_path}/mine"\ndraft = "own"\n'
        f'[models.own]\nshipped = "own"\n[models.distilled]\npath = "{tmp_path}/distilled"\n'
    )
    return tmp_path


def trained(folder: Path, **changes: Any) -> None:
    folder.mkdir(exist_ok=True)
    config = {"kind": "head", "vocabulary": OURS, "width": HIDDEN, "point": 1, **changes}
    (folder / "mlxspec_draft.json").write_text(json.dumps(config))
    (folder / "weights.safetensors").write_bytes(b"0" * 2000)


def rows(target: str | None = None, draft: str = "auto") -> dict[str, Row]:
    return {row.id: row for row in model_rows(places(), target=target, draft=draft)}


def test_trained_drafts_are_no_targets() -> None:
    found = rows()
    assert {"target:mine", "draft:own", "draft:distilled"} <= set(found)
    assert not {"target:own", "target:distilled", "draft:mine"} & set(found)
    assert model_names(places())[0][-2:] == ["mine", "distilled"]
    assert "own" in model_names(places())[1]


def test_a_draft_says_how_big_it_is_and_where_it_is() -> None:
    found = rows()
    assert found["draft:own"].detail == "2.0 kB · comes with mlxspec"
    assert found["draft:distilled"].detail == "2.0 kB on disk"
    assert found["target:smollm2-135m"].detail.startswith("100.0 MB to fetch")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"vocabulary": "0" * 16}, "cannot draft: it was made for another vocabulary"),
        ({"width": 32}, f"cannot draft: it was made for hidden states of 32 values, and these have {HIDDEN}"),
        ({"kind": "tiny", "width": None}, ""),
    ],
)
def test_a_trained_draft_says_why_it_cannot_serve(models: Path, changes: dict[str, Any], reason: str) -> None:
    trained(models / "distilled", **changes)
    row = rows()["draft:distilled"]
    assert (row.note, row.enabled) == (reason, not reason)


def test_tokens_that_only_the_other_files_of_a_tokenizer_add_count(models: Path) -> None:
    file = models / "mine" / "tokenizer_config.json"
    config = json.loads(file.read_text())
    number = str(len(TOKENS))
    config["added_tokens_decoder"] = {number: {"content": "<|more|>", "special": True}}
    file.write_text(json.dumps(config))
    vocabulary = {token: i for i, token in enumerate([*TOKENS, "<|more|>"])}
    trained(models / "distilled", vocabulary=vocabulary_hash(vocabulary))
    assert rows()["draft:distilled"].enabled


def test_a_draft_that_is_not_there_or_damaged_says_so(models: Path) -> None:
    (models / "own" / "mlxspec_draft.json").unlink()
    (models / "distilled" / "mlxspec_draft.json").write_text("{")
    assert "install mlxspec again" in rows()["draft:own"].note
    assert "damaged" in rows()["draft:distilled"].note


@pytest.mark.parametrize("draft", ["{folder}/elsewhere", "exit:2", "distilled --draft-vocab 100", "lookup"])
def test_the_draft_in_use_is_marked_whatever_it_is(models: Path, draft: str) -> None:
    trained(models / "elsewhere")
    draft = draft.format(folder=models)
    marked = [row.id for row in rows(draft=draft).values() if row.label.startswith("●")]
    assert marked == ["target:mine", f"draft:{draft}"]


async def test_nothing_is_cut_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxspec.models.device.memory_bytes", lambda: 1)
    async with stage(size=(80, 60), options=ChatOptions(target="mine")) as s:
        await s.press("f2")
        await s.until(lambda: "does not fit in memory" in s.screen)
        assert "…" not in s.screen
        await s.press("escape")
        await s.send("/draft")
        await s.until(lambda: "lookup, where neither is there or on disk" in s.screen)
        assert "…" not in s.screen


async def test_in_a_narrow_window_a_reason_stands_below_the_name_whole(models: Path) -> None:
    trained(models / "distilled", width=32)
    async with stage(size=(40, 60)) as s:
        await s.send("/draft")
        await s.until(lambda: "cannot draft" in s.screen)
        shown = " ".join(line.strip(" │").strip() for line in s.screen.split("\n"))
        assert f"cannot draft: it was made for hidden states of 32 values, and these have {HIDDEN}" in shown
        assert "auto the settings' draft, else the target's own" in shown
