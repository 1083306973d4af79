"""What mlxspec knows about speed here: verify curves, draft steps and acceptance, kept from run to run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.calibrate import measure_curve
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.round_times import RoundTimes
from mlxspec.drafters.drafting import Drafting
from mlxspec.models.device import device_name
from mlxspec.models.loading import LoadedModel
from mlxspec.places import Places

VERSION = 2
BUDGET_S = 2.0
COOL = 0.5  # the warmest temperature at which sampling is nearly greedy
DIGITS = 16  # of the hash in a file's name


@dataclass(slots=True)
class Pace:
    """What is known of one pair on this device.

    `curve` is the target's; `steps` has the seconds of one guess by drafter; `histories` the acceptance
    by warmth of the sampling, for guesses are kept more often the colder it is; `measured_now` says that
    it was measured just now and not read; `plain_s` is what rounds without guesses took, once there were any.
    """

    curve: VerifyCurve
    steps: dict[str, float]
    histories: dict[str, AcceptanceHistory]
    file: Path
    measured_now: bool
    plain_s: float | None = None

    @property
    def plain_tokens_per_s(self) -> float:
        """How fast the target decodes without guesses."""
        return 1 / (self.plain_s or RoundTimes(self.curve, {}).plain_s(self.curve.context_tokens))

    def controller(self, temperature: float) -> AdaptiveController:
        """A controller for one answer."""
        history = self.histories.setdefault(_warmth(temperature), AcceptanceHistory())
        return AdaptiveController(self.curve, self.steps, history)

    def learn(self, controller: AdaptiveController) -> None:
        """Keep what an answer taught, for the next one and the next run."""
        self.plain_s = controller.times.plain_s(self.curve.context_tokens)
        self.curve = controller.times.corrected()
        self.steps = {**self.steps, **controller.times.corrected_steps()}
        self.save()

    def save(self) -> None:
        """Write the file as a whole (mode 0600). Not being able to is no reason to complain."""
        stored = {
            "version": VERSION,
            "curve": self.curve.to_dict(),
            "steps": self.steps,
            "plain_s": self.plain_s,
            "histories": {warmth: history.to_dict() for warmth, history in self.histories.items()},
        }
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.file.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(stored, out)
            Path(temporary).replace(self.file)


def find_pace(
    target: LoadedModel,
    drafting: Drafting,
    where: Places,
    *,
    before_measuring: Callable[[], None],
    cancelled: Callable[[], bool],
) -> Pace | None:
    """The pace of a pair: read when it is known, else measured in a few seconds. None when cancelled."""
    file = where.cache / "pace" / f"{_identity(target, drafting)}.json"
    if (known := _read(file)) is not None:
        return known
    before_measuring()
    curve = measure_curve(target.model, clock=time.perf_counter, budget_s=BUDGET_S, cancelled=cancelled)
    if curve is None:
        return None
    steps = {drafter: measure() for drafter, measure in drafting.steps.items()}
    pace = Pace(curve, steps, {}, file, measured_now=True)
    pace.save()
    return pace


def last_pace(target_name: str, where: Places, *, guesser: str = "") -> Pace | None:
    """What was learnt last of this target with any draft, models or not; None when nothing was.

    What knows the step of the drafter that `guesser` names comes before what does not.
    """
    other: Pace | None = None
    files = (where.cache / "pace").glob(f"{_file_name(target_name)}-{'?' * DIGITS}.json")
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        if (pace := _read(file)) is None:
            continue
        if not guesser or guesser in pace.steps:
            return pace
        other = other or pace
    return other


def forget_pace(target: LoadedModel, drafting: Drafting, where: Places) -> None:
    """Measure this pair again the next time."""
    (where.cache / "pace" / f"{_identity(target, drafting)}.json").unlink(missing_ok=True)


def _warmth(temperature: float) -> str:
    return "greedy" if temperature == 0 else "cool" if temperature <= COOL else "warm"


def _identity(target: LoadedModel, drafting: Drafting) -> str:
    """Names a pair, its weights' types, the device and MLX: whatever the seconds depend on."""
    parts = [device_name(), version("mlx"), str(mx.device_info().get("device_name", ""))]
    parts += [str(target.folder.resolve()), str(target.weight_bytes)]
    if drafting.steps:
        parts += drafting.key
    digest = hashlib.sha256("|".join(parts).encode()).hexdigest()
    return f"{_file_name(target.name)}-{digest[:DIGITS]}"


def _file_name(target_name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in target_name)[:40]


def _read(file: Path) -> Pace | None:
    """None for what is not there, of another version, or damaged: it is measured again."""
    try:
        stored: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if stored["version"] != VERSION:
            return None
        steps = {str(name): float(seconds) for name, seconds in stored["steps"].items()}
        curve = VerifyCurve.from_dict(stored["curve"])
        plain_s = stored.get("plain_s")
        plain_s = None if plain_s is None else float(plain_s)
        histories = {
            str(warmth): AcceptanceHistory.from_dict(history)
            for warmth, history in stored["histories"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Pace(curve, steps, histories, file, measured_now=False, plain_s=plain_s)
