"""Reading a message from the keyboard: a paste of many lines is one message."""

from __future__ import annotations

import contextlib
import os
import select
import sys

from mlxspec.cli.terminal import is_terminal

_PASTE_S = 0.03  # what comes so soon after a line was not typed


def read_message(label: str, text: str = "") -> str:
    """What was typed or pasted at the prompt `label`, up to Enter.

    `text` stands there already, to be changed, where lines can be edited.

    Raises:
        EOFError: the end of the input (Ctrl-D).
        KeyboardInterrupt: Ctrl-C.
        UnicodeDecodeError: what was typed is not UTF-8.
    """
    if is_terminal(sys.stdout):
        _set_up_editing(text)
        first = input(label)
    else:
        print(label, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        first = line.removesuffix("\n")
    return "\n".join([first, *_pasted_lines()])


def _set_up_editing(text: str) -> None:
    """Line editing, with pastes marked by the terminal as such, where Python has GNU readline."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_startup_hook((lambda: readline.insert_text(text)) if text else None)
        if "libedit" not in (readline.__doc__ or ""):
            readline.parse_and_bind("set enable-bracketed-paste on")


def _pasted_lines() -> list[str]:
    """Lines that arrived together with the first, where a paste is not marked."""
    content = b""
    descriptor = sys.stdin.fileno()
    while select.select([descriptor], [], [], _PASTE_S)[0]:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        content += chunk
    return content.decode("utf-8", "replace").removesuffix("\n").split("\n") if content else []
