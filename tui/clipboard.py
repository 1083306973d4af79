"""Copying to the clipboard: by a program of the system, else by the terminal (OSC 52)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

TIMEOUT_S = 2.0


def copy(text: str) -> bool:
    """Give the text to the system's clipboard program. False when there is none, or it failed."""
    command = _command()
    if command is None:
        return False
    try:
        done = subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def last_code_block(markdown: str) -> str | None:
    """The last fenced block of an answer, without its fences; one that is not closed ends with the text."""
    from markdown_it import MarkdownIt

    blocks = [token for token in MarkdownIt("commonmark").parse(markdown) if token.type == "fence"]
    return blocks[-1].content.rstrip("\n") if blocks else None


def _command() -> list[str] | None:
    candidates: list[list[str]] = []
    if sys.platform == "darwin":
        candidates.append(["pbcopy"])
    if os.environ.get("WAYLAND_DISPLAY"):
        candidates.append(["wl-copy"])
    if os.environ.get("DISPLAY"):
        candidates.append(["xclip", "-selection", "clipboard", "-in"])
    return next((command for command in candidates if shutil.which(command[0])), None)
