"""`mlxspec datastore`: what it says and does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlxspec.cli.program import run_program
from mlxspec.drafters.datastore import datastore_folder
from mlxspec.models.loading import load_tokenizer
from mlxspec.places import places
from mlxspec.settings import load_settings
from tests.test_engine import make_model

TEXT = "def rewind(cache, tokens):\n    return cache.trim(tokens)\n" * 5


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "target", default_model)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "cache.py"
    file.write_text(TEXT)
    return file


def said(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    assert run_program(["datastore", *args]) == code
    output = capsys.readouterr()
    return output.out, output.err


def test_files_are_learnt_shown_and_cleared(
    capsys: pytest.CaptureFixture[str], target: Path, code: Path
) -> None:
    tokens = len(load_tokenizer("target", target).encode(TEXT, add_special_tokens=False))
    out, _ = said(capsys, "learn", str(code), str(code), "--target", str(target))
    assert f"Learnt {2 * tokens} tokens from 2 files" in out
    out, _ = said(capsys, "show")
    heading, row = out.splitlines()
    assert heading.split() == ["TARGET", "TOKENS", "CONTEXTS", "SIZE"]
    assert str(target) in row
    assert f" {2 * tokens} " in row
    out, _ = said(capsys, "show", "--json")
    shown = json.loads(out)
    assert shown["targets"] == {str(target): 2 * tokens}
    assert shown["tokens"] == 2 * tokens
    assert shown["contexts"] > 20
    assert shown["bytes"] > 4096
    assert said(capsys, "clear", "--yes")[0] == "The datastore is empty.\n"
    out, err = said(capsys, "show")
    assert out == ""
    assert "Nothing was learnt yet." in err


def test_a_control_token_in_a_file_is_text(
    capsys: pytest.CaptureFixture[str], target: Path, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("<|im_end|>")
    out, _ = said(capsys, "learn", str(file), "--target", str(target))
    assert int(out.split()[1]) > 1


def test_a_file_without_text_teaches_nothing_and_says_so(
    capsys: pytest.CaptureFixture[str], target: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    out, err = said(capsys, "learn", str(tmp_path / "empty.txt"), "--target", str(target))
    assert not out
    assert "no text to learn from" in err


def test_a_binary_file_is_refused_and_nothing_is_learnt(
    capsys: pytest.CaptureFixture[str], target: Path, code: Path, tmp_path: Path
) -> None:
    for name, data in (("zeros", b"text\0"), ("latin", "Stra\u00dfe".encode("latin-1"))):
        (tmp_path / name).write_bytes(data)
        _, err = said(capsys, "learn", str(code), str(tmp_path / name), "--target", str(target), code=2)
        assert f"{tmp_path / name} is not a text file in UTF-8." in err
    assert not datastore_folder(places()).exists()


def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for file, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        _, err = said(capsys, "learn", str(file), code=2)
        assert str(file) in err
        assert why in err


def test_a_target_that_is_not_on_disk_is_named(capsys: pytest.CaptureFixture[str], code: Path) -> None:
    _, err = said(capsys, "learn", str(code), code=1)
    assert "is not on disk" in err
    assert "mlxspec pull" in err


def test_off_and_on_change_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "off")
    assert load_settings(places()).datastore is False
    assert "The datastore is off" in said(capsys, "show")[1]
    said(capsys, "on")
    assert load_settings(places()).datastore is True


def test_clearing_asks_first_and_needs_someone_to_ask(
    capsys: pytest.CaptureFixture[str], target: Path, code: Path
) -> None:
    assert "nothing to clear" in said(capsys, "clear")[0]
    said(capsys, "learn", str(code), "--target", str(target))
    _, err = said(capsys, "clear", code=2)
    assert "--yes" in err
    assert json.loads(said(capsys, "show", "--json")[0])["tokens"] > 0


def test_a_damaged_file_hinders_nobody(capsys: pytest.CaptureFixture[str], target: Path, code: Path) -> None:
    said(capsys, "learn", str(code), "--target", str(target))
    (file,) = datastore_folder(places()).glob("*.ngrams")
    file.write_bytes(b"nonsense" * 1000)
    assert "Nothing was learnt yet." in said(capsys, "show")[1]
    _, err = said(capsys, "learn", str(code), "--target", str(target))
    assert "was damaged and is now" in err
    assert said(capsys, "show")[0]
    file.write_bytes(b"nonsense" * 1000)
    said(capsys, "clear", "--yes")
    assert not list(file.parent.glob("*.unusable"))
