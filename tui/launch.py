"""Opening the chat in this terminal, and what is left of it when it has ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tui import collector
from tui.options import ChatOptions

if TYPE_CHECKING:
    from tui.app import ChatApp


def run(**options: Any) -> int:
    """Open the chat; see `ChatOptions` for the options. Returns the exit code.

    Raises: MlxspecError when the app could not go on: the terminal is as it was before, and an unforeseen
    fault is in the log file.
    """
    if os.environ.get("NO_COLOR") == "":
        # Set but empty means colours (no-color.org).
        del os.environ["NO_COLOR"]
    collector.pause()  # until models are loaded; it would look at all that is imported
    from tui.app import ChatApp

    return run_app(ChatApp(ChatOptions(**options)))


def run_app(app: ChatApp) -> int:
    """Run an app until it ends. Returns the exit code; see `run` for the errors."""
    code = app.run() or 0
    if app.troubles.fatal is not None:
        raise app.troubles.fatal
    return code
