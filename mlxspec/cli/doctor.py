"""`mlxspec doctor`: this machine, a pair of models, and what to do about what is found."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxspec.chat.visible import visible
from mlxspec.cli.completion import draft_names, model_names

if TYPE_CHECKING:
    from mlxspec.lab.doctor import ModelFacts, Pair
    from mlxspec.lab.machine import Finding, Machine
    from mlxspec.places import Places

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_MARKS = {"good": "ok  ", "advice": "note", "problem": "BAD "}
_REWINDS = {
    "trim": "gives rows back",
    "slice": "gives rows back while they stand in order",
    "checkpoint": "goes back to a copy",
}


@app.command()
def doctor(
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The model to look at; else the default.", autocompletion=model_names
        ),
    ] = None,
    draft: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Its draft: a name, auto, lookup, lookahead, exit:N, none; options of a draft behind it.",
            autocompletion=draft_names,
        ),
    ] = "auto",
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of prompt and answer for the memory budget.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure again what passes cost here; loads the models.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Look at this machine and a pair of models: does it fit, may they work together, what does it bring?

    Nothing is downloaded. The exit code is 1 when there is a problem.
    """
    from mlxspec.lab.doctor import examine
    from mlxspec.lab.machine import Level, Machine
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    where = places()
    registry = load_registry(where)
    pair = examine(registry, target, draft, context, where)
    if calibrate:
        _calibrate(pair, where)
        pair = examine(registry, target, draft, context, where)
    machine = Machine.this_one()
    findings = [*machine.findings(), *pair.findings()]
    if as_json:
        print(json.dumps(_as_dict(machine, pair, findings)))
    else:
        print(visible("\n".join([*_machine(machine), "", *_pair(pair), "", *_findings(findings)])))
    raise typer.Exit(1 if any(finding.level is Level.PROBLEM for finding in findings) else 0)


def _calibrate(pair: Pair, where: Places) -> None:
    """Forget what is known of this pair's speed, and measure it, in this thread alone.

    Raises: NotOnDisk when a model is missing, IncompatiblePair when the draft cannot serve.
    """
    from mlxspec.cli.lab_progress import LabProgress
    from mlxspec.drafters.choice import DraftChoice
    from mlxspec.drafters.drafting import Workshop
    from mlxspec.drafters.loading import made, understood
    from mlxspec.engine.pace import find_pace, forget_pace
    from mlxspec.engine.pair import MEASURING
    from mlxspec.errors import NotOnDisk
    from mlxspec.events import Loading, Notice
    from mlxspec.models.loading import load_model
    from mlxspec.models.registry import load_registry

    for facts in (pair.target, pair.draft):
        if facts is not None and facts.folder is None:
            raise NotOnDisk(
                f"{facts.spec.name} is not on disk, so it cannot be measured.",
                hint=f"Fetch it with `mlxspec pull {facts.spec.name}`.",
            )
    spec, folder = pair.target.spec, pair.target.folder
    assert folder is not None
    with LabProgress() as progress:
        progress.event(Loading(spec.name))
        target = load_model(spec.name, folder)
        workshop = Workshop(target, spec, load_registry(where), where, progress.event)
        drafting = made(understood(DraftChoice.parse(pair.drafter), workshop), workshop)
        forget_pace(target, drafting, where)
        find_pace(
            target,
            drafting,
            where,
            before_measuring=lambda: progress.event(Notice(MEASURING)),
            cancelled=lambda: False,
        )


def _as_dict(machine: Machine, pair: Pair, findings: list[Finding]) -> dict[str, Any]:
    budget = pair.budget
    return {
        "machine": asdict(machine),
        "target": _model_dict(pair.target),
        "draft": _model_dict(pair.draft) if pair.draft else None,
        "drafter": pair.drafter,
        "compatible": _compatible(pair),
        "reason": pair.reason,
        "context": pair.context,
        "budget": None if budget is None else asdict(budget) | {"fits": budget.fits},
        "largest_context": pair.largest,
        "prediction": pair.prediction.as_dict() if pair.prediction else None,
        "findings": [asdict(finding) for finding in findings],
    }


def _model_dict(facts: ModelFacts) -> dict[str, Any]:
    return {
        "name": facts.spec.name,
        "on_disk": facts.folder is not None,
        "download_gb": facts.spec.download_gb,
        "context_tokens": facts.context_tokens,
        "caches": facts.caches,
    }


def _compatible(pair: Pair) -> bool | None:
    """None when it is not known, or when there is nothing to be compatible with."""
    if pair.reason is not None:
        return False
    return True if pair.draft and pair.draft.read and pair.target.loaded else None


def _machine(machine: Machine) -> list[str]:
    weights = "turned to float32" if machine.float32 else "as stored"
    return [
        "This machine",
        f"  {machine.chip}, {machine.system}",
        f"  {machine.total_bytes / 1e9:.1f} GB of memory, {machine.memory_bytes / 1e9:.1f} GB for models",
        f"  MLX {machine.mlx} on the {machine.device.upper()}, BLAS {machine.blas}, weights {weights};"
        f" mlx-lm {machine.mlx_lm}, Python {machine.python}",
    ]


def _pair(pair: Pair) -> list[str]:
    lines = _model("Target", pair.target)
    lines += _model("Draft", pair.draft) if pair.draft else [f"Draft: {pair.drafter}"]
    if (budget := pair.budget) is not None:
        known = pair.target.context_tokens is not None
        caches = budget.target_cache_bytes + budget.draft_cache_bytes
        lines.append(
            f"Memory at {pair.context} tokens: weights {_gb(budget.weights_bytes)}, "
            + (f"caches {_gb(caches)}" if known else "caches unknown before the download")
        )
        if pair.largest:
            lines.append(f"  the largest context that fits is {pair.largest} tokens")
    if (prediction := pair.prediction) is not None:
        costs = ", ".join(f"{prediction.curve.seconds(rows):.2f}" for rows in (1, 2, 3, 4, 6, 8, 12, 16))
        lines += [
            f"Speed, {prediction.source}: checking 1, 2, 3, 4, 6, 8, 12, 16 rows costs {costs};"
            f" a guess {prediction.draft_step:.2f}",
            *(
                f"  {row.acceptance:.0%} of guesses right: {row.speedup:.2f}x with"
                f" {'no guesses' if not row.k else '1 guess' if row.k == 1 else f'{row.k} guesses'}"
                for row in prediction.rows
            ),
        ]
    return lines


def _model(role: str, facts: ModelFacts) -> list[str]:
    where = "on disk" if facts.folder is not None else "not on disk"
    made_for = f", made for {facts.context_tokens} tokens" if facts.context_tokens else ""
    return [
        f"{role} {facts.spec.name}: {where}{made_for}",
        *(f"  cache {kind} {_REWINDS.get(way, way)} ({way})" for kind, way in facts.caches.items()),
    ]


def _findings(findings: list[Finding]) -> list[str]:
    lines = ["Findings"]
    for finding in findings:
        lines.append(f"  {_MARKS[finding.level]}  {finding.message}")
        if finding.hint:
            lines.append(f"        {finding.hint}")
    return lines


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
