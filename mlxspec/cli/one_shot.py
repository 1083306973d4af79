"""One question, one answer: everything that a script needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mlxspec.chat.conversation import Message
from mlxspec.cli import following, run_options
from mlxspec.cli.following import INTERRUPTED, follow
from mlxspec.cli.narrator import Narrator
from mlxspec.cli.saving import Saved, Unsaved, history, open_store, wanted_chat
from mlxspec.cli.terminal import is_terminal, wants_colour
from mlxspec.cli.writers import JsonWriter, TextWriter, Writer
from mlxspec.events import Failed, Loaded

if TYPE_CHECKING:
    from mlxspec.cli.run_options import Setup
    from mlxspec.engine import Engine, Job


def answer_once(prompt: str, setup: Setup, *, json: bool) -> int:
    """Load, answer, and return the exit code. The answer is on stdout, all else on stderr.

    Raises: UnknownChat when a chat was to be continued that is not there.
    """
    turns: list[Message] = []
    saving = Unsaved()
    if setup.save or setup.session is not None or setup.resume:
        store = open_store()
        saved = wanted_chat(store, session=setup.session, last=setup.resume)
        if saved is not None:
            turns = history(store.path(saved.id))
            setup.go_on_with(saved)
        if setup.save:
            saving = Saved(store, saved)
        else:
            store.close()
    narrator = Narrator(stats=setup.stats)
    try:
        with following.open_engine() as engine:
            question = [*setup.system_message(), *turns, Message("user", prompt)]
            return _answer(
                engine, question, setup, narrator=narrator, writer=_writer(setup, json), saving=saving
            )
    finally:
        narrator.close()
        saving.close()


def _writer(setup: Setup, json: bool) -> Writer:
    if json:
        return JsonWriter(sys.stdout)
    return TextWriter(
        sys.stdout, colour=wants_colour(setup.colour, sys.stdout), terminal=is_terminal(sys.stdout)
    )


def _answer(
    engine: Engine,
    question: list[Message],
    setup: Setup,
    *,
    narrator: Narrator,
    writer: Writer,
    saving: Unsaved,
) -> int:
    loading = engine.load(setup.load_request())
    if follow(loading, narrator.before, writer.event, narrator.event):
        return INTERRUPTED
    if not isinstance(loading.result, Loaded):
        return _exit_code(loading)
    saving.question(
        question[-1].content,
        target=loading.result.target,
        draft=setup.draft or "auto",
        system=setup.system or "",
    )
    job = engine.generate(run_options.request(question, setup.values))
    if follow(job, narrator.before, writer.event, narrator.event, saving.answer):
        return INTERRUPTED
    return _exit_code(job)


def _exit_code(job: Job) -> int:
    return job.result.exit_code if isinstance(job.result, Failed) else 0
