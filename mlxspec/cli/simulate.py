"""`mlxspec simulate`: what speculation would bring, before anything is downloaded."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from mlxspec.errors import UsageError

if TYPE_CHECKING:
    from mlxspec.cli.simulate_report import Question

app = typer.Typer(rich_markup_mode=None, add_completion=False)

DEFAULT_CHIP = "M4 Pro"  # where this machine is no Mac
DEFAULT_DRAFT_COST = 0.1


@app.command()
def simulate(
    alpha: Annotated[
        str,
        typer.Option(
            metavar="A[,A…]",
            help="Acceptance: the share of guesses kept, or of the first, second … guess.",
        ),
    ] = "0.7",
    draft_cost: Annotated[
        float | None,
        typer.Option(
            metavar="C",
            help="Cost of one guess, a plain pass of the target costing 1.  [default: as measured, or 0.1]",
        ),
    ] = None,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="V1,V2…", help="Cost of a target pass over 1, 2 … rows, in any unit: 1,1.1,1.3."
        ),
    ] = None,
    chip: Annotated[
        str | None, typer.Option(metavar="CHIP", help='The published curve of a chip, such as "M4 Pro".')
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The curve that was measured here when NAME was used last."),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", metavar="K", help="Guesses a round; all are compared without it.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="Compare acceptances from 0.1 to 0.95.")] = False,
    plain: Annotated[
        float | None,
        typer.Option(
            metavar="TOK/S",
            help="Plain decoding of the target, to see tokens a second and a chip's overheads.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of what is drawn by chance.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Predict what speculation brings: the best number of guesses, and how much faster than plain decoding.

    By closed form, by chance (they must agree), and with mlxspec's own controller. Without --curve,
    --chip and --target the curve is the one published for this Mac, or for an M4 Pro.
    """
    from mlxspec.cli.simulate_report import Report
    from mlxspec.lab.simulate import acceptances

    alphas = acceptances(_numbers(alpha, "--alpha"))
    _check(draft_cost, plain)
    if k is not None and not 0 <= k <= len(alphas):
        raise UsageError(
            f"{k} guesses a round cannot be simulated.", hint=f"Give --k a number from 0 to {len(alphas)}."
        )
    given = [f"--{name}" for name, value in (("curve", curve), ("chip", chip), ("target", target)) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be used together.", hint="Give one of them.")
    if curve is not None:
        question = _typed(alphas, draft_cost, curve)
    elif target is not None:
        question = _measured(alphas, draft_cost, target)
    else:
        question = _published(alphas, draft_cost, chip=chip, plain=plain)
    if plain is not None:
        question = replace(question, plain_tokens_per_s=plain)
    report = Report(question, k=k, sweep=sweep, seed=seed)
    print(json.dumps(report.as_dict()) if as_json else "\n".join(report.lines()))


def _check(draft_cost: float | None, plain: float | None) -> None:
    """Raises: UsageError when one of them is no number that makes sense."""
    if draft_cost is not None and not 0.0 <= draft_cost < math.inf:
        raise UsageError(
            f"A draft cost of {draft_cost:g} makes no sense.",
            hint="Give the cost of one guess in passes of the target, such as 0.1.",
        )
    if plain is not None and not 0.0 < plain < math.inf:
        raise UsageError(
            f"Plain decoding at {plain:g} tokens a second makes no sense.",
            hint="Give --plain a number above 0, or leave it out.",
        )


def _typed(alphas: tuple[float, ...], draft_cost: float | None, curve: str) -> Question:
    """A curve in any unit. Raises: UsageError when it is none, or falls."""
    from mlxspec.cli.simulate_report import Question
    from mlxspec.decoding.cost import VerifyCurve
    from mlxspec.lab.simulate import Setting

    typed = VerifyCurve.typed(_numbers(curve, "--curve"))
    source = f"as typed, beyond {len(typed.points)} rows by its average slope"
    return Question(Setting(alphas, typed.relative(), _or_default(draft_cost)), source)


def _measured(alphas: tuple[float, ...], draft_cost: float | None, target: str) -> Question:
    """The curve and the draft's step that were measured on this machine.

    Raises: UsageError when nothing was measured for that target.
    """
    from mlxspec.cli.simulate_report import Question
    from mlxspec.engine.pace import last_pace
    from mlxspec.lab.simulate import Setting
    from mlxspec.places import places

    pace = last_pace(target, places())
    if pace is None:
        raise UsageError(
            f"Nothing has been measured for {target!r} on this machine.",
            hint=f'Run `mlxspec run --target {target} "Hello"` once, or give --chip or --curve.',
        )
    plain_s = pace.curve.seconds(1)
    step_s = next(iter(pace.steps.values()), None)  # of the draft it was used with last
    cost = step_s / plain_s if draft_cost is None and step_s else _or_default(draft_cost)
    setting = Setting(alphas, pace.curve.relative(), cost)
    return Question(setting, f"{target}, measured here", plain_tokens_per_s=1.0 / plain_s)


def _published(
    alphas: tuple[float, ...], draft_cost: float | None, *, chip: str | None, plain: float | None
) -> Question:
    """The curve of a chip; its overheads too, where the speed of plain decoding gives them a measure.

    Raises: UsageError for a chip without figures.
    """
    from mlxspec.cli.simulate_report import Question
    from mlxspec.lab import chips
    from mlxspec.lab.simulate import Setting

    name = chips.find_chip(chip) if chip is not None else chips.this_chip() or DEFAULT_CHIP
    published = chips.chip_curve(name)
    cost = _or_default(draft_cost)
    setting = Setting(alphas, published.curve, cost)
    if plain is not None:
        pair = chips.PairOnChip(name, plain, size_ratio=cost)
        setting = replace(setting, draft_step=pair.draft_step, overhead=pair.overhead)
    return Question(setting, name, published.readings)


def _or_default(draft_cost: float | None) -> float:
    return DEFAULT_DRAFT_COST if draft_cost is None else draft_cost


def _numbers(text: str, option: str) -> list[float]:
    """Numbers with commas or spaces between them, at least one."""
    try:
        if numbers := [float(part) for part in text.replace(",", " ").split()]:
            return numbers
    except ValueError:
        pass
    example = "0.9,0.8,0.7" if option == "--alpha" else "1,1.1,1.3"
    raise UsageError(
        f"{option} cannot be read: {text!r} is no list of numbers.",
        hint=f"Write it like this: {option} {example}.",
    )
