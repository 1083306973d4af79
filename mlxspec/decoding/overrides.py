"""What is asked for of sampling, before a model's own defaults fill the rest. Does not load MLX."""

from __future__ import annotations

from dataclasses import dataclass


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
