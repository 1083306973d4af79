"""What is a terminal, may it have colours, and the line of text for an error."""

from __future__ import annotations

import os
import sys
from typing import IO

from mlxspec.chat.visible import visible


def is_terminal(stream: IO[str] | None) -> bool:
    """Is a person reading or typing there?"""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def wants_colour(choice: str, stream: IO[str]) -> bool:
    """Whether to colour, for `--color` auto, always or never. NO_COLOR turns auto off."""
    if choice != "auto":
        return choice == "always"
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def has_true_colour() -> bool:
    """Does the terminal say that it shows all colours, and not 256 only?"""
    return os.environ.get("COLORTERM", "") in ("truecolor", "24bit")


def tell(message: str) -> None:
    """A line for the user on stderr."""
    print(f"mlxspec: {visible(message)}", file=sys.stderr, flush=True)


def complain(message: str, hint: str) -> None:
    """What went wrong and what to do, on stderr."""
    tell(f"{message}\n{hint}")


def say(line: str) -> None:
    """A line of a chat's own words, on stderr like everything that is no answer."""
    print(visible(line), file=sys.stderr, flush=True)
