"""Some rows of a target's output head, as a head of its own: a draft need not weigh every token."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


def rows_of(head: Any, ids: mx.array) -> nn.Module:
    """A layer from hidden rows to the logits of `ids` [n], with the weights that `head` has for them.

    `head` is the target's: a linear layer or an embedding, quantised or not.
    """
    weight = head.weight[ids]
    made: nn.Linear | nn.QuantizedLinear
    if isinstance(head, nn.QuantizedLinear | nn.QuantizedEmbedding):
        made = nn.QuantizedLinear.__new__(nn.QuantizedLinear)
        nn.Module.__init__(made)
        made.group_size, made.bits, made.mode = head.group_size, head.bits, head.mode
        made.scales = head.scales[ids]
        if head.get("biases") is not None:
            made.biases = head.biases[ids]
    else:
        made = nn.Linear.__new__(nn.Linear)
        nn.Module.__init__(made)
    made.weight = weight
    if head.get("bias") is not None:
        made.bias = head.bias[ids]
    made.freeze()
    mx.eval(made.parameters())
    return made
