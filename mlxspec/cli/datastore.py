"""`mlxspec datastore`: what lookup knows from earlier answers, and from files that it was given."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlxspec.chat.visible import visible_line
from mlxspec.cli.completion import model_names
from mlxspec.cli.narrator import megabytes
from mlxspec.cli.terminal import is_terminal, tell
from mlxspec.errors import NotOnDisk, NotWritable, UsageError
from mlxspec.places import Places, places
from mlxspec.settings import change_setting, load_settings

if TYPE_CHECKING:
    from mlxspec.drafters.ngram_file import Contents, NgramFile

app = typer.Typer(rich_markup_mode=None, help="See, clear and feed what lookup knows from earlier answers.")


@app.callback(invoke_without_command=True)
def _datastore(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what was learnt for each target."""
    where = places()
    stores = _contents(where)
    if as_json:
        for contents in stores:
            print(
                json.dumps(
                    {
                        "targets": dict(contents.targets),
                        "tokens": contents.tokens,
                        "contexts": contents.contexts,
                        "bytes": contents.bytes,
                    }
                )
            )
        return
    if not load_settings(where).datastore:
        tell("The datastore is off; `mlxspec datastore on` turns it on.")
    if not any(contents.tokens for contents in stores):
        tell("Nothing was learnt yet.")
        return
    rows = [
        (visible_line(name), f"{tokens:,}", f"{contents.contexts:,}", megabytes(contents.bytes))
        for contents in stores
        for name, tokens in contents.targets.items()
    ]
    width = max(len("TARGET"), *(len(name) for name, *_ in rows))
    print(f"{'TARGET':{width}}  {'TOKENS':>12}  {'CONTEXTS':>12}  {'SIZE':>9}")
    for name, tokens, contexts, size in rows:
        print(f"{name:{width}}  {tokens:>12}  {contexts:>12}  {size:>9}")
    if any(len(contents.targets) > 1 for contents in stores):
        print("\nTargets with the same vocabulary share contexts and size.")


@app.command()
def clear(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Forget everything that was learnt, for all targets."""
    from mlxspec.drafters.datastore import clear_all, datastore_bytes

    where = places()
    size = datastore_bytes(where)
    if not size:
        print("Nothing was learnt: nothing to clear.")
        return
    if not yes and not _agreed(f"Forget all earlier answers, {megabytes(size)}? [y/N] "):
        print("Nothing was cleared.")
        return
    with _explained():
        clear_all(where)
    print("The datastore is empty.")


@app.command()
def on() -> None:
    """Learn from answers, and guess from what was learnt."""
    change_setting(places(), "datastore", True)
    print("The datastore is on.")


@app.command()
def off() -> None:
    """Neither learn nor guess; what was learnt stays on disk."""
    change_setting(places(), "datastore", False)
    print("The datastore is off.")


@app.command()
def learn(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text or code.")],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that is to guess these words. [default: models.toml's default]",
            autocompletion=model_names,
        ),
    ] = None,
) -> None:
    """Learn text or code, such as notes or a codebase.

    Its words are guessed then, in every chat with this target.
    """
    texts = [_text(file) for file in files]
    from mlxspec.drafters.datastore import datastore_path
    from mlxspec.models.loading import load_tokenizer
    from mlxspec.models.registry import load_registry
    from mlxspec.models.sources import find

    where = places()
    registry = load_registry(where)
    spec = registry.resolve(target or registry.default_target)
    folder = find(spec, where)
    if folder is None:
        raise NotOnDisk(
            f"The tokenizer of {spec.name} is not on disk.", hint=f"Fetch it with `mlxspec pull {spec.name}`."
        )
    tokenizer = load_tokenizer(spec.name, folder)
    total = 0
    with _explained(), closing(_opened(datastore_path(where, tokenizer.get_vocab()))) as store:
        for text in texts:
            # What looks like a control token is text in a file.
            ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            store.learn(ids, spec.name)
            total += len(ids)
    if not total:
        tell("There was no text to learn from.")
        return
    files_read = "1 file" if len(files) == 1 else f"{len(files)} files"
    print(f"Learnt {total:,} tokens from {files_read} for {visible_line(spec.name)}.")
    if not load_settings(where).datastore:
        tell("The datastore is off; `mlxspec datastore on` turns it on.")


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror or error}.", hint="Give files of text or code."
        ) from error
    if b"\0" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    raise UsageError(f"{file} is not a text file in UTF-8.", hint="Give files of text or code.")


def _opened(path: Path) -> NgramFile:
    """The file to learn; a damaged one is set aside with a word."""
    from mlxspec.drafters.ngram_database import ForeignFile
    from mlxspec.drafters.ngram_file import NgramFile, set_aside

    try:
        return NgramFile.open(path)
    except ForeignFile:
        if (kept := set_aside(path)) is not None:
            tell(f"The datastore was damaged and is now {kept}; a new one begins.")
        return NgramFile.open(path)


def _contents(where: Places) -> Sequence[Contents]:
    from mlxspec.drafters.datastore import all_contents

    with _explained():
        return all_contents(where)


@contextmanager
def _explained() -> Iterator[None]:
    """Trouble with the files as an error for the user."""
    from mlxspec.drafters.datastore import datastore_folder, reason
    from mlxspec.drafters.ngram_database import ForeignFile, NewerFile

    try:
        yield
    except NewerFile as error:
        raise NotWritable(
            f"The datastore cannot be used: {reason(error, datastore_folder(places()))}.",
            hint="Update mlxspec.",
        ) from error
    except (ForeignFile, OSError, sqlite3.Error) as error:
        raise NotWritable(
            f"The datastore cannot be used: {reason(error, datastore_folder(places()))}.",
            hint="Free some space, or clear it with `mlxspec datastore clear`.",
        ) from error


def _agreed(question: str) -> bool:
    if not is_terminal(sys.stdin):
        raise UsageError("Nobody is there to confirm.", hint="Give --yes to clear without being asked.")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
