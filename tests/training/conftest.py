"""A tiny target, what it said, and trainings that take no time, for every test of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxspec.models.loading import LoadedModel
from tests.trainees import make_quick, tiny_corpus, tiny_target


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return tiny_target(tmp_path_factory)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus(tmp_path_factory)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    make_quick(monkeypatch)
