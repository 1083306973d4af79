"""Sampling parameters, and the pipeline from logits to the distribution p (or q)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn, in mlx-lm's order: penalties and bias, top-p, min-p, top-k, temperature.

    `top_p` 1.0, `top_k` 0, `min_p` 0.0, `repetition_penalty` 1.0 and the other penalties 0.0 are off;
    `temperature` 0 is greedy. Penalties see the last `penalty_context` tokens.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    penalty_context: int = 20


@dataclass(frozen=True, slots=True)
class SamplingOverrides:
    """What a user or a model's generation_config.json says of sampling; None where they say nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
