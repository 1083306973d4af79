"""A draft model by name or folder -> the drafter that guesses with it, and lookup beside it."""

from __future__ import annotations

import time

import mlx.core as mx

from mlxspec.decoding.calibrate import measure_step
from mlxspec.decoding.proposal import Drafter
from mlxspec.drafters.choice import LOOKUP, TRANSLATE
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.drafting import Drafting, Order, Workshop
from mlxspec.drafters.translated_draft import TranslatedDraft
from mlxspec.drafters.translation import Tongue, Translation
from mlxspec.drafters.trimmed_head import kept_ids, trim_head
from mlxspec.errors import IncompatiblePair
from mlxspec.events import Loading, Notice
from mlxspec.models.compatibility import incompatibility
from mlxspec.models.loading import LoadedModel, load_model


def make_model(order: Order, workshop: Workshop) -> Drafting:
    """Load the draft model. One that nobody asked for gives way to lookup when it cannot serve.

    Raises:
        IncompatiblePair: it cannot guess for this target.
        UnsupportedModel: its output head cannot be trimmed.
        ModelError: as `load_model`.
    """
    assert order.folder is not None
    workshop.tell(Loading(order.name))
    draft = load_model(order.name, order.folder)
    reason = incompatibility(workshop.target, draft)
    if reason and order.choice.translate:
        return _translated(order, draft, workshop)
    if reason:
        if not order.automatic:
            raise IncompatiblePair(
                f"{order.name} cannot draft for {workshop.target.name}: {reason}.",
                hint=f"Give {TRANSLATE} to let it guess through its text, or choose a draft of the same "
                "family, or --draft lookup.",
            )
        workshop.tell(
            Notice(
                f"{order.name} cannot draft for {workshop.target.name} ({reason}); lookup guesses instead."
            )
        )
        return Drafting(LOOKUP, (workshop.lookup(),))
    if order.choice.translate:
        workshop.tell(
            Notice(f"{order.name} has the tokens of {workshop.target.name}: nothing is translated.")
        )
    ids = _kept_ids(order, draft, workshop)
    drafter = DraftModel(draft.model, context_tokens=draft.context_tokens, ids=ids)
    return _drafting(order, drafter, draft, workshop)


def trimmed(draft: LoadedModel, count: int, workshop: Workshop, *, own: bool = False) -> mx.array | None:
    """Keep `count` rows of the draft's output head. Returns their ids; None where there are no more.

    `own`: the draft's tokens are not those of the target, so that what was learnt says nothing of them.
    """
    target, store = workshop.target, workshop.datastore
    vocab_size = draft.vocab_size if own else min(target.vocab_size, draft.vocab_size)
    if count >= vocab_size:
        workshop.tell(Notice(f"{draft.name} has {vocab_size} tokens, so all of them are kept."))
        return None
    special = {*draft.eos_ids, *draft.tokenizer.all_special_ids}
    frequencies = {} if own or store is None else store.frequencies()
    ids = mx.array(kept_ids(count, vocab_size=vocab_size, always=special, frequencies=frequencies))
    trim_head(draft.model, ids)
    return ids


def _translated(order: Order, draft: LoadedModel, workshop: Workshop) -> Drafting:
    target = workshop.target
    translation = Translation(
        Tongue(target.tokenizer, target.eos_ids), Tongue(draft.tokenizer, draft.eos_ids)
    )
    drafter = TranslatedDraft(
        DraftModel(draft.model, ids=_kept_ids(order, draft, workshop, own=True)),
        translation,
        vocab_size=draft.vocab_size,
        context_tokens=draft.context_tokens,
    )
    return _drafting(order, drafter, draft, workshop)


def _kept_ids(order: Order, draft: LoadedModel, workshop: Workshop, *, own: bool = False) -> mx.array | None:
    count = order.choice.vocab
    return None if count is None else trimmed(draft, count, workshop, own=own)


def _drafting(order: Order, drafter: Drafter, draft: LoadedModel, workshop: Workshop) -> Drafting:
    steps = {drafter.name: lambda: measure_step(draft.model, clock=time.perf_counter)}
    return Drafting(order.text, (drafter, workshop.lookup()), draft, steps, order.key)
