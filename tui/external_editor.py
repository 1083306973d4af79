"""Writing a message in $EDITOR."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path


def editor() -> list[str]:
    """The user's editor as a command."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")


def edited(text: str) -> str | None:
    """The text as the user left it in the editor; None when the editor failed. Takes the terminal over.

    Raises: OSError when there is no such editor.
    """
    handle, name = tempfile.mkstemp(prefix="mlxspec-", suffix=".md")
    file = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
        done = subprocess.run([*editor(), name], check=False)
        if done.returncode:
            return None
        return file.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    finally:
        file.unlink(missing_ok=True)
