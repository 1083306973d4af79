"""A draft model by name or folder -> the drafter that guesses with it, and lookup beside it."""

from __future__ import annotations

import time

from mlxspec.decoding.calibrate import measure_step
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.drafting import LOOKUP, Drafting, Order, Workshop
from mlxspec.errors import IncompatiblePair
from mlxspec.events import Loading, Notice
from mlxspec.models.compatibility import incompatibility
from mlxspec.models.loading import load_model


def make_model(order: Order, workshop: Workshop) -> Drafting:
    """Load the draft model. One that nobody asked for gives way to lookup when it cannot serve.

    Raises:
        IncompatiblePair: it cannot guess for this target.
        ModelError: as `load_model`.
    """
    assert order.folder is not None
    workshop.tell(Loading(order.name))
    draft = load_model(order.name, order.folder)
    if reason := incompatibility(workshop.target, draft):
        if not order.automatic:
            raise IncompatiblePair(
                f"{order.name} cannot draft for {workshop.target.name}: {reason}.",
                hint="Choose a draft of the same family, or --draft lookup.",
            )
        workshop.tell(
            Notice(
                f"{order.name} cannot draft for {workshop.target.name} ({reason}); lookup guesses instead."
            )
        )
        return Drafting(LOOKUP, (workshop.lookup(),))
    drafter = DraftModel(draft.model, context_tokens=draft.context_tokens)
    return Drafting(
        order.name,
        (drafter, workshop.lookup()),
        draft,
        {drafter.name: lambda: measure_step(draft.model, clock=time.perf_counter)},
        order.key,
    )
