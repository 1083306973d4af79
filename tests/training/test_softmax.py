"""Softmax and cross-entropy by NumPy and by MLX: the same values and gradients as MLX's own."""

from __future__ import annotations

import mlx.core as mx
import pytest

from mlxspec.training.softmax import cross_entropy, probabilities, softmax

LOGITS = mx.random.normal((2, 5, 7), key=mx.random.key(2)) * 4 + 90.0  # exp(90) is no float


@pytest.fixture(params=[True, False], ids=["NumPy", "MLX"], autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxspec.training.softmax.dequantise_on_this_device", lambda: request.param)


def test_softmax_and_its_gradient() -> None:
    masked = mx.where(mx.arange(7) < 5, LOGITS, -mx.inf)
    weights = mx.random.normal(LOGITS.shape, key=mx.random.key(3))
    assert mx.allclose(softmax(masked), mx.softmax(masked, axis=-1), atol=1e-6)
    assert mx.array_equal(probabilities(masked), softmax(masked))
    ours = mx.grad(lambda x: (weights * softmax(x)).sum())(LOGITS)
    theirs = mx.grad(lambda x: (weights * mx.softmax(x, axis=-1)).sum())(LOGITS)
    assert mx.allclose(ours, theirs, atol=1e-5)


def test_cross_entropy_and_its_gradient() -> None:
    p = mx.softmax(mx.random.normal(LOGITS.shape, key=mx.random.key(4)), axis=-1)

    def plain(x: mx.array) -> mx.array:
        return -(p * (x - mx.logsumexp(x, axis=-1, keepdims=True))).sum(axis=-1)

    assert mx.allclose(cross_entropy(LOGITS, p), plain(LOGITS), rtol=1e-5)
    weights = mx.arange(10).reshape(2, 5)
    ours = mx.grad(lambda x: (weights * cross_entropy(x, p)).sum())(LOGITS)
    theirs = mx.grad(lambda x: (weights * plain(x)).sum())(LOGITS)
    assert mx.allclose(ours, theirs, atol=1e-4)
