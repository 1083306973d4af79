"""What a person should know about this machine and a pair of models, before and after they are downloaded.

Nothing is fetched. What the files of the models say is used where they are here; else what the registry
and their names say. Every finding says what to do about it, if there is anything to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxspec.decoding.cache import PromptCache
from mlxspec.drafters.choice import AUTO, LOOKAHEAD, LOOKUP, NONE, DraftChoice
from mlxspec.drafters.first_layers import first_layers
from mlxspec.drafters.loading import MODEL, automatic_choice, draft_config, names_a_model, refuse_options
from mlxspec.drafters.trained_maker import unfit
from mlxspec.errors import ModelError, UsageError
from mlxspec.lab.machine import Finding, Level
from mlxspec.lab.prediction import Prediction
from mlxspec.models import sources
from mlxspec.models.budget import Budget, ModelSize, estimate, largest_context
from mlxspec.models.compatibility import incompatibility
from mlxspec.models.device import dequantise_on_this_device, memory_bytes
from mlxspec.models.known_size import known_size
from mlxspec.models.loading import LoadedModel, load_model
from mlxspec.models.model_folder import is_draft
from mlxspec.models.model_limits import context_tokens
from mlxspec.models.registry import ModelSpec, Registry
from mlxspec.places import Places

DEFAULT_CONTEXT = 4096
CARRIES = "checkpoint"
HARD_TO_REACH = 0.8
"""A draft that must be right more often than this is rarely worth its cost."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model: `size` and `loaded` (weights unread) as far as they are known.

    `trained` is what the folder of a draft says that is no model; such a one is not loaded.
    """

    spec: ModelSpec
    folder: Path | None
    size: ModelSize | None
    loaded: LoadedModel | None
    fault: ModelError | None
    trained: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, spec: ModelSpec, where: Places, *, as_target: bool = False) -> ModelFacts:
        """What its files say, or the registry. A target has to be a whole model."""
        folder = sources.find(spec, where)
        loaded = fault = trained = None
        if folder is not None:
            try:
                trained = draft_config(folder) if is_draft(folder) and not as_target else None
                if trained is None or trained.get("kind", MODEL) == MODEL:
                    loaded, trained = load_model(spec.name, folder, read_weights=False), None
            except ModelError as error:
                fault = error
        return cls(spec, folder, known_size(spec, folder), loaded, fault, trained)

    def unfit_for(self, target: ModelFacts) -> str | None:
        """Why it cannot draft for a target that is here, without its full stop; None when it can."""
        assert target.loaded is not None
        if self.trained is not None:
            return unfit(self.trained, target.loaded)
        return None if self.loaded is None else incompatibility(target.loaded, self.loaded)

    @property
    def read(self) -> bool:
        """Whether its files say what it is."""
        return self.loaded is not None or self.trained is not None

    @property
    def caches(self) -> dict[str, str]:
        """Kinds of cache and how each is rewound; empty while the model is not here."""
        return PromptCache(self.loaded.model).kinds if self.loaded else {}

    @property
    def context_tokens(self) -> int | None:
        """How many tokens it was made for, by its config.json; None for a trained draft."""
        known = self.trained is None and self.size is not None and "model_type" in self.size.config
        return context_tokens(self.size.config) if self.size and known else None

    def findings(self) -> Iterator[Finding]:
        """Is it here, and is it whole?"""
        if self.fault is not None:
            yield Finding(Level.PROBLEM, self.fault.message, self.fault.hint)
        elif self.folder is None:
            size = f", {self.spec.download_gb:.2g} GB" if self.spec.download_gb else ""
            yield Finding(
                Level.ADVICE,
                f"{self.spec.name} is not on disk.",
                f"`mlxspec pull {self.spec.name}` fetches it{size}.",
            )
        if CARRIES in self.caches.values():
            yield Finding(
                Level.ADVICE,
                f"{self.spec.name} has layers that go back to a copy after a wrong guess and then read the "
                "right ones again.",
                "Nothing: the controller counts that cost.",
            )


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and who drafts for it.

    Attributes:
        draft: the draft model; None for lookup or none.
        drafter: what to call it.
        reason: why the draft cannot serve; None when it can, or when that is not known yet.
        budget: bytes at `context`; None when nothing is known of the sizes.
        largest: the largest context that fits, as far as the configs are here.
        prediction: what speculation brings; None when no curve is known.
    """

    target: ModelFacts
    draft: ModelFacts | None
    drafter: str
    reason: str | None
    context: int
    budget: Budget | None
    largest: int | None
    prediction: Prediction | None

    def findings(self) -> Iterator[Finding]:
        """Everything about the two together, and about each."""
        yield from self.target.findings()
        if self.draft is not None:
            yield from self.draft.findings()
        yield from self._compatibility()
        yield from self._memory()
        yield from self._speed()

    def _compatibility(self) -> Iterator[Finding]:
        target = self.target.spec
        if self.draft is None:
            if self.drafter == LOOKUP:
                yield Finding(Level.GOOD, f"{target.name} is served by lookup, which needs no second model.")
        elif self.reason is not None:
            yield Finding(
                Level.PROBLEM,
                f"{self.draft.spec.name} cannot draft for {target.name}: {self.reason}.",
                "Choose a draft of the same family, or --draft lookup.",
            )
        elif self.target.loaded and self.draft.read:
            why = "their tokens are the same" if self.draft.loaded else "it was made for such a target"
            yield Finding(Level.GOOD, f"{self.draft.spec.name} may draft for {target.name}: {why}.")
        elif target.draft == self.draft.spec.name:
            yield Finding(
                Level.GOOD,
                f"models.toml gives {target.name} the draft {self.draft.spec.name}.",
                "Their tokens are compared when both are on disk.",
            )
        else:
            yield Finding(
                Level.ADVICE,
                f"Whether {self.draft.spec.name} may draft for {target.name} is not known yet.",
                "Pull both, and ask again.",
            )

    def _memory(self) -> Iterator[Finding]:
        if self.budget is None:
            return
        need = f"{self.budget.needed_bytes / 1e9:.1f} of {self.budget.available_bytes / 1e9:.1f} GB"
        if self.budget.fits:
            yield Finding(Level.GOOD, f"It fits: {need} at {self.context} tokens.")
        elif self.largest:
            yield Finding(
                Level.PROBLEM,
                f"It does not fit: {need} at {self.context} tokens.",
                f"Give --context {self.largest} or less, or --kv-bits 8, or a smaller model.",
            )
        else:
            yield Finding(
                Level.PROBLEM, f"It does not fit: {need} at {self.context} tokens.", "Choose a smaller model."
            )

    def _speed(self) -> Iterator[Finding]:
        if self.drafter == NONE:
            return
        if self.prediction is None:
            here = all(facts.folder is not None for facts in (self.target, self.draft) if facts is not None)
            when = "" if here else "Once the files are here, "
            yield Finding(
                Level.ADVICE,
                f"What guesses cost {self.target.spec.name} here is not known.",
                f"{when}`mlxspec doctor --calibrate` measures it; so does the first answer.",
            )
            return
        least = self.prediction.break_even
        if least is None:
            yield Finding(
                Level.ADVICE,
                "No acceptance makes this draft pay here.",
                "Nothing: mlxspec parks it and decodes plainly. A smaller draft, or --draft lookup, may pay.",
            )
        else:
            level = Level.ADVICE if least > HARD_TO_REACH else Level.GOOD
            hint = "Choose a smaller draft, or --draft lookup." if least > HARD_TO_REACH else ""
            yield Finding(level, f"Guesses pay as soon as {least:.0%} of them are right.", hint)


def examine(registry: Registry, target: str | None, draft: str, context: int | None, where: Places) -> Pair:
    """A pair as a user would name it for `run`.

    Raises:
        UnknownModel: a name means nothing.
        UsageError: the target cannot read so large a context, or has not so many layers; or the draft has
            options that nothing would use.
    """
    spec = registry.resolve(target or registry.default_target)
    choice = DraftChoice.parse(draft)
    if choice.name == AUTO:
        choice = automatic_choice(choice, spec, registry, where)
    draft_spec = registry.resolve(choice.name) if names_a_model(choice) else None
    facts = ModelFacts.of(spec, where, as_target=True)
    draft_facts = None if draft_spec is None else ModelFacts.of(draft_spec, where)
    longest = facts.context_tokens
    if context is not None and (context < 1 or (longest is not None and context > longest)):
        most = f" to {longest}" if longest else ""
        raise UsageError(f"--context cannot be {context} here.", hint=f"Give a number from 1{most}.")
    tokens = context or min(DEFAULT_CONTEXT, longest or DEFAULT_CONTEXT)
    reason = None
    if facts.loaded and (layers := re.fullmatch(r"exit:([0-9]+)", choice.name)):
        first_layers(facts.loaded.model, int(layers[1]), name="exit")
    if draft_facts and draft_facts.trained:
        refuse_options(choice, meant=choice.name)
    if draft_facts and facts.loaded and not choice.translate:
        reason = draft_facts.unfit_for(facts)
    budget, largest = _budget(facts, draft_facts, tokens)
    return Pair(
        target=facts,
        draft=draft_facts,
        drafter=str(choice),
        reason=reason,
        context=tokens,
        budget=budget,
        largest=largest,
        prediction=None
        if choice.name == NONE
        else Prediction.of(
            spec.name,
            _size_ratio(facts, draft_facts, choice),
            where,
            guesser=_guesser(draft_facts, choice),
        ),
    )


def _budget(target: ModelFacts, draft: ModelFacts | None, context: int) -> tuple[Budget | None, int | None]:
    """Bytes at this context and the largest one that fits; caches count as nothing without a config.json."""
    if target.size is None or (draft is not None and draft.size is None):
        return None, None
    sizes = (target.size, draft.size if draft else None)
    memory, float32 = memory_bytes(), dequantise_on_this_device()
    budget = estimate(*sizes, context_tokens=context, available_bytes=memory, float32=float32)
    known = all(size is None or "model_type" in size.config for size in sizes)
    return budget, largest_context(*sizes, available_bytes=memory, float32=float32) if known else None


def _guesser(draft: ModelFacts | None, choice: DraftChoice) -> str:
    """What the drafter is called whose guesses cost something; "" when none does."""
    if draft is None:
        return "" if choice.name in (LOOKUP, LOOKAHEAD) else choice.name.partition(":")[0]
    if draft.trained is not None:
        return str(draft.trained["kind"])
    return "translated" if choice.translate else "draft_model"


def _size_ratio(target: ModelFacts, draft: ModelFacts | None, choice: DraftChoice) -> float | None:
    """Bytes of the draft / bytes of the target; 0 for lookup, None when they are not known."""
    if draft is None:
        return None if _guesser(draft, choice) else 0.0
    if draft.size is None or target.size is None or not target.size.stored_bytes:
        return None
    return draft.size.stored_bytes / target.size.stored_bytes
