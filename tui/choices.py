"""What answers are asked for with: models, parameters, system prompt. And the request that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlxspec.chat.parameters import PARAMETERS

if TYPE_CHECKING:
    from mlxspec.chat.conversation import Message
    from mlxspec.chat.records import Chat, SavedMessage
    from mlxspec.engine import GenerateRequest, LoadRequest
    from tui.options import ChatOptions

# Parameters that are fields of a request, by their own field; all others shape the sampling.
_OF_REQUEST = {
    "seed": "seed",
    "max_tokens": "max_tokens",
    "stop": "stop",
    "k": "num_draft",
    "accept": "accept",
    "think": "think",
}


@dataclass(slots=True)
class Choices:
    """Everything that the user may choose; a chat changes it as it goes.

    Attributes:
        target: None for the default.
        values: parameters by their field; what is not there has its default.
        system: "" for none.
    """

    target: str | None = None
    draft: str = "auto"
    context: int | None = None
    kv_bits: int | None = None
    datastore: bool = True
    system: str = ""
    speculate: bool = True
    values: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, options: ChatOptions) -> Choices:
        """What the command line chose."""
        return cls(
            target=options.target,
            draft=options.draft or "auto",
            context=options.context,
            kv_bits=options.kv_bits,
            datastore=options.datastore,
            system=options.system or "",
            values=dict(options.values),
        )

    def set(self, name: str, value: object) -> None:
        """Set a parameter by its field; None takes it back to the default."""
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def params(self) -> dict[str, Any]:
        """What a saved chat remembers of it."""
        return {"values": dict(self.values), "speculate": self.speculate}

    def go_on_with(self, chat: Chat) -> None:
        """Take over what a saved chat was going on with; values that make no sense any more are left out."""
        self.target = chat.target or self.target
        self.draft = chat.draft or self.draft
        self.system = chat.system
        values = chat.params.get("values", {})
        known = {parameter.field for parameter in PARAMETERS.values()}
        if isinstance(values, Mapping):
            self.values = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in values.items()
                if name in known
            }
        self.speculate = chat.params.get("speculate") is not False

    def load_request(self) -> LoadRequest:
        """Which models to load."""
        from mlxspec.engine import LoadRequest

        return LoadRequest(
            target=self.target,
            draft=self.draft,
            context=self.context,
            kv_bits=self.kv_bits,
            datastore=self.datastore,
        )

    def generate_request(self, turns: Sequence[Message]) -> GenerateRequest:
        """The request for an answer to `turns`, with a report of each round."""
        from mlxspec.chat.conversation import Message
        from mlxspec.decoding.overrides import SamplingOverrides
        from mlxspec.engine import GenerateRequest

        fields: dict[str, Any] = {
            name: self.values[own] for own, name in _OF_REQUEST.items() if own in self.values
        }
        if isinstance(stop := fields.get("stop"), str):
            fields["stop"] = (stop,)
        sampling = {name: value for name, value in self.values.items() if name not in _OF_REQUEST}
        if sampling:
            fields["sampling"] = SamplingOverrides(**sampling)  # type: ignore[arg-type]
        system = (Message("system", self.system),) if self.system else ()
        return GenerateRequest(
            messages=(*system, *turns), speculate=self.speculate, report_rounds=True, **fields
        )


def turns(messages: Sequence[SavedMessage]) -> list[Message]:
    """What the model is given of a chat: questions with their answers, and the last question."""
    from mlxspec.chat.conversation import Message

    found: list[Message] = []
    for message in messages:
        if message.role == "assistant" and not message.content:
            # An answer that failed before its first word: the question is out of the chat, too.
            if found and found[-1].role == "user":
                found.pop()
        elif message.role in ("user", "assistant"):
            if message.role == "user" and found and found[-1].role == "user":
                found.pop()
            found.append(Message(message.role, message.content))
    return found
