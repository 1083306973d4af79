"""What the shell may complete an argument with."""

from __future__ import annotations

from collections.abc import Sequence

from mlxspec.drafters.choice import WORDS


def model_names(incomplete: str) -> list[str]:
    """Names of models.toml that begin so; none when it cannot be read."""
    return _names(incomplete)


def draft_names(incomplete: str) -> list[str]:
    """The same, with the words that are no model."""
    return _names(incomplete, WORDS)


def _names(incomplete: str, words: Sequence[str] = ()) -> list[str]:
    from mlxspec.errors import MlxspecError
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    try:
        known = load_registry(places()).models
    except MlxspecError:
        return []
    return [name for name in (*words, *known) if name.startswith(incomplete)]
