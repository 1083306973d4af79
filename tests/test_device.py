"""What this machine computes on, and OpenBLAS before MLX."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from ctypes.util import find_library

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlxspec.models import device

LINUX = sys.platform.startswith("linux")


def said_by(program: str) -> str:
    """What a fresh Python prints when it runs this."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.strip()


# ---------------------------------------------------------------- BLAS


@pytest.mark.skipif(not LINUX or not find_library("openblas"), reason="needs Linux with OpenBLAS")
def test_importing_mlxspec_first_gives_mlx_openblas() -> None:
    program = "import mlxspec, mlx.core; from mlxspec.models.device import blas_name; print(blas_name())"
    assert said_by(program) == "openblas"


@pytest.mark.skipif(not LINUX, reason="needs Linux")
def test_it_is_too_late_for_openblas_once_mlx_is_there() -> None:
    program = "import mlx.core, mlxspec; from mlxspec.models.device import blas_name; print(blas_name())"
    assert said_by(program) == "reference"


def test_no_openblas_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "mlx.core")
    monkeypatch.setattr(device, "OPENBLAS", "libno-such-blas.so.0")
    device.preload_blas()


def test_nothing_is_loaded_on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a library was loaded")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delitem(sys.modules, "mlx.core")
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    device.preload_blas()
    assert device.blas_name() == "accelerate"


def test_importing_mlxspec_loads_no_heavy_module() -> None:
    program = (
        "import sys, mlxspec; "
        "print(*sorted(m for m in ('mlx.core', 'mlx_lm', 'transformers', 'numpy', 'textual', 'tokenizers') "
        "if m in sys.modules))"
    )
    assert said_by(program) == ""


# ---------------------------------------------------------------- policy


@pytest.mark.parametrize(
    ("platform", "name", "dequantise"),
    [("linux", "cpu", True), ("linux", "gpu", False), ("darwin", "gpu", False), ("darwin", "cpu", False)],
)
def test_weights_are_dequantised_on_linux_cpus_alone(
    monkeypatch: pytest.MonkeyPatch, platform: str, name: str, dequantise: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(device, "device_name", lambda: name)
    assert device.dequantise_on_this_device() is dequantise


def test_the_device_is_mlxs_default() -> None:
    assert device.device_name() == ("gpu" if "gpu" in str(mx.default_device()) else "cpu")


# ---------------------------------------------------------------- memory


def test_memory_is_what_the_gpu_recommends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "device_name", lambda: "gpu")
    monkeypatch.setattr(
        mx, "device_info", lambda: {"max_recommended_working_set_size": 12_000, "memory_size": 16_000}
    )
    assert device.memory_bytes() == 12_000
    monkeypatch.setattr(mx, "device_info", lambda: {"total_memory": 24_000})
    assert device.memory_bytes() == 24_000


def test_memory_of_a_cpu_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "device_name", lambda: "cpu")
    assert 2**28 < device.memory_bytes() < 2**50


class Limits:
    """Stands in for MLX's wired limit and remembers what was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, recommended: int) -> None:
        self.set_to = [7]
        monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": recommended})
        monkeypatch.setattr(mx, "set_wired_limit", self.set)
        monkeypatch.setattr(mx, "synchronize", lambda: None)

    def set(self, limit: int) -> int:
        self.set_to.append(limit)
        return self.set_to[-2]


def test_the_wired_limit_is_put_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 1_000_000)
    with pytest.raises(ZeroDivisionError), device.wired_limit(nn.Linear(8, 8)):
        raise ZeroDivisionError
    assert limits.set_to == [7, 1_000_000, 7]


def test_models_that_fill_the_working_set_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    half = nn.Linear(8, 8, bias=False)  # 256 bytes
    Limits(monkeypatch, 500)
    with device.wired_limit(half) as one, device.wired_limit(half, half) as two:
        assert (one, two) == (True, False)


def test_without_a_recommended_size_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 0)
    with device.wired_limit(nn.Linear(8, 8)) as fits:
        assert fits
    assert limits.set_to == [7]
