"""mlxspec: local chat on Apple Silicon with lossless speculative decoding."""

from __future__ import annotations

from mlxspec.models.device import preload_blas

__version__ = "0.1.0"

preload_blas()
