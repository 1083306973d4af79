"""What the bench found, and the figures of many prompts together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

ALL = "all"


@dataclass(frozen=True, slots=True)
class PromptResult:
    """One prompt, temperature and draft; medians of the pairs where nothing else is said.

    Attributes:
        plain_tok_s, tok_s: tokens a second, plainly and speculatively, prefill not counted.
        speedup: of each pair, its median; so is `null`, of plain against plain.
        proposed, accepted, emitted, passes: guesses, tokens and target passes of all pairs.
        k: mean guesses of the rounds that had any.
        parked: share of the time.
        ttft_s, plain_ttft_s: time to the first token from a cold cache, one reading.
        repeated_8grams: share of the plain answer's 8-grams that it had before.
        same_text: whether both ways wrote the same ids; None where they need not.
        baseline_tok_s: mlx-lm, speculative with the same draft if it can, else plain; `over_baseline` and
            `over_baseline_plain` are medians of ours against theirs.
    """

    domain: str
    prompt: str
    prompt_tokens: int
    tokens: int
    plain_tok_s: float
    tok_s: float
    speedup: float
    null: float
    proposed: int
    accepted: int
    emitted: int
    passes: int
    k: float
    parked: float
    ttft_s: float
    plain_ttft_s: float
    peak_memory_bytes: int
    repeated_8grams: float
    same_text: bool | None = None
    baseline_tok_s: float | None = None
    baseline_plain_tok_s: float | None = None
    baseline_speculative_tok_s: float | None = None
    over_baseline: float | None = None
    over_baseline_plain: float | None = None

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed; None when nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def tokens_per_pass(self) -> float:
        """Emitted tokens / target passes."""
        return self.emitted / self.passes

    def as_dict(self) -> dict[str, Any]:
        """The fields and the rates."""
        return asdict(self) | {"acceptance": self.acceptance, "tokens_per_pass": self.tokens_per_pass}


@dataclass(frozen=True, slots=True)
class Summary:
    """Some prompts together: geometric means of speeds and ratios, means of shares, one memory for all."""

    domain: str
    prompts: int
    plain_tok_s: float
    tok_s: float
    speedup: float
    null: float
    acceptance: float | None
    tokens_per_pass: float
    k: float
    parked: float
    ttft_s: float
    plain_ttft_s: float
    peak_memory_bytes: int
    repeated_8grams: float
    baseline_tok_s: float | None
    over_baseline: float | None
    over_baseline_plain: float | None


@dataclass(frozen=True, slots=True)
class DraftResult:
    """All prompts with one draft at one temperature.

    `mlx_lm_by_k`: mlx-lm's speculative tokens a second by its number of guesses, where that was measured.
    """

    temperature: float
    draft: str
    prompts: tuple[PromptResult, ...]
    mlx_lm_by_k: dict[int, float]

    @property
    def worst(self) -> PromptResult:
        """The prompt with the least speed-up."""
        return min(self.prompts, key=lambda result: result.speedup)

    @property
    def mlx_lm_k(self) -> int | None:
        """The number of guesses with which mlx-lm was compared."""
        return max(self.mlx_lm_by_k, key=self.mlx_lm_by_k.__getitem__) if self.mlx_lm_by_k else None

    @property
    def nulls(self) -> tuple[float, float]:
        """The least and the greatest null of a prompt."""
        nulls = [result.null for result in self.prompts]
        return min(nulls), max(nulls)

    def summary(self) -> Summary:
        """All prompts."""
        return summarise(ALL, self.prompts)

    def domains(self) -> list[Summary]:
        """The prompts by domain, in their order."""
        names = dict.fromkeys(result.domain for result in self.prompts)
        return [summarise(name, [r for r in self.prompts if r.domain == name]) for name in names]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        every = self.summary()
        return {
            "temperature": self.temperature,
            "draft": self.draft,
            "geomean": every.speedup,
            "worst": self.worst.speedup,
            "null": every.null,
            "null_range": list(self.nulls),
            "over_baseline": every.over_baseline,
            "over_baseline_plain": every.over_baseline_plain,
            "mlx_lm_k": self.mlx_lm_k,
            "mlx_lm_tok_s_by_k": {str(k): speed for k, speed in self.mlx_lm_by_k.items()},
            "all": asdict(every),
            "domains": [asdict(summary) for summary in self.domains()],
            "prompts": [result.as_dict() for result in self.prompts],
        }


def summarise(name: str, results: Sequence[PromptResult]) -> Summary:
    """The figures of at least one prompt."""
    proposed = sum(result.proposed for result in results)
    return Summary(
        domain=name,
        prompts=len(results),
        plain_tok_s=geometric_mean(result.plain_tok_s for result in results),
        tok_s=geometric_mean(result.tok_s for result in results),
        speedup=geometric_mean(result.speedup for result in results),
        null=geometric_mean(result.null for result in results),
        acceptance=sum(result.accepted for result in results) / proposed if proposed else None,
        tokens_per_pass=sum(r.emitted for r in results) / sum(r.passes for r in results),
        k=fmean([result.k for result in results if result.k] or [0.0]),
        parked=fmean(result.parked for result in results),
        ttft_s=median(result.ttft_s for result in results),
        plain_ttft_s=median(result.plain_ttft_s for result in results),
        peak_memory_bytes=max(result.peak_memory_bytes for result in results),
        repeated_8grams=fmean(result.repeated_8grams for result in results),
        baseline_tok_s=_mean_if_all(result.baseline_tok_s for result in results),
        over_baseline=_mean_if_all(result.over_baseline for result in results),
        over_baseline_plain=_mean_if_all(result.over_baseline_plain for result in results),
    )


def geometric_mean(values: Iterable[float]) -> float:
    """Of at least one number above zero."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _mean_if_all(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else geometric_mean(value for value in known if value is not None)
