"""Softmax and cross-entropy with few exponentials.

MLX's CPU backend for Linux takes 9 ns for each (measured, MLX 0.32.4), and a softmax over 6,144 tokens has
as many: they would take more than a third of the time of a training step.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import numpy as np

from mlxspec.models.device import dequantise_on_this_device


def probabilities(logits: mx.array) -> mx.array:
    """The softmax over the last axis, as a constant."""
    logits = mx.stop_gradient(logits).astype(mx.float32)
    if not dequantise_on_this_device():
        return mx.softmax(logits, axis=-1)
    powers = np.array(logits)  # NumPy's exponentials take 1 ns on the same processor
    powers -= powers.max(axis=-1, keepdims=True)
    np.exp(powers, out=powers)
    powers /= powers.sum(axis=-1, keepdims=True)
    return mx.array(powers)


def cross_entropy(logits: mx.array, p: mx.array) -> mx.array:
    """-sum p log q over the last axis, q being the softmax of logits and p adding up to 1.

    Its gradient, q - p, takes q from the way there; no gradient goes to p.
    """

    @mx.custom_function
    def crossed(logits: mx.array) -> tuple[mx.array, mx.array]:
        most = logits.max(axis=-1, keepdims=True)
        powers = mx.exp(logits - most)
        total = powers.sum(axis=-1, keepdims=True)
        return (mx.log(total) + most)[..., 0] - (p * logits).sum(axis=-1), powers / total

    @crossed.vjp
    def _(_logits: mx.array, cotangents: list[mx.array], outputs: list[mx.array]) -> mx.array:
        return cotangents[0][..., None] * (outputs[1] - p)

    crossed_now: Any = crossed
    return cast(mx.array, crossed_now(logits)[0])
