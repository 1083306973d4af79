"""What this machine computes on: its BLAS, its memory, and how weights are kept.

MLX is imported inside the functions, because `preload_blas` must come before it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import mlx.nn as nn

OPENBLAS = "libopenblas.so.0"


def preload_blas() -> None:
    """Make MLX's CPU backend use the system's OpenBLAS, when there is one.

    The Linux wheel of MLX carries the reference BLAS (2.5 GFLOP/s measured, against more than
    100). A library that was loaded with RTLD_GLOBAL before MLX serves MLX's BLAS symbols
    instead. Nothing happens on other platforms, and a missing library is no error.
    """
    if not sys.platform.startswith("linux") or "mlx.core" in sys.modules:
        return
    try:
        ctypes.CDLL(OPENBLAS, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return


def blas_name() -> str:
    """The BLAS behind MLX's CPU matrix products: "accelerate", "openblas" or "reference"."""
    if sys.platform == "darwin":
        return "accelerate"
    everywhere_visible = ctypes.CDLL(None)
    return "openblas" if hasattr(everywhere_visible, "openblas_get_config") else "reference"


def device_name() -> str:
    """Where MLX computes by default: "gpu" (Metal or CUDA) or "cpu"."""
    import mlx.core as mx

    return "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"


def dequantise_on_this_device() -> bool:
    """Whether weights are turned to float32 at load.

    True on Linux CPUs: MLX's quantised CPU kernels take one row at a time, so that checking
    n tokens costs n passes (measured 137 ms a token for SmolLM2-135M in 4 bits, 53 ms in float32).
    """
    return sys.platform.startswith("linux") and device_name() == "cpu"


def memory_bytes() -> int:
    """Bytes that models and caches may take on this device.

    On a GPU what MLX recommends as working set, or its whole memory; else the machine's RAM.
    """
    if device_name() == "gpu":
        import mlx.core as mx

        info = mx.device_info()
        for key in ("max_recommended_working_set_size", "memory_size", "total_memory"):
            if size := int(info.get(key, 0)):
                return size
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def wired_limit(*models: nn.Module) -> Iterator[bool]:
    """Keep as much as recommended wired in memory while inside; gives whether the models fit well.

    False means that the weights take more than 0.9 of the recommended working set, which can be slow.
    Where the device recommends no size (CPUs), nothing is set and the answer is True. The GPU is
    waited for before the old limit comes back: it must not change during a computation.
    """
    import mlx.core as mx
    from mlx.utils import tree_reduce

    recommended = int(mx.device_info().get("max_recommended_working_set_size", 0))
    if not recommended:
        yield True
        return
    weights = sum(
        tree_reduce(lambda total, x: total + x.nbytes if isinstance(x, mx.array) else total, model, 0)
        for model in models
    )
    before = mx.set_wired_limit(recommended)
    try:
        yield weights <= 0.9 * recommended
    finally:
        mx.synchronize()
        mx.set_wired_limit(before)
