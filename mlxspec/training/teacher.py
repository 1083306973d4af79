"""The target's side of training: what the draft's guesses should have been."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx

from mlxspec.decoding.hidden import LAST, HiddenStates
from mlxspec.drafters.trained_maker import head_of
from mlxspec.models.loading import LoadedModel
from mlxspec.training.batches import Batch


class Teacher:
    """The target's logits for the columns of the draft, from its last rows.

    Attributes:
        ids: the target's id of each column; None for all tokens.
        scale: what the target multiplies its head's logits by.
    """

    def __init__(self, target: LoadedModel, ids: mx.array | None) -> None:
        states = HiddenStates(target.model, (LAST,))
        self.ids = ids
        self.scale = scale_of(target.model, states)
        self.head = head_of(states, ids, scale=self.scale)
        self._width = states.widths[LAST]
        self._whole = head_of(states, None, scale=self.scale)

    def rows(self) -> mx.array:
        """The output head's weights [columns, width], scale included."""
        none = self.head(mx.zeros((1, 1, self._width)))[0]  # a bias, where there is one
        every: mx.array = self.head(mx.eye(self._width)[None])[0] - none
        return every.T.astype(mx.float32)

    def logits(self, batch: Batch) -> mx.array:
        """[b, n, columns]."""
        return self.head(batch.rows[LAST])

    def whole_logits(self, batch: Batch) -> mx.array:
        """[b, n, vocab]."""
        return self._whole(batch.rows[LAST])


def scale_of(model: Any, states: HiddenStates) -> float:
    """What a model multiplies its head's logits by, from a few tokens; where it caps them, about that."""
    from mlx_lm.models.cache import make_prompt_cache

    tokens = mx.array([[1, 2, 3, 5]])
    with states.reading():
        given = model(tokens, cache=make_prompt_cache(model)).astype(mx.float32)
    own = head_of(states, None)(states.rows[LAST]).astype(mx.float32)
    finite = (mx.abs(given) < 1e9) & (mx.abs(own) < 1e9)
    given, own = mx.where(finite, given, 0.0), mx.where(finite, own, 0.0)
    scale = cast(float, ((given * own).sum() / mx.maximum((own * own).sum(), 1e-9)).item())
    return 1.0 if abs(scale - 1.0) < 0.02 else scale
