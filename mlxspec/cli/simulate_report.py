"""What `mlxspec simulate` shows: tables and bars for a person, plain values for --json."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from mlxspec.lab import simulate as lab
from mlxspec.lab.simulate import Prediction, Setting
from mlxspec.lab.world import Played

SHOWN_K = 8  # rows of the table, unless the best k is beyond it
ROUNDS = 10_000
CONTROLLED_TOKENS = 1_000
BAR = 24  # characters of the longest bar


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: a setting, where its curve comes from, and the speed of plain decoding if known."""

    setting: Setting
    source: str
    readings: tuple[str, ...] = ()
    plain_tokens_per_s: float | None = None


class Report:
    """Everything that is shown, computed once."""

    def __init__(self, question: Question, *, k: int | None, sweep: bool, seed: int) -> None:
        setting = question.setting
        self.question = question
        self.best_k = setting.best_k()
        self.chosen_k = self.best_k if k is None else k
        shown = range(max(SHOWN_K, self.best_k) + 1) if k is None else sorted({0, k})
        self.table = [lab.predict(setting, k) for k in shown]
        self.sampled = lab.sample(setting, self.chosen_k, rounds=ROUNDS, rng=random.Random(seed))
        self.controlled = lab.run_controller(setting, tokens=CONTROLLED_TOKENS, rng=random.Random(seed))
        self.sweep = lab.sweep(setting, [p.k for p in self.table if p.k]) if sweep else []

    def as_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        setting, controlled = self.question.setting, self.controlled
        return {
            "curve_source": self.question.source,
            "readings": self.question.readings,
            "curve": {str(n): setting.curve.seconds(n) for n in range(1, len(setting.alphas) + 2)},
            "alphas": setting.alphas,
            "draft_cost": setting.draft_step,
            "overhead": setting.overhead,
            "best_k": self.best_k,
            "table": [self._row(prediction) for prediction in self.table],
            "monte_carlo": asdict(self.sampled),
            "controller": {
                "tokens": controlled.tokens,
                "speedup": controlled.speedup,
                "tokens_per_pass": controlled.tokens_per_pass,
                "parked": controlled.parked / controlled.rounds,
                "k": _usual_k(controlled),
            },
            "sweep": [
                {"alpha": alpha, "best_k": flat.best_k(), "table": [self._row(row) for row in rows]}
                for alpha, flat, rows in self.sweep
            ],
        }

    def lines(self) -> list[str]:
        """The report for a person."""
        return [*self._heading(), "", *self._table_lines(), "", *self._check_lines(), *self._sweep_lines()]

    def _row(self, prediction: Prediction) -> dict[str, Any]:
        plain = self.question.plain_tokens_per_s
        return asdict(prediction) | ({"tokens_per_s": plain * prediction.speedup} if plain else {})

    def _heading(self) -> list[str]:
        setting = self.question.setting
        alphas = _squeeze(setting.alphas)
        costs = ", ".join(f"{setting.curve.seconds(n):.2f}" for n in (1, 2, 3, 4, 6, 8, 12, 16))
        parts = [f"acceptance {alphas}", f"draft cost {setting.draft_step:.2f}"]
        if setting.overhead:
            parts.append(f"overhead {setting.overhead:.2f} a round")
        return [
            ", ".join(parts).capitalize(),
            f"Verify curve ({self.question.source}): {costs} for 1, 2, 3, 4, 6, 8, 12, 16 rows",
            *(f"  published: {reading}" for reading in self.question.readings),
        ]

    def _table_lines(self) -> list[str]:
        plain = self.question.plain_tokens_per_s
        longest = max(row.speedup for row in self.table)
        unit = "  TOK/S" if plain else ""
        lines = [f"   K  TOKENS/PASS  ROUND COST  SPEED-UP{unit}"]
        for row in self.table:
            mark = "*" if row.k == self.best_k else " "
            speed = f"{plain * row.speedup:7.1f}" if plain else ""
            bar = _bar(row.speedup / longest)
            name = "  plain" if row.k == 0 else ""
            lines.append(
                f" {mark}{row.k:2d}  {row.tokens_per_pass:11.2f}  {row.cost:10.2f}  {row.speedup:7.2f}x"
                f"{speed}  {bar}{name}"
            )
        return lines

    def _check_lines(self) -> list[str]:
        setting, sampled, controlled = self.question.setting, self.sampled, self.controlled
        best = lab.predict(setting, self.best_k)
        exact = lab.predict(setting, sampled.k)
        guesses = "1 guess" if best.k == 1 else f"{best.k} guesses"
        parked = 100 * controlled.parked / controlled.rounds
        return [
            f"Best: {guesses} a round, {best.speedup:.2f}x."
            if best.k
            else "Best: no guesses, for speculation does not pay here.",
            f"By chance, {sampled.rounds} rounds of k = {sampled.k}: {sampled.tokens_per_pass:.3f} tokens a"
            f" pass ±{2 * sampled.tokens_error:.3f} (by formula {exact.tokens_per_pass:.3f}),"
            f" {sampled.speedup:.2f}x.",
            f"With the controller, {controlled.tokens} tokens: {controlled.speedup:.2f}x,"
            f" mostly k = {_usual_k(controlled)}, parked in {parked:.0f} % of the rounds.",
        ]

    def _sweep_lines(self) -> list[str]:
        if not self.sweep:
            return []
        ks = [row.k for row in self.sweep[0][2]]
        best = [lab.predict(flat, flat.best_k()) for _, flat, _ in self.sweep]
        longest = max(row.speedup for row in best)
        lines = ["", "Speed-up by acceptance", "  ALPHA" + "".join(f"{f'K={k}':>6}" for k in ks) + "  BEST"]
        for (alpha, _, rows), row_best in zip(self.sweep, best, strict=True):
            cells = "".join(f"{row.speedup:6.2f}" for row in rows)
            lines.append(f"  {alpha:5.2f}{cells}  k={row_best.k:<2d} {_bar(row_best.speedup / longest)}")
        return lines


def _usual_k(played: Played) -> int:
    (k, _times), *_ = played.ks.most_common(1)
    return k


def _squeeze(alphas: tuple[float, ...]) -> str:
    """The acceptances as they were typed: the last one goes on."""
    shown = list(alphas)
    while len(shown) > 1 and shown[-1] == shown[-2]:
        shown.pop()
    return ", ".join(f"{alpha:g}" for alpha in shown)


def _bar(share: float) -> str:
    """A bar of blocks, to an eighth of a character."""
    full, eighths = divmod(round(share * BAR * 8), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[eighths].strip()
