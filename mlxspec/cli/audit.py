"""`mlxspec audit`: does speculation change an answer on this machine?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxspec.chat.visible import visible
from mlxspec.cli.bench import at_least_one, guesses_a_round, temperatures
from mlxspec.cli.completion import draft_names, model_names
from mlxspec.errors import UsageError

if TYPE_CHECKING:
    from mlxspec.lab.audit import SamplingCheck, TextCheck
    from mlxspec.lab.prompts import BenchPrompt

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SAMPLED_PROMPTS = 3  # whose first token is drawn many times


@app.command()
def audit(
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model to check.", autocompletion=model_names),
    ] = None,
    draft: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Its draft: a name, auto, lookup, lookahead or exit:N, options of a draft behind it; 3bit "
            "or layers:N make one of the target.",
            autocompletion=draft_names,
        ),
    ] = "auto",
    num_draft: Annotated[int, typer.Option(metavar="N", help="Guesses a round.")] = 4,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSON Lines: {"domain": "code", "prompt": "Write a loop."}.'),
    ] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="Check this one prompt.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Only the first N prompts.")] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Most tokens of an answer.")] = 128,
    temps: Annotated[str, typer.Option(metavar="T[,T…]", help="Temperatures.")] = "0,0.7",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Check that speculation changes no answer: exit code 0 when all is well, 1 when there is a bug.

    Prompts are decoded plainly and speculatively, and the token ids compared; above temperature 0 with
    a seed, which fixes the text. Where two answers differ the text is read once more, which tells a
    tie (rounding, as with 16-bit numbers) from a bug. Then the first token of an answer is drawn many
    times and counted.
    """
    from mlxspec.lab.prompts import chosen_prompts

    at_least_one("--max-tokens", max_tokens)
    if draft == "none":
        raise UsageError("Without a draft there is nothing to check.", hint="Give --draft lookup, or a name.")
    report = _check(
        target,
        draft,
        chosen_prompts(prompts, prompt, limit),
        temps=temperatures(temps),
        k=guesses_a_round(num_draft),
        max_tokens=max_tokens,
    )
    print(json.dumps(report.as_dict()) if as_json else visible("\n".join(report.lines())))
    raise typer.Exit(0 if report.lossless else 1)


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked, and what came out."""

    target: str
    draft: str
    k: int
    texts: tuple[TextCheck, ...]
    samplings: tuple[SamplingCheck, ...]

    @property
    def bugs(self) -> int:
        """Differences that are no ties, and distributions that are not the target's."""
        texts = sum(text.difference is not None and text.difference.verdict == "bug" for text in self.texts)
        return texts + sum(not check.passed for check in self.samplings)

    @property
    def lossless(self) -> bool:
        """No bug was found."""
        return self.bugs == 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        return {
            "target": self.target,
            "draft": self.draft,
            "num_draft": self.k,
            "lossless": self.lossless,
            "texts": [
                asdict(text) | {"verdict": text.difference.verdict if text.difference else "same"}
                for text in self.texts
            ],
            "sampling": [asdict(check) | {"passed": check.passed} for check in self.samplings],
        }

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{self.target} with {self.draft}, {self.k} guesses a round"]
        for temperature in dict.fromkeys(text.temperature for text in self.texts):
            lines += _texts([text for text in self.texts if text.temperature == temperature], temperature)
        for check in self.samplings:
            verdict = "as expected" if check.passed else "bug"
            lines.append(
                f"First token drawn {check.draws} times with {check.guesses}: chi-square"
                f" {check.chi_square:.1f} in {check.bins} bins, p = {check.p_value:.2g}: {verdict}"
            )
        if self.lossless:
            return [*lines, "Lossless: no answer was changed."]
        bugs = "1 check" if self.bugs == 1 else f"{self.bugs} checks"
        return [*lines, f"Not lossless: {bugs} failed. Please report this with the output of --json."]


def _texts(texts: list[TextCheck], temperature: float) -> list[str]:
    """A line for the answers at one temperature, and one for each difference."""
    same = sum(text.difference is None for text in texts)
    tokens = sum(text.tokens for text in texts)
    proposed, accepted = sum(text.proposed for text in texts), sum(text.accepted for text in texts)
    lines = [
        f"Temperature {temperature:g}: {same} of {len(texts)} answers are the same, {tokens} tokens,"
        f" {accepted} of {proposed} guesses kept"
    ]
    for text in texts:
        if (difference := text.difference) is None:
            continue
        margin = "" if difference.margin is None else f", margin {difference.margin:.2g}"
        lines.append(
            f"  {text.domain}: token {difference.position} is {difference.plain} plainly and"
            f" {difference.speculative} speculatively: {difference.verdict}{margin}"
            f" (passes differ by {difference.tolerance:.2g})"
        )
    return lines


def _check(
    target: str | None,
    draft: str,
    prompts: tuple[BenchPrompt, ...],
    *,
    temps: tuple[float, ...],
    k: int,
    max_tokens: int,
) -> Report:
    """Load and check, in this thread alone: MLX belongs to one."""
    from mlxspec.cli.lab_progress import LabProgress
    from mlxspec.lab.audit import Audit
    from mlxspec.lab.drafts import load_draft, load_target, wanted
    from mlxspec.places import places

    where = places()
    asked = wanted(target, [draft], where)
    with LabProgress() as progress:
        loaded = load_target(asked, where, progress.event)
        way = load_draft(asked.drafts[0], loaded, asked, where, progress.event, measure=False)
        checks = Audit(loaded, way, k=k, max_tokens=max_tokens)
        sampled = prompts[:SAMPLED_PROMPTS]
        total = len(prompts) * len(temps) + len(sampled)
        texts: list[TextCheck] = []
        for temperature in temps:
            for prompt in prompts:
                progress.step(len(texts), total, f"temperature {temperature:g}: {prompt.domain}")
                texts.append(checks.text(prompt, temperature=temperature))
        samplings: list[SamplingCheck] = []
        for i, prompt in enumerate(sampled):
            progress.step(len(texts) + i, total, f"drawing: {prompt.domain}")
            samplings += checks.sampling(prompt)
    return Report(loaded.name, way.name, k, tuple(texts), tuple(samplings))
