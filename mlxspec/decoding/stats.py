"""What an answer cost and where its tokens came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mlxspec.events import Origin


@dataclass(slots=True)
class DrafterStats:
    """One drafter's part: `accepted` of its `proposed` guesses were kept, in `rounds` rounds."""

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0


@dataclass(slots=True)
class DecodeStats:
    """Counts of emitted tokens and times in seconds; counts describe only what was emitted.

    Invariants: accepted <= proposed; tokens = accepted + resampled + bonus + plain.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    target_passes: int = 0
    carried: int = 0
    proposed: int = 0
    accepted: int = 0
    resampled: int = 0
    bonus: int = 0
    plain: int = 0
    ttft_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    draft_s: float = 0.0
    overhead_s: float = 0.0
    peak_memory_bytes: int = 0
    seed: int | None = None
    accept: str = "block"
    drafters: dict[str, DrafterStats] = field(default_factory=dict)

    def count_proposal(self, drafter: str, guesses: int) -> None:
        """A round with `guesses` guesses by `drafter`."""
        part = self.drafters.setdefault(drafter, DrafterStats())
        part.rounds += 1
        part.proposed += guesses
        self.proposed += guesses

    def count(self, origin: Origin, drafter: str | None, tokens: int) -> None:
        """Add `tokens` emitted tokens of one origin; a negative number takes them out again."""
        self.tokens += tokens
        setattr(self, origin.value, getattr(self, origin.value) + tokens)
        if origin is Origin.ACCEPTED and drafter is not None:
            self.drafters[drafter].accepted += tokens

    @property
    def verify_s(self) -> float:
        """Seconds of decoding that were neither drafting nor overhead: the target's passes."""
        return max(0.0, self.decode_s - self.draft_s - self.overhead_s)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / proposed; None when nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Emitted tokens / target passes; None before the first pass."""
        return self.tokens / self.target_passes if self.target_passes else None

    @property
    def tokens_per_s(self) -> float | None:
        """Emitted tokens a second of decoding, prefill not counted."""
        return self.tokens / self.decode_s if self.decode_s > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """The fields and the derived rates, for `--json`."""
        return {
            **asdict(self),
            "verify_s": self.verify_s,
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_pass": self.tokens_per_pass,
            "tokens_per_s": self.tokens_per_s,
        }
