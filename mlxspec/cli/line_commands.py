"""What slash commands do in the line chat. Their names, arguments and help are `mlxspec.chat.commands`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mlxspec.chat import commands
from mlxspec.chat.parameters import PARAMETERS
from mlxspec.chat.visible import visible_line
from mlxspec.cli.narrator import stats_line
from mlxspec.cli.prompts import checked_text
from mlxspec.cli.reading import read_message
from mlxspec.cli.saving import answered
from mlxspec.cli.terminal import say
from mlxspec.engine.defaults import default_texts
from mlxspec.errors import UsageError
from mlxspec.places import places

if TYPE_CHECKING:
    from mlxspec.chat.records import Chat, SavedMessage
    from mlxspec.cli.line_chat import LineChat

_LISTED = 20


class Leave(Exception):
    """The user wants to leave."""


def obey(chat: LineChat, call: commands.Call) -> None:
    """Carry a command out. Raises UsageError when only the full-screen chat can, and Leave."""
    action = _ACTIONS.get(call.command.name)
    if action is None:
        raise UsageError(
            f"/{call.command.name} needs the full-screen chat.",
            hint="Open it with `mlxspec run`, without --plain.",
        )
    action(chat, call.argument)


def _new(chat: LineChat, _: str) -> None:
    chat.saving.chat = None
    chat.turns.clear()
    chat.stats = None
    say("A new chat.")


def _chats(chat: LineChat, argument: str) -> None:
    store = chat.saving.store
    if not argument:
        for found in store.recent(_LISTED):
            day = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.updated))
            say(f"{found.id}  {day}  {visible_line(found.title)}")
        return
    chosen = store.find_chat(argument)
    chat.show(chosen)
    chat.setup.system = chosen.system or None
    say(f"{visible_line(chosen.title)}: {len(chat.turns) // 2} answers so far.")


def _search(chat: LineChat, argument: str) -> None:
    if not argument:
        raise UsageError("There is nothing to search for.", hint="Type /search WORDS.")
    for hit in chat.saving.store.search(argument, limit=_LISTED):
        say(f"{hit.chat}  {visible_line(hit.title)}: {visible_line(hit.before + hit.match + hit.after)}")


def _rename(chat: LineChat, argument: str) -> None:
    saved = _saved(chat)
    chat.saving.chat = chat.saving.store.rename(saved.id, argument)
    say(f"This chat is now called {visible_line(chat.saving.chat.title)}.")


def _delete(chat: LineChat, _: str) -> None:
    saved = _saved(chat)
    if input(f"Delete {visible_line(saved.title)}? [y/N] ").strip().lower() in ("y", "yes"):
        chat.saving.store.delete(saved.id)
        say(f"{visible_line(saved.title)} is deleted.")
        _new(chat, "")


def _export(chat: LineChat, argument: str) -> None:
    from mlxspec.chat.export import to_json, to_markdown

    saved = _saved(chat)
    store = chat.saving.store
    file = Path(argument).expanduser()
    text = to_json(store, saved) if file.suffix == ".json" else to_markdown(saved, store.path(saved.id))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror or error}.", hint="Give another name or folder."
        ) from error
    say(f"Written to {visible_line(str(file))}.")


def _retry(chat: LineChat, _: str) -> None:
    if not chat.turns:
        raise UsageError("There is nothing to answer again.", hint="Ask something first.")
    chat.retry(_saved_question(chat, len(chat.turns) // 2 - 1))


def _edit(chat: LineChat, argument: str) -> None:
    count = len(chat.turns) // 2
    if not count:
        raise UsageError("There is no message to change.", hint="Ask something first.")
    if argument and (not argument.isascii() or not argument.isdigit() or not 1 <= int(argument) <= count):
        raise UsageError(
            f"There is no message {argument!r}.", hint=f"Messages are numbered from 1 to {count}."
        )
    number = int(argument or count) - 1
    before = chat.turns[2 * number].content
    say(f"Message {number + 1} was: {before}")
    text = read_message("edit> ", before if "\n" not in before else "")
    if text.strip():
        chat.edit(number, _saved_question(chat, number), checked_text("The message", text))
    else:
        say("It stays as it was.")


def _copy(chat: LineChat, argument: str) -> None:
    from tui import clipboard, thinking  # neither draws anything

    if not chat.turns:
        raise UsageError("There is no answer to copy.", hint="Ask something first.")
    text = thinking.answer_of(chat.turns[-1].content)
    if argument:
        found = (clipboard.last_code_block(turn.content) for turn in reversed(chat.turns[1::2]))
        code = next((block for block in found if block is not None), None)
        if code is None:
            raise UsageError("There is no code block in this chat.", hint="/copy copies the whole answer.")
        text = code
    if not clipboard.copy(text):
        raise UsageError(
            "No program that copies to the clipboard is there.",
            hint="Install wl-copy or xclip, or write the chat to a file with /export FILE.",
        )
    say(f"Copied {len(text)} characters.")


def _think(chat: LineChat, argument: str) -> None:
    _parameter(chat, "think", argument)


def _k(chat: LineChat, argument: str) -> None:
    _parameter(chat, "k", argument)


def _seed(chat: LineChat, argument: str) -> None:
    _parameter(chat, "seed", argument)


def _stats(chat: LineChat, _: str) -> None:
    if chat.stats is not None and chat.loaded is not None:
        say(stats_line(chat.stats, target=chat.loaded.target))
    elif chat.turns:
        say("No figures were saved with the last answer.")
    else:
        say("There is no answer yet.")


def _target(chat: LineChat, argument: str) -> None:
    if argument:
        _load(chat, target=argument, draft=None)
    elif chat.loaded:
        say(f"target: {visible_line(chat.loaded.target)}")


def _draft(chat: LineChat, argument: str) -> None:
    if argument:
        _load(chat, target=chat.setup.target, draft=argument)
    elif chat.loaded:
        say(f"draft: {visible_line(chat.loaded.draft)}")


def _pull(_chat: LineChat, argument: str) -> None:
    # In a process of its own: what it makes of the files needs MLX, which here belongs to the engine.
    subprocess.run([sys.executable, "-P", "-m", "mlxspec", "pull", "--", argument], check=False)


def _spec(chat: LineChat, argument: str) -> None:
    if argument:
        chat.speculate = argument == "on"
    say(f"spec: {'on' if chat.speculate else 'off'}")


def _set(chat: LineChat, argument: str) -> None:
    if not argument:
        target = chat.loaded.target if chat.loaded else None
        defaults = default_texts(target, places(), seeded="seed" in chat.setup.values)
        for parameter in PARAMETERS.values():
            value, default = chat.setup.values.get(parameter.field), defaults.get(parameter.field)
            shown = parameter.show(value)
            if value is None and default is not None:
                shown += f": {default}"
            say(f"{parameter.name:18}  {shown:20}  {parameter.summary}")
        return
    parameter, value = commands.parse_setting(argument)
    _put(chat, parameter.field, value)
    say(f"{parameter.name}: {parameter.show(value)}")


def _system(chat: LineChat, argument: str) -> None:
    if argument:
        chat.setup.system = None if argument == "off" else argument
    say(f"system: {visible_line(chat.setup.system or 'off')}")


def _help(_chat: LineChat, _: str) -> None:
    usable = [command for command in commands.COMMANDS if command.name in _ACTIONS]
    for group, members in groupby(usable, key=lambda command: command.group):
        say(f"{group}")
        for command in members:
            say(f"  {command.written:20} {command.summary}")
    say("Ctrl-C stops an answer, Ctrl-D leaves.")


def _quit(_chat: LineChat, _: str) -> None:
    raise Leave


_ACTIONS: dict[str, Callable[[LineChat, str], None]] = {
    "new": _new,
    "chats": _chats,
    "search": _search,
    "rename": _rename,
    "delete": _delete,
    "export": _export,
    "retry": _retry,
    "edit": _edit,
    "copy": _copy,
    "think": _think,
    "stats": _stats,
    "target": _target,
    "draft": _draft,
    "pull": _pull,
    "spec": _spec,
    "k": _k,
    "seed": _seed,
    "set": _set,
    "system": _system,
    "help": _help,
    "quit": _quit,
}


def _parameter(chat: LineChat, name: str, argument: str) -> None:
    parameter = PARAMETERS[name]
    if argument:
        _put(chat, parameter.field, parameter.parse(argument))
    say(f"{name}: {parameter.show(chat.setup.values.get(parameter.field))}")


def _put(chat: LineChat, field: str, value: object) -> None:
    if value is None:
        chat.setup.values.pop(field, None)
    else:
        chat.setup.values[field] = value


def _load(chat: LineChat, *, target: str | None, draft: str | None) -> None:
    """Load other models; when that fails, those before."""
    before = replace(chat.setup)
    chat.setup.target, chat.setup.draft = target, draft
    chat.load()
    if chat.loaded is None:
        chat.setup.target, chat.setup.draft = before.target, before.draft
        chat.load()
    if chat.loaded is not None:
        say(f"target: {visible_line(chat.loaded.target)}, draft: {visible_line(chat.loaded.draft)}")


def _saved(chat: LineChat) -> Chat:
    if chat.saving.chat is None:
        raise UsageError("This chat has no message yet.", hint="Ask something first.")
    return chat.saving.store.chat(chat.saving.chat.id)


def _saved_question(chat: LineChat, number: int) -> SavedMessage | None:
    """The question of this number, from 0, as it is saved; None when it is not."""
    if chat.saving.chat is None:
        return None
    saved = answered(chat.saving.store.path(chat.saving.chat.id))
    return saved[number][0] if number < len(saved) else None
