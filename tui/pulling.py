"""Fetching a model while the chat goes on, in a process of its own, for what becomes of the files needs MLX.

The child says each `Downloading` as one line of JSON, and how it ended as the last line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from mlxspec.errors import MlxspecError
from mlxspec.events import Downloading, Failed


class Pull:
    """One pull. `cancel` ends the child; what has come is kept by whoever fetches.

    Attributes:
        cancelled: whether `cancel` was called.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: asyncio.subprocess.Process | None = None
        self.cancelled = False

    async def run(self, progress: Callable[[Downloading], None]) -> Failed | None:
        """None when the model and its draft are on disk, or when it was cancelled; else what went wrong."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "tui.pulling",
            self.name,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        failed: Failed | None = None
        finished = False
        async for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("failed"):
                failed = Failed(**said["failed"])
            elif said.get("done"):
                finished = True
            else:
                progress(Downloading(**said))
        await self._process.wait()
        if self.cancelled or finished or failed:
            return None if self.cancelled else failed
        return Failed("DownloadFailed", f"Fetching {self.name} ended without a word.", "Try again.", 1)

    def cancel(self) -> None:
        """Stop it."""
        self.cancelled = True
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()


def main(name: str) -> None:
    """The child."""
    from mlxspec.models import sources
    from mlxspec.models.registry import load_registry
    from mlxspec.places import places

    def say(value: object) -> None:
        print(json.dumps(value), flush=True)

    try:
        where = places()
        registry = load_registry(where)
        target = registry.resolve(name)
        for spec in (target, registry.draft_of(target)):
            if spec is not None:
                sources.pull(spec, where, progress=lambda event: say(asdict(event)), cancelled=lambda: False)
        say({"done": True})
    except MlxspecError as error:
        say({"failed": asdict(Failed(error.kind, error.message, error.hint, error.exit_code))})


if __name__ == "__main__":
    main(sys.argv[1])
