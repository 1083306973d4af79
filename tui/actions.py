"""What each command of the table does in the app, and each control of the transcript."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mlxspec.chat.commands import COMMANDS, Completion, Takes, command, complete, key_text
from mlxspec.drafters.choice import WORDS
from mlxspec.errors import UsageError
from tui.answer import AnswerEntry
from tui.answer_actions import AnswerActions
from tui.attachments import complete_path
from tui.chat_actions import ChatActions
from tui.entry import Entry, UserEntry
from tui.model_actions import ModelActions
from tui.palette import THEMES

if TYPE_CHECKING:
    from tui.app import ChatApp

THEME_NAMES = ("auto", *THEMES)


class Actions:
    """`do` carries out a command; `clicked` a control.

    Attributes:
        chats, answers, models: what they do, by what it is about.
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self.chats = ChatActions(app)
        self.answers = AnswerActions(app)
        self.models = ModelActions(app)
        self._commands: dict[str, Callable[[str], None]] = {
            "new": self.chats.new,
            "chats": self.chats.list,
            "search": self.chats.search,
            "rename": self.chats.rename,
            "delete": self.chats.delete,
            "export": self.chats.export,
            "retry": self.answers.retry,
            "edit": self.answers.edit,
            "branch": self.answers.branch,
            "copy": self.answers.copy,
            "view": self.answers.view,
            "inspect": self.answers.inspect,
            "think": self.models.think,
            "stats": self.answers.stats,
            "target": self.models.target,
            "draft": self.models.draft,
            "pull": self.models.pull,
            "spec": self.models.spec,
            "k": self.models.guesses,
            "seed": self.models.seed,
            "set": self.models.set,
            "system": self.models.system,
            "theme": self.theme,
            "help": self.help,
            "quit": self.quit,
        }

    def do(self, name: str, argument: str) -> None:
        """Carry a command out. Raises MlxspecError."""
        self._commands[name](argument)

    def clicked(self, entry: Entry, action: str) -> None:
        """Carry out what a control of an entry says."""
        match action:
            case "mark":
                self._app.page.mark(None if entry is self._app.page.marked else entry)
            case "fold":
                self.answers.fold(entry)
            case "branch-before" | "branch-after" if isinstance(entry, UserEntry | AnswerEntry):
                self._app.conversation.go_to_version(entry, -1 if action == "branch-before" else 1)
            case "view" | "inspect" | "copy" | "retry" | "edit":
                self._app.page.mark(entry)
                self._app.action_command(action)
            case "load":
                self._app.loader.load_again()
            case "models":
                self._app.action_command("target")
            case _:
                pass

    def complete(self, before: str) -> list[Completion]:
        """What the text before the cursor may be completed to: a command, a name, a path."""
        if before.startswith("/"):
            return complete(before, self._names(before))
        paths = complete_path(before, Path.cwd())
        at = before.rfind("@") + 1
        return [Completion(before[:at] + path, "") for path in paths]

    def _names(self, before: str) -> dict[str, list[str]]:
        """The names that an argument may be; looked up only when one is being typed."""
        if " " not in before or not hasattr(self._app, "saved"):
            return {}
        if before.startswith("/chats "):
            return {"chats": self.chats.ids}
        targets, drafts = self.models.names
        return {
            "targets": targets,
            "models": targets,
            "drafts": [*WORDS, *drafts],
            "themes": list(THEME_NAMES),
        }

    def theme(self, argument: str) -> None:
        """/theme."""
        if argument:
            if argument not in THEME_NAMES:
                raise UsageError(
                    f"There is no theme {argument!r}.", hint=f"They are {', '.join(THEME_NAMES)}."
                )
            self._app.use_theme(argument)
            return
        from tui.chooser import Choice, Chooser, Row

        rows = [Row(name, name, "as the terminal is" if name == "auto" else "") for name in THEME_NAMES]

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._app.use_theme(choice.id)

        self._app.push_screen(Chooser("Colours", rows, current=self._app.preferences.settings.theme), chosen)

    def help(self, _argument: str) -> None:
        """/help."""
        from tui.help import Help

        self._app.push_screen(Help(self._app.palette))

    def quit(self, _argument: str) -> None:
        """/quit."""
        self._app.exit(0)

    def choose_command(self) -> None:
        """Ctrl+P: all commands; one that needs an argument is written into the composer."""
        from tui.chooser import Choice, Chooser, Row

        rows: list[Row] = []
        for group, commands in groupby(COMMANDS, key=lambda command: command.group):
            rows.append(Row(group, group, heading=True))
            for known in commands:
                key = f"  {key_text(known.key)}" if known.key else ""
                rows.append(Row(known.name, known.written, known.summary + key))

        def chosen(choice: Choice | None) -> None:
            known = None if choice is None else command(choice.id)
            if known is None:
                return
            if known.takes is Takes.VALUE:
                self._app.composer.put(f"/{known.name} ")
                self._app.composer.focus()
            else:
                self._app.action_command(known.name)

        self._app.push_screen(Chooser("Commands", rows, empty="No command matches."), chosen)

    def recall(self) -> None:
        """Ctrl+R: choose from what was sent."""
        from tui.chooser import Choice, Chooser, Row

        texts = list(dict.fromkeys(reversed(self._app.composer.prompts.texts)))
        rows = [Row(str(number), text) for number, text in enumerate(texts)]

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._app.composer.put(texts[int(choice.id)])

        self._app.push_screen(
            Chooser("What you sent", rows, typed=self._app.composer.text, empty="Nothing matches."), chosen
        )

    def write_in_editor(self) -> None:
        """Ctrl+G: what is being typed, in $EDITOR."""
        from textual.app import SuspendNotSupported

        from tui.external_editor import edited, editor

        try:
            with self._app.suspend():
                text = edited(self._app.composer.text)
        except SuspendNotSupported:
            self._app.page.say("This terminal cannot be handed to an editor.", kind="warning")
        except OSError as error:
            self._app.page.say(
                f"The editor {editor()[0]} did not start: {error.strerror or error}.",
                "Set EDITOR to another one.",
                kind="warning",
            )
        else:
            self._app.refresh()
            if text is None:
                self._app.page.say("The editor reported a failure; the text is as it was.", kind="warning")
            else:
                self._app.composer.put(text)
