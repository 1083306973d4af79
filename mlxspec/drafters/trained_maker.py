"""A trained draft's folder, or exit:N -> the drafter, and lookup beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxspec.decoding.calibrate import measure_reader_step, measure_step
from mlxspec.decoding.hidden import HINT, LAST, HiddenStates
from mlxspec.decoding.proposal import TargetReader
from mlxspec.drafters.choice import LOOKUP
from mlxspec.drafters.datastore import vocabulary_hash
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.drafting import Drafting, Order, Workshop
from mlxspec.drafters.exit import EarlyExit, ExitAdapter, ExitCopy
from mlxspec.drafters.first_layers import first_layers, lendable
from mlxspec.drafters.head import Head, HeadLayer
from mlxspec.drafters.medusa import Medusa, MedusaHeads
from mlxspec.drafters.output_head import rows_of
from mlxspec.drafters.trained import AGAIN, load_trained
from mlxspec.drafters.unfit import OTHER_VOCABULARY, other_width
from mlxspec.errors import BrokenModel, IncompatiblePair, UnsupportedModel
from mlxspec.events import Loading, Notice
from mlxspec.models.loading import LoadedModel


def make_trained(order: Order, workshop: Workshop) -> Drafting:
    """Load what `mlxspec distill` made. One that nobody asked for gives way to lookup when it cannot serve.

    Raises:
        IncompatiblePair: it was made for a target of another vocabulary or width.
        BrokenModel: a file of it is damaged.
        UnsupportedModel: what it reads of the target cannot be reached.
    """
    assert order.folder is not None
    target = workshop.target
    if reason := unfit(order.config, target):
        if not order.automatic:
            raise IncompatiblePair(
                f"{order.name} cannot draft for {target.name}: {reason}.",
                hint=f"Make a draft with `mlxspec distill --target {target.name}`, or give --draft lookup.",
            )
        workshop.tell(
            Notice(f"{order.name} cannot draft for {target.name} ({reason}); lookup guesses instead.")
        )
        return Drafting(LOOKUP, (workshop.lookup(),))
    workshop.tell(Loading(order.name))
    module, ids = load_trained(order.folder, order.config, dtype=dtype_of(target.model))
    drafter = drafter_of(order.config, module, ids, target.model, context_tokens=target.context_tokens)
    return _drafting(order, drafter, workshop)


def make_exit(order: Order, workshop: Workshop) -> Drafting:
    """The target's first layers without training, or with the adapter in a folder. Raises as above.

    Raises:
        UsageError: the target has not so many layers, or its architecture cannot do with some of them.
    """
    if order.folder is not None:
        return make_trained(order, workshop)
    model = workshop.target.model
    layers = int(order.argument)
    shallow = first_layers(model, layers, name="exit")
    lent = lendable(model, shallow)
    if lent is None:
        copy = ExitCopy(shallow, context_tokens=workshop.target.context_tokens)
        return _drafting(order, copy, workshop)
    return _drafting(order, EarlyExit(shallow, lent=lent, layers=layers), workshop)


def drafter_of(
    config: Mapping[str, Any],
    module: Any,
    ids: mx.array | None,
    target: Any,
    *,
    context_tokens: int | None = None,
) -> DraftModel | TargetReader:
    """The drafter around a trained part, for this target.

    Raises:
        UnsupportedModel: what it reads of the target cannot be reached.
        BrokenModel: the config lacks something.
    """
    scale = config.get("scale", 1.0)
    try:
        if isinstance(module, HeadLayer):
            states = HiddenStates(target, (LAST, config["point"]))
            return Head(
                module,
                embed=embedding_of(states),
                head=head_of(states, ids, scale=scale),
                ids=ids,
                point=config["point"],
            )
        if isinstance(module, MedusaHeads):
            states = HiddenStates(target, (LAST, config["point"]))
            return Medusa(module, head=head_of(states, ids, scale=scale), ids=ids, point=config["point"])
        if isinstance(module, ExitAdapter):
            layers = config["layers"]
            head = head_of(HiddenStates(target, (LAST, layers)), ids, scale=scale)
            shallow = first_layers(target, layers, name="exit")
            lent = lendable(target, shallow)
            if lent is None:
                raise UnsupportedModel(
                    "The first layers of this target cannot use its cache, which an early exit needs.",
                    hint=HINT,
                )
            return EarlyExit(shallow, lent=lent, layers=layers, adapter=module, head=head, ids=ids)
    except KeyError as error:
        raise BrokenModel(f"The draft's config has no {error.args[0]!r}.", hint=AGAIN) from error
    return TinyDraft(module, context_tokens=context_tokens, ids=ids)


class TinyDraft(DraftModel):
    """A draft model that was trained for its target."""

    name = "tiny"


def head_of(
    states: HiddenStates, ids: mx.array | None, *, scale: float = 1.0
) -> Callable[[mx.array], mx.array]:
    """From rows after the final norm to the logits of `ids`, by the target's own weights times `scale`.

    Raises:
        UnsupportedModel: the target multiplies by hand.
    """
    head = states.head
    if head is None:
        raise UnsupportedModel(
            "The output head of this target is no part that a draft could share.", hint=HINT
        )
    whole = head.as_linear if hasattr(head, "as_linear") else head
    made: Callable[[mx.array], mx.array] = whole if ids is None else rows_of(head, ids)
    return made if scale == 1.0 else lambda rows: made(rows) * scale


def embedding_of(states: HiddenStates) -> Callable[[mx.array], mx.array]:
    """The target's embedding. Raises: UnsupportedModel when it cannot be told."""
    if states.embedding is None:
        raise UnsupportedModel("The embedding of this target cannot be told.", hint=HINT)
    embed: Callable[[mx.array], mx.array] = states.embedding
    return embed


def dtype_of(model: nn.Module) -> mx.Dtype:
    """The floating-point type that most of a model's values are computed in."""
    kinds = [
        array.dtype
        for _, array in tree_flatten(model.parameters())
        if mx.issubdtype(array.dtype, mx.floating)
    ]
    return max(set(kinds), key=kinds.count, default=mx.float32)


def _drafting(order: Order, drafter: DraftModel | TargetReader, workshop: Workshop) -> Drafting:
    target = workshop.target.model

    def measure() -> float:
        if isinstance(drafter, DraftModel):
            return measure_step(drafter.model, clock=time.perf_counter)
        return measure_reader_step(drafter, target, clock=time.perf_counter)

    return Drafting(order.name, (drafter, workshop.lookup()), steps={drafter.name: measure}, key=order.key)


def unfit(config: Mapping[str, Any], target: LoadedModel) -> str | None:
    """Why a draft cannot serve, as a sentence without its full stop; None when it can."""
    if config.get("vocabulary") != vocabulary_hash(target.tokenizer.get_vocab()):
        return OTHER_VOCABULARY
    if config["kind"] == "tiny":
        return None
    point = config["layers"] if config["kind"] == "exit" else config.get("point", LAST)
    return other_width(config, HiddenStates(target.model, (point,)).widths[point])
