"""What others have published about Apple's chips, and a model of speculative decoding made of it.

The figures and their sources are in `apple_silicon.toml`. A chip that nobody has measured takes the
curve of its nearest relative.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from mlxspec.decoding.cost import VerifyCurve, speedup
from mlxspec.errors import UsageError

GENERATIONS = {
    "M1": ("", "Pro", "Max", "Ultra"),
    "M2": ("", "Pro", "Max", "Ultra"),
    "M3": ("", "Pro", "Max", "Ultra"),
    "M4": ("", "Pro", "Max"),
    "M5": ("", "Pro", "Max"),
}
CHIPS = tuple(f"{name} {variant}".strip() for name, variants in GENERATIONS.items() for variant in variants)

KERNEL_FAMILIES = ("M1, M2", "M3, M4", "M5")  # generations with the same kernels, as in the figures


@dataclass(frozen=True, slots=True)
class ChipCurve:
    """A verify curve in plain passes (one row costs 1), and the readings behind it."""

    chip: str
    curve: VerifyCurve
    readings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairOnChip:
    """A target and a draft on a chip.

    Attributes:
        chip: one of `CHIPS`.
        plain_tokens_per_s: plain decoding of the target.
        size_ratio: bytes of the draft's weights / bytes of the target's.
    """

    chip: str
    plain_tokens_per_s: float
    size_ratio: float

    @property
    def draft_step(self) -> float:
        """One guess, in plain passes: reading the draft's weights, and what a step costs at any size."""
        return self.size_ratio + self._passes("per_step_ms")

    @property
    def overhead(self) -> float:
        """What a round of guesses costs beside its passes, in plain passes: its synchronisation."""
        return self._passes("per_sync_ms")

    def speedup(self, alphas: Sequence[float], k: int) -> float:
        """Tokens a second with `k` guesses a round, plain decoding being 1."""
        return speedup(
            alphas,
            k,
            curve=chip_curve(self.chip).curve,
            draft_step_s=self.draft_step,
            overhead_s=self.overhead,
        )

    def _passes(self, overhead: str) -> float:
        """A published range of milliseconds, its middle, in plain passes of this pair."""
        low, high = figures()["overhead"][overhead]
        return float((low + high) / 2 / 1000 * self.plain_tokens_per_s)


@cache
def figures() -> Mapping[str, Any]:
    """The published figures, as in the file."""
    text = resources.files("mlxspec.lab").joinpath("apple_silicon.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def this_chip() -> str | None:
    """The chip of this machine, such as "M4 Pro"; None when it is not one of Apple's."""
    if sys.platform != "darwin":
        return None
    try:
        brand = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    name = brand.strip().removeprefix("Apple ")
    return name if name in CHIPS else None


def find_chip(name: str) -> str:
    """The chip that is meant, however it is spelled: "m4pro", "Apple M4 Pro".

    Raises:
        UsageError: there is no such chip; the hint names the nearest ones.
    """
    wanted = _squeezed(name).removeprefix("apple")
    chips = {_squeezed(chip): chip for chip in CHIPS}
    if wanted in chips:
        return chips[wanted]
    near = [chips[name] for name in difflib.get_close_matches(wanted, chips, n=3, cutoff=0.5)]
    named = ", ".join(near or CHIPS)
    raise UsageError(
        f"There are no figures for a chip named {name!r}.",
        hint=f"Name one of {named}, or type a curve with --curve.",
    )


def chip_curve(chip: str) -> ChipCurve:
    """The mean of the published curves of the chip, else of its generation, else of its kernel family.

    An Ultra has no curve of its own. Its kernels change at other row counts than those of its
    generation (`kernel_switch_rows`); at that point the vector kernel costs what the matrix kernel
    costs, so each row costs less by as much as the point lies further out.
    """
    generation, _, variant = chip.partition(" ")
    family = next(family for family in KERNEL_FAMILIES if generation in family)
    published = [curve for curve in figures()["verify_curve"] if "2-bit" not in curve["what"]]
    chosen = (
        [curve for curve in published if curve["chip"] == chip]
        or [curve for curve in published if curve["chip"].split()[0] == generation]
        or [curve for curve in published if curve["chip"].split()[0] in family]
    )
    share = 1.0
    if variant == "Ultra":
        rows = figures()["kernel_switch_rows"]
        share = rows[family][-1] / rows["Ultra"][-1]
    curves = [_published(curve["cost"]) for curve in chosen]
    counts = sorted({1}.union(*({n for n, _ in curve.points} for curve in curves)))
    mean = {n: sum(curve.seconds(n) for curve in curves) / len(curves) for n in counts}
    return ChipCurve(
        chip,
        VerifyCurve.measured({n: 1.0 + share * (cost - 1.0) for n, cost in mean.items()}),
        tuple(f"{curve['chip']}, {curve['what']} ({curve['source']})" for curve in chosen),
    )


def _published(cost: Mapping[str, float]) -> VerifyCurve:
    return VerifyCurve.measured({1: 1.0} | {int(n): float(c) for n, c in cost.items()})


def _squeezed(name: str) -> str:
    return "".join(name.lower().split())
