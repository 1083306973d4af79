"""What was asked for as a draft, what its makers work with, and what they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlxspec.decoding.proposal import Drafter
from mlxspec.drafters.choice import DraftChoice
from mlxspec.drafters.datastore import Datastore
from mlxspec.drafters.lookup import Lookup
from mlxspec.events import Event
from mlxspec.models.loading import LoadedModel
from mlxspec.models.registry import ModelSpec, Registry
from mlxspec.places import Places


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a draft is made for, and what makers work with.

    Attributes:
        target: the model that the draft guesses for, in memory.
        spec: the target's entry in the registry.
        tell: hears Downloading, Loading and Notice.
        datastore: what lookup reads beside the chat; None for nothing.
    """

    target: LoadedModel
    spec: ModelSpec
    registry: Registry
    places: Places
    tell: Callable[[Event], None]
    cancelled: Callable[[], bool] = lambda: False
    datastore: Datastore | None = None

    def lookup(self) -> Lookup:
        """The drafter that stands beside every other one."""
        return Lookup(datastore=self.datastore)


@dataclass(frozen=True, slots=True)
class Order:
    """One choice, understood: its kind, and the files that it is made from. Nothing is in memory yet.

    Attributes:
        kind: a key of `loading.KINDS`.
        name: what to call the draft, without the options of the choice.
        argument: what stands behind the colon: "8" of exit:8.
        folder: its files; None for a kind that needs none.
        config: the folder's mlxspec_draft.json; empty where there is none.
        automatic: nobody asked for this draft by name, so that lookup may stand in for it.
    """

    kind: str
    name: str
    choice: DraftChoice
    argument: str = ""
    folder: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    automatic: bool = False

    @property
    def text(self) -> str:
        """The name with its options, as it may be asked for again."""
        return str(self.choice.named(self.name))

    @property
    def key(self) -> tuple[str, ...]:
        """Orders with one key make the same drafters: those in memory may stay."""
        files = () if self.folder is None else (str(self.folder.resolve()), _state_of(self.folder))
        options = (str(self.choice.named("")),) if self.choice.for_models_only else ()
        return (self.kind, self.argument, *files, *options)


@dataclass(frozen=True, slots=True)
class Drafting:
    """Who drafts for a target.

    Attributes:
        name: what to call it: the draft model's name with its options, "lookup", "none" and so on.
        drafters: all that serve an answer; none means plain decoding.
        model: the draft model, where there is one of its own.
        steps: by the name of a drafter whose guesses cost something, a call that measures the seconds of
            one guess.
        key: as the order's.
    """

    name: str
    drafters: tuple[Drafter, ...] = ()
    model: LoadedModel | None = None
    steps: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    key: tuple[str, ...] = ()


def _state_of(folder: Path) -> str:
    """Changes when a file of the folder is written again."""
    files = [path.stat() for path in folder.iterdir() if path.is_file()]
    return f"{sum(file.st_size for file in files)} {max((file.st_mtime_ns for file in files), default=0)}"
