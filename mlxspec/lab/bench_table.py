"""The bench's results as text: tables, bars for the terminal, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from mlxspec.lab.bench_results import DraftResult, PromptResult, Summary

BAR = 40  # characters of the longest bar
WORST_CHARACTERS = 60  # of the worst prompt that are shown

_COLUMNS = (
    "DOMAIN", "PLAIN", "TOK/S", "SPEED-UP", "NULL", "ACCEPTED", "TOK/PASS", "K", "PARKED", "TTFT", "MEMORY",
    "REPEATED",
)  # fmt: skip
_BASELINE_COLUMNS = ("MLX-LM", "AGAINST IT")

CSV_COLUMNS = (
    "temperature", "draft", "domain", "prompt", "prompt_tokens", "tokens", "plain_tok_s", "tok_s", "speedup",
    "null", "acceptance", "tokens_per_pass", "k", "parked", "ttft_s", "plain_ttft_s", "peak_memory_bytes",
    "repeated_8grams", "same_text", "baseline_tok_s", "baseline_plain_tok_s", "baseline_speculative_tok_s",
    "over_baseline", "over_baseline_plain",
)  # fmt: skip


def table(result: DraftResult) -> list[str]:
    """A line a domain, one for all, and what else there is to say."""
    every = result.summary()
    with_baseline = every.baseline_tok_s is not None
    cells = [_COLUMNS + (_BASELINE_COLUMNS if with_baseline else ())]
    cells += [_row(summary, with_baseline=with_baseline) for summary in (*result.domains(), every)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [heading(result)]
    for row in cells:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join((first, *rest)).rstrip())
    return [*lines, *_remarks(result, every)]


def heading(result: DraftResult) -> str:
    """Which draft, at which temperature."""
    return f"Draft {result.draft}, temperature {result.temperature:g}"


def bars(results: Sequence[DraftResult]) -> list[str]:
    """Speed-ups by domain as bars, a mark where plain decoding is."""
    longest = max(summary.speedup for result in results for summary in (*result.domains(), result.summary()))
    longest = max(longest, 1.0)
    lines = []
    for result in results:
        lines.append(f"{heading(result)}: speed-up, ┊ is plain decoding")
        summaries = (*result.domains(), result.summary())
        width = max(len(summary.domain) for summary in summaries)
        lines += [
            f"  {summary.domain.ljust(width)}  {_bar(summary.speedup, longest)} {summary.speedup:.2f}x"
            for summary in summaries
        ]
    return lines


def as_csv(results: Sequence[DraftResult]) -> str:
    """A line a prompt, temperature and draft, with names of the columns before them; empty where unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for result in results:
        for prompt in result.prompts:
            values = prompt.as_dict() | {"temperature": result.temperature, "draft": result.draft}
            writer.writerow(["" if values[name] is None else values[name] for name in CSV_COLUMNS])
    return out.getvalue()


def _row(summary: Summary, *, with_baseline: bool) -> tuple[str, ...]:
    cells = (
        summary.domain,
        f"{summary.plain_tok_s:.1f}",
        f"{summary.tok_s:.1f}",
        f"{summary.speedup:.2f}x",
        f"{summary.null:.2f}",
        "-" if summary.acceptance is None else f"{summary.acceptance:.0%}",
        f"{summary.tokens_per_pass:.2f}",
        f"{summary.k:.1f}",
        f"{summary.parked:.0%}",
        f"{summary.ttft_s:.2f} s",
        f"{summary.peak_memory_bytes / 1e9:.2f} GB",
        f"{summary.repeated_8grams:.0%}",
    )
    if not with_baseline:
        return cells
    return (*cells, f"{summary.baseline_tok_s:.1f}", f"{summary.over_baseline:.2f}x")


def _remarks(result: DraftResult, every: Summary) -> list[str]:
    worst, (least, most) = result.worst, result.nulls
    lines = [f"Worst {worst.speedup:.2f}x, {worst.domain}: {_short(worst)}"]
    if len(result.prompts) > 1:
        lines.append(f"Noise: plain against plain, prompt by prompt, is {least:.2f} to {most:.2f}")
    if result.mlx_lm_k is not None:
        lines.append(
            f"mlx-lm speculates with the same draft at its best k, {result.mlx_lm_k};"
            f" against its plain decoding this is {every.over_baseline_plain:.2f}x"
        )
    if different := sum(prompt.same_text is False for prompt in result.prompts):
        lines.append(
            f"{different} of {len(result.prompts)} answers differ from plain decoding; "
            "`mlxspec audit` says whether these are ties"
        )
    return lines


def _short(result: PromptResult) -> str:
    text = " ".join(result.prompt.split())
    return text if len(text) <= WORST_CHARACTERS else text[: WORST_CHARACTERS - 1] + "…"


def _bar(value: float, longest: float) -> str:
    """A bar in halves of a character, with the mark of 1."""
    halves = round(2 * BAR * value / longest)
    cells = list(("█" * (halves // 2) + "▌" * (halves % 2)).ljust(BAR))
    mark = min(BAR - 1, round(BAR / longest))
    if cells[mark] == " ":
        cells[mark] = "┊"
    return "".join(cells)
