"""What `mlxspec run` hands to the app."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of the command line; None and empty where nothing was said.

    Attributes:
        target, draft, context, kv_bits, datastore: which models to load, and how.
        values: parameters by the fields of `mlxspec.chat.parameters.PARAMETERS`.
        system: the system prompt.
        session: the ID of a saved chat to go on with, as it was typed.
        resume: go on with the chat used last.
    """

    target: str | None = None
    draft: str | None = None
    context: int | None = None
    kv_bits: int | None = None
    datastore: bool = True
    values: Mapping[str, object] = field(default_factory=dict)
    system: str | None = None
    session: str | None = None
    resume: bool = False
