"""Plain and speculative decoding of the same prompts, alternating in one process.

For each prompt every way of decoding runs once cold, which gives the times to the first token and is what
the controller learns from, and then `pairs` times: plain, each draft, plain again, and mlx-lm if it is asked
for, the first of them another one each time. A speed-up is the median of speculative against plain of
the same turn, and the null that of plain against plain: what differs from 1 there is noise.

The controller begins without any history and knows of a prompt only what the prompts before it taught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.controller import Controller, FixedController
from mlxspec.lab import mlx_lm_runs
from mlxspec.lab.bench_results import DraftResult, PromptResult, geometric_mean
from mlxspec.lab.drafts import Draft
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.lab.runs import Run, Runner, repeated_share
from mlxspec.models.loading import LoadedModel

Progress = Callable[[int, int, str], None]
"""Hears (runs done, runs in all, what runs now)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    `against_mlx_lm` adds mlx-lm's own generation; `num_draft` fixes the guesses of a round, which the
    controller chooses otherwise.
    """

    prompts: tuple[BenchPrompt, ...]
    temperatures: tuple[float, ...] = (0.0,)
    pairs: int = 7
    max_tokens: int = 128
    against_mlx_lm: bool = False
    num_draft: int | None = None


class Bench:
    """Measures a target with some drafts.

    Attributes:
        interrupted: Ctrl-C ended it, so that the last prompts are missing.
    """

    def __init__(
        self, target: LoadedModel, drafts: Sequence[Draft], *, plan: Plan, progress: Progress
    ) -> None:
        self._target = target
        self._drafts = tuple(drafts)
        self._plan = plan
        self._progress = progress
        self._runner = Runner(target, max_tokens=plan.max_tokens)
        self._prompts = [(prompt, self._runner.prompt_ids(prompt.prompt)) for prompt in plan.prompts]
        # mlx-lm has no lookup, and refuses some targets; then its plain decoding is all there is of it.
        able = plan.against_mlx_lm and mlx_lm_runs.can_speculate(target)
        self._theirs = {draft.name for draft in drafts if able and draft.model is not None}
        self._done = 0
        self.interrupted = False

    def run(self) -> list[DraftResult]:
        """The results by temperature and draft, in the order in which these were given.

        Ctrl-C ends it with the prompts that are done, if there are any.
        """
        results: list[DraftResult] = []
        for temperature in self._plan.temperatures:
            by_k: dict[str, dict[int, float]] = {}
            measured: dict[str, list[PromptResult]] = {draft.name: [] for draft in self._drafts}
            try:
                self._measure(temperature, by_k, measured)
            except KeyboardInterrupt:
                self.interrupted = True
            results += [
                DraftResult(temperature, name, tuple(prompts), by_k[name])
                for name, prompts in measured.items()
                if prompts
            ]
            if self.interrupted:
                break
        if not results:
            raise KeyboardInterrupt
        return results

    def _measure(
        self, temperature: float, by_k: dict[str, dict[int, float]], measured: dict[str, list[PromptResult]]
    ) -> None:
        """All prompts at one temperature; `by_k` and `measured` are filled as they come."""
        learners = {draft.name: _Learner(draft, self._plan.num_draft) for draft in self._drafts}
        for draft in self._drafts:
            by_k[draft.name] = self._try_every_k(draft, temperature) if draft.name in self._theirs else {}
        for prompt, ids in self._prompts:
            turn = _Turn(self, prompt, ids, temperature=temperature, learners=learners, by_k=by_k)
            for name, result in turn.measure().items():
                measured[name].append(result)

    @property
    def _runs(self) -> int:
        """Runs in all, for the progress."""
        plan = self._plan
        ways = 2 + len(self._drafts) + (1 + len(self._theirs) if plan.against_mlx_lm else 0)
        prompt = 1 + len(self._drafts) + plan.pairs * ways + mlx_lm_runs.MOST_GUESSES * len(self._theirs)
        return prompt * len(plan.prompts) * len(plan.temperatures)

    def _tick(self, what: str) -> None:
        self._progress(self._done, self._runs, what)
        self._done += 1

    def _try_every_k(self, draft: Draft, temperature: float) -> dict[int, float]:
        """mlx-lm's tokens a second with each number of guesses: the geometric mean over the prompts."""
        by_k: dict[int, float] = {}
        for k in range(1, mlx_lm_runs.MOST_GUESSES + 1):
            speeds = []
            for prompt, ids in self._prompts:
                self._tick(f"mlx-lm, {draft.name}, k = {k}: {prompt.domain}")
                speeds.append(self._their_speculative(draft, ids, k, temperature=temperature, seed=0))
            by_k[k] = geometric_mean(speeds)
        return by_k

    def _their_plain(self, ids: Sequence[int], *, temperature: float, seed: int) -> float:
        run = mlx_lm_runs.plain(
            self._target, ids, max_tokens=self._runner.budget(ids), temperature=temperature, seed=seed
        )
        return run.tokens_per_s

    def _their_speculative(
        self, draft: Draft, ids: Sequence[int], k: int, *, temperature: float, seed: int
    ) -> float:
        run = mlx_lm_runs.speculative(
            self._target,
            draft.model,
            ids,
            k=k,
            max_tokens=self._runner.budget(ids),
            temperature=temperature,
            seed=seed,
        )
        return run.tokens_per_s


class _Learner:
    """What the controller of one draft has learnt so far, and controllers that begin with that."""

    def __init__(self, draft: Draft, num_draft: int | None) -> None:
        self._draft = draft
        self._num_draft = num_draft
        assert draft.curve is not None, "a draft that is to be timed comes with its costs"
        self._curve, self._steps = draft.curve, dict(draft.steps)
        self._history = AcceptanceHistory().to_dict()  # of this bench alone

    def controller(self) -> Controller:
        """A controller for one answer, which keeps what it learns to itself."""
        if not self._draft.drafters:
            return FixedController(0)
        if self._num_draft is not None:
            return FixedController(self._num_draft)
        return AdaptiveController(self._curve, self._steps, AcceptanceHistory.from_dict(self._history))

    def learn_from(self, answer: Callable[[Controller], Run]) -> Run:
        """Let an answer teach the controllers to come, as one in a chat does."""
        if not self._draft.drafters or self._num_draft is not None:
            return answer(self.controller())
        history = AcceptanceHistory.from_dict(self._history)
        controller = AdaptiveController(self._curve, self._steps, history)
        run = answer(controller)
        self._history = history.to_dict()
        self._curve = controller.times.corrected()
        self._steps |= controller.times.corrected_steps()
        return run


@dataclass(slots=True)
class _Readings:
    """What one draft did with one prompt, turn by turn."""

    runs: list[Run] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    against_theirs: list[float] = field(default_factory=list)


class _Turn:
    """One prompt at one temperature, decoded in every way."""

    def __init__(
        self,
        bench: Bench,
        prompt: BenchPrompt,
        ids: Sequence[int],
        *,
        temperature: float,
        learners: dict[str, _Learner],
        by_k: dict[str, dict[int, float]],
    ) -> None:
        self._bench = bench
        self._prompt = prompt
        self._ids = ids
        self._temperature = temperature
        self._learners = learners
        self._best_k = {name: max(speeds, key=speeds.__getitem__) for name, speeds in by_k.items() if speeds}
        self._readings: dict[str, _Readings] = {name: _Readings() for name in learners}
        self._plain: list[float] = []
        self._again: list[float] = []
        self._their_plain: list[float] = []

    def measure(self) -> dict[str, PromptResult]:
        """The result of each draft."""
        bench = self._bench
        # Copied before the cold runs teach: the timed ones know nothing of this prompt.
        begin = {name: learner.controller for name, learner in self._learners.items()}
        controllers = {name: [begin[name]() for _ in range(bench._plan.pairs)] for name in begin}
        self._tell("cold, plain")
        cold_plain = bench._runner.plain(self._ids, temperature=self._temperature, seed=0, cold=True)
        cold = {draft.name: self._cold(draft) for draft in bench._drafts}
        for seed in range(bench._plan.pairs):
            self._one_of_each(seed, {name: controllers[name][seed] for name in controllers})
        return {draft.name: self._result(draft, cold_plain, cold[draft.name]) for draft in bench._drafts}

    def _cold(self, draft: Draft) -> Run:
        self._tell(f"cold, {draft.name}")
        return self._learners[draft.name].learn_from(
            lambda controller: self._bench._runner.run(
                self._ids, draft.drafters, controller, temperature=self._temperature, seed=0, cold=True
            )
        )

    def _one_of_each(self, seed: int, controllers: dict[str, Controller]) -> None:
        """Every way once, begun with another one each time."""
        bench = self._bench
        ways: list[tuple[str, Callable[[], Any]]] = [("plain", lambda: self._plain.append(self._run(seed)))]
        for draft in bench._drafts:
            ways.append((draft.name, self._way(draft, controllers[draft.name], seed)))
        ways.append(("plain again", lambda: self._again.append(self._run(seed))))
        if bench._plan.against_mlx_lm:
            ways.append(("mlx-lm", self._their_plain_way(seed)))
            for draft in bench._drafts:
                if draft.name in bench._theirs:
                    ways.append((f"mlx-lm, {draft.name}", self._their_way(draft, seed)))
        first = seed % len(ways)
        for name, run in ways[first:] + ways[:first]:
            self._tell(name)
            run()
        for readings in self._readings.values():
            readings.ratios.append(readings.runs[-1].tokens_per_s / self._plain[-1])
            theirs = readings.theirs or self._their_plain
            if theirs:
                readings.against_theirs.append(readings.runs[-1].tokens_per_s / theirs[-1])

    def _run(self, seed: int) -> float:
        return self._bench._runner.plain(self._ids, temperature=self._temperature, seed=seed).tokens_per_s

    def _way(self, draft: Draft, controller: Controller, seed: int) -> Callable[[], None]:
        def run() -> None:
            self._readings[draft.name].runs.append(
                self._bench._runner.run(
                    self._ids, draft.drafters, controller, temperature=self._temperature, seed=seed
                )
            )

        return run

    def _their_plain_way(self, seed: int) -> Callable[[], None]:
        return lambda: self._their_plain.append(
            self._bench._their_plain(self._ids, temperature=self._temperature, seed=seed)
        )

    def _their_way(self, draft: Draft, seed: int) -> Callable[[], None]:
        return lambda: self._readings[draft.name].theirs.append(
            self._bench._their_speculative(
                draft, self._ids, self._best_k[draft.name], temperature=self._temperature, seed=seed
            )
        )

    def _result(self, draft: Draft, cold_plain: Run, cold: Run) -> PromptResult:
        readings = self._readings[draft.name]
        runs = readings.runs
        their_plain = median(self._their_plain) if self._their_plain else None
        theirs = median(readings.theirs) if readings.theirs else None
        return PromptResult(
            domain=self._prompt.domain,
            prompt=self._prompt.prompt,
            prompt_tokens=len(self._ids),
            tokens=len(runs[-1].ids),
            plain_tok_s=median(self._plain),
            tok_s=median(run.tokens_per_s for run in runs),
            speedup=median(readings.ratios),
            null=median(again / once for again, once in zip(self._again, self._plain, strict=True)),
            proposed=sum(run.proposed for run in runs),
            accepted=sum(run.accepted for run in runs),
            emitted=sum(len(run.ids) for run in runs),
            passes=sum(len(run.ks) for run in runs),
            k=_mean_k(runs),
            parked=sum(run.parked_s for run in runs) / sum(run.rounds_s for run in runs),
            ttft_s=cold.ttft_s,
            plain_ttft_s=cold_plain.ttft_s,
            peak_memory_bytes=max(run.peak_bytes for run in (cold, *runs)),
            repeated_8grams=repeated_share(cold_plain.ids),
            same_text=cold.ids == cold_plain.ids if self._temperature == 0 else None,
            baseline_tok_s=theirs or their_plain,
            baseline_plain_tok_s=their_plain,
            baseline_speculative_tok_s=theirs,
            over_baseline=median(readings.against_theirs) if readings.against_theirs else None,
            over_baseline_plain=_median_ratio(runs, self._their_plain),
        )

    def _tell(self, what: str) -> None:
        at = f"T = {self._temperature:g}, " if len(self._bench._plan.temperatures) > 1 else ""
        self._bench._tick(f"{at}{self._prompt.domain}: {what}")


def _mean_k(runs: Sequence[Run]) -> float:
    """Guesses a round on average, of the rounds that had any."""
    ks = [k for run in runs for k in run.ks if k]
    return sum(ks) / len(ks) if ks else 0.0


def _median_ratio(runs: Sequence[Run], speeds: Sequence[float]) -> float | None:
    if not speeds:
        return None
    return median(run.tokens_per_s / speed for run, speed in zip(runs, speeds, strict=True))
