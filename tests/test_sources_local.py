"""The path source: the user's own folders and GGUF files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mlxspec.errors import BrokenModel, MlxspecError, NotAModel, UsageError
from mlxspec.models import sources
from mlxspec.models.registry import ModelSpec, PathSource
from mlxspec.places import places


def model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def make_model(gguf: Path, folder: Path) -> None:
    model_folder(folder)
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


def spec_of(path: Path) -> ModelSpec:
    return ModelSpec("mine", PathSource(path))


def pull(path: Path) -> Path:
    return sources.pull(spec_of(path), places(), progress=lambda _event: None, cancelled=lambda: False)


def test_a_model_folder_is_used_where_it_is(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    assert sources.find(spec_of(folder), places()) == folder
    assert pull(folder) == folder
    assert not places().cache.exists()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert sources.find(spec_of(tmp_path / "gone"), places()) is None
    with pytest.raises(NotAModel, match="gone"):
        pull(tmp_path / "gone")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_text("x")
    with pytest.raises(NotAModel, match=r"model\.zip"):
        pull(tmp_path / "model.zip")


@pytest.mark.parametrize(
    ("gone", "instead", "error", "words"),
    [
        ("config.json", None, NotAModel, "config.json"),
        ("model.safetensors", None, NotAModel, "no weights"),
        ("model.safetensors", "pytorch_model.bin", NotAModel, ".bin"),
        ("model.safetensors", "model.gguf", NotAModel, "GGUF"),
        ("model.safetensors", "weights.safetensors", NotAModel, "unlike"),
        ("tokenizer.json", None, NotAModel, "tokenizer"),
    ],
)
def test_a_folder_that_lacks_a_part_says_which(
    tmp_path: Path, gone: str, instead: str | None, error: type[MlxspecError], words: str
) -> None:
    folder = model_folder(tmp_path / "mine")
    (folder / gone).unlink()
    if instead:
        (folder / instead).write_text("x")
    assert sources.find(spec_of(folder), places()) is None
    with pytest.raises(error) as caught:
        pull(folder)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_shard_that_the_index_names_and_that_is_not_there_is_found(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BrokenModel, match="model-00002-of-00002"):
        pull(folder)


def test_an_own_folder_is_never_removed(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    with pytest.raises(UsageError, match="your own"):
        sources.remove(spec_of(folder), places())
    assert folder.is_dir()
    assert sources.disk_bytes(spec_of(folder), places()) == 6


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("mlxspec.models.gguf.convert", make_model)
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF one")
    return path


def test_a_gguf_file_is_converted_once(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources.find(spec_of(gguf), places()) is None
    folder = pull(gguf)
    assert (folder / "model.safetensors").read_bytes() == b"GGUF one"
    monkeypatch.delattr("mlxspec.models.gguf.convert")
    assert pull(gguf) == folder
    assert sources.find(spec_of(gguf), places()) == folder


def test_a_gguf_file_that_changed_is_converted_again_in_place_of_the_old(gguf: Path) -> None:
    old = pull(gguf)
    gguf.write_bytes(b"GGUF two")
    os.utime(gguf, ns=(1, 1))
    assert sources.find(spec_of(gguf), places()) is None
    new = pull(gguf)
    assert (new / "model.safetensors").read_bytes() == b"GGUF two"
    assert not old.exists()


def test_two_gguf_files_of_one_name_are_two_models(gguf: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / gguf.name
    other.parent.mkdir()
    other.write_bytes(b"GGUF one")
    assert pull(gguf) != pull(other)
    assert sources.find(spec_of(gguf), places()) is not None


def test_removing_a_gguf_model_keeps_the_file(gguf: Path) -> None:
    folder = pull(gguf)
    assert sources.remove(spec_of(gguf), places()) == 4 + 8
    assert gguf.exists()
    assert not folder.exists()


def test_a_gguf_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match=r"gone\.gguf"):
        pull(tmp_path / "gone.gguf")
