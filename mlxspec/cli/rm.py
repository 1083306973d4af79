"""`mlxspec rm`: delete what was fetched for a model."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mlxspec.chat.visible import visible_line
from mlxspec.cli.completion import model_names
from mlxspec.cli.narrator import megabytes
from mlxspec.cli.terminal import is_terminal
from mlxspec.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def rm(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A name of `mlxspec models`, or a Hub repo id.", autocompletion=model_names
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the files of the model NAME from this machine; its draft stays. Asks first on a terminal."""
    from mlxspec.models import sources
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    where = places()
    spec = load_registry(where).resolve(name)
    size = sources.disk_bytes(spec, where)
    shown = visible_line(spec.name)
    if size == 0:
        print(f"{shown} is not on disk: nothing to delete.")
        return
    sources.check_removable(spec)
    if not yes and not _agreed(f"Delete {shown}, {megabytes(size)}? [y/N] "):
        print("Nothing was deleted.")
        return
    print(f"Deleted {shown}: {megabytes(sources.remove(spec, where))} freed.")


def _agreed(question: str) -> bool:
    if not is_terminal(sys.stdin):
        raise UsageError("Nobody is there to confirm.", hint="Give --yes to delete without being asked.")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
