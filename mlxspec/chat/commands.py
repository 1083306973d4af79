"""The one table of commands: slash commands, keys, command palette and help are all made from it.

The app and the plain chat both read it; what a command does is theirs. `parse` turns a typed line into a
`Call`, and `complete` says how a line that begins like a command may go on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlxspec.chat.parameters import PARAMETERS, Parameter
from mlxspec.errors import UsageError


class Takes(StrEnum):
    """What follows a command's name."""

    NOTHING = "nothing"
    MAYBE = "maybe"  # without it the command shows something or opens a panel
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: what is typed behind the slash.
        summary: what it does, for help and palette.
        group: the heading that it stands under in help.
        usage: its argument as help writes it.
        key: the key that does the same in the app, by Textual's name, without an argument.
        choices: all values it takes, where there are few.
        completes: the kind of names that its argument is one of, a key of `complete`'s `names`.
        app_only: whether the plain chat has no use for it.
    """

    name: str
    summary: str
    group: str
    takes: Takes = Takes.NOTHING
    usage: str = ""
    key: str | None = None
    choices: tuple[str, ...] = ()
    completes: str | None = None
    app_only: bool = False

    @property
    def written(self) -> str:
        """The command as it is typed: "/seed [N|off]"."""
        return f"/{self.name} {self.usage}".rstrip()


CHATS, ANSWERS, MODELS, SCREEN = "Chats", "Answers", "Models", "Screen"

COMMANDS: tuple[Command, ...] = (
    Command("new", "Start a new chat", CHATS, key="ctrl+n"),
    Command(
        "chats", "List the saved chats, or open one", CHATS, Takes.MAYBE, "[ID]", "ctrl+s", completes="chats"
    ),
    Command("search", "Find words in all chats", CHATS, Takes.MAYBE, "[WORDS]", "f3"),
    Command("rename", "Give this chat another title", CHATS, Takes.VALUE, "TITLE"),
    Command("delete", "Delete this chat, after asking", CHATS),
    Command(
        "export", "Write this chat to a file, as Markdown or JSON by its ending", CHATS, Takes.VALUE, "FILE"
    ),
    Command("retry", "Answer the last message once more; a fixed seed stays", ANSWERS, key="f5"),
    Command("edit", "Change an earlier message and go on from there", ANSWERS, Takes.MAYBE, "[NUMBER]", "f8"),
    Command(
        "branch", "Go to the other versions of a message", ANSWERS, Takes.MAYBE, "[NUMBER]", app_only=True
    ),
    Command(
        "copy",
        "Copy the last answer, or its last code block",
        ANSWERS,
        Takes.MAYBE,
        "[code]",
        "ctrl+y",
        ("code",),
    ),
    Command(
        "view",
        "Show an answer the other way; or choose how all are shown",
        ANSWERS,
        Takes.MAYBE,
        "[tokens|markdown]",
        "ctrl+t",
        ("tokens", "markdown"),
        app_only=True,
    ),
    Command("inspect", "See why each token is there, round by round", ANSWERS, key="ctrl+o", app_only=True),
    Command(
        "think",
        "Let the model think first, where it can",
        ANSWERS,
        Takes.MAYBE,
        "[on|off]",
        choices=("on", "off"),
    ),
    Command("stats", "Show the figures of the last answer and of this chat", ANSWERS),
    Command(
        "target", "Choose the model that answers", MODELS, Takes.MAYBE, "[NAME]", "f2", completes="targets"
    ),
    Command(
        "draft",
        "Choose what guesses: a model, lookup, lookahead, auto or none",
        MODELS,
        Takes.MAYBE,
        "[NAME]",
        completes="drafts",
    ),
    Command("pull", "Fetch a model", MODELS, Takes.VALUE, "NAME", completes="models"),
    Command("spec", "Speculate or not", MODELS, Takes.MAYBE, "[on|off]", choices=("on", "off")),
    Command("k", "How many tokens to guess in a round", MODELS, Takes.MAYBE, "[N|auto]"),
    Command(
        "seed", "Fix the seed, so that the same words give the same text", MODELS, Takes.MAYBE, "[N|off]"
    ),
    Command(
        "set",
        "Change a parameter, or show all",
        MODELS,
        Takes.MAYBE,
        "[NAME VALUE]",
        "f4",
        completes="parameters",
    ),
    Command("system", "Set the system prompt", MODELS, Takes.MAYBE, "[TEXT|off]"),
    Command("theme", "Change the colours", SCREEN, Takes.MAYBE, "[NAME]", completes="themes", app_only=True),
    Command("help", "Show keys and commands", SCREEN, key="f1"),
    Command("quit", "Leave", SCREEN, key="ctrl+q"),
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the app that is no command."""

    key: str
    summary: str


KEYS: tuple[Key, ...] = (
    Key("enter", "Send; while an answer streams, send it next"),
    Key("ctrl+j", "A new line (also Shift+Enter where the terminal tells it apart)"),
    Key("escape", "Stop the answer; what stands there stays, and so does what you are typing"),
    Key("ctrl+c", "Copy what is marked; else stop the answer; idle and pressed twice, leave"),
    Key("up", "On the first line: what you sent before"),
    Key("ctrl+r", "Search what you sent before"),
    Key("ctrl+g", "Write in $EDITOR"),
    Key("tab", "Complete a command, a name or a @path"),
    Key("pageup", "Scroll up; the view then stays where it is"),
    Key("ctrl+end", "Go to the end and follow it again"),
    Key("alt+up", "Mark the message above; commands then go to that one"),
    Key("f6", "Unfold or fold the thinking of an answer"),
    Key("f7", "Copy the last code block"),
    Key("ctrl+p", "All commands in a palette"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A command that was typed, and its argument, "" for none."""

    command: Command
    argument: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A line that may be meant, and what it means."""

    line: str
    summary: str


_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


def command(name: str) -> Command | None:
    """The command of this name."""
    return next((known for known in COMMANDS if known.name == name), None)


def parse(text: str) -> Call | None:
    """The command that a typed text is, or None when it is a message, as "/usr/bin is full" and " /new" are.

    Raises: UsageError when there is no such command, or when its argument is missing or none that it takes.
    """
    match = _COMMAND.fullmatch(text.rstrip())
    if match is None:
        return None
    name, argument = match[1], (match[2] or "").strip()
    found = command(name)
    if found is None:
        near = difflib.get_close_matches(name, [known.name for known in COMMANDS], n=1)
        meant = f"Type /{near[0]}" if near else "Type /help to see all"
        raise UsageError(
            f"There is no command /{name}.", hint=f"{meant}, or put a space in front to send it as a message."
        )
    if found.takes is Takes.NOTHING and argument:
        raise UsageError(f"/{name} takes nothing behind it.", hint=f"Type /{name} alone.")
    if found.takes is Takes.VALUE and not argument:
        raise UsageError(f"/{name} needs something behind it.", hint=f"Type {found.written}.")
    if found.choices and argument and argument not in found.choices:
        raise UsageError(f"/{name} does not take {argument!r}.", hint=f"Type {found.written}.")
    return Call(found, argument)


def parse_setting(argument: str) -> tuple[Parameter, object]:
    """The parameter and the value of "/set NAME VALUE". Raises UsageError."""
    name, _, value = argument.strip().partition(" ")
    known = PARAMETERS.get(name.replace("_", "-"))
    if known is None:
        near = difflib.get_close_matches(name, PARAMETERS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"They are {', '.join(PARAMETERS)}."
        raise UsageError(f"There is no parameter {name!r}.", hint=hint)
    return known, known.parse(value.strip())


def complete(text: str, names: Mapping[str, Sequence[str]], *, app: bool = True) -> list[Completion]:
    """How a line that begins with a slash may go on; nothing for any other line.

    `names` gives the names of each kind that a command `completes`: chats, targets, drafts, models, themes.
    """
    if not text.startswith("/") or "\n" in text:
        return []
    name, space, argument = text[1:].partition(" ")
    if not space:
        return [
            Completion(f"/{known.name}" + ("" if known.takes is Takes.NOTHING else " "), known.summary)
            for known in COMMANDS
            if known.name.startswith(name) and (app or not known.app_only)
        ]
    found = command(name)
    if found is None:
        return []
    if found.completes == "parameters":
        return _complete_setting(argument)
    values = [*found.choices, *names.get(found.completes or "", ())]
    return [Completion(f"/{name} {value}", "") for value in values if value.startswith(argument)]


def _complete_setting(argument: str) -> list[Completion]:
    name, space, value = argument.partition(" ")
    if not space:
        return [
            Completion(f"/set {known.name} ", known.summary)
            for known in PARAMETERS.values()
            if known.name.startswith(name)
        ]
    known = PARAMETERS.get(name)
    choices = known.choices if known else ()
    return [Completion(f"/set {name} {choice}", "") for choice in choices if choice.startswith(value)]


def key_text(key: str) -> str:
    """A key as people write it: "Ctrl+J"."""
    names = {"pageup": "PgUp", "escape": "Esc"}
    return "+".join(names.get(part, part.capitalize()) for part in key.split("+"))
