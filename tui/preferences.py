"""The user's settings, as the app reads and changes them."""

from __future__ import annotations

from mlxspec.errors import InvalidSettings
from mlxspec.places import Places
from mlxspec.settings import Settings, change_setting, load_settings


class Preferences:
    """Settings of this run.

    Attributes:
        settings: as they are; the defaults when the file makes no sense.
        problem: None, or what is wrong with the file.
    """

    def __init__(self, where: Places) -> None:
        self._where = where
        self.problem: InvalidSettings | None = None
        try:
            self.settings = load_settings(where)
        except InvalidSettings as error:
            self.settings, self.problem = Settings(), error

    def change(self, name: str, value: str) -> None:
        """Keep a setting for the next time. Raises InvalidSettings."""
        self.settings = change_setting(self._where, name, value)
