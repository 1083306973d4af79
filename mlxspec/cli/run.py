"""`mlxspec run`: answer one prompt, or chat."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from mlxspec.cli import prompts, run_options
from mlxspec.cli.completion import draft_names, model_names
from mlxspec.cli.run_options import Setup
from mlxspec.cli.terminal import is_terminal, tell
from mlxspec.cli.writers import JsonWriter
from mlxspec.errors import MlxspecError, UsageError
from mlxspec.events import Failed

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_COLOURS = ("auto", "always", "never")


@app.command()
def run(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to ask.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that answers: a name of `mlxspec models`, a Hub repo id or a folder.",
            autocompletion=model_names,
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that guesses; or lookup, lookahead, exit:N, none; or auto: the draft of "
            "settings.toml, else the target's own, else lookup. [default: auto]",
            autocompletion=draft_names,
        ),
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="Let a draft with another tokenizer guess, by its text.")
    ] = False,
    draft_vocab: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens that the draft model weighs. [default: all]")
    ] = None,
    num_draft: Annotated[
        str | None, typer.Option(metavar="N", help="Guesses a round, or auto. [default: auto]")
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="RULE", help="block, token or coupled. [default: block; coupled when there is a seed]"
        ),
    ] = None,
    temp: Annotated[
        str | None, typer.Option(metavar="T", help="Temperature; 0 always takes the likeliest token.")
    ] = None,
    top_p: Annotated[
        str | None, typer.Option(metavar="P", help="Keep the likeliest tokens that hold this probability.")
    ] = None,
    top_k: Annotated[
        str | None, typer.Option(metavar="K", help="Keep this many of the likeliest tokens.")
    ] = None,
    min_p: Annotated[
        str | None, typer.Option(metavar="P", help="Keep tokens this likely relative to the likeliest.")
    ] = None,
    repetition_penalty: Annotated[
        str | None, typer.Option(metavar="R", help="Above 1 makes repeating less likely.")
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Fix the noise: one seed, one text.")] = None,
    max_tokens: Annotated[str | None, typer.Option(metavar="N", help="Most tokens of an answer.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End the answer at this text; repeatable.")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    think: Annotated[
        str | None, typer.Option(metavar="on|off", help="Reasoning, for models that have the switch.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="N", help="Most tokens of prompt and answer together.")
    ] = None,
    kv_bits: Annotated[str | None, typer.Option(metavar="4|8", help="Keep the cache in 4 or 8 bits.")] = None,
    no_datastore: Annotated[
        bool, typer.Option("--no-datastore", help="Neither guess from earlier answers nor learn from these.")
    ] = False,
    resume: Annotated[bool, typer.Option("--continue", help="Go on with the last saved chat.")] = False,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this saved chat.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Save a one-shot question to the chats.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="A line chat, not the full-screen one.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="A line of figures on stderr.")] = False,
    color: Annotated[
        str, typer.Option(metavar="auto|always|never", help="Colour tokens by their origin.")
    ] = "auto",
) -> None:
    """Answer PROMPT, or piped text, or both joined; with neither, open a chat.

    The answer goes to stdout, everything else to stderr. On a terminal, accepted guesses are blue, and
    tokens that replace a rejected guess are orange and underlined.
    """
    try:
        sampling = {
            "num-draft": num_draft,
            "accept": accept,
            "temp": temp,
            "top-p": top_p,
            "top-k": top_k,
            "min-p": min_p,
            "repetition-penalty": repetition_penalty,
            "seed": seed,
            "max-tokens": max_tokens,
            "think": think,
        }
        setup = Setup(
            target=target,
            draft=run_options.draft(draft, translate=translate, vocab=draft_vocab),
            context=run_options.whole_number("context", context),
            kv_bits=run_options.kv_bits(kv_bits),
            datastore=not no_datastore,
            system=None if system is None else prompts.checked_text("--system", system),
            values=run_options.parsed(
                sampling, [prompts.checked_text("--stop", text) for text in stop or ()]
            ),
            session=session,
            resume=resume,
            save=save,
            stats=stats,
            colour=color,
        )
        code = _run(prompt, setup, plain=plain, json=json)
    except MlxspecError as error:
        if json:
            failed = Failed(error.kind, error.message, error.hint, error.exit_code)
            JsonWriter(sys.stdout).event(failed)
        raise
    raise typer.Exit(code)


def _run(prompt: str | None, setup: Setup, *, plain: bool, json: bool) -> int:
    if setup.colour not in _COLOURS:
        raise UsageError(f"--color cannot be {setup.colour!r}.", hint="Give auto, always or never.")
    if setup.session is not None and setup.resume:
        raise UsageError("--session and --continue both name a chat.", hint="Give one of them.")
    typing = is_terminal(sys.stdin)
    if prompt is not None or not typing:
        from mlxspec.cli.one_shot import answer_once

        asked = None if prompt is None else prompts.checked_text("The prompt", prompt)
        return answer_once(prompts.joined(asked, "" if typing else prompts.piped_text()), setup, json=json)
    if json:
        raise UsageError("--json needs a prompt.", hint='Write it: `mlxspec run --json "…"`, or pipe it in.')
    if not plain and is_terminal(sys.stdout):
        code = _full_screen(setup)
        if code is not None:
            return code
    from mlxspec.cli.line_chat import chat

    return chat(setup)


def _full_screen(setup: Setup) -> int | None:
    """Open the full-screen chat and return its exit code; None when it is not there."""
    try:
        run_app = importlib.import_module("tui.launch").run
    except ModuleNotFoundError as error:
        if error.name not in ("tui", "tui.launch"):
            raise
        tell("The full-screen chat is not installed, so this is the line chat.")
        return None
    code = run_app(
        target=setup.target,
        draft=setup.draft,
        context=setup.context,
        kv_bits=setup.kv_bits,
        datastore=setup.datastore,
        values=setup.values,
        system=setup.system,
        session=setup.session,
        resume=setup.resume,
    )
    return int(code or 0)
