"""What the app needs of the engine: `mlxspec.engine.Engine`, or a scripted one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tui.feed import JobLike

if TYPE_CHECKING:
    from mlxspec.engine import GenerateRequest, LoadRequest
    from mlxspec.places import Places


class EngineLike(Protocol):
    """Takes requests and gives jobs."""

    def load(self, request: LoadRequest) -> JobLike:
        """Fetch and load models."""
        ...

    def generate(self, request: GenerateRequest) -> JobLike:
        """Answer."""
        ...

    def close(self) -> None:
        """Stop and let go."""
        ...


def real_engine(where: Places) -> EngineLike:
    """The engine of mlxspec."""
    from mlxspec.engine import Engine

    return Engine(where)
