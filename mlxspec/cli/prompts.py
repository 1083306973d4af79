"""The prompt of a one-shot run: the argument, what is piped in, or both."""

from __future__ import annotations

import sys

from mlxspec.errors import UsageError


def piped_text() -> str:
    """All of stdin, to be called when it is no terminal; "" when there is none.

    Raises: UsageError when it is not UTF-8.
    """
    if sys.stdin is None or sys.stdin.closed:
        return ""
    content = sys.stdin.buffer.read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The piped text is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}.",
            hint="Convert it first, for example with `iconv -f LATIN1 -t UTF-8`.",
        ) from error


def checked_text(name: str, text: str) -> str:
    """The text of an argument. Raises UsageError when its bytes were not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        before, byte = len(text[: error.start].encode()), ord(text[error.start]) & 0xFF
        raise UsageError(
            f"{name} is not UTF-8: byte {before} is 0x{byte:02x}.",
            hint="Type it in UTF-8, or pipe it in after converting it.",
        ) from error
    return text


def joined(prompt: str | None, piped: str) -> str:
    """PROMPT, a blank line, and the piped text; or the one that there is.

    Raises: UsageError when both are empty.
    """
    parts = [part for part in (prompt or "", piped.removesuffix("\n")) if part.strip()]
    if not parts:
        raise UsageError("The prompt is empty.", hint='Write one: `mlxspec run "…"`, or pipe a text in.')
    return "\n\n".join(parts)
