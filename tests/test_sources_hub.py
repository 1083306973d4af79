"""Models of the Hub: the real client against a Hub on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlxspec.errors import (
    BrokenModel,
    DownloadCancelled,
    DownloadFailed,
    GatedModel,
    NotAModel,
    NotOnDisk,
    NotWritable,
    UnknownModel,
    UnsupportedModel,
)
from mlxspec.events import Downloading
from mlxspec.models import hub, sources
from mlxspec.models.registry import ModelSpec, RepoSource
from mlxspec.places import places
from tests.hub_server import ASIDE, COMMIT, REPO, HubServer, sharded_files

SPEC = ModelSpec("tiny", RepoSource(REPO))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    from huggingface_hub import close_session

    monkeypatch.setattr(hub, "PAUSES_S", (0.01, 0.01, 0.01))
    with HubServer() as server:
        point_client_to(server.url, monkeypatch)
        yield server
        close_session()


def point_client_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def pull(events: list[Downloading] | None = None, spec: ModelSpec = SPEC) -> Path:
    seen = [] if events is None else events
    return sources.pull(spec, places(), progress=seen.append, cancelled=lambda: False)


def parts_left() -> list[Path]:
    return list(hub.storage(RepoSource(REPO)).rglob("*.incomplete"))


def wait_until(true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_a_pull_brings_what_a_model_needs_and_nothing_else(server: HubServer) -> None:
    folder = pull()
    assert {path.name for path in folder.rglob("*")} == set(server.files) - set(ASIDE)
    assert (folder / "model.safetensors").read_bytes() == server.files["model.safetensors"]
    assert set(server.gets).isdisjoint(ASIDE)


def test_progress_counts_up_to_the_whole_size(server: HubServer) -> None:
    server.pause_s = 0.01
    events: list[Downloading] = []
    pull(events)
    done = [event.done_bytes for event in events]
    total = sum(len(data) for name, data in server.files.items() if name not in ASIDE)
    assert done == sorted(done)
    assert (events[-1].done_bytes, events[-1].total_bytes) == (total, total)
    assert any(0 < event.done_bytes < total for event in events)
    assert {event.model for event in events} == {"tiny"}


def test_what_is_there_is_not_asked_for_again(server: HubServer) -> None:
    first = pull()
    requests = server.requests
    assert pull() == first
    assert sources.find(SPEC, places()) == first
    assert server.requests == requests


def test_nothing_is_found_before_the_pull(server: HubServer) -> None:
    assert sources.find(SPEC, places()) is None
    assert server.requests == 0


def test_a_stopped_pull_ends_soon_and_keeps_finished_files(server: HubServer) -> None:
    server.pause_s = 0.02
    events: list[Downloading] = []
    with pytest.raises(DownloadCancelled) as caught:
        sources.pull(
            SPEC,
            places(),
            progress=events.append,
            cancelled=lambda: server.sent_bytes["model.safetensors"] > 1_500_000,
        )
    assert caught.value.exit_code == 130
    assert sources.find(SPEC, places()) is None
    wait_until(lambda: not parts_left())

    server.pause_s = 0
    assert pull().is_dir()
    assert server.gets["config.json"] == 1
    assert server.gets["model.safetensors"] == 2


def test_a_broken_connection_goes_on_where_it_broke(server: HubServer) -> None:
    server.cuts = 1
    folder = pull()
    size = len(server.files["model.safetensors"])
    assert (folder / "model.safetensors").stat().st_size == size
    assert server.sent_bytes["model.safetensors"] <= size + server.cut_at


def test_a_missing_shard_is_found_before_the_weights_come(server: HubServer) -> None:
    server.files = sharded_files()
    gone = "model-00002-of-00002.safetensors"
    del server.files[gone]
    with pytest.raises(BrokenModel, match=gone):
        pull()
    assert server.gets["model-00001-of-00002.safetensors"] == 0


def test_a_shard_that_vanished_from_disk_is_fetched_again(server: HubServer) -> None:
    server.files = sharded_files()
    folder = pull()
    (folder / "model-00002-of-00002.safetensors").resolve().unlink()
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert sources.find(SPEC, places()) is None
    assert pull() == folder
    assert server.gets["model-00001-of-00002.safetensors"] == 1
    assert server.gets["model-00002-of-00002.safetensors"] == 2


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_says_where_to_ask_and_how_to_log_in(server: HubServer, status: int) -> None:
    server.failures[f"/{REPO}/resolve/"] = [status] * 99
    server.error_code = "GatedRepo"
    with pytest.raises(GatedModel) as caught:
        pull()
    assert f"https://huggingface.co/{REPO}" in caught.value.hint
    assert "hf auth login" in caught.value.hint


def test_a_refusal_without_a_reason_is_told_as_one(server: HubServer) -> None:
    server.failures["/api/models/"] = [403]
    with pytest.raises(GatedModel, match="403"):
        pull()


def test_an_unknown_repository_names_the_nearest_models(server: HubServer) -> None:
    spec = ModelSpec("x", RepoSource("mlx-community/Qwen3-8B-4bits"))
    with pytest.raises(UnknownModel, match="qwen3-8b"):
        pull(spec=spec)
    assert server.requests == 1


def test_an_unknown_revision_is_named(server: HubServer) -> None:
    server.failures["/api/models/"] = [404]
    server.error_code = "RevisionNotFound"
    with pytest.raises(UnknownModel, match="revision"):
        pull(spec=ModelSpec("x", RepoSource(REPO, "v9")))


@pytest.mark.parametrize("path", ["/api/models/", f"/{REPO}/resolve/"])
def test_server_errors_are_tried_again(server: HubServer, path: str) -> None:
    server.failures[path] = [503]
    assert pull().is_dir()


def test_lasting_server_errors_are_told(server: HubServer) -> None:
    server.failures["/api/models/"] = [500] * 99
    with pytest.raises(DownloadFailed, match="500"):
        pull()
    assert server.requests == 1 + len(hub.PAUSES_S)


def test_a_silent_server_is_given_up(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    server.hang_s = 0.5
    with pytest.raises(DownloadFailed, match="ReadTimeout"):
        pull()


def test_no_network_and_no_copy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    point_client_to("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(NotOnDisk, match="cannot be reached"):
        pull()


def test_no_network_but_a_copy_is_enough(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pull()
    requests = server.requests
    point_client_to("http://127.0.0.1:9", monkeypatch)
    assert pull() == folder
    assert server.requests == requests


def test_offline_without_a_copy_is_said_and_no_connection_is_tried(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotOnDisk, match="HF_HUB_OFFLINE"):
        pull()
    assert server.requests == 0


def test_pickles_are_refused_before_anything_is_fetched(server: HubServer) -> None:
    server.files["pytorch_model.bin"] = server.files.pop("model.safetensors")
    with pytest.raises(NotAModel, match=r"\.bin"):
        pull()
    assert not server.gets


def test_code_of_a_repository_is_refused_before_the_weights_come(server: HubServer) -> None:
    server.files["config.json"] = b'{"model_type": "own", "model_file": "run.py"}'
    with pytest.raises(UnsupportedModel, match=r"run\.py"):
        pull()
    assert server.gets["model.safetensors"] == 0


def test_a_full_disk_is_told_before_the_weights_come(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10, 0, 10))
    with pytest.raises(NotWritable, match="GB free"):
        pull()
    assert server.gets["model.safetensors"] == 0


def test_removing_gives_all_bytes_back(server: HubServer) -> None:
    pull()
    size = sources.disk_bytes(SPEC, places())
    assert size >= len(server.files["model.safetensors"])
    assert sources.remove(SPEC, places()) == size
    assert sources.disk_bytes(SPEC, places()) == 0
    assert sources.find(SPEC, places()) is None
    assert sources.remove(SPEC, places()) == 0


def test_a_waiting_pull_shows_the_others_bytes_and_shares_the_result(server: HubServer) -> None:
    server.pause_s = 0.5
    folders: list[Path] = []
    first = threading.Thread(target=lambda: folders.append(pull()))
    first.start()
    wait_until(lambda: server.sent_bytes["model.safetensors"] > 0)

    def go_on(event: Downloading) -> None:
        if event.done_bytes > 0:
            server.pause_s = 0

    folders.append(sources.pull(SPEC, places(), progress=go_on, cancelled=lambda: False))
    first.join()
    assert folders[0] == folders[1]
    assert server.gets["model.safetensors"] == 1


PULL = """
from mlxspec.models import sources
from mlxspec.models.registry import ModelSpec, RepoSource
from mlxspec.places import places
spec = ModelSpec("tiny", RepoSource("org/tiny"))
print(sources.pull(spec, places(), progress=lambda event: None, cancelled=lambda: False))
"""


def start_pull(server: HubServer) -> subprocess.Popen[str]:
    """The same in a program of its own, which finds the Hub through HF_ENDPOINT."""
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HUB_OFFLINE": "0"}
    return subprocess.Popen([sys.executable, "-c", PULL], stdout=subprocess.PIPE, text=True, env=environment)


def test_two_programs_fetch_once_and_a_killed_one_leaves_nothing_in_the_way(server: HubServer) -> None:
    server.pause_s = 0.02
    killed = start_pull(server)
    wait_until(lambda: server.sent_bytes["model.safetensors"] > 1_100_000)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert parts_left()
    assert sources.find(SPEC, places()) is None

    server.pause_s = 0.001
    server.gets.clear()
    programs = [start_pull(server), start_pull(server)]
    outputs = {program.communicate()[0].strip() for program in programs}
    assert [program.returncode for program in programs] == [0, 0]
    assert len(outputs) == 1
    assert server.gets["model.safetensors"] == 1
    assert server.gets["config.json"] == 0
    assert Path(outputs.pop()).name == COMMIT
    assert not parts_left()
