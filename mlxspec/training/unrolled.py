"""A head's own steps in one go: what it would guess from every position, step after step.

In use the layer reads true rows up to the last committed token and its own ones behind it. Here a query
of step s at position t attends to the true rows of positions up to t - s + 1 and to the row of each
later step j at position t - s + j, as EAGLE-3 (Li et al. 2025, arXiv 2503.01840) trains it.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlxspec.drafters.head import HeadLayer
from mlxspec.training.softmax import softmax


def unrolled(head: HeadLayer, hidden: mx.array, token: mx.array, steps: int) -> list[mx.array]:
    """The next hidden states of each step, [batch, n, width] each, from rows [batch, n, ..].

    Row t of `hidden` is the target's after token t, row t of `token` the embedding of token t + 1. Row t
    of step s stands for the target's row t + 1; it began s - 1 positions before, so its first s - 1 rows
    mean nothing.
    """
    made: list[mx.array] = []
    keys: list[mx.array] = []
    values: list[mx.array] = []
    given = hidden
    for _ in range(steps):
        x = head.join(given, token)
        out = x + _attended(head.layer.self_attn, head.layer.input_layernorm(x), keys, values)
        out = out + head.layer.mlp(head.layer.post_attention_layernorm(out))
        made.append(head.finish(out))
        given = _shifted(made[-1], 1)
    return made


def _attended(attention: Any, x: mx.array, keys: list[mx.array], values: list[mx.array]) -> mx.array:
    """Attention of the next step; its keys and values [batch, heads, n, dims] join those of the others."""
    batch, n, _ = x.shape

    def heads(rows: mx.array, count: int) -> mx.array:
        return rows.reshape(batch, n, count, -1).transpose(0, 2, 1, 3)

    queries = attention.rope(heads(attention.q_proj(x), attention.n_heads)) * attention.scale
    keys.append(_repeated(attention.rope(heads(attention.k_proj(x), attention.n_kv_heads)), attention))
    values.append(_repeated(heads(attention.v_proj(x), attention.n_kv_heads), attention))
    step = len(keys)
    back = mx.arange(n)[:, None] - mx.arange(n)[None, :]
    true = mx.where(back >= step - 1, queries @ keys[0].transpose(0, 1, 3, 2), -mx.inf)
    if step > 1:  # the first positions of a later step have no true row; they mean nothing
        true = mx.where((mx.arange(n) < step - 1)[:, None] & (back == 0), 0.0, true)
    later = [_shifted(k, step - j, axis=2) for j, k in enumerate(keys[1:], start=2)]
    scores = mx.concatenate([true, *((queries * k).sum(axis=-1, keepdims=True) for k in later)], axis=-1)
    weights = softmax(scores)
    out = weights[..., :n] @ values[0]
    for j, v in enumerate(values[1:], start=2):
        out = out + weights[..., n + j - 2 : n + j - 1] * _shifted(v, step - j, axis=2)
    made: mx.array = attention.o_proj(out.transpose(0, 2, 1, 3).reshape(batch, n, -1))
    return made


def _repeated(rows: mx.array, attention: Any) -> mx.array:
    times = attention.n_heads // attention.n_kv_heads
    return mx.repeat(rows, times, axis=1) if times > 1 else rows


def _shifted(rows: mx.array, by: int, *, axis: int = 1) -> mx.array:
    """Row t is what row t - by was; the first rows are zero."""
    if by == 0:
        return rows
    kept = mx.split(rows, [rows.shape[axis] - by], axis=axis)[0]
    shape = list(rows.shape)
    shape[axis] = by
    return mx.concatenate([mx.zeros(shape, rows.dtype), kept], axis=axis)
