"""A small model of a target's own vocabulary, whose output head may cover only the tokens that occur."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn


class TinyModel(nn.Module):  # type: ignore[misc]
    """mlx-lm's llama with an output head of its own width.

    Args:
        shape: arguments of mlx-lm's llama; `vocab_size` is the target's.
        columns: width of the logits.
    """

    def __init__(self, shape: Mapping[str, Any], *, columns: int) -> None:
        super().__init__()
        from mlx_lm.models.llama import LlamaModel, ModelArgs

        args = ModelArgs.from_dict({"model_type": "llama", **shape})
        self.model = LlamaModel(args)
        self.lm_head = nn.Linear(args.hidden_size, columns, bias=False)

    @property
    def layers(self) -> list[nn.Module]:
        """As mlx-lm's caches want them."""
        layers: list[nn.Module] = self.model.layers
        return layers

    def __call__(self, inputs: mx.array, cache: Any | None = None) -> mx.array:
        """Ids [batch, n] -> logits [batch, n, columns]."""
        logits: mx.array = self.lm_head(self.model(inputs, cache))
        return logits
