"""The first layers of a model as a model, and the loan of another model's cache to it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.decoding.layer_kinds import leaves_of
from mlxspec.errors import UsageError

READ, GO_ON = [3, 1, 2], [1, 2]  # ids of the passes that try whether a cache can be lent
NEAR = 1e-2  # part of the largest logit by which two such passes may differ, in 16 bits too


def first_layers(model: Any, count: int, *, name: str = "layers") -> nn.Module:
    """A copy that has the first `count` layers only, weights shared. `name` is for messages.

    Raises:
        UsageError: there are not so many, or the architecture cannot do without the others.
    """
    from mlx_lm.models.cache import make_prompt_cache

    layers = list(model.layers)
    if not 0 < count < len(layers):
        raise UsageError(
            f"{name}:{count} is no draft for a model of {len(layers)} layers.",
            hint=f"Give {name}:N with N from 1 to {len(layers) - 1}.",
        )
    draft: nn.Module = copy.deepcopy(model)
    try:
        first = draft.layers[0]
        owner, key = next(
            (module, key)
            for _, module in draft.named_modules()
            for key, own in module.items()
            if isinstance(own, list) and len(own) == len(layers) and own[0] is first
        )
        owner[key] = owner[key][:count]
        mx.eval(draft(mx.array([[0]]), cache=make_prompt_cache(draft)))
    # Each architecture fails in its own way: a list of masks by layer, a cache too many, a name.
    except Exception as error:
        raise UsageError(
            "This architecture cannot do with some of its layers.", hint="Give another --draft."
        ) from error
    return draft


def lendable(model: Any, shallow: nn.Module) -> int | None:
    """How many of the model's caches, from the first on, serve its first layers as their own would.

    None where they do not, as where layers share caches in another way when there are fewer of them.
    """
    from mlx_lm.models.cache import make_prompt_cache

    whole, own = make_prompt_cache(model), make_prompt_cache(shallow)
    lent = whole[: len(own)]
    if [type(leaf) for leaf in leaves_of(lent)] != [type(leaf) for leaf in leaves_of(own)]:
        return None
    try:
        for token in READ:  # one by one, for the models that need it so
            mx.eval(model(mx.array([[token]]), cache=whole), shallow(mx.array([[token]]), cache=own))
        for token in GO_ON:
            expected = shallow(mx.array([[token]]), cache=own).astype(mx.float32)
            given = shallow(mx.array([[token]]), cache=lent).astype(mx.float32)
            apart = mx.abs(given - expected)
            if not (mx.where(expected == given, 0.0, apart).max() <= NEAR * mx.abs(expected).max()).item():
                return None
    # As above: an architecture that cannot do this fails in a way of its own.
    except Exception:
        return None
    return len(own)


@contextmanager
def borrowed(layers: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Inside, rows may be appended to these caches; afterwards they are as they were before.

    Plain caches forget the rows; a copy brings back all other kinds.
    """
    from mlx_lm.models.cache import KVCache, QuantizedKVCache

    leaves = list(leaves_of(layers))
    plain = [type(leaf) in (KVCache, QuantizedKVCache) for leaf in leaves]
    # Never a copy of a plain cache: a held reference costs a copy of all of it at the next write.
    saved = [
        leaf.offset if is_plain else copy.deepcopy(leaf) for leaf, is_plain in zip(leaves, plain, strict=True)
    ]
    try:
        yield layers
    finally:
        for leaf, is_plain, before in zip(leaves, plain, saved, strict=True):
            if is_plain:
                leaf.trim(leaf.offset - before)
            else:
                leaf.__dict__.clear()
                leaf.__dict__.update(before.__dict__)
