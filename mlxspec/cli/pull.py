"""`mlxspec pull`: fetch a model and its draft, so that they work without a network."""

from __future__ import annotations

from typing import Annotated

import typer

from mlxspec.chat.visible import visible_line
from mlxspec.cli.completion import model_names
from mlxspec.cli.following import INTERRUPTED, Interruptible
from mlxspec.cli.narrator import Narrator, megabytes

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A name of `mlxspec models`, or a Hub repo id.", autocompletion=model_names
        ),
    ],
) -> None:
    """Fetch the model NAME and the draft that goes with it. What is there already is not fetched again."""
    from mlxspec.errors import DownloadCancelled
    from mlxspec.models import sources
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    where = places()
    registry = load_registry(where)
    target = registry.resolve(name)
    draft = registry.draft_of(target)
    narrator = Narrator(stats=False)
    with Interruptible(lambda: None) as interrupt:
        for spec in (target, draft):
            if spec is None:
                continue
            try:
                folder = sources.pull(spec, where, progress=narrator.event, cancelled=lambda: interrupt.seen)
            except DownloadCancelled:
                raise typer.Exit(INTERRUPTED) from None
            finally:
                narrator.close()
            size = megabytes(sources.disk_bytes(spec, where))
            role = "draft" if spec is draft else "model"
            print(f"{visible_line(spec.name)} ({role}, {size}) is in {visible_line(str(folder))}", flush=True)
