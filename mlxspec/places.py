"""The folders that mlxspec reads and writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class Places:
    """The three folders: config (models.toml, settings.toml), data (chats), cache (model files)."""

    config: Path
    data: Path
    cache: Path

    @property
    def user_models(self) -> Path:
        """The user's own models.toml; it may not exist."""
        return self.config / "models.toml"

    @property
    def models(self) -> Path:
        """Model folders made from packages and GGUF files."""
        return self.cache / "models"

    @property
    def log(self) -> Path:
        """Where details of unexpected faults are written."""
        return self.data / "mlxspec.log"


def places() -> Places:
    """The folders of this platform, or all three under `MLXSPEC_HOME` when that is set."""
    if home := os.environ.get("MLXSPEC_HOME"):
        root = Path(home).expanduser()
        return Places(config=root / "config", data=root / "data", cache=root / "cache")
    return Places(
        config=platformdirs.user_config_path("mlxspec"),
        data=platformdirs.user_data_path("mlxspec"),
        cache=platformdirs.user_cache_path("mlxspec"),
    )
