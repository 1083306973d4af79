"""The training loop: steps, held-out checks, checkpoints, and going on from one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from mlxspec.errors import NotWritable, UsageError
from mlxspec.training.batches import Batches
from mlxspec.training.held_out import Agreement, HeldOut
from mlxspec.training.losses import distribution_loss
from mlxspec.training.students import Student
from mlxspec.training.teacher import Teacher

TIMED_STEPS = 4
"""Steps after which the time of one is known, and with it how many steps the minutes hold."""

CHECKS = 20  # held-out checks in a training of many minutes; each takes seconds
LEAST_CHECKS = 5
PATIENCE = 6  # checks without progress after which it ends
WARM_UP = 0.03  # share of the steps in which the learning rate rises
LAST_RATE = 0.05  # what is left of the learning rate in the end
CACHE_BYTES = 2**30  # freed buffers that MLX may keep

STATE, WEIGHTS, BEST, OPTIMIZER = "state.json", "now.safetensors", "best.safetensors", "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. Either `steps`, or as many as `minutes` hold on this machine.

    Attributes:
        learning_rate: the highest one; it rises at first and then falls as a cosine.
        checkpoint_s: seconds from one checkpoint to the next, at most.
    """

    minutes: float = 60.0
    steps: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    seed: int = 0
    checkpoint_s: float = 60.0


@dataclass(slots=True)
class State:
    """How far a training is. `total` is 0 until it is known."""

    step: int = 0
    total: int = 0
    trained_s: float = 0.0
    best: float = -1.0
    best_step: int = 0
    checks: int = 0
    since_best: int = 0
    next_check: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What is said of a step; `held_out` on steps after which it was looked at."""

    step: int
    total: int
    loss: float
    seconds: float
    held_out: Agreement | None = None
    is_best: bool = False


class Trainer:
    """Trains one student. Everything it needs to go on is in `folder` after each checkpoint.

    Args:
        tell: hears a report after each step.
    """

    def __init__(
        self,
        student: Student,
        teacher: Teacher,
        batches: Batches,
        held_out: HeldOut,
        *,
        plan: Plan,
        folder: Path,
        tell: Callable[[Report], None],
    ) -> None:
        self._student = student
        self._teacher = teacher
        self._batches = batches
        self._held_out = held_out
        self._plan = plan
        self._folder = folder
        self._tell = tell
        self.state = State(total=plan.steps or 0)
        self._optimizer = optim.AdamW(plan.learning_rate, betas=[0.9, 0.95], weight_decay=plan.weight_decay)
        self._optimizer.init(student.module.trainable_parameters())
        self._loss = nn.value_and_grad(student.module, self._loss_of)

    def run(self) -> None:
        """Train to the end. Whatever ends it earlier leaves a checkpoint behind.

        Raises:
            NotWritable: a checkpoint cannot be written.
        """
        state = self.state
        mx.set_cache_limit(CACHE_BYTES)
        saved = began = time.perf_counter()
        before_s = state.trained_s
        try:
            while not self._finished():
                loss = self._step()
                state.step += 1
                state.trained_s = before_s + time.perf_counter() - began
                self._find_total()
                held_out = self._check() if state.step >= state.next_check or self._finished() else None
                is_best = held_out is not None and not state.since_best
                self._tell(Report(state.step, state.total, loss, state.trained_s, held_out, is_best))
                if time.perf_counter() - saved > self._plan.checkpoint_s:
                    self.save()
                    saved = time.perf_counter()
        finally:
            self.save()

    def save(self) -> None:
        """Write a checkpoint, the state last."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write(self._folder / WEIGHTS, self._student.module.parameters())
            _write(self._folder / OPTIMIZER, self._optimizer.state)
            file = self._folder / f"{STATE}.new"
            file.write_text(json.dumps(asdict(self.state)), encoding="utf-8")
            file.replace(self._folder / STATE)
        except OSError as error:
            raise NotWritable(
                f"The training cannot be saved in {self._folder}: {error.strerror or error}.",
                hint="Free some space, or give another --out.",
            ) from error

    def resume(self) -> bool:
        """Go on from the checkpoint in the folder; False when there is none.

        Raises:
            UsageError: it is damaged, or of another training.
        """
        if not (self._folder / STATE).exists():
            return False
        try:
            self.state = State(**json.loads((self._folder / STATE).read_text(encoding="utf-8")))
            self._student.module.load_weights(str(self._folder / WEIGHTS), strict=True)
            stored: Any = mx.load(str(self._folder / OPTIMIZER))
            self._optimizer.state = tree_unflatten(list(stored.items()))
            mx.eval(self._student.module.parameters(), self._optimizer.state)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise UsageError(
                f"The training in {self._folder} cannot be gone on with: {error}.",
                hint="Give the options of that training, or begin anew without --resume.",
            ) from error
        return True

    def take_best(self) -> None:
        """Give the student the weights that did best on what was held out."""
        if (self._folder / BEST).exists():
            self._student.module.load_weights(str(self._folder / BEST), strict=True)

    def _finished(self) -> bool:
        state = self.state
        return bool(state.total and state.step >= state.total) or state.since_best >= PATIENCE

    def _step(self) -> float:
        """One step over all its parts; the mean loss."""
        gradient: Any = None
        loss = weight = 0.0
        for batch in self._batches.step(self.state.step):
            share = cast(float, batch.weights.sum().item())
            part_loss, part = self._loss(batch)
            part = tree_map(lambda g, share=share: g * share, part)
            gradient = part if gradient is None else tree_map(mx.add, gradient, part)
            mx.eval(part_loss, gradient)
            loss += cast(float, part_loss.item()) * share
            weight += share
        gradient = tree_map(lambda g: g / weight, gradient)
        gradient, _ = optim.clip_grad_norm(gradient, 1.0)
        self._optimizer.learning_rate = self._rate()
        self._optimizer.update(self._student.module, gradient)
        mx.eval(self._student.module.parameters(), self._optimizer.state)
        return loss / weight

    def _loss_of(self, batch: Any) -> mx.array:
        done = self.state.step / self.state.total if self.state.total else 0.0
        guesses = self._student.guesses(batch, done)
        return distribution_loss(guesses, self._teacher.logits(batch), batch.weights)

    def _rate(self) -> float:
        """The learning rate of the coming step."""
        state, most = self.state, self._plan.learning_rate
        if not state.total:
            return most * (state.step + 1) / (4 * TIMED_STEPS)
        warm = max(1, int(WARM_UP * state.total))
        if state.step < warm:
            return most * (state.step + 1) / warm
        done = (state.step - warm) / max(1, state.total - warm)
        return most * (LAST_RATE + (1.0 - LAST_RATE) * 0.5 * (1.0 + math.cos(math.pi * done)))

    def _find_total(self) -> None:
        """How many steps the minutes hold, once a few are timed; the first one is slow."""
        state = self.state
        if state.total:
            return
        if state.step == 1:
            self._first_s = state.trained_s
        elif state.step >= TIMED_STEPS:
            step_s = (state.trained_s - self._first_s) / (state.step - 1)
            step_s *= self._student.later_cost
            state.total = max(state.step, round(self._plan.minutes * 60.0 / step_s))
            state.next_check = self._check_every()

    def _check_every(self) -> int:
        """Steps from one held-out check to the next."""
        checks = CHECKS
        if self._plan.steps is None:
            checks = min(CHECKS, max(LEAST_CHECKS, round(self._plan.minutes / 2)))
        return max(1, self.state.total // checks)

    def _check(self) -> Agreement | None:
        state = self.state
        if not state.total:
            return None
        held_out = self._held_out.agreement(self._student)
        state.checks += 1
        state.next_check = state.step + self._check_every()
        reached = held_out.alphas[0]
        if reached > state.best:
            state.best, state.best_step, state.since_best = reached, state.step, 0
            _write(self._folder / BEST, self._student.module.parameters())
        else:
            state.since_best += 1
        return held_out


def _write(path: Path, arrays: Any) -> None:
    """All arrays of a tree, the file whole or as it was."""
    new = path.with_name(f"new-{path.name}")
    flat = {name: array for name, array in tree_flatten(arrays) if isinstance(array, mx.array)}
    new.parent.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(new), flat)
    new.replace(path)
