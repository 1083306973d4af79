"""The engine: one thread that owns MLX, and the requests and jobs that go in and out of it."""

from mlxspec.engine.engine import Engine
from mlxspec.engine.job import Job
from mlxspec.engine.requests import GenerateRequest, LoadRequest

__all__ = ["Engine", "GenerateRequest", "Job", "LoadRequest"]
