"""What every test gets: a home of its own, no network through the Hub, and the default model on demand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlxspec.errors import MlxspecError
from mlxspec.models.registry import load_registry
from mlxspec.models.sources import pull
from mlxspec.places import Places


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Move mlxspec's folders and the Hub's cache to a temporary folder, and keep the Hub offline."""
    from huggingface_hub import constants

    home = tmp_path / "home"
    hub = home / "huggingface"
    monkeypatch.setenv("MLXSPEC_HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(hub))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    # The client read its environment when it was imported, perhaps in an earlier test.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(hub / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return home


@pytest.fixture(scope="session")
def default_model(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the real default model, fetched once and kept between runs.

    It is kept in pytest's cache, or in the folder that MLXSPEC_TEST_CACHE names. A test that needs it is
    skipped when it cannot be fetched, except in CI.
    """
    if kept := os.environ.get("MLXSPEC_TEST_CACHE"):
        cache = Path(kept)
    else:
        cache = Path(pytestconfig.cache.mkdir("mlxspec-models"))
    nowhere = tmp_path_factory.mktemp("default-model")
    places = Places(config=nowhere / "config", data=nowhere / "data", cache=cache)
    registry = load_registry(places)
    spec = registry.resolve(registry.default_target)
    try:
        return pull(spec, places, progress=lambda _event: None, cancelled=lambda: False)
    except MlxspecError as error:
        reason = f"the default model cannot be fetched: {error}"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
