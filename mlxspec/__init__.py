"""mlxspec: local chat on Apple Silicon with lossless speculative decoding."""

from __future__ import annotations

__version__ = "0.1.0"
