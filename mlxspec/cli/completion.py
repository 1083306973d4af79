"""What the shell may complete an argument with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxspec.drafters.choice import WORDS

if TYPE_CHECKING:
    from mlxspec.models.registry import ModelSpec


def model_names(incomplete: str) -> list[str]:
    """Names of models.toml that begin so, but for shipped drafts; none when it cannot be read."""
    from mlxspec.models.registry import ShippedSource

    return [spec.name for spec in _specs(incomplete) if not isinstance(spec.source, ShippedSource)]


def draft_names(incomplete: str) -> list[str]:
    """The same, with the words that are no model."""
    words = [word for word in WORDS if word.startswith(incomplete)]
    return [*words, *(spec.name for spec in _specs(incomplete))]


def _specs(incomplete: str) -> list[ModelSpec]:
    from mlxspec.errors import MlxspecError
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    try:
        known = load_registry(places()).models
    except MlxspecError:
        return []
    return [spec for name, spec in known.items() if name.startswith(incomplete)]
