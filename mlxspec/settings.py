"""What the user prefers, in settings.toml of the config folder.

A flat file of keys and values that people may edit by hand: a change from inside the program replaces one
line and leaves the others, comments too. Options on the command line go before settings.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mlxspec.errors import InvalidSettings
from mlxspec.places import Places

VIEWS = ("markdown", "coloured")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their defaults; the fields are the keys of settings.toml."""

    theme: str = "auto"  # the name of a theme of the app; auto: dark or light as the terminal is
    view: str = "markdown"  # how a complete answer is shown at first: one of VIEWS
    datastore: bool = True  # learn from answers, and guess from what was learnt
    history: bool = True  # remember what was typed, from run to run
    draft: str = "auto"  # what --draft auto, the default, stands for; auto: the target's own, or lookup


def settings_path(places: Places) -> Path:
    """Where the settings are; the file may not exist."""
    return places.config / "settings.toml"


def load_settings(places: Places) -> Settings:
    """The user's settings, defaults where they say nothing.

    Raises: InvalidSettings, with file and key.
    """
    path = settings_path(places)
    return _settings(path, _read(path))


def change_setting(places: Places, key: str, value: str | bool) -> Settings:
    """Set one key and write the file, readable by its owner only. Returns all settings as they are then.

    Raises: InvalidSettings when the key, the value or the file is wrong, or when the file cannot be written.
    """
    path = settings_path(places)
    text = _read(path)
    settings = replace(_settings(path, text), **_checked(path, {key: value}))
    line = f"{key} = {_toml(value)}"
    pattern = re.compile(rf"^[ \t]*(?:{key}|\"{key}\"|'{key}')[ \t]*=[^\n]*$", re.MULTILINE)
    changed, count = pattern.subn(lambda _: line, text, count=1)
    if not count:
        changed = f"{text.rstrip()}\n{line}\n".lstrip("\n")
    _write(path, changed)
    return settings


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not a text file in UTF-8.", hint="Save it as UTF-8.") from error
    except OSError as error:
        raise InvalidSettings(
            f"{path} cannot be read: {error.strerror or error}.", hint="Check who may read the file."
        ) from error


def _settings(path: Path, text: str) -> Settings:
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(
            f"{path} is not valid TOML: {error}.", hint="Correct that line or delete it."
        ) from error
    return Settings(**_checked(path, entries))


def _checked(path: Path, entries: dict[str, Any]) -> dict[str, Any]:
    kinds = {field.name: type(field.default) for field in fields(Settings)}
    for key, value in entries.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The keys are {', '.join(kinds)}."
            raise InvalidSettings(f"{path} has an unknown key {key!r}.", hint=hint)
        if type(value) is not kinds[key]:
            raise InvalidSettings(
                f"{path}: {key} is {value!r}.", hint=f"Write {key} = {_EXAMPLES[kinds[key]]}."
            )
        if key == "view" and value not in VIEWS:
            raise InvalidSettings(f"{path}: view is {value!r}.", hint=f"Use one of {', '.join(VIEWS)}.")
        if key == "theme" and not re.fullmatch(r"[\w-]+", str(value)):
            raise InvalidSettings(f"{path}: theme is {value!r}.", hint="Give the name of a theme, or auto.")
        if key == "draft" and not re.fullmatch(r'[^"\\\x00-\x1f\x7f]+', str(value)):
            raise InvalidSettings(
                f"{path}: draft is {value!r}.", hint="Give what --draft takes, such as a name or lookup."
            )
    return entries


def _toml(value: str | bool) -> str:
    # Strings that `_checked` lets through need no escapes.
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()  # a link, as into a folder of dotfiles, stays a link
        # In one step, so that whoever reads now sees the old file or the new one; mkstemp gives mode 0600.
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".settings-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidSettings(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Check who may write to that folder.",
        ) from error


_EXAMPLES = {bool: "true or false", str: '"text"'}
