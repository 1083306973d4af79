"""`mlxspec distill`: train a draft for a target from the target's own words."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlxspec.cli.completion import model_names
from mlxspec.cli.following import INTERRUPTED
from mlxspec.cli.lab_progress import LabProgress
from mlxspec.cli.terminal import tell
from mlxspec.errors import UsageError
from mlxspec.places import Places, places

if TYPE_CHECKING:
    from mlxspec.models.loading import LoadedModel
    from mlxspec.training.distilling import Stage
    from mlxspec.training.outcome import Outcome
    from mlxspec.training.trainer import Report

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SPARSE_S = 20.0  # between two lines about steps on which nothing else is to be told


@app.command()
def distill(
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model to guess for.", autocompletion=model_names),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="head (a layer behind the target), medusa (heads for several tokens), exit (a layer behind "
            "the target's first ones) or tiny (a small model).",
        ),
    ] = "head",
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the draft goes. [default: TARGET-KIND]")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Conversations of the target (.jsonl.gz), to begin from and to add to."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help='JSON Lines such as {"prompt": "Write a loop."}, to be answered first.'
        ),
    ] = None,
    chats: Annotated[
        bool, typer.Option("--chats", help="Let the target answer the questions of your saved chats too.")
    ] = False,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Tokens of answers to train on. [default: what the corpus has, or 200000]"
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="N", help="Minutes of training.")] = 60.0,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Steps of training, instead of as many as --minutes hold.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="One seed, one corpus and order.")] = 0,
    vocabulary: Annotated[
        int, typer.Option("--draft-vocab", metavar="N", help="Tokens that the draft can guess.")
    ] = 6144,
    layers: Annotated[
        int | None,
        typer.Option(metavar="N", help="For exit: the target's layers before it. [default: one in eight]"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the training in --out, with its options.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as one JSON object.")] = False,
) -> None:
    """Train a draft for a target from what the target itself says, and tell what it brings.

    Ctrl-C stops at any time; --resume goes on. The folder that is written is what --draft takes.
    """
    _check(tokens=tokens, minutes=minutes, steps=steps, vocabulary=vocabulary)
    texts = _texts(prompts, chats=chats)
    from mlxspec.lab.prompts import bench_prompts
    from mlxspec.training.distilling import Ears, Wish, distill, user_prompts

    wish = Wish(
        target=target or "",
        kind=kind,
        corpus=None if corpus is None else str(corpus.resolve()),
        tokens=tokens,
        minutes=minutes,
        steps=steps,
        seed=seed,
        vocabulary=vocabulary,
        layers=layers,
    )
    where = places()
    folder = out or Path(f"{target or _default_target(where)}-{kind}")

    def given(loaded: LoadedModel) -> list[list[int]]:
        return user_prompts(loaded, texts)

    with Telling() as telling:
        ears = Ears(telling.progress.event, telling.stage, telling.step, tell)
        try:
            outcome = distill(wish, folder, where, ears, resume=resume, given=given, prompts=bench_prompts())
        except KeyboardInterrupt:
            telling.close()
            tell(f"Stopped. Go on with `mlxspec distill --out {folder} --resume`.")
            raise typer.Exit(INTERRUPTED) from None
    print(json.dumps(outcome.as_dict()) if as_json else "\n".join(lines_of(outcome, folder)))


class Telling:
    """Says on stderr how far the training is."""

    def __init__(self) -> None:
        self.progress = LabProgress()
        self._stage = ""
        self._told_at = 0.0

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the line empty."""
        self.progress.__exit__(None, None, None)

    def stage(self, stage: Stage) -> None:
        """How far a stage is; each begins with a time of its own."""
        if stage.what != self._stage:
            self.close()
            self.progress = LabProgress()
            self._stage = stage.what
        self.progress.step(stage.done, max(1, stage.total), f"{stage.unit}: {stage.what}")

    def step(self, report: Report) -> None:
        """The loss of a step, and how the draft did on what was held out."""
        now = time.monotonic()
        self._stage = "training"
        of = f" of {report.total}" if report.total else ""
        text = f"step {report.step}{of}, {report.seconds / 60:.1f} min, loss {report.loss:.3f}"
        if report.held_out is not None:
            self.close()
            held = report.held_out
            kept = ", ".join(f"{alpha:.3f}" for alpha in held.alphas)
            best = ", the best so far" if report.is_best else ""
            tell(f"{text}; held out: loss {held.loss:.3f}, acceptance {kept}{best}")
            self._told_at = now
        elif now - self._told_at > SPARSE_S:
            tell(text)
            self._told_at = now


def lines_of(outcome: Outcome, folder: Path) -> list[str]:
    """The outcome for a reader."""
    width = max(len("all"), *(len(domain.name) for domain in outcome.domains))
    lines = [f"{'TEXT':{width}}  ACCEPTANCE, GUESS BY GUESS  GUESSES  SPEED-UP"]
    for domain in outcome.domains:
        kept = " ".join(f"{alpha:.2f}" for alpha in domain.alphas)
        lines.append(f"{domain.name:{width}}  {kept:26}  {domain.k:7}  {domain.speedup:8.2f}")
    lines.append(f"{'all':{width}}  {outcome.agreement:<26.2f}  {'':7}  {outcome.speedup:8.2f}")
    lines.append("")
    lines.append(f"One guess costs {outcome.step:.3f} of the target's pass. These speed-ups are predicted.")
    if outcome.pays:
        lines.append(f"Try it with `mlxspec run --draft {folder}`, or measure it with `mlxspec bench`.")
    else:
        lines.append("This draft does not pay here: plain decoding is as fast. More --tokens and --minutes")
        lines.append("raise the acceptance; another --kind may cost less.")
    return lines


def _check(*, tokens: int | None, minutes: float, steps: int | None, vocabulary: int) -> None:
    if tokens is not None and tokens < 1:
        raise UsageError(f"--tokens cannot be {tokens}.", hint="Give --tokens 1 or more.")
    if steps is not None and steps < 1:
        raise UsageError(f"--steps cannot be {steps}.", hint="Give --steps 1 or more.")
    if not minutes > 0:
        raise UsageError(f"--minutes cannot be {minutes:g}.", hint="Give more than 0.")
    if vocabulary < 2:
        raise UsageError(f"--draft-vocab cannot be {vocabulary}.", hint="Give 2 or more.")


def _texts(prompts: Path | None, *, chats: bool) -> list[str]:
    """The questions that the user gives."""
    from mlxspec.lab.prompts import read_prompts

    texts = [] if prompts is None else [prompt.prompt for prompt in read_prompts(prompts)]
    return [*texts, *(_saved_questions(places()) if chats else ())]


def _saved_questions(where: Places) -> Sequence[str]:
    """What the user asked in saved chats, each question once."""
    from mlxspec.chat.store import Store

    store = Store.open(where)
    try:
        asked = [
            message.content
            for chat in store.recent()
            for message in store.all_messages(chat.id)
            if message.role == "user" and message.content.strip()
        ]
    finally:
        store.close()
    return list(dict.fromkeys(asked))


def _default_target(where: Places) -> str:
    from mlxspec.models.registry import load_registry

    return load_registry(where).default_target
