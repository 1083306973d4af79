"""What a user asks for as a draft, as it is typed: a name, and options behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mlxspec.errors import UsageError

AUTO = "auto"
LOOKUP = "lookup"
LOOKAHEAD = "lookahead"
NONE = "none"
WORDS = (AUTO, LOOKUP, LOOKAHEAD, NONE)
"""Names of drafts that are no models, but for those with a number behind them, as exit:N."""

TRANSLATE = "--translate"
VOCAB = "--draft-vocab"

_LAST_OPTION = re.compile(rf"(.*?)\s+(?:({TRANSLATE})|{VOCAB}(?:\s+|=)(\S+))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """A draft and how to use it. `str` gives what `parse` reads: "NAME --draft-vocab 8192".

    Attributes:
        name: a word that `loading.KINDS` knows, or the name of a model.
        translate: let a draft with another tokenizer guess, through its text.
        vocab: rows to keep of a draft model's output head; None for all.
    """

    name: str = AUTO
    translate: bool = False
    vocab: int | None = None

    @classmethod
    def parse(cls, text: str) -> DraftChoice:
        """The choice that a text means; options stand behind the name.

        Raises:
            UsageError: an option's value is none.
        """
        name, translate, vocab = text.strip(), False, None
        while match := _LAST_OPTION.fullmatch(name):
            name, translate = match[1].strip(), translate or bool(match[2])
            vocab = rows_kept(match[3]) if match[3] and vocab is None else vocab
        if not name or name.startswith("--"):
            raise UsageError(f"The draft {text!r} has no name.", hint=f"Give a name first: NAME {TRANSLATE}.")
        return cls(name, translate, vocab)

    @property
    def for_models_only(self) -> str:
        """The option that only a draft model has; "" where there is none."""
        return TRANSLATE if self.translate else VOCAB if self.vocab is not None else ""

    def named(self, name: str) -> DraftChoice:
        """The same of another draft."""
        return replace(self, name=name)

    def __str__(self) -> str:
        vocab = "" if self.vocab is None else f" {VOCAB} {self.vocab}"
        return f"{self.name}{f' {TRANSLATE}' if self.translate else ''}{vocab}"


def rows_kept(text: str) -> int:
    """The value of `--draft-vocab`. Raises UsageError when it is no number above zero."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"{VOCAB} cannot be {text!r}.", hint="Give a whole number from 1, such as 8192.")
    return int(text)
