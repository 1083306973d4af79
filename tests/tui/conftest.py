"""The app's tests see a plain terminal, whatever the one is that they run in."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the environment says about colours, editors and clipboards."""
    for variable in ("NO_COLOR", "COLORFGBG", "VISUAL", "EDITOR", "DISPLAY", "WAYLAND_DISPLAY", "TEXTUAL"):
        monkeypatch.delenv(variable, raising=False)
