"""`mlxspec models`, `pull` and `rm`: what they say and do, with model folders made for the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxspec.cli.completion import draft_names, model_names
from mlxspec.cli.program import run_program
from mlxspec.errors import DownloadCancelled
from mlxspec.events import Downloading
from mlxspec.models import device, sources
from mlxspec.models.registry import ModelSpec
from mlxspec.places import Places, places
from tests.terminal import Terminal

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
}


def write_models(text: str) -> None:
    places().config.mkdir(parents=True, exist_ok=True)
    places().user_models.write_text(text, encoding="utf-8")


def on_disk(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]) -> None:
    """Let these models be found in these folders, and no others."""
    monkeypatch.setattr(sources, "find", lambda spec, _where: folders.get(spec.name))
    monkeypatch.setattr(sources, "disk_bytes", lambda spec, _where: 5_000_000 if spec.name in folders else 0)


def model_folder(folder: Path, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or LLAMA))
    (folder / "model.safetensors").write_bytes(b"0" * 1000)
    return folder


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert run_program(["models", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["name"]: row for row in found}


# ---------------------------------------------------------------- models


def test_models_lists_name_source_size_and_draft(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["models"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAME", "SIZE", "ON", "DISK", "FITS", "DRAFT", "SOURCE"]
    (qwen,) = [line for line in lines if line.split()[:1] == ["qwen-7b"]]
    assert "GB" in qwen
    assert "qwen-0.5b" in qwen
    assert qwen.endswith("mlx-community/Qwen2.5-7B-Instruct-4bit")
    assert [line.split()[1] for line in lines if line.startswith("*")] == ["smollm2-135m"]


def test_models_tells_what_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk(monkeypatch, {"qwen-0.5b": model_folder(tmp_path / "m")})
    listed = rows(capsys)
    assert (listed["qwen-0.5b"]["on_disk"], listed["qwen-0.5b"]["size_gb"]) == (True, 0.005)
    assert not listed["qwen-7b"]["on_disk"]
    assert listed["qwen-7b"]["size_gb"] == pytest.approx(4.3)


def test_models_says_whether_a_pair_fits_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "dequantise_on_this_device", lambda: False)
    monkeypatch.setattr(device, "memory_bytes", lambda: 6_000_000_000)
    folder = model_folder(tmp_path / "m")
    pair = '[models.mine]\npath = "/m"\ndraft = "other"\n[models.other]\npath = "/o"\n'
    write_models(pair + '[models.odd]\npath = "/x"\n')
    on_disk(monkeypatch, {"mine": folder, "other": folder})
    listed = rows(capsys)
    fits = {name: listed[name]["fits"] for name in ("mine", "qwen-7b", "qwen-14b", "odd")}
    assert fits == {"mine": "yes", "qwen-7b": "likely", "qwen-14b": "no", "odd": None}


def test_models_counts_caches_of_a_pair_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # 2 layers x 2 x 64 numbers x 2 bytes x 4096 tokens are 2 MB of cache; the weights are 1 kB.
    monkeypatch.setattr(device, "dequantise_on_this_device", lambda: False)
    monkeypatch.setattr(device, "memory_bytes", lambda: 1_000_000)
    write_models('[models.mine]\npath = "/m"\n')
    on_disk(monkeypatch, {"mine": model_folder(tmp_path / "m")})
    assert rows(capsys)["mine"]["fits"] == "no"


def test_a_name_with_control_characters_is_safe_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    write_models('[models.mine]\npath = "/m\\u001b[2J"\n')
    run_program(["models"])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "/m␛[2J" in out


@pytest.mark.parametrize("command", [["models"], ["pull", "mine"], ["rm", "mine"]])
def test_a_broken_registry_is_an_error_with_its_place(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_models('[models.mine]\npath = "/m"\nspeed = 3\n')
    assert run_program(command) == 1
    error = capsys.readouterr().err
    assert str(places().user_models) in error
    assert "speed" in error
    assert len(error.splitlines()) == 2


# ---------------------------------------------------------------- pull


@pytest.fixture
def pulled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the models that were pulled."""
    names: list[str] = []

    def pull(
        spec: ModelSpec,
        _where: Places,
        *,
        progress: Callable[[Downloading], None],
        cancelled: Callable[[], bool],
    ) -> Path:
        for done in (0, 50, 100):
            progress(Downloading(spec.name, "weights", done, 100))
            if cancelled():
                raise DownloadCancelled("Stopped.", hint="Go on.")
        names.append(spec.name)
        return tmp_path / spec.name

    monkeypatch.setattr(sources, "pull", pull)
    return names


def test_pull_fetches_a_model_and_its_draft(pulled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["pull", "qwen-7b"]) == 0
    assert pulled == ["qwen-7b", "qwen-0.5b"]
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == ["qwen-7b", "qwen-0.5b"]
    assert "Fetching qwen-7b: weights" in captured.err


def test_pull_takes_a_repository(pulled: list[str]) -> None:
    assert run_program(["pull", "someone/some-model"]) == 0
    assert pulled == ["someone/some-model"]


def test_pull_of_an_unknown_name_gives_the_nearest(
    pulled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["pull", "qwen-7"]) == 1
    assert "qwen-7b" in capsys.readouterr().err
    assert pulled == []


def test_ctrl_c_stops_a_pull_and_exits_130(
    pulled: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = sources.pull

    def interrupted(*args: Any, **options: Any) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return slow(*args, **options)

    monkeypatch.setattr(sources, "pull", interrupted)
    assert run_program(["pull", "qwen-7b"]) == 130
    assert pulled == []
    assert "Stopped" not in capsys.readouterr().err


# ---------------------------------------------------------------- rm


def own_model() -> Path:
    """A model of a package, as a pull leaves it; `rm` may delete it."""
    from mlxspec.models import package
    from mlxspec.models.registry import PackageSource, load_registry

    spec = load_registry(places()).resolve("smollm2-135m")
    assert isinstance(spec.source, PackageSource)
    return model_folder(package.place(spec.name, spec.source, places()))


def test_rm_deletes_and_says_what_it_freed(capsys: pytest.CaptureFixture[str]) -> None:
    folder = own_model()
    assert run_program(["rm", "smollm2-135m", "--yes"]) == 0
    assert capsys.readouterr().out == "Deleted smollm2-135m: 0.0 MB freed.\n"
    assert not folder.exists()


def test_rm_without_a_terminal_needs_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_model()
    monkeypatch.setattr("sys.stdin", None)
    assert run_program(["rm", "smollm2-135m"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert folder.exists()


@pytest.mark.parametrize(("typed", "kept"), [("\r", True), ("n\r", True), ("y\r", False)])
def test_rm_asks_on_a_terminal(typed: str, kept: bool) -> None:
    folder = own_model()
    with Terminal(sys.executable, "-m", "mlxspec", "rm", "smollm2-135m") as terminal:
        terminal.wait_for("[y/N] ")
        terminal.type(typed)
        assert terminal.wait() == 0
    assert folder.exists() is kept


def test_rm_of_what_is_not_there_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["rm", "smollm2-135m"]) == 0
    assert "nothing to delete" in capsys.readouterr().out


def test_rm_never_deletes_a_folder_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path / "mine")
    assert run_program(["rm", str(folder), "--yes"]) == 2
    assert "folder of your own" in capsys.readouterr().err
    assert folder.exists()


# ---------------------------------------------------------------- completion


def test_completion_knows_the_names() -> None:
    assert "qwen-7b" in model_names("qwen-")
    assert draft_names("loo") == ["lookup", "lookahead"]


def test_completion_keeps_quiet_about_a_broken_registry() -> None:
    write_models("no toml")
    assert model_names("q") == []


def test_the_shell_is_given_names() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "mlxspec"],
        env={
            **os.environ,
            "_MLXSPEC_COMPLETE": "complete_bash",
            "COMP_WORDS": "mlxspec run --target smollm3",
            "COMP_CWORD": "3",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.stdout.split() == ["smollm3-3b"], result.stderr
