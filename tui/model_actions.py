"""Commands about models and parameters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mlxspec.chat.commands import parse_setting
from mlxspec.chat.parameters import PARAMETERS
from mlxspec.drafters.choice import WORDS
from mlxspec.errors import MlxspecError
from tui.entry import NoticeEntry
from tui.loader import download_text

if TYPE_CHECKING:
    from mlxspec.events import Downloading
    from tui.app import ChatApp
    from tui.chooser import Choice
    from tui.pulling import Pull


class ModelActions:
    """Choosing models, fetching them, and all that shapes an answer."""

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self._names_read: tuple[list[str], list[str]] | None = None
        self.pulls: list[Pull] = []

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Names of targets, and of draft models, for completion."""
        if self._names_read is None:
            from tui.model_rows import model_names

            self._names_read = model_names(self._app.places)
        return self._names_read

    def target(self, argument: str) -> None:
        """/target: by name, or the picker."""
        if not argument:
            self._pick_models()
            return
        self._app.choices.target = argument
        self._load()

    def draft(self, argument: str) -> None:
        """/draft: by name, or the picker. The target stays in memory."""
        if not argument:
            self._pick_models(drafts_first=True)
            return
        self._app.choices.draft = argument
        self._load()

    def pull(self, argument: str) -> None:
        """/pull: fetch a model while the chat goes on."""
        from mlxspec.models.registry import load_registry

        load_registry(self._app.places).resolve(argument)
        self._app.troubles.in_background(self._pull(argument))

    def cancel_pull(self) -> bool:
        """Stop what is being fetched for later. False when nothing is."""
        for pull in self.pulls:
            pull.cancel()
        return bool(self.pulls)

    def spec(self, argument: str) -> None:
        """/spec: on, off, or the other one."""
        choices = self._app.choices
        choices.speculate = not choices.speculate if not argument else argument == "on"
        self._app.page.hint(f"Speculation is {'on' if choices.speculate else 'off'}")

    def think(self, argument: str) -> None:
        """/think: on, off, or what it is."""
        self._parameter("think", argument)

    def guesses(self, argument: str) -> None:
        """/k."""
        self._parameter("k", argument)

    def seed(self, argument: str) -> None:
        """/seed."""
        self._parameter("seed", argument)

    def set(self, argument: str) -> None:
        """/set: one parameter, or the panel."""
        if not argument:
            self._open_panel()
            return
        parameter, value = parse_setting(argument)
        self._app.choices.set(parameter.field, value)
        self._app.page.hint(f"{parameter.name}: {parameter.show(value)}")

    def system(self, argument: str) -> None:
        """/system: set it, take it away, or show it."""
        if argument:
            self._app.choices.system = "" if argument == "off" else argument
        system = self._app.choices.system
        self._app.page.say(f"System prompt: {system}" if system else "There is no system prompt.")

    def _parameter(self, name: str, argument: str) -> None:
        parameter = PARAMETERS[name]
        if argument:
            self._app.choices.set(parameter.field, parameter.parse(argument))
        self._app.page.hint(f"{name}: {parameter.show(self._app.choices.values.get(parameter.field))}")

    def _load(self) -> None:
        self._app.answering.stop()
        self._app.loader.load()

    def _open_panel(self) -> None:
        from mlxspec.engine.defaults import default_texts
        from tui.parameters_panel import Chosen, ParametersPanel

        def taken(chosen: Chosen | None) -> None:
            if chosen is not None:
                self._app.choices.values, self._app.choices.system = chosen
                self._app.page.hint("The next answer is made with these")

        loaded, choices = self._app.loader.loaded, self._app.choices
        target = None if loaded is None else loaded.target
        defaults = default_texts(target, self._app.places, seeded="seed" in choices.values)
        self._app.push_screen(ParametersPanel(choices, defaults), taken)

    def _pick_models(self, *, drafts_first: bool = False) -> None:
        from tui.chooser import Chooser
        from tui.model_rows import DRAFT, TARGET, model_rows

        choices = self._app.choices

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._picked(choice)

        screen = Chooser(
            "Models",
            keys={"ctrl+f": "fetch only"},
            empty="Looking at what is on disk …",
            current=DRAFT + choices.draft if drafts_first else TARGET + (choices.target or ""),
        )
        self._app.push_screen(screen, chosen)

        async def fill() -> None:
            try:
                rows = await asyncio.to_thread(
                    model_rows,
                    self._app.places,
                    target=choices.target,
                    draft=choices.draft,
                    drafts_first=drafts_first,
                )
            except MlxspecError as error:
                screen.dismiss(None)
                self._app.page.say(error.message, error.hint, kind="error")
                return
            if screen.is_attached:
                screen.replace_rows(rows)

        screen.call_after_refresh(lambda: self._app.troubles.in_background(fill()))

    def _picked(self, choice: Choice) -> None:
        from tui.model_rows import DRAFT, TARGET

        name = choice.id.removeprefix(TARGET).removeprefix(DRAFT)
        if choice.key == "ctrl+f":
            if name not in WORDS:
                self.pull(name)
            return
        if choice.id.startswith(TARGET):
            self._app.choices.target = name
        else:
            self._app.choices.draft = name
        self._load()

    async def _pull(self, name: str) -> None:
        from tui.pulling import Pull

        pull = Pull(name)
        self.pulls.append(pull)
        entry = NoticeEntry(f"Fetching {name}", "The chat goes on; Esc when idle stops it.", kind="accent")
        self._app.page.put_notice(entry)

        def progress(event: Downloading) -> None:
            entry.message = download_text(event)
            entry.changed()
            self._app.transcript.update_rows()

        failed = await pull.run(progress)
        self.pulls.remove(pull)
        self._app.transcript.take_out(entry)
        if failed is not None:
            self._app.page.say(failed.message, failed.hint, kind="error")
        elif pull.cancelled:
            self._app.page.say(f"Fetching {name} was stopped.", "What has come is kept for the next time.")
        else:
            self._app.page.say(f"{name} is on disk.", f"/target {name} chats with it.")
