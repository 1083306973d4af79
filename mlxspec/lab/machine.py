"""What machine this is, as far as it matters for decoding."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path


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
