"""The options of `run` that shape answers: read by the same rules as `/set`, made into requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mlxspec.chat.conversation import Message
from mlxspec.chat.parameters import PARAMETERS
from mlxspec.drafters.choice import AUTO, DraftChoice, rows_kept
from mlxspec.errors import UsageError

if TYPE_CHECKING:
    from mlxspec.chat.records import Chat
    from mlxspec.engine import GenerateRequest, LoadRequest

_PARAMETER_OF = {"temp": "temperature", "num-draft": "k"}
_KV_BITS = (4, 8)

# Parameters that are fields of a request; all others are fields of its SamplingOverrides.
_REQUEST_FIELDS = {
    "seed": "seed",
    "max_tokens": "max_tokens",
    "k": "num_draft",
    "accept": "accept",
    "think": "think",
}


@dataclass(slots=True)
class Setup:
    """What was asked for on the command line; None and empty where nothing was.

    A line chat changes it as it goes. `values` has the fields of `parameters.PARAMETERS` as keys.
    """

    target: str | None = None
    draft: str | None = None
    context: int | None = None
    kv_bits: int | None = None
    datastore: bool = True
    system: str | None = None
    values: dict[str, object] = field(default_factory=dict)
    session: str | None = None
    resume: bool = False
    save: bool = False
    stats: bool = False
    colour: str = "auto"

    def load_request(self) -> LoadRequest:
        """Which models to load."""
        from mlxspec.engine import LoadRequest

        return LoadRequest(
            target=self.target,
            draft=self.draft or "auto",
            context=self.context,
            kv_bits=self.kv_bits,
            datastore=self.datastore,
        )

    def system_message(self) -> list[Message]:
        """The system prompt as a message, or nothing."""
        return [] if self.system is None else [Message("system", self.system)]

    def go_on_with(self, chat: Chat) -> None:
        """Take from a saved chat what was not asked for otherwise."""
        self.target = self.target or chat.target or None
        self.draft = self.draft or chat.draft or None
        if self.system is None and chat.system:
            self.system = chat.system


def parsed(options: Mapping[str, str | None], stops: Sequence[str] = ()) -> dict[str, object]:
    """The values of options that were typed, by the names of `parameters.PARAMETERS` fields.

    Args:
        options: option without dashes ("temp") -> what was typed, None where nothing was.
        stops: what `--stop` was given, each time.

    Raises: UsageError that names the option and what it takes.
    """
    values: dict[str, object] = {}
    for option, text in options.items():
        if text is None:
            continue
        parameter = PARAMETERS[_PARAMETER_OF.get(option, option)]
        value = replace(parameter, name=f"--{option}").parse(text)
        if value is not None:
            values[parameter.field] = value
    if not all(stops):
        raise UsageError("--stop is empty.", hint="Give the text that ends the answer.")
    if stops:
        values["stop"] = tuple(stops)
    return values


def draft(name: str | None, *, translate: bool, vocab: str | None) -> str | None:
    """What `--draft` and its options mean together, None when none was given. Raises UsageError."""
    if name is None and not translate and vocab is None:
        return None
    choice = DraftChoice.parse(name or AUTO)
    rows = choice.vocab if vocab is None else rows_kept(vocab)
    return str(DraftChoice(choice.name, choice.translate or translate, rows))


def whole_number(option: str, text: str | None) -> int | None:
    """The value of `--context`. Raises UsageError when it is no number above zero."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"--{option} cannot be {text!r}.", hint="Give a whole number from 1.")
    return int(text)


def kv_bits(text: str | None) -> int | None:
    """The value of `--kv-bits`. Raises UsageError when it is neither 4 nor 8."""
    if text is None:
        return None
    if text not in map(str, _KV_BITS):
        raise UsageError(f"--kv-bits cannot be {text!r}.", hint="Give 4 or 8, or leave it out.")
    return int(text)


def request(
    messages: Sequence[Message], values: Mapping[str, object], *, speculate: bool = True
) -> GenerateRequest:
    """A request for an answer to these messages with these values."""
    from mlxspec.decoding.overrides import SamplingOverrides
    from mlxspec.engine import GenerateRequest

    fields = {_REQUEST_FIELDS[name]: value for name, value in values.items() if name in _REQUEST_FIELDS}
    sampling = {
        name: value for name, value in values.items() if name not in _REQUEST_FIELDS and name != "stop"
    }
    overrides = None
    if sampling:
        overrides = SamplingOverrides(**sampling)  # type: ignore[arg-type]
    stop = values.get("stop", ())
    return GenerateRequest(
        messages=tuple(messages),
        sampling=overrides,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),  # type: ignore[arg-type]
        speculate=speculate,
        **fields,  # type: ignore[arg-type]
    )
