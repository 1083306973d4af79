"""The parameters of a chat: their names, what they mean, and which values they take."""

from __future__ import annotations

from dataclasses import dataclass

from mlxspec.decoding.cost import MAX_GUESSES
from mlxspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, as `/set` and the parameters panel know it.

    Attributes:
        name: as it is typed; its field is the same with underscores.
        kind: float, int, str, or bool for on and off.
        least, most: the bounds of a number, both allowed.
        choices: words that are values; for numbers, words beside them.
        unset: the word that takes the parameter back to its default.
    """

    name: str
    summary: str
    kind: type
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    unset: str = "default"

    @property
    def field(self) -> str:
        """The name of the field that holds it."""
        return self.name.replace("-", "_")

    def parse(self, text: str) -> object:
        """The value that a text means, None for the default. Raises UsageError."""
        if text in ("", self.unset, "default"):
            return None
        if self.kind is bool:
            if text not in ("on", "off"):
                raise self._wrong(text)
            return text == "on"
        if self.kind is str:
            if self.choices and text not in self.choices:
                raise self._wrong(text)
            return text
        try:
            number = self.kind(text)
        except ValueError:
            raise self._wrong(text) from None
        if not (self.least is None or number >= self.least) or not (self.most is None or number <= self.most):
            raise self._wrong(text)
        return number

    def show(self, value: object) -> str:
        """The text that means this value."""
        if value is None:
            return self.unset
        if isinstance(value, bool):
            return "on" if value else "off"
        return f"{value:g}" if isinstance(value, float) else str(value)

    @property
    def range(self) -> str:
        """What it takes, in words."""
        if self.kind is bool:
            return "on or off"
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is str:
            return "a text"
        number = "a whole number" if self.kind is int else "a number"
        if self.most is None:
            return f"{number} from {self.least}"
        return f"{number} from {self.least} to {self.most}"

    def _wrong(self, text: str) -> UsageError:
        return UsageError(f"{self.name} cannot be {text!r}.", hint=f"Give {self.range}, or {self.unset}.")


PARAMETERS: dict[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        Parameter("temperature", "0 takes the likeliest token; higher is bolder", float, 0, 10),
        Parameter("top-p", "Keep the likeliest that hold this probability", float, 0, 1),
        Parameter("top-k", "Keep so many of the likeliest; 0 keeps all", int, 0, 1_000_000),
        Parameter("min-p", "Keep tokens this likely next to the likeliest", float, 0, 1),
        Parameter("repetition-penalty", "Above 1 makes repeating less likely", float, 0.01, 10),
        Parameter("presence-penalty", "Lowers every token that was there already", float, -10, 10),
        Parameter("frequency-penalty", "Lowers a token each time that it was there", float, -10, 10),
        Parameter(
            "seed",
            "Fixes the noise: same words, same text",
            int,
            0,
            2**63 - 1,
            unset="off",
        ),
        Parameter("max-tokens", "The longest answer, in tokens", int, 1, 10_000_000),
        Parameter("stop", "A text that ends the answer", str, unset="off"),
        Parameter("k", "How many tokens to guess in a round", int, 0, MAX_GUESSES, unset="auto"),
        Parameter("accept", "The acceptance rule", str, choices=("block", "token", "coupled")),
        Parameter("think", "Let it think first, where its template can", bool),
    )
}
