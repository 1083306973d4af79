"""The chat for any terminal: a line in, an answer out, and slash commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mlxspec.chat import commands
from mlxspec.chat.conversation import Message
from mlxspec.chat.visible import visible_line
from mlxspec.cli import following, run_options
from mlxspec.cli.following import INTERRUPTED, follow
from mlxspec.cli.line_commands import Leave, obey
from mlxspec.cli.narrator import Narrator
from mlxspec.cli.prompts import checked_text
from mlxspec.cli.reading import read_message
from mlxspec.cli.saving import Saved, history, last_stats, open_store, wanted_chat
from mlxspec.cli.terminal import complain, is_terminal, tell, wants_colour
from mlxspec.cli.writers import TextWriter
from mlxspec.errors import MlxspecError
from mlxspec.events import Event, Failed, Finished, FinishReason, Loaded, Tokens

if TYPE_CHECKING:
    from mlxspec.chat.records import Chat, SavedMessage
    from mlxspec.cli.run_options import Setup
    from mlxspec.decoding.stats import DecodeStats
    from mlxspec.engine import Engine, Job

LABEL = "you> "


def chat(setup: Setup) -> int:
    """Chat until the user leaves; returns the exit code.

    Raises: UnknownChat when a chat was to be continued that is not there.
    """
    store = open_store()
    try:
        saved = wanted_chat(store, session=setup.session, last=setup.resume)
        saving = Saved(store, saved)
        if saved is not None:
            setup.go_on_with(saved)
        with following.open_engine() as engine:
            line_chat = LineChat(engine, setup, saving=saving)
            try:
                return line_chat.run()
            finally:
                line_chat.narrator.close()
                saving.close()
    finally:
        store.close()


class LineChat:
    """One conversation at a time. Commands change `setup`, `turns`, `saving` and `speculate`.

    Attributes:
        turns: questions and their answers so far, without the system prompt.
        loaded: what is in memory; None when a load failed.
        stats: the figures of the last answer; None when there is none, or none were saved with it.
    """

    def __init__(self, engine: Engine, setup: Setup, *, saving: Saved) -> None:
        self.engine = engine
        self.setup = setup
        self.saving = saving
        self.turns: list[Message] = []
        self.speculate = True
        self.loaded: Loaded | None = None
        self.stats: DecodeStats | None = None
        self.narrator = Narrator(stats=setup.stats)
        colour = wants_colour(setup.colour, sys.stdout)
        self._writer = TextWriter(sys.stdout, colour=colour, terminal=is_terminal(sys.stdout))
        if saving.chat is not None:
            self.show(saving.chat)

    def run(self) -> int:
        """Load and chat; the exit code."""
        stopped, job = self.load()
        if stopped:
            return INTERRUPTED
        if self.loaded is None:
            return job.result.exit_code if isinstance(job.result, Failed) else 1
        names = f"{self.loaded.target} answers, draft: {self.loaded.draft}"
        tell(f"{names}; /help lists commands, Ctrl-D leaves.")
        if self.turns:
            tell(f"Going on after {len(self.turns) // 2} answers.")
        while True:
            try:
                self.take(read_message(LABEL))
            except (EOFError, Leave):
                print(flush=True)
                return 0
            except KeyboardInterrupt:
                print(flush=True)  # the line that was being typed is dropped; Ctrl-D leaves
            except UnicodeDecodeError:
                complain("That was not UTF-8.", "Set the terminal to UTF-8.")
            except MlxspecError as error:
                complain(error.message, error.hint)

    def show(self, chat: Chat) -> None:
        """Go on after the answers of a saved chat."""
        path = self.saving.store.path(chat.id)
        self.saving.chat = chat
        self.turns, self.stats = history(path), last_stats(path)

    def load(self) -> tuple[bool, Job]:
        """Load what `setup` asks for: whether the user stopped it, and the job."""
        job = self.engine.load(self.setup.load_request())
        stopped = follow(job, self.narrator.before, self.narrator.event)
        self.loaded = job.result if isinstance(job.result, Loaded) else None
        return stopped, job

    def take(self, text: str) -> None:
        """Obey a command, or answer a message. Raises MlxspecError."""
        if not text.strip():
            return
        call = commands.parse(checked_text("The message", text))
        if call is not None:
            obey(self, call)
        else:
            target = self.loaded.target if self.loaded else self.setup.target or ""
            self.saving.question(
                text, target=target, draft=self.setup.draft or "auto", system=self.setup.system or ""
            )
            self.answer(text)

    def retry(self, question: SavedMessage | None) -> None:
        """Answer the last question once more, with fresh noise unless a seed is pinned.

        `question` is where it is saved.
        """
        asked = self.turns[-2].content
        del self.turns[-2:]
        if question is not None:
            self.saving.again(question)
        self.answer(asked)

    def edit(self, number: int, question: SavedMessage | None, text: str) -> None:
        """Put another wording in the place of the question of this number, from 0, and answer it."""
        del self.turns[2 * number :]
        if question is not None:
            self.saving.edited(question, text)
        self.answer(text)

    def answer(self, text: str) -> None:
        """Answer, and keep the turn if anything was said. Ctrl-C stops the answer only."""
        question = Message("user", text)
        messages = [*self.setup.system_message(), *self.turns, question]
        request = run_options.request(messages, self.setup.values, speculate=self.speculate)
        job = self.engine.generate(request)
        label = AnswerLabel(self.loaded.target if self.loaded else "model")
        follow(
            job,
            self.narrator.before,
            label.event,
            self._writer.event,
            self.narrator.event,
            self.saving.answer,
        )
        if isinstance(job.result, Finished):
            self.stats = job.result.stats
            if job.result.text or job.result.reason is not FinishReason.CANCELLED:
                self.turns += [question, Message("assistant", job.result.text)]


class AnswerLabel:
    """Says whose words follow, before the first of them."""

    def __init__(self, name: str) -> None:
        self._label = f"{visible_line(name)}> "

    def event(self, event: Event) -> None:
        """Say it once, on stderr as the label of the user's prompt may be."""
        if self._label and isinstance(event, Tokens) and event.text:
            print(self._label, end="", file=sys.stderr, flush=True)
            self._label = ""
