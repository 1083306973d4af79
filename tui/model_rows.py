"""What can be chosen as target and draft: on disk or not, how big, whether it fits, and why it may not serve.

Reading this touches many files, so it is done away from the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlxspec.drafters.choice import AUTO, LOOKAHEAD, LOOKUP, NONE, DraftChoice
from tui.attachments import size_text
from tui.chooser import Row

if TYPE_CHECKING:
    from mlxspec.models.budget import ModelSize
    from mlxspec.models.registry import ModelSpec, Registry
    from mlxspec.places import Places

CONTEXT_TOKENS = 4096
TARGET, DRAFT = "target:", "draft:"
DRAFTERS = {
    AUTO: ("the settings' draft, else the target's own", "lookup, where neither is there or on disk"),
    LOOKUP: ("copies from the chat; needs no second model", ""),
    LOOKAHEAD: ("what stood behind wrong guesses, and copies", ""),
    NONE: ("no guesses: plain decoding", ""),
}


@dataclass(frozen=True, slots=True)
class Known:
    """A model as its files, or the registry, describe it; `only_drafts`: it cannot answer."""

    spec: ModelSpec
    folder: Path | None
    size: ModelSize | None
    only_drafts: bool
    shipped: bool

    @classmethod
    def of(cls, spec: ModelSpec, where: Places) -> Known:
        """What is known of it without a network."""
        from mlxspec.models import sources
        from mlxspec.models.known_size import known_size
        from mlxspec.models.model_folder import is_draft
        from mlxspec.models.registry import ShippedSource

        folder, shipped = sources.find(spec, where), isinstance(spec.source, ShippedSource)
        only_drafts = shipped or (folder is not None and is_draft(folder))
        return cls(spec, folder, known_size(spec, folder), only_drafts, shipped)

    @property
    def fits(self) -> bool:
        """Whether it fits in this machine's memory, as far as its size is known."""
        from mlxspec.models.budget import WORKING_SHARE, estimate, weight_bytes
        from mlxspec.models.device import dequantise_on_this_device, memory_bytes

        if self.size is None or self.only_drafts:
            return True
        float32, memory = dequantise_on_this_device(), memory_bytes()
        if "model_type" not in self.size.config:
            return weight_bytes(self.size, float32=float32) * (1 + WORKING_SHARE) < memory
        return estimate(
            self.size, None, context_tokens=CONTEXT_TOKENS, available_bytes=memory, float32=float32
        ).fits

    @property
    def about(self) -> str:
        """Its size, where it is, and whether it is too big; short enough for a list of 80 columns."""
        size = size_text(self.size.stored_bytes) if self.size and self.size.stored_bytes else ""
        if self.shipped:
            parts = [size, "comes with mlxspec"]
        elif self.folder is not None:
            parts = [f"{size} on disk".strip()]
        else:
            parts = [f"{size} to fetch".strip()]
        return " · ".join(part for part in (*parts, "" if self.fits else "does not fit in memory") if part)


def model_rows(where: Places, *, target: str | None, draft: str, drafts_first: bool = False) -> list[Row]:
    """Targets, and drafts for the target. Raises MlxspecError when models.toml cannot be read."""
    from mlxspec.models.registry import load_registry

    registry = load_registry(where)
    now = registry.resolve(target or registry.default_target)
    specs = {**registry.models, now.name: now, **_draft_in_use(draft, registry)}
    known = sorted((Known.of(spec, where) for spec in specs.values()), key=lambda model: model.folder is None)
    answers = [model for model in known if not model.only_drafts]
    targets = [Row("targets", "Targets", heading=True)]
    targets += [
        Row(TARGET + model.spec.name, _marked(model.spec.name, model.spec.name == now.name), model.about)
        for model in answers
    ]
    drafts = [Row("drafts", f"Drafts for {now.name}", heading=True), *_words(draft)]
    drafts += _draft_rows(now, known, draft)
    return [*drafts, *targets] if drafts_first else [*targets, *drafts]


def model_names(where: Places) -> tuple[list[str], list[str]]:
    """Names of models.toml: of what may answer, and of all that may draft; none when it cannot be read."""
    from mlxspec.errors import MlxspecError
    from mlxspec.models.registry import ShippedSource, load_registry

    try:
        known = load_registry(where).models
    except MlxspecError:
        return [], []
    answers = [name for name, spec in known.items() if not isinstance(spec.source, ShippedSource)]
    return answers, list(known)


def _draft_in_use(draft: str, registry: Registry) -> dict[str, ModelSpec]:
    """The draft that was chosen by a folder or a Hub id; nothing for a word such as lookup."""
    from mlxspec.errors import UnknownModel

    name = DraftChoice.parse(draft).name
    if name in DRAFTERS:
        return {}
    try:
        spec = registry.resolve(name)
    except UnknownModel:
        return {}
    return {spec.name: spec}


def _words(draft: str) -> list[Row]:
    """The drafts that are no models, with the one in use."""
    rows = [
        Row(DRAFT + name, _marked(name, name == draft), about, note)
        for name, (about, note) in DRAFTERS.items()
    ]
    if draft.startswith("exit:"):
        rows.append(Row(DRAFT + draft, _marked(draft, True), "the target's own first layers"))
    return rows


def _draft_rows(target: ModelSpec, known: list[Known], draft: str) -> list[Row]:
    """What is on disk, and what models.toml gives to the target. What is in use keeps its options."""
    in_use = DraftChoice.parse(draft)
    base = next(model for model in known if model.spec.name == target.name)
    rows = []
    for model in known:
        name, current = model.spec.name, model.spec.name == in_use.name
        if name == target.name or (model.folder is None and name != target.draft and not current):
            continue
        reason = None if current and in_use.translate else _reason(base, model)
        text = draft if current else name
        note = f"cannot draft: {reason}" if reason else ""
        rows.append(Row(DRAFT + text, _marked(text, current), model.about, note, enabled=reason is None))
    return rows


def _reason(target: Known, draft: Known) -> str | None:
    """Why a draft cannot serve, None when it may or when that will be known once it is here."""
    from mlxspec.drafters.unfit import Files, unfit

    if draft.folder is None:
        return "it is missing; install mlxspec again" if draft.shipped else None
    if target.folder is None:
        return None
    return unfit(Files(target.spec.name, target.folder), Files(draft.spec.name, draft.folder))


def _marked(name: str, current: bool) -> str:
    return ("● " if current else "  ") + name
