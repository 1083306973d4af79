"""A name or a folder -> who drafts. `KINDS` is the one table of the kinds of drafts and their makers.

In two steps, so that weights of a draft that goes can be let go of before those of the next one come:
`understood` finds out what is meant and fetches it, `made` brings it into memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlxspec.drafters.choice import AUTO, LOOKAHEAD, LOOKUP, NONE, DraftChoice
from mlxspec.drafters.drafting import Drafting, Order, Workshop
from mlxspec.drafters.lookahead import Lookahead
from mlxspec.drafters.lookup import Lookup
from mlxspec.drafters.model_maker import make_model
from mlxspec.drafters.trained_maker import make_exit, make_trained
from mlxspec.errors import BrokenModel, InvalidSettings, UnknownModel, UsageError
from mlxspec.events import Event, Notice
from mlxspec.models import sources
from mlxspec.models.model_folder import DRAFT_FILE as DRAFT_FILE
from mlxspec.models.registry import ModelSpec, Registry, ShippedSource
from mlxspec.places import Places
from mlxspec.settings import load_settings, settings_path

MODEL = "model"


def make_lookahead(order: Order, workshop: Workshop) -> Drafting:
    """Lookahead, which reads the n-grams of the lookup beside it."""
    copies = workshop.lookup()
    return Drafting(LOOKAHEAD, (Lookahead(copies), copies), key=order.key)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of draft.

    Attributes:
        make: brings it into memory.
        word: how `--draft` names it: "lookup", or "exit:N" with a number; "" when only folders are named.
    """

    make: Callable[[Order, Workshop], Drafting]
    word: str = ""

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What a name of this kind looks like; its group is the number, if it takes one."""
        word, colon, _ = self.word.partition(":")
        if not word:
            return None
        return re.compile(re.escape(word) + (":([1-9][0-9]*)" if colon else "()"))


KINDS: dict[str, Kind] = {
    LOOKUP: Kind(lambda order, workshop: Drafting(LOOKUP, (workshop.lookup(),), key=order.key), LOOKUP),
    LOOKAHEAD: Kind(make_lookahead, LOOKAHEAD),
    NONE: Kind(lambda order, _: Drafting(NONE, key=order.key), NONE),
    "exit": Kind(make_exit, "exit:N"),
    "head": Kind(make_trained),
    "medusa": Kind(make_trained),
    "tiny": Kind(make_trained),
    MODEL: Kind(make_model),
}


def names_a_model(choice: DraftChoice) -> bool:
    """Whether this draft is a model or a folder, and not a word of the table. Raises UsageError."""
    return choice.name != AUTO and _worded(choice) is None


def understood(choice: DraftChoice, workshop: Workshop) -> Order:
    """What is meant by a choice, its files fetched.

    Raises:
        UnknownModel: the name means nothing.
        UsageError: it is written unlike what it begins as, or has options that nothing would use.
        InvalidSettings: the draft of settings.toml means nothing.
        SourceError, ModelError: as `sources.pull`.
    """
    asked, automatic = choice.name, choice.name == AUTO
    if automatic:
        choice = _automatic_here(choice, workshop.spec, workshop.registry, workshop.places, workshop.tell)
    if (worded := _worded(choice)) is not None:
        return worded
    spec = workshop.registry.resolve(choice.name)
    folder = sources.pull(spec, workshop.places, progress=workshop.tell, cancelled=workshop.cancelled)
    config = draft_config(folder)
    kind = config.get("kind", MODEL)
    if kind != MODEL:
        refuse_options(choice.named(asked), meant=spec.name)
    return Order(kind, spec.name, choice, folder=folder, config=config, automatic=automatic)


def made(order: Order, workshop: Workshop) -> Drafting:
    """Bring an order into memory. Raises what its maker raises."""
    return KINDS[order.kind].make(order, workshop)


def kept(drafting: Drafting, order: Order, workshop: Workshop) -> Drafting:
    """What is in memory already, for an order with its key; lookup goes on with the datastore of now."""
    for drafter in drafting.drafters:
        if isinstance(drafter, Lookup):
            drafter.datastore = workshop.datastore
    return replace(drafting, name=order.text)


def automatic_choice(
    choice: DraftChoice, target: ModelSpec, registry: Registry, places: Places
) -> DraftChoice:
    """What auto stands for, on disk or not: the draft of settings.toml, else the target's own, else lookup.

    Raises:
        InvalidSettings: the draft of settings.toml means nothing.
        UsageError: auto has options, and stands for no model.
    """
    usual = _usual_draft(registry, places)
    if usual is None or (names_a_model(usual) and registry.resolve(usual.name).source == target.source):
        own = registry.draft_of(target)
        usual = DraftChoice(LOOKUP if own is None else own.name)
    if not names_a_model(usual):
        refuse_options(choice, meant=usual.name)
    vocab = usual.vocab if choice.vocab is None else choice.vocab
    return DraftChoice(usual.name, usual.translate or choice.translate, vocab)


def _automatic_here(
    choice: DraftChoice, target: ModelSpec, registry: Registry, places: Places, tell: Callable[[Event], None]
) -> DraftChoice:
    """What auto stands for: lookup, and a notice, where its draft is to be fetched first."""
    meant = automatic_choice(choice, target, registry, places)
    if not names_a_model(meant) or sources.find(registry.resolve(meant.name), places) is not None:
        return meant
    refuse_options(choice, meant=LOOKUP)
    shipped = isinstance(registry.resolve(meant.name).source, ShippedSource)
    cure = "install mlxspec again" if shipped else f"`mlxspec pull {meant.name}` fetches it"
    tell(Notice(f"The draft {meant.name} is not on disk, so guesses are copied from the chat; {cure}."))
    return DraftChoice(LOOKUP)


def _usual_draft(registry: Registry, places: Places) -> DraftChoice | None:
    """The draft of settings.toml; None when that is auto. Raises InvalidSettings when it means nothing."""
    text = load_settings(places).draft
    try:
        choice = DraftChoice.parse(text)
        if choice.name == AUTO:
            refuse_options(choice, meant=AUTO)
            return None
        if names_a_model(choice):
            registry.resolve(choice.name)
    except (UsageError, UnknownModel) as error:
        raise InvalidSettings(
            f"{settings_path(places)}: draft is {text!r}. {error.message}", hint=error.hint
        ) from error
    return choice


def draft_config(folder: Path) -> Mapping[str, Any]:
    """What a folder says about itself as a draft; empty when it says nothing.

    Raises:
        BrokenModel: it is no JSON object, or has a kind that is not known.
    """
    file = folder / DRAFT_FILE
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BrokenModel(f"{file} is damaged.", hint="Make the draft again.") from error
    if not isinstance(config, dict):
        raise BrokenModel(f"{file} is no JSON object.", hint="Make the draft again.")
    if (kind := config.get("kind", MODEL)) not in KINDS:
        raise BrokenModel(
            f"{file} has the kind {kind!r}, which is not known.",
            hint="Use a newer version of mlxspec, or another draft.",
        )
    return config


def _worded(choice: DraftChoice) -> Order | None:
    """The order of a word of the table; None for a model's name and for auto."""
    for name, kind in KINDS.items():
        if kind.pattern is None:
            continue
        if match := kind.pattern.fullmatch(choice.name):
            refuse_options(choice, meant=choice.name)
            return Order(name, choice.name, choice, argument=match[1])
        word, colon, _ = kind.word.partition(":")
        if colon and choice.name.partition(":")[0] == word:
            raise UsageError(
                f"{choice.name!r} is no draft.", hint=f"Give {kind.word} with a whole number from 1."
            )
    return None


def meant_by(text: str, target: ModelSpec, registry: Registry, places: Places) -> str:
    """What a draft's text stands for, without a model in memory: auto becomes a draft or lookup.

    Raises:
        UnknownModel, UsageError, InvalidSettings: it means nothing.
    """
    choice = DraftChoice.parse(text)
    if choice.name == AUTO:
        return str(_automatic_here(choice, target, registry, places, lambda _notice: None))
    if names_a_model(choice):
        registry.resolve(choice.name)
    return str(choice)


def refuse_options(choice: DraftChoice, *, meant: str) -> None:
    """Say no to options that would not be used: `meant`, what the choice stands for, is no draft model.

    Raises:
        UsageError: the choice has options.
    """
    if not choice.for_models_only:
        return
    what = meant if choice.name == meant else f"{choice.name} is {meant} here, which"
    raise UsageError(
        f"{what} cannot have {choice.for_models_only}.",
        hint="It is for a draft model: give --draft with the name or folder of one.",
    )
