"""`--draft-vocab N`: a draft model that weighs N tokens and not its whole vocabulary.

The output head of a small model is a large part of it (28 of the 135 million weights of SmolLM2-135M), and
a draft has no use for most of its rows: what it cannot guess, the target says itself. The answer stays exact,
for the q rows of the guesses are 0 at all other tokens (`guessing.py`). As FR-Spec, Zhao et al. 2025.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.decoding.hidden import HiddenStates
from mlxspec.drafters.output_head import rows_of
from mlxspec.errors import UnsupportedModel

WRITES_BY_ID = frozenset({"phi3small"})
"""Models of mlx-lm that take out some logits by their ids, which would write outside fewer of them."""

_PROBE = (1, 2, 3)
_NEAR = 1e-2  # part of the largest logit: 16-bit weights round

HINT = "Leave --draft-vocab out."


def kept_ids(
    count: int, *, vocab_size: int, always: Iterable[int], frequencies: Mapping[int, int]
) -> list[int]:
    """The `count` tokens that a draft should be able to guess, in the order of their ids.

    Those of `always` come first, then the frequent ones, then the others by id: byte-pair vocabularies are
    numbered roughly by frequency. All are below `vocab_size`.
    """
    by_frequency = sorted(frequencies, key=lambda token: (-frequencies[token], token))
    wanted = dict.fromkeys([*sorted(always), *by_frequency, *range(vocab_size)])
    kept = [token for token in wanted if 0 <= token < vocab_size]
    return sorted(kept[:count])


def trim_head(model: Any, ids: mx.array) -> None:
    """Make `model`, an mlx-lm model, return the logits of `ids` [n] alone. The model is changed.

    Raises:
        UnsupportedModel: its output head is no part of its own, or something behind it needs all logits.
    """
    if type(model).__module__.rpartition(".")[2] in WRITES_BY_ID:
        raise UnsupportedModel("This draft takes out some of its logits by their ids.", hint=HINT)
    head = HiddenStates(model, ()).head
    if head is None:
        raise UnsupportedModel("The output head of this draft is no part that can be trimmed.", hint=HINT)
    whole = _logits(model)[:, ids]
    tied = isinstance(head, nn.Embedding | nn.QuantizedEmbedding)
    _replace(model, head, TrimmedEmbedding(head, ids) if tied else rows_of(head, ids))
    try:
        trimmed = _logits(model)
        near = trimmed.shape == whole.shape and mx.abs(trimmed - whole).max() <= _NEAR * mx.abs(whole).max()
        fits = bool(near.item() if isinstance(near, mx.array) else near)
    # An architecture that needs logits of a certain width fails in a way of its own.
    except Exception:
        fits = False
    if not fits:
        raise UnsupportedModel("The logits of this draft cannot be trimmed.", hint=HINT)


class TrimmedEmbedding(nn.Module):  # type: ignore[misc]
    """An embedding that is the output head as well: it reads all tokens, and weighs some."""

    def __init__(self, whole: Any, ids: mx.array) -> None:
        super().__init__()
        self.whole = whole
        self.rows = rows_of(whole, ids)

    def __call__(self, tokens: mx.array) -> mx.array:
        """Rows of the tokens."""
        made: mx.array = self.whole(tokens)
        return made

    def as_linear(self, rows: mx.array) -> mx.array:
        """Logits [..., n]."""
        made: mx.array = self.rows(rows)
        return made

    @property
    def weight(self) -> mx.array:
        """Of the whole embedding; some models ask for its type."""
        return self.whole.weight  # type: ignore[no-any-return]


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    for _, owner in model.named_modules():
        for name, part in owner.items():
            if part is old:
                owner[name] = new


def _logits(model: Any) -> mx.array:
    """[rows, any] float32, of a few tokens read one by one, which suits every architecture."""
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    rows = [model(mx.array([[token]]), cache=cache)[0].astype(mx.float32) for token in _PROBE]
    logits = mx.concatenate(rows)
    mx.eval(logits)
    return logits
