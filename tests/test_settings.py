"""settings.toml: defaults, validation, and changes that leave the rest of the file alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mlxspec.errors import InvalidSettings
from mlxspec.places import Places
from mlxspec.settings import Settings, change_setting, load_settings, settings_path


@pytest.fixture
def home(tmp_path: Path) -> Places:
    return Places(config=tmp_path / "config", data=tmp_path / "data", cache=tmp_path / "cache")


def write(home: Places, text: str) -> Path:
    path = settings_path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_file_everything_is_default(home: Places) -> None:
    assert load_settings(home) == Settings()
    assert not settings_path(home).exists()


def test_what_the_file_says_replaces_the_defaults(home: Places) -> None:
    write(home, 'view = "coloured"\nhistory = false\n')
    assert load_settings(home) == Settings(view="coloured", history=False)


def test_a_change_is_kept_and_only_its_owner_can_read_it(home: Places) -> None:
    assert change_setting(home, "theme", "nord") == Settings(theme="nord")
    assert change_setting(home, "datastore", False) == Settings(theme="nord", datastore=False)
    assert load_settings(home) == Settings(theme="nord", datastore=False)
    assert stat.S_IMODE(settings_path(home).stat().st_mode) == 0o600
    assert [file.name for file in home.config.iterdir()] == ["settings.toml"]


def test_a_change_replaces_its_line_and_leaves_comments_alone(home: Places) -> None:
    path = write(home, '# mine\ntheme = "old"  # was better\n\n"view" = "markdown"\n# end')
    change_setting(home, "theme", "new")
    change_setting(home, "view", "coloured")
    change_setting(home, "history", False)
    assert path.read_text() == '# mine\ntheme = "new"\n\nview = "coloured"\n# end\nhistory = false\n'


def test_a_link_to_the_file_stays_a_link(home: Places) -> None:
    path = write(home, "")
    real = home.config.parent / "dotfiles.toml"
    path.rename(real)
    path.symlink_to(real)
    change_setting(home, "theme", "nord")
    assert path.is_symlink()
    assert real.read_text() == 'theme = "nord"\n'


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("them = 'x'", "'them'", "'theme'"),
        ("zzz = 1", "'zzz'", "theme, view, datastore, history"),
        ("history = 'no'", "history is 'no'", "history = true or false"),
        ("history = 1", "history is 1", "history = true or false"),
        ("theme = 3", "theme is 3", 'theme = "text"'),
        ("view = 'green'", "view is 'green'", "markdown, coloured"),
        ("theme = 'a b'", "theme is 'a b'", "name of a theme"),
        ("theme = 'a\\u001b'", "theme is", "name of a theme"),
        ("[theme]\nx = 1", "theme is {'x': 1}", 'theme = "text"'),
        ("theme = ", "not valid TOML", "Correct"),
        ("theme = 'a'\ntheme = 'b'", "Cannot overwrite", "Correct"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_file_and_key(
    home: Places, text: str, named: str, hint: str
) -> None:
    path = write(home, text)
    with pytest.raises(InvalidSettings) as error:
        load_settings(home)
    assert str(path) in error.value.message
    assert named in error.value.message
    assert hint in error.value.hint
    with pytest.raises(InvalidSettings):
        change_setting(home, "history", False)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("key", "value"),
    [("nothing", True), ("view", "green"), ("history", "yes"), ("theme", 'x"\nhistory = false')],
)
def test_a_wrong_change_is_an_error_and_changes_nothing(home: Places, key: str, value: str | bool) -> None:
    path = write(home, "history = true\n")
    with pytest.raises(InvalidSettings):
        change_setting(home, key, value)
    assert path.read_text() == "history = true\n"


def test_a_file_that_is_no_text_is_an_error(home: Places) -> None:
    write(home, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSettings, match="UTF-8"):
        load_settings(home)


def test_a_file_that_cannot_be_read_or_written_is_an_error(home: Places) -> None:
    settings_path(home).mkdir(parents=True)
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_settings(home)
    settings_path(home).rmdir()
    home.config.rmdir()
    home.config.write_text("a file where the folder should be")
    with pytest.raises(InvalidSettings):
        change_setting(home, "history", False)
