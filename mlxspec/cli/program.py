"""The program around the commands: which there are, their help, their errors and exit codes.

A command is a module of this folder with a Typer app named `app`, and a line in `COMMANDS`. It is imported
when it is called, so that help and shell completion stay fast whatever the commands need.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mlxspec import __version__
from mlxspec.cli.following import INTERRUPTED
from mlxspec.cli.terminal import complain
from mlxspec.errors import MlxspecError, UsageError

COMMANDS = {
    "run": "Chat, or answer one prompt.",
    "pull": "Fetch a model and its draft.",
    "models": "List the models, and what fits this machine.",
    "rm": "Delete a model's files from this machine.",
    "bench": "Measure speculation against plain decoding on this machine.",
    "audit": "Check on this machine that speculation changes no answer.",
    "doctor": "Look at this machine and a pair of models, and say what to do.",
    "distill": "Train a draft for a target from the target's own words.",
    "simulate": "Predict what speculation brings, before anything is downloaded.",
    "datastore": "See, clear and feed what lookup knows from earlier answers.",
    "sessions": "List, show, search, export and delete saved chats.",
}


class LazyCommands(TyperGroup):
    """The commands of the table, each imported when it is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Their names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mlxspec.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is meant.

        Raises: UsageError with the nearest name when there is none.
        """
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = (
                f"Did you mean `mlxspec {near[0]}`?"
                if near
                else 'Ask with `mlxspec run "…"`, or see `mlxspec --help`.'
            )
            raise UsageError(f"There is no command {args[0]!r}.", hint=hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a reader that is gone, as of `mlxspec … | head`, ends it without a word."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit from None

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Help's list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=LazyCommands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mlxspec {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Local chat with lossless speculative decoding: a small draft guesses, the target decides."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the program on this process's arguments and exit."""
    code = run_program(sys.argv[1:])
    _flush_or_forget()
    if "mlx.core" in sys.modules:
        # MLX 0.32's workers end while their thread ends, and a process that exits meanwhile aborts
        # ("terminate called without an active exception", measured 6 of 16 times on Linux).
        os._exit(code)
    sys.exit(code)


def run_program(args: Sequence[str]) -> int:
    """Run the program and return its exit code; errors are on stderr then."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = typer.main.get_command(app).main(list(args), prog_name="mlxspec", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except MlxspecError as error:
        return _complain_of(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if (usage := _usage_error(error)) is not None:
            return _complain_of(usage)
        from mlxspec.faults import report_fault
        from mlxspec.places import places

        return _complain_of(report_fault(error, places()))


def _complain_of(error: MlxspecError) -> int:
    complain(error.message, error.hint)
    return error.exit_code


def _usage_error(error: Exception) -> UsageError | None:
    """What the parser of arguments found wrong, in our words."""
    # By what it can do and not by its class, which has moved between the releases of Typer.
    if not hasattr(error, "format_message"):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "mlxspec"
    message = error.format_message().strip().rstrip(".")
    hint = f"See `{command} --help`."
    if "unexpected extra argument" in message and command == "mlxspec run":
        hint = "Put the prompt in quotes, so that it is one argument."
    return UsageError(f"{message}.", hint=hint)


def _flush_or_forget() -> None:
    """Write out what is buffered; when the reader is gone, drop it without a word."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            _point_at_nothing(stream)
        except AttributeError:  # there is no such stream at all
            continue


def _point_at_nothing(stream: Any) -> None:
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        return
