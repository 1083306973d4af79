"""An answer, round by round, from its tokens and what the engine reported of its rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxspec.events import Origin, RoundReport, Tokens


@dataclass(frozen=True, slots=True)
class Guess:
    """One row of a round.

    Attributes:
        text: of the token.
        fate: "kept", "rejected", or "unseen" for what stood behind a rejected guess and went with it.
        p, q: its probability under target and drafter; None where that is not known.
    """

    text: str
    fate: str
    p: float | None
    q: float | None


@dataclass(frozen=True, slots=True)
class Round:
    """One round of an answer.

    Attributes:
        number: as the events have it.
        drafter: who guessed; None in a plain round.
        guesses: in their order; without a report those that were kept only.
        next_text: the target's own token behind the kept guesses; None when the answer ended before it.
        next_origin: how it came to be there.
        next_p: its probability; None where that is not known.
        kept: how many guesses were kept.
        tokens: how many the round added to the answer.
        report: what the engine told, None where that was not kept.
    """

    number: int
    drafter: str | None
    guesses: tuple[Guess, ...]
    next_text: str | None
    next_origin: Origin | None
    next_p: float | None
    kept: int
    tokens: int
    report: RoundReport | None

    @property
    def rejected(self) -> bool:
        """Whether a guess was rejected."""
        return self.next_origin is Origin.RESAMPLED


def rounds_of(tokens: Sequence[Tokens], reports: Mapping[int, RoundReport]) -> list[Round]:
    """All rounds in their order."""
    groups: dict[int, list[Tokens]] = {}
    for one in tokens:
        groups.setdefault(one.round, []).append(one)
    return [_round(number, groups[number], reports.get(number)) for number in sorted(groups)]


def plain_round_s(reports: Mapping[int, RoundReport], stats: Mapping[str, Any] | None) -> float | None:
    """Seconds of a round without guesses in this answer, the middle one.

    Where there was none, as known of this machine when the answer was made; else None.
    """
    plain = [report.round_s for report in reports.values() if not report.guesses]
    if plain:
        return statistics.median(plain)
    rate = stats.get("plain_tokens_per_s") if stats else None
    return 1 / float(rate) if rate else None


def saved_s(found: Round, plain_s: float | None) -> float | None:
    """Seconds that the round saved against plain decoding, lost where negative; None while unknown."""
    if plain_s is None or found.report is None:
        return None
    return found.tokens * plain_s - found.report.round_s


def _round(number: int, group: list[Tokens], report: RoundReport | None) -> Round:
    count = sum(len(one.ids) for one in group)
    kept = sum(len(one.ids) for one in group if one.origin is Origin.ACCEPTED)
    next_p: float | None
    text: str | None
    own = next((one for one in group if one.origin is not Origin.ACCEPTED), None)
    if report is None:
        guesses = tuple(Guess(one.text, "kept", None, None) for one in group if one.origin is Origin.ACCEPTED)
        drafter = group[0].drafter
        text, next_p = own.text if own else None, None
    else:
        guesses = tuple(
            Guess(
                text,
                "kept" if i < report.accepted else "rejected" if i == report.accepted else "unseen",
                report.p[i] if i < len(report.p) else None,
                report.q[i] if i < len(report.q) else None,
            )
            for i, text in enumerate(report.guess_texts)
        )
        drafter = report.drafter
        text, next_p = (report.next_text, report.p_next) if own else (None, None)
    return Round(number, drafter, guesses, text, own.origin if own else None, next_p, kept, count, report)
