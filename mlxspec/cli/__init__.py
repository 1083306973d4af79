"""The command line program: one file a command, and what they share."""

from mlxspec.cli.program import main

__all__ = ["main"]
