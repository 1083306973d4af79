"""The models that the lab measures: a target, and ways to draft for it, made-up ones included.

Beside names, `lookup` and `none` a draft may be `3bit`, the target rounded to 3 bits, or `layers:N`, its
first N layers. They are for measuring where no draft exists: neither saves memory or is worth chatting with.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.decoding.calibrate import measure_step
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.proposal import Drafter
from mlxspec.drafters.choice import TRANSLATE, DraftChoice
from mlxspec.drafters.datastore import Datastore, datastore_path
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.drafting import Drafting, Workshop
from mlxspec.drafters.first_layers import first_layers
from mlxspec.drafters.loading import made, meant_by, understood
from mlxspec.drafters.model_maker import trimmed
from mlxspec.engine.pace import find_pace
from mlxspec.engine.pair import MEASURING
from mlxspec.errors import UsageError
from mlxspec.events import Event, Loading, Notice
from mlxspec.models import sources
from mlxspec.models.loading import LoadedModel, load_model
from mlxspec.models.registry import ModelSpec, Registry, load_registry
from mlxspec.places import Places

THREE_BITS = "3bit"
FIRST_LAYERS = re.compile(r"layers:([0-9]+)")
MADE_UP_BITS = 3
GROUP = 64  # weights that share a scale and a bias

Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Draft:
    """A way to guess, and what is known of its speed here.

    Attributes:
        name: what it was called.
        model: the draft model; None where there is none of its own.
        drafters: who proposes; none is plain decoding.
        curve: the target's verify curve; None where that was not asked for.
        steps: seconds of one guess by drafter.
    """

    name: str
    model: Any | None
    drafters: tuple[Drafter, ...]
    curve: VerifyCurve | None
    steps: dict[str, float]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured, by name, checked as far as that needs no model."""

    registry: Registry
    target: ModelSpec
    drafts: tuple[str, ...]


def wanted(target: str | None, drafts: Sequence[str], where: Places) -> Wanted:
    """The target's entry and the drafts' names, each once; `auto` becomes what it stands for.

    Raises:
        UnknownModel, UsageError: a name means nothing.
    """
    registry = load_registry(where)
    spec = registry.resolve(target or registry.default_target)
    names = [_meant(name, spec, registry, where) for name in drafts]
    return Wanted(registry, spec, tuple(dict.fromkeys(names)))


def load_target(asked: Wanted, where: Places, tell: Tell) -> LoadedModel:
    """The target in memory, fetched when it is not here."""
    folder = sources.pull(asked.target, where, progress=tell, cancelled=lambda: False)
    tell(Loading(asked.target.name))
    return load_model(asked.target.name, folder)


def load_draft(
    name: str,
    target: LoadedModel,
    asked: Wanted,
    where: Places,
    tell: Tell,
    *,
    measure: bool = True,
    datastore: Datastore | None = None,
) -> Draft:
    """One of the drafts of `asked`, ready to guess.

    What passes cost is measured when nothing is known of it, unless `measure` says not to. Lookup also reads
    `datastore`, to which nothing is added.

    Raises:
        IncompatiblePair: the model cannot serve this target.
        UsageError: the target has not so many layers, or cannot do with some of them.
    """
    workshop = Workshop(target, asked.target, asked.registry, where, tell, datastore=datastore)
    choice = DraftChoice.parse(name)
    made_up = _made_up(choice.name, target)
    if made_up is None:
        drafting = made(understood(choice, workshop), workshop)
        model = drafting.model.model if drafting.model else None
    else:
        twin = replace(target, name=choice.name, model=made_up)
        ids = None if choice.vocab is None else trimmed(twin, choice.vocab, workshop)
        drafter = DraftModel(made_up, context_tokens=target.context_tokens, ids=ids)
        drafting, model = Drafting(name, (drafter, workshop.lookup())), made_up
    curve: VerifyCurve | None = None
    steps: dict[str, float] = {}
    if measure:
        pace = find_pace(
            target,
            drafting,
            where,
            before_measuring=lambda: tell(Notice(MEASURING)),
            cancelled=lambda: False,
        )
        assert pace is not None, "nobody cancels"
        curve, steps = pace.curve, dict(pace.steps)
        if made_up is not None:
            steps["draft_model"] = measure_step(made_up, clock=time.perf_counter)
    return Draft(name, model, drafting.drafters, curve, steps)


@contextmanager
def users_datastore(target: LoadedModel, where: Places, tell: Tell) -> Iterator[Datastore]:
    """The user's datastore for this target, to read.

    Raises:
        UsageError: there is nothing in it.
    """
    path = datastore_path(where, target.tokenizer.get_vocab())
    if not path.exists():
        raise UsageError(
            f"There is no datastore for {target.name} yet.",
            hint="Answers of `mlxspec run` fill it, and so does `mlxspec datastore learn FILE`.",
        )
    datastore = Datastore(path, target=target.name, vocab_size=target.vocab_size)
    datastore.tell = lambda trouble: tell(Notice(trouble))
    try:
        yield datastore
    finally:
        datastore.close()


def rounded(model: nn.Module, bits: int = MADE_UP_BITS) -> nn.Module:
    """A copy whose matrices were rounded to so many bits; what is quantised already stays as it is.

    The weights keep their type, for on a CPU they are faster so; on a GPU such a draft costs what the
    target costs.
    """
    draft = copy.deepcopy(model)
    for _, layer in draft.named_modules():
        if isinstance(layer, nn.Linear | nn.Embedding) and layer.weight.shape[-1] % GROUP == 0:
            packed = mx.quantize(layer.weight, group_size=GROUP, bits=bits)
            layer.weight = mx.dequantize(*packed, group_size=GROUP, bits=bits).astype(layer.weight.dtype)
    mx.eval(draft.parameters())
    return draft


def _made_up(name: str, target: LoadedModel) -> nn.Module | None:
    """The model of `3bit` or `layers:N`, None for other names."""
    if name == THREE_BITS:
        return rounded(target.model)
    match = FIRST_LAYERS.fullmatch(name)
    return first_layers(target.model, int(match[1])) if match else None


def _meant(name: str, target: ModelSpec, registry: Registry, where: Places) -> str:
    choice = DraftChoice.parse(name)
    if choice.name.startswith("layers:") and not FIRST_LAYERS.fullmatch(choice.name):
        raise UsageError(f"{name!r} is no draft.", hint="Give layers:N, such as layers:8.")
    if choice.name == THREE_BITS or FIRST_LAYERS.fullmatch(choice.name):
        if choice.translate:
            raise UsageError(
                f"{choice.name} cannot have {TRANSLATE}.",
                hint="It is made of the target and has its tokens: leave the option out.",
            )
        return str(choice)
    return meant_by(name, target, registry, where)
