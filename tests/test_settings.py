"""settings.toml: defaults, validation, and changes that leave the rest of the file alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mlxspec.errors import InvalidSettings
from mlxspec.places import Places, places
from mlxspec.settings import Settings, change_setting, load_settings, settings_path


@pytest.fixture
def here() -> Places:
    return places()


def write(here: Places, text: str) -> Path:
    path = settings_path(here)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_file_everything_is_default(here: Places) -> None:
    assert load_settings(here) == Settings()
    assert not settings_path(here).exists()


def test_what_the_file_says_replaces_the_defaults(here: Places) -> None:
    write(here, 'view = "coloured"\nhistory = false\n')
    assert load_settings(here) == Settings(view="coloured", history=False)


def test_a_change_is_kept_and_only_its_owner_can_read_it(here: Places) -> None:
    assert change_setting(here, "theme", "nord") == Settings(theme="nord")
    assert change_setting(here, "datastore", False) == Settings(theme="nord", datastore=False)
    assert load_settings(here) == Settings(theme="nord", datastore=False)
    assert stat.S_IMODE(settings_path(here).stat().st_mode) == 0o600
    assert [file.name for file in here.config.iterdir()] == ["settings.toml"]


def test_a_change_replaces_its_line_and_leaves_comments_alone(here: Places) -> None:
    path = write(here, '# mine\ntheme = "old"  # was better\n\n"view" = "markdown"\n# end')
    change_setting(here, "theme", "new")
    change_setting(here, "view", "coloured")
    change_setting(here, "history", False)
    assert path.read_text() == '# mine\ntheme = "new"\n\nview = "coloured"\n# end\nhistory = false\n'


def test_a_link_to_the_file_stays_a_link(here: Places) -> None:
    path = write(here, "")
    real = here.config.parent / "dotfiles.toml"
    path.rename(real)
    path.symlink_to(real)
    change_setting(here, "theme", "nord")
    assert path.is_symlink()
    assert real.read_text() == 'theme = "nord"\n'


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("them = 'x'", "'them'", "'theme'"),
        ("zzz = 1", "'zzz'", "theme, view, datastore, history, draft"),
        ("history = 'no'", "history is 'no'", "history = true or false"),
        ("history = 1", "history is 1", "history = true or false"),
        ("theme = 3", "theme is 3", 'theme = "text"'),
        ("view = 'green'", "view is 'green'", "markdown, coloured"),
        ("theme = 'a b'", "theme is 'a b'", "name of a theme"),
        ("theme = 'a\\u001b'", "theme is", "name of a theme"),
        ("draft = 3", "draft is 3", 'draft = "text"'),
        ("draft = 'a\"b'", "draft is", "what --draft takes"),
        ("draft = ''", "draft is ''", "what --draft takes"),
        ("[theme]\nx = 1", "theme is {'x': 1}", 'theme = "text"'),
        ("theme = ", "not valid TOML", "Correct"),
        ("theme = 'a'\ntheme = 'b'", "Cannot overwrite", "Correct"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_file_and_key(
    here: Places, text: str, named: str, hint: str
) -> None:
    path = write(here, text)
    with pytest.raises(InvalidSettings) as error:
        load_settings(here)
    assert str(path) in error.value.message
    assert named in error.value.message
    assert hint in error.value.hint
    with pytest.raises(InvalidSettings):
        change_setting(here, "history", False)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nothing", True),
        ("view", "green"),
        ("history", "yes"),
        ("theme", 'x"\nhistory = false'),
        ("draft", 'x"\nhistory = false'),
    ],
)
def test_a_wrong_change_is_an_error_and_changes_nothing(here: Places, key: str, value: str | bool) -> None:
    path = write(here, "history = true\n")
    with pytest.raises(InvalidSettings):
        change_setting(here, key, value)
    assert path.read_text() == "history = true\n"


def test_a_file_that_is_no_text_is_an_error(here: Places) -> None:
    write(here, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSettings, match="UTF-8"):
        load_settings(here)


def test_a_file_that_cannot_be_read_or_written_is_an_error(here: Places) -> None:
    settings_path(here).mkdir(parents=True)
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_settings(here)
    settings_path(here).rmdir()
    here.config.rmdir()
    here.config.write_text("a file where the folder should be")
    with pytest.raises(InvalidSettings):
        change_setting(here, "history", False)
