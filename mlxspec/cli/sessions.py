"""`mlxspec sessions`: the saved chats on the command line."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mlxspec.chat.records import Chat, MessageState
from mlxspec.chat.store import Store, database_path, set_aside
from mlxspec.chat.visible import visible, visible_line
from mlxspec.cli.terminal import is_terminal, tell
from mlxspec.errors import NotWritable, StoreDamaged, StoreNotWritable, StoreTooNew, UsageError
from mlxspec.places import places

app = typer.Typer(rich_markup_mode=None, help="List, show, search, export, rename and delete saved chats.")

ChatId = Annotated[str, typer.Argument(metavar="ID", help="The chat's ID, or its beginning.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N.")]


class Format(StrEnum):
    """What a chat can be exported as."""

    MARKDOWN = "md"
    JSON = "json"


@app.callback(invoke_without_command=True)
def _sessions(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list")
def list_chats(limit: Limit = 50, as_json: Json = False) -> None:
    """List the chats, the one used last first."""
    with _readable_store() as store:
        chats = store.recent(limit + 1)
    more = len(chats) > limit
    if as_json:
        for chat in chats[:limit]:
            print(json.dumps(asdict(chat)))
        return
    if not chats:
        tell("There are no saved chats yet.")
        return
    width = max(len("MODEL"), *(len(visible_line(chat.target)) for chat in chats))
    _print_line(f"{'ID':8}  {'UPDATED':16}  MESSAGES  {'MODEL':{width}}  TITLE")
    for chat in chats[:limit]:
        model = visible_line(chat.target)
        _print_line(f"{chat.id}  {_when(chat.updated)}  {chat.messages:8}  {model:{width}}  {_title(chat)}")
    if more:
        tell(f"There are more than {limit}; see them with --limit N.")


@app.command()
def show(chat_id: ChatId) -> None:
    """Show a chat as plain text."""
    with _readable_store() as store:
        chat = store.find_chat(chat_id)
        messages = store.path(chat.id)
    print(_title(chat))
    print(f"{chat.id}, {_when(chat.created)}, {visible_line(chat.target)}")
    if chat.system:
        print(f"\nsystem:\n{visible(chat.system)}")
    for message in messages:
        unfinished = "" if message.state is MessageState.DONE else f" ({message.state})"
        print(f"\n{visible_line(message.role)}{unfinished}:\n{visible(message.content)}")


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Words that must all be there.")],
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Find chats by the words in their messages and titles."""
    with _readable_store() as store:
        hits = store.search(" ".join(words), limit=limit)
    if as_json:
        for hit in hits:
            print(json.dumps(asdict(hit)))
        return
    if not hits:
        tell("Nothing was found.")
    last = None
    for hit in hits:
        if hit.chat != last:
            _print_line(f"{hit.chat}  {visible_line(hit.title) or 'Untitled'}")
            last = hit.chat
        if hit.message is not None:
            _print_line(f"    {visible_line(f'{hit.role}: {hit.before}{hit.match}{hit.after}')}")


@app.command()
def export(
    chat_id: ChatId,
    form: Annotated[
        Format, typer.Option("--format", help="md, to be read; json, with branches and token origins.")
    ] = Format.MARKDOWN,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, over what is there."),
    ] = None,
) -> None:
    """Write a chat to stdout or a file."""
    from mlxspec.chat.export import to_json, to_markdown

    with _readable_store() as store:
        chat = store.find_chat(chat_id)
        text = to_json(store, chat) if form is Format.JSON else to_markdown(chat, store.path(chat.id))
    if output is None:
        sys.stdout.write(visible(text) if is_terminal(sys.stdout) else text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotWritable(
            f"{output} cannot be written: {error.strerror or error}.",
            hint="Choose another file with --output.",
        ) from error


@app.command()
def rename(chat_id: ChatId, title: Annotated[str, typer.Argument(help="The new title.")]) -> None:
    """Give a chat another title."""
    with closing(Store.open(places())) as store:
        chat = store.rename(store.find_chat(chat_id).id, title)
    tell(f"{chat.id} is now called {chat.title!r}.")


@app.command()
def delete(
    chat_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The chats' IDs, or their beginnings.")
    ],
    yes: Yes = False,
) -> None:
    """Delete chats with all their branches; there is no way back."""
    with closing(Store.open(places())) as store:
        chats = {chat.id: chat for chat in map(store.find_chat, chat_ids)}
        for chat in chats.values():
            if yes or _confirmed(f"Delete {chat.id}, {_title(chat)!r}, for good?"):
                store.delete(chat.id)
                tell(f"{chat.id} is deleted.")


@app.command("set-aside")
def set_aside_damaged(yes: Yes = False) -> None:
    """Rename a damaged file of chats, so that new chats can be saved again."""
    here = places()
    try:
        Store.open(here).close()
    except (StoreDamaged, StoreTooNew) as problem:
        tell(problem.message)
    else:
        raise UsageError(f"Nothing is wrong with {database_path(here)}.", hint="There is nothing to do.")
    if yes or _confirmed("Keep that file under another name and start afresh, without its chats?"):
        tell(f"The old chats are now in {set_aside(here)}.")


@contextmanager
def _readable_store() -> Iterator[Store]:
    """The chats to be read, from a disk that cannot be written, too."""
    with closing(Store.open_or_unsaved(places())) as store:
        if store.unsaved and not isinstance(store.unsaved, StoreNotWritable):
            raise store.unsaved
        yield store


def _confirmed(question: str) -> bool:
    if not is_terminal(sys.stdin):
        raise UsageError(f"Nobody is there to answer: {question}", hint="Say so beforehand with --yes.")
    return typer.confirm(visible_line(question), err=True)


def _title(chat: Chat) -> str:
    return visible_line(chat.title) or "Untitled"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print_line(line: str) -> None:
    """A line, cut to the width of the terminal; whole where no terminal is."""
    if is_terminal(sys.stdout):
        from rich.cells import cell_len, set_cell_size

        columns = shutil.get_terminal_size().columns
        if cell_len(line) > columns:
            line = set_cell_size(line, columns - 1).rstrip() + "…"
    print(line)
