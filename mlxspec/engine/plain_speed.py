"""How fast a target decodes without guesses on this machine: what speed-ups are told against."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxspec.places import Places


def plain_tokens_per_s(target_name: str, where: Places) -> float | None:
    """Tokens a second, as learnt last or by the verify curve's V(1); None as long as nothing was measured."""
    # Here and not at the top: it loads MLX.
    from mlxspec.engine.pace import last_pace

    pace = last_pace(target_name, where)
    return None if pace is None else pace.plain_tokens_per_s
