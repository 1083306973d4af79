"""One thread that owns MLX from its start: loading, prefill and decoding all happen in it.

MLX ties arrays to the streams of the thread that made them, so a model that was loaded in one
thread cannot be used in another. Everyone else talks to the engine through jobs.
"""

from __future__ import annotations

import atexit
import queue
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from mlxspec.engine.job import Job
from mlxspec.engine.requests import GenerateRequest, LoadRequest
from mlxspec.errors import EngineError, MlxspecError, OutOfMemory
from mlxspec.events import Failed
from mlxspec.faults import report_fault
from mlxspec.places import Places, places

if TYPE_CHECKING:
    from mlxspec.engine.pair import Pair

_Work = tuple[Job, LoadRequest | GenerateRequest]

CLOSE_S = 5.0
"""How long `close` waits for the round under way."""


class Engine:
    """Loads models and answers, one job at a time, in the order in which they were asked for."""

    def __init__(self, where: Places | None = None) -> None:
        self._places = where or places()
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._current: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="mlxspec-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def load(self, request: LoadRequest) -> Job:
        """Fetch and load models. Says Downloading, Loading, Notice, then Loaded or Failed.

        What is already in memory and asked for again stays there: another draft leaves the target
        and the chat's cache alone.
        """
        return self._submit(request)

    def generate(self, request: GenerateRequest) -> Job:
        """Answer with the models in memory. Says Prefill, Tokens, Notice, then Finished or Failed."""
        return self._submit(request)

    def close(self) -> None:
        """Stop what runs and let go of the models. Jobs that were waiting fail."""
        if self._closed:
            return
        self._closed = True
        if (current := self._current) is not None:
            current.cancel()
        self._work.put(None)
        self._thread.join(CLOSE_S)
        atexit.unregister(self.close)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, request: LoadRequest | GenerateRequest) -> Job:
        job = Job()
        if self._closed or not self._thread.is_alive():
            job.emit(_failed(EngineError("The engine is closed.", hint="Start mlxspec again.")))
        else:
            self._work.put((job, request))
        return job

    def _run(self) -> None:
        pair: Pair | None = None
        while (work := self._work.get()) is not None:
            job, request = work
            if self._closed:
                job.emit(_failed(EngineError("The engine was closed.", hint="Start mlxspec again.")))
                continue
            self._current = job
            try:
                pair = pair or _first_pair(self._places)
                if isinstance(request, LoadRequest):
                    pair.load(request, job)
                else:
                    pair.answer(request, job)
            except MlxspecError as error:
                job.emit(_failed(error))
            except BaseException as error:
                job.emit(self._unexpected(error))
            finally:
                self._current = None
        if pair is not None:
            pair.unload()
            _leave_thread()

    def _unexpected(self, error: BaseException) -> Failed:
        if isinstance(error, MemoryError) or _is_out_of_memory(error):
            return _failed(
                OutOfMemory(
                    "The device ran out of memory.",
                    hint="Use a smaller model, a smaller --context, or --kv-bits 8.",
                )
            )
        return _failed(report_fault(error, self._places))


def _first_pair(where: Places) -> Pair:
    # Here and not at the top of the file: this imports MLX, which belongs to the engine's thread.
    from mlxspec.engine.pair import Pair

    return Pair(where)


def _leave_thread() -> None:
    from mlxspec.engine.pair import leave_thread

    leave_thread()


def _failed(error: MlxspecError) -> Failed:
    return Failed(error.kind, error.message, error.hint, error.exit_code)


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        sign in text for sign in ("insufficient memory", "unable to allocate", "out of memory", "malloc")
    )
