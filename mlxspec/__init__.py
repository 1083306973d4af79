"""mlxspec: local chat on Apple Silicon with lossless speculative decoding.

from mlxspec import Engine, GenerateRequest, LoadRequest, Message

with Engine() as engine:
    for event in engine.load(LoadRequest()): ...
    for event in engine.generate(GenerateRequest((Message("user", "Hello"),))): ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from mlxspec.models.device import preload_blas

if TYPE_CHECKING:
    from mlxspec.chat.conversation import Message as Message
    from mlxspec.decoding.overrides import SamplingOverrides as SamplingOverrides
    from mlxspec.engine import Engine as Engine
    from mlxspec.engine import GenerateRequest as GenerateRequest
    from mlxspec.engine import Job as Job
    from mlxspec.engine import LoadRequest as LoadRequest

__version__ = "0.1.0"

_HOMES = {
    "Engine": "mlxspec.engine",
    "GenerateRequest": "mlxspec.engine",
    "Job": "mlxspec.engine",
    "LoadRequest": "mlxspec.engine",
    "Message": "mlxspec.chat.conversation",
    "SamplingOverrides": "mlxspec.decoding.overrides",
}

__all__ = ["Engine", "GenerateRequest", "Job", "LoadRequest", "Message", "SamplingOverrides"]

preload_blas()


def __getattr__(name: str) -> object:
    # On demand: `import mlxspec` must stay fast, and these bring MLX along.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mlxspec' has no attribute {name!r}")
