"""`mlxspec bench`: plain and speculative decoding side by side, on this machine."""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from errno import EISDIR
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxspec.chat.visible import visible
from mlxspec.cli.completion import draft_names, model_names
from mlxspec.cli.following import INTERRUPTED
from mlxspec.decoding.cost import MAX_GUESSES
from mlxspec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxspec.lab.bench import Plan
    from mlxspec.lab.bench_results import DraftResult
    from mlxspec.lab.prompts import BenchPrompt
    from mlxspec.models.loading import LoadedModel

app = typer.Typer(rich_markup_mode=None, add_completion=False)

BASELINES = ("mlx-lm",)
LEAST_FOR_A_CLAIM = 7  # pairs


@app.command()
def bench(
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model to measure.", autocompletion=model_names),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A draft: a name, auto, lookup, lookahead, exit:N, none; several with commas, or given "
            "again. A model may have options behind it: 'NAME --draft-vocab 8192', 'NAME --translate'. Where "
            "no draft exists, for measuring only: 3bit (the target rounded to 3 bits), layers:N (its first "
            "N layers).",
            autocompletion=draft_names,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSON Lines: {"domain": "code", "prompt": "Write a loop."}.'),
    ] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="Measure this one prompt.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Only the first N prompts.")] = None,
    num_draft: Annotated[
        int | None, typer.Option(metavar="N", help="Guesses a round; else the controller chooses.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Most tokens of an answer.")] = 128,
    temps: Annotated[str, typer.Option(metavar="T[,T…]", help="Temperatures.")] = "0",
    pairs: Annotated[
        int, typer.Option(metavar="N", help="Times that plain and speculative decoding take turns.")
    ] = LEAST_FOR_A_CLAIM,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Also measure mlx-lm's own generation: mlx-lm.")
    ] = None,
    datastore: Annotated[
        bool,
        typer.Option("--datastore", help="Let lookup read your datastore too; nothing is added to it."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of tables, a line a prompt.")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Also draw the speed-ups as bars.")] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.svg|png", help="Also save them as a picture.")
    ] = None,
) -> None:
    """Measure what speculation brings here: plain and speculative decoding alternate in one process.

    NULL is plain decoding against itself: differences of that size are noise. TOK/S does not count
    reading the prompt. Without --prompts the 24 prompts that come with mlxspec are used.
    """
    from mlxspec.lab.prompts import chosen_prompts

    if as_json and as_csv:
        raise UsageError("Both --json and --csv are given.", hint="Give one of them.")
    if baseline is not None and baseline not in BASELINES:
        raise UsageError(f"There is no baseline {baseline!r}.", hint=f"Give --baseline {BASELINES[0]}.")
    plan = _plan(
        chosen_prompts(prompts, prompt, limit),
        temperatures(temps),
        pairs=at_least_one("--pairs", pairs),
        max_tokens=at_least_one("--max-tokens", max_tokens),
        against_mlx_lm=baseline is not None,
        num_draft=None if num_draft is None else guesses_a_round(num_draft),
    )
    picture = None if save is None else Picture(save)
    names = [part.strip() for text in draft or ["auto"] for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("--draft is empty.", hint="Give a name, lookup or none, or leave it out.")
    measured = _measure(target, names, plan, datastore=datastore)
    if as_json:
        print(json.dumps(measured.as_dict()))
    elif as_csv:
        from mlxspec.lab.bench_table import as_csv as csv_text

        print(csv_text(measured.results), end="")
    else:
        print(visible("\n".join(measured.lines(plot=plot))))
    if picture is not None:  # last: what took so long to measure is not lost when this fails
        picture.write(measured)
    if measured.interrupted:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Measured:
    """The results, and on what they were measured."""

    target: LoadedModel
    plan: Plan
    results: Sequence[DraftResult]
    with_datastore: bool
    interrupted: bool

    @property
    def title(self) -> str:
        """Model, device and what was asked of it, in a line."""
        from mlxspec.models.device import blas_name, device_name

        device = device_name()
        device = f"{device} ({blas_name()})" if device == "cpu" else device
        plan = self.plan
        prompts = "1 prompt" if len(plan.prompts) == 1 else f"{len(plan.prompts)} prompts"
        pairs = "1 pair" if plan.pairs == 1 else f"{plan.pairs} pairs"
        return f"{self.target.name} on {device}: {prompts}, up to {plan.max_tokens} tokens, {pairs}" + (
            ", with your datastore" if self.with_datastore else ""
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        from importlib.metadata import version

        from mlxspec.lab.machine import chip_name
        from mlxspec.models.device import blas_name, device_name

        return {
            "target": self.target.name,
            "device": device_name(),
            "blas": blas_name(),
            "chip": chip_name(),
            "system": f"{platform.system()} {platform.machine()}",
            "mlx": version("mlx"),
            "mlx_lm": version("mlx-lm"),
            "weight_bytes": self.target.weight_bytes,
            "max_tokens": self.plan.max_tokens,
            "pairs": self.plan.pairs,
            "num_draft": self.plan.num_draft or "auto",
            "datastore": self.with_datastore,
            "interrupted": self.interrupted,
            "results": [result.as_dict() for result in self.results],
        }

    def lines(self, *, plot: bool) -> list[str]:
        """Tables for a person."""
        from mlxspec.lab.bench_table import bars, table

        lines = [self.title]
        for result in self.results:
            lines += ["", *table(result)]
        if self.interrupted:
            done = len(self.results[-1].prompts)
            lines += ["", f"Stopped after {done} of {len(self.plan.prompts)} prompts of the last table"]
        if self.plan.pairs < LEAST_FOR_A_CLAIM:
            lines += ["", f"Fewer than {LEAST_FOR_A_CLAIM} pairs are for a first look, not for a claim"]
        return [*lines, "", *bars(self.results)] if plot else lines


class Picture:
    """Where --save writes: known to be writable before anything is measured, and written as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.suffix.lower() not in (".svg", ".png"):
            raise UsageError(
                f"{path} is no picture that can be saved.", hint="Give a name that ends in .svg or .png."
            )
        if self._as_png and find_spec("resvg_py") is None:
            raise UsageError(
                "Saving a PNG needs the package resvg-py, which is not installed.",
                hint="Run `pip install 'mlxspec[png]'`, or give a name that ends in .svg.",
            )
        try:
            if path.is_dir():
                raise IsADirectoryError(EISDIR, "Is a directory")
            with tempfile.TemporaryFile(dir=path.parent):  # asking about permissions does not tell
                pass
        except OSError as error:
            raise self._unwritable(error) from error

    @property
    def _as_png(self) -> bool:
        return self._path.suffix.lower() == ".png"

    def write(self, measured: Measured) -> None:
        """Put the picture there."""
        from mlxspec.lab.bench_plot import png, svg

        text = svg(measured.results, measured.title)
        content = png(text) if self._as_png else text.encode()
        try:
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".speed-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(temporary).chmod(0o644)
                Path(temporary).replace(self._path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self._path} cannot be written: {error.strerror or error}.",
            hint="Give a file in a folder that you may write to.",
        )


def temperatures(text: str) -> tuple[float, ...]:
    """Numbers from 0 with commas between them, each once.

    Raises:
        UsageError: they are not.
    """
    try:
        values = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        values = []
    if not values or any(not 0 <= value < math.inf for value in values):
        raise UsageError(f"--temps cannot be {text!r}.", hint="Give numbers from 0: --temps 0,0.7,1.")
    return tuple(dict.fromkeys(values))


def at_least_one(option: str, value: int) -> int:
    """The value. Raises: UsageError when it is below 1."""
    if value < 1:
        raise UsageError(f"{option} cannot be {value}.", hint=f"Give {option} 1 or more.")
    return value


def guesses_a_round(value: int) -> int:
    """The value of --num-draft. Raises: UsageError when no round has as many."""
    if not 1 <= value <= MAX_GUESSES:
        raise UsageError(
            f"--num-draft cannot be {value}.", hint=f"Give --num-draft a number from 1 to {MAX_GUESSES}."
        )
    return value


def _plan(
    prompts: tuple[BenchPrompt, ...],
    temps: tuple[float, ...],
    *,
    pairs: int,
    max_tokens: int,
    against_mlx_lm: bool,
    num_draft: int | None,
) -> Plan:
    from mlxspec.lab.bench import Plan

    return Plan(prompts, temps, pairs, max_tokens, against_mlx_lm, num_draft)


def _measure(target: str | None, drafts: Sequence[str], plan: Plan, *, datastore: bool) -> Measured:
    """Load and measure, in this thread alone: MLX belongs to one."""
    from mlxspec.cli.lab_progress import LabProgress
    from mlxspec.lab.bench import Bench
    from mlxspec.lab.drafts import load_draft, load_target, users_datastore, wanted
    from mlxspec.places import places

    where = places()
    asked = wanted(target, drafts, where)
    with LabProgress() as progress:
        loaded = load_target(asked, where, progress.event)
        with users_datastore(loaded, where, progress.event) if datastore else nullcontext() as earlier:
            ways = [
                load_draft(name, loaded, asked, where, progress.event, datastore=earlier)
                for name in asked.drafts
            ]
            bench = Bench(loaded, ways, plan=plan, progress=progress.step)
            results = bench.run()
    return Measured(loaded, plan, results, with_datastore=datastore, interrupted=bench.interrupted)
