"""What the installed package holds, and what an import of it costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import mlxspec

ROOT = Path(__file__).parent.parent
HEAVY = ("textual", "transformers", "mlx_lm", "huggingface_hub", "tokenizers")


def run_python(*arguments: str, path: Path | None = None, folder: Path | None = None) -> str:
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    result = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder or ROOT,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def built(source: Path, folder: Path) -> Path:
    """The wheel of a source tree, in a folder."""
    options = ("--no-deps", "--no-build-isolation", "--no-cache-dir")
    run_python("-m", "pip", "wheel", str(source), *options, "-w", str(folder))
    (wheel,) = folder.glob("mlxspec-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize(
    "statement",
    [
        "import mlxspec",
        "import mlxspec.cli",
        "from mlxspec.cli.program import run_program; assert run_program(['--help']) == 0",
        "from mlxspec.cli.program import run_program; assert run_program(['sessions', '--help']) == 0",
    ],
)
def test_a_light_import_loads_no_heavy_library(statement: str) -> None:
    code = f"import sys; {statement}; print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    assert run_python("-c", code).splitlines()[-1].strip() == "loaded:"


def test_the_version_is_told() -> None:
    assert run_python("-m", "mlxspec", "--version") == f"mlxspec {mlxspec.__version__}"


def test_the_wheel_holds_the_models_the_licence_and_both_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.read("mlxspec/models.toml") == (ROOT / "models.toml").read_bytes()
        (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "mlxspec = mlxspec.cli:main" in archive.read(entry_points).decode()
    info = f"mlxspec-{mlxspec.__version__}.dist-info"
    assert {"mlxspec/__init__.py", "mlxspec/py.typed", "tui/__init__.py"} <= names
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"} <= names
    assert {name.split("/")[0] for name in names} == {"mlxspec", "tui", info}


def test_every_source_file_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {
        str(file.relative_to(ROOT))
        for package in ("mlxspec", "tui")
        for file in (ROOT / package).rglob("*")
        if file.suffix in (".py", ".typed", ".tcss", ".toml") or ("shipped" in file.parts and file.is_file())
    }
    assert sources <= names


def test_a_shipped_draft_is_in_the_wheel_whole(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "tests", "__pycache__", "*.egg-info"))
    shutil.copy(ROOT / ".gitignore", copy)
    folder = copy / "mlxspec" / "shipped" / "some-draft"
    folder.mkdir(parents=True)
    files = ("mlxspec_draft.json", "weights.safetensors", "NOTICE")
    for name in files:
        (folder / name).write_text(name)
    with zipfile.ZipFile(built(copy, tmp_path)) as archive:
        names = set(archive.namelist())
    assert {f"mlxspec/shipped/some-draft/{name}" for name in files} <= names


SHOW_REGISTRY = """
import mlxspec
from mlxspec.models.registry import load_registry
from mlxspec.places import places
print(mlxspec.__file__)
print(load_registry(places()).default_target)
"""


def test_models_are_found_from_a_wheel_and_from_the_source(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    from_wheel = run_python("-c", SHOW_REGISTRY, path=installed, folder=tmp_path).splitlines()
    from_source = run_python("-c", SHOW_REGISTRY, path=ROOT, folder=tmp_path).splitlines()
    assert Path(from_wheel[0]).is_relative_to(installed)
    assert Path(from_source[0]).is_relative_to(ROOT)
    assert from_wheel[1] == from_source[1]
