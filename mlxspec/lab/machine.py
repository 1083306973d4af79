"""What machine this is, as far as it matters for decoding, and what is to be said of it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from mlxspec.models.device import blas_name, dequantise_on_this_device, device_name, memory_bytes


class Level(StrEnum):
    """How a finding is meant."""

    GOOD = "good"
    ADVICE = "advice"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what to do about it ("" for nothing)."""

    level: Level
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where MLX computes, with what. `memory_bytes` is what models and caches may take."""

    system: str
    chip: str
    total_bytes: int
    memory_bytes: int
    python: str
    mlx: str
    mlx_lm: str
    device: str
    blas: str
    float32: bool

    @classmethod
    def this_one(cls) -> Machine:
        """The machine that this runs on."""
        return cls(
            system=f"{platform.system()} {platform.machine()}",
            chip=chip_name(),
            total_bytes=system_memory_bytes(),
            memory_bytes=memory_bytes(),
            python=platform.python_version(),
            mlx=version("mlx"),
            mlx_lm=version("mlx-lm"),
            device=device_name(),
            blas=blas_name(),
            float32=dequantise_on_this_device(),
        )

    def findings(self) -> Iterator[Finding]:
        """What makes decoding slow here."""
        if self.device == "gpu":
            yield Finding(Level.GOOD, "MLX computes on the GPU.")
        elif sys.platform == "darwin":
            yield Finding(
                Level.PROBLEM,
                "MLX computes on the CPU of this Mac.",
                "Use a native arm64 Python, not Rosetta.",
            )
        elif shutil.which("nvidia-smi"):
            yield Finding(
                Level.ADVICE,
                "There is an NVIDIA GPU, but MLX computes on the CPU.",
                "Install the CUDA build with `pip install 'mlxspec[cuda13]'`.",
            )
        if self.device == "cpu" and self.blas == "reference":
            yield Finding(
                Level.PROBLEM,
                "MLX uses its reference BLAS, with which checking n guesses costs n passes.",
                "Install OpenBLAS, on Debian and Ubuntu with `sudo apt install libopenblas0`.",
            )
        elif self.device == "cpu":
            yield Finding(
                Level.GOOD, f"MLX uses {self.blas}, so checking many guesses costs little more than one."
            )


def chip_name() -> str:
    """The processor as the system calls it, such as "Apple M4 Pro"; the architecture when it does not say."""
    return _name() or platform.machine() or "unknown"


def system_memory_bytes() -> int:
    """All memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _name() -> str | None:
    try:
        if sys.platform == "darwin":
            return subprocess.run(
                ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware") and value.strip():
                return value.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return None
