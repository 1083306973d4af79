"""The models in memory: a target, its cache, and whoever drafts for it."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import mlx.core as mx

from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import Controller, FixedController
from mlxspec.decoding.proposal import Drafter
from mlxspec.decoding.sampling import SamplingParams
from mlxspec.decoding.target import TargetState
from mlxspec.drafters.choice import NONE, DraftChoice
from mlxspec.drafters.datastore import Datastore, datastore_path
from mlxspec.drafters.drafting import Drafting, Workshop
from mlxspec.drafters.loading import kept, made, understood
from mlxspec.engine.answer import Answer
from mlxspec.engine.job import Job
from mlxspec.engine.pace import Pace, find_pace
from mlxspec.engine.requests import GenerateRequest, LoadRequest
from mlxspec.errors import NothingLoaded, UsageError
from mlxspec.events import Finished, FinishReason, Loaded, Loading, Notice
from mlxspec.models import sources
from mlxspec.models.device import device_name
from mlxspec.models.loading import LoadedModel, load_model
from mlxspec.models.registry import ModelSpec, Registry, load_registry
from mlxspec.places import Places
from mlxspec.settings import load_settings

MEASURING = "Measuring once what guesses cost on this machine; this takes a few seconds."


class Pair:
    """Loads and swaps models, and answers with them. Lives in the engine's thread."""

    def __init__(self, where: Places) -> None:
        self._places = where
        self._target: LoadedModel | None = None
        self._state: TargetState | None = None
        self._kv_bits: int | None = None
        self._context_tokens = 0
        self._sampling: Mapping[str, float] = {}
        self._drafting = Drafting(NONE)
        self._pace: Pace | None = None
        self._datastore: Datastore | None = None

    def load(self, request: LoadRequest, job: Job) -> None:
        """Bring the asked-for models into memory and say so; what is there already stays."""
        started = time.perf_counter()
        registry = load_registry(self._places)
        spec = registry.resolve(request.target or registry.default_target)
        self._load_target(spec, request, job)
        self._sampling = spec.sampling
        self._open_datastore(request)
        self._load_draft(spec, registry, request, job)
        job.emit(
            Loaded(
                target=spec.name,
                draft=self._drafting.name,
                device=device_name(),
                load_s=time.perf_counter() - started,
                context_tokens=self._context_tokens,
            )
        )

    def answer(self, request: GenerateRequest, job: Job) -> None:
        """Answer one request with what is in memory.

        Raises:
            NothingLoaded: no load has succeeded.
        """
        if self._target is None or self._state is None:
            raise NothingLoaded("No model is loaded.", hint="Load a target first.")
        drafters = self._drafting.drafters if request.speculate else ()
        self._tell_troubles(job)
        answer = Answer(
            request,
            target=self._target,
            state=self._state,
            drafters=drafters,
            make_controller=lambda params: self._controller(request, params, drafters, job),
            context_tokens=self._context_tokens,
            defaults=self._sampling,
        )
        try:
            answer.run(job)
        finally:
            self._tell_troubles(None)
        self._learn(job)
        if self._pace is not None and isinstance(answer.controller, AdaptiveController):
            self._pace.learn(answer.controller)

    def _controller(
        self, request: GenerateRequest, params: SamplingParams, drafters: Sequence[Drafter], job: Job
    ) -> Controller:
        """Who decides about proposals; what passes cost here is measured when nothing is known of it."""
        if request.num_draft is not None:
            return FixedController(request.num_draft)
        if not drafters:
            return FixedController(0)
        if self._pace is None:
            assert self._target is not None
            self._pace = find_pace(
                self._target,
                self._drafting,
                self._places,
                before_measuring=lambda: job.emit(Notice(MEASURING)),
                cancelled=job.cancelled,
            )
        return FixedController(0) if self._pace is None else self._pace.controller(params.temperature)

    def unload(self) -> None:
        """Let go of everything and give the memory back."""
        self._target = self._state = self._pace = None
        self._drafting = Drafting(NONE)
        self._close_datastore()
        _give_back_memory()

    def _load_target(self, spec: ModelSpec, request: LoadRequest, job: Job) -> None:
        folder = self._pull(spec, job)
        if self._target is None or self._target.folder != folder:
            self.unload()
            job.emit(Loading(spec.name))
            self._target = load_model(spec.name, folder)
            if not self._target.has_chat_template:
                job.emit(Notice(f"{spec.name} has no chat template, so it continues the text."))
        if self._state is None or self._kv_bits != request.kv_bits:
            self._state = TargetState(PromptCache(self._target.model, kv_bits=request.kv_bits))
            self._kv_bits = request.kv_bits
        self._context_tokens = _context(request.context, self._target)

    def _load_draft(self, target: ModelSpec, registry: Registry, request: LoadRequest, job: Job) -> None:
        """Who drafts from now on. What is in memory already and meant again stays there."""
        assert self._target is not None
        workshop = Workshop(
            self._target, target, registry, self._places, job.emit, job.cancelled, self._datastore
        )
        order = understood(DraftChoice.parse(request.draft), workshop)
        if order.key == self._drafting.key:
            self._drafting = kept(self._drafting, order, workshop)
            return
        self._set_drafting(Drafting(NONE))
        self._set_drafting(made(order, workshop))

    def _open_datastore(self, request: LoadRequest) -> None:
        """Let this target's earlier answers be looked up and new ones learnt, if that is wanted."""
        assert self._target is not None
        if not (request.datastore and load_settings(self._places).datastore):
            self._close_datastore()
        elif self._datastore is None:
            path = datastore_path(self._places, self._target.tokenizer.get_vocab())
            self._datastore = Datastore(path, target=self._target.name, vocab_size=self._target.vocab_size)

    def _close_datastore(self) -> None:
        if self._datastore is not None:
            self._datastore.close()
            self._datastore = None

    def _learn(self, job: Job) -> None:
        """Learn an answer that came to its end; a prompt, and what the reader stopped, is not learnt."""
        ended = job.result
        if (
            self._datastore is not None
            and isinstance(ended, Finished)
            and ended.reason is not FinishReason.CANCELLED
        ):
            self._datastore.learn(ended.ids)

    def _tell_troubles(self, job: Job | None) -> None:
        """What is wrong with the datastore is told in this answer; with None, in the next one."""
        if self._datastore is None:
            return
        self._datastore.tell = None if job is None else lambda trouble: job.emit(Notice(trouble))
        if job is not None:
            for trouble in self._datastore.troubles():
                job.emit(Notice(trouble))

    def _set_drafting(self, drafting: Drafting) -> None:
        dropped = bool(self._drafting.steps)  # it had weights of its own
        self._drafting = drafting
        self._pace = None
        if dropped:
            _give_back_memory()

    def _pull(self, spec: ModelSpec, job: Job) -> Path:
        return sources.pull(spec, self._places, progress=job.emit, cancelled=job.cancelled)


def _context(asked: int | None, target: LoadedModel) -> int:
    if asked is None:
        return target.context_tokens
    if asked > target.context_tokens:
        raise UsageError(
            f"{target.name} can read {target.context_tokens} tokens, not {asked}.",
            hint=f"Give --context {target.context_tokens} or less.",
        )
    return asked


def leave_thread() -> None:
    """For the end of a thread that used MLX: without it the process can abort when it exits.

    Measured with MLX 0.32.4 on Linux: a thread's streams that are still there at exit end the process
    with "terminate called without an active exception".
    """
    mx.clear_streams()


def _give_back_memory() -> None:
    gc.collect()
    mx.clear_cache()
