"""`python -m mlxspec` is the command line program."""

from __future__ import annotations

from mlxspec.cli import main

if __name__ == "__main__":
    main()
