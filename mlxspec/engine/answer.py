"""One answer: messages -> prompt -> prefill -> rounds -> events."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import mlx.core as mx

from mlxspec.chat.conversation import Message, render
from mlxspec.chat.detokenizer import AnswerText, Piece
from mlxspec.decoding.controller import Controller
from mlxspec.decoding.decode import Decoding
from mlxspec.decoding.flight import Round
from mlxspec.decoding.overrides import SamplingOverrides
from mlxspec.decoding.proposal import Drafter
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.decoding.stats import DecodeStats
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.engine.job import Job
from mlxspec.engine.requests import GenerateRequest
from mlxspec.errors import PromptTooLong, UsageError
from mlxspec.events import Finished, FinishReason, Notice, Origin, Prefill, RoundReport, Tokens
from mlxspec.models.device import wired_limit
from mlxspec.models.loading import LoadedModel

ANSWER_SHARE = 4
"""A chat keeps at least one part in so many of its context free for the next answer."""


class Answer:
    """Runs one request on a loaded target. `run` may be called once."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        target: LoadedModel,
        state: TargetState,
        drafters: Sequence[Drafter],
        make_controller: Callable[[SamplingParams], Controller],
        context_tokens: int,
        defaults: Mapping[str, float],
    ) -> None:
        self._request = request
        self._defaults = defaults
        self._target = target
        self._state = state
        self._drafters = drafters
        # Made when the prompt is known to fit: what passes cost may have to be measured first.
        self._make_controller = make_controller
        self.controller: Controller | None = None
        self._context_tokens = context_tokens
        self._text = AnswerText(target.tokenizer, request.stop)
        self._ready: deque[Piece] = deque()
        self._rounds: deque[tuple[Origin, str | None, int]] = deque()  # of the tokens not yet told
        self._told_text: list[str] = []
        self._told_ids: list[int] = []

    def run(self, job: Job) -> None:
        """Answer and say the events, `Finished` last.

        Raises:
            UsageError: no messages, or a number that makes no sense.
            PromptTooLong: the prompt leaves no room for an answer.
        """
        started = time.perf_counter()
        prompt = self._prompt(job)
        budget, length_reason = self._budget(len(prompt))
        sampler = self._sampler()
        stats = DecodeStats(prompt_tokens=len(prompt), seed=sampler.seed, accept=sampler.rule.value)
        mx.reset_peak_memory()
        with wired_limit(self._target.model):
            reused = prefill(
                self._state,
                prompt,
                cancelled=job.cancelled,
                progress=lambda done, reused: job.emit(Prefill(done, len(prompt), reused)),
                drafters=self._drafters,
            )
            stats.prefill_s = time.perf_counter() - started
            if reused is None:
                job.emit(self._finished(FinishReason.CANCELLED, stats))
                return
            stats.reused_tokens = reused
            self.controller = self._make_controller(sampler.params)
            decoding = Decoding(
                self._state,
                sampler=sampler,
                drafters=self._drafters,
                controller=self.controller,
                max_tokens=budget,
                eos_ids=self._target.eos_ids,
                watch=self._watch,
                cancelled=job.cancelled,
                stats=stats,
                length_reason=length_reason,
                probabilities=self._request.report_rounds,
            )
            for landed in decoding.rounds():
                if landed.index == 0:
                    job.emit(Prefill(len(prompt), len(prompt), reused))
                    stats.ttft_s = time.perf_counter() - started
                self._take(landed, job)
        assert decoding.finish_reason is not None
        self._ready.extend(self._text.finish())
        if (last := self._state.tokens[-1]) in self._target.eos_ids:
            self._ready.append(Piece(last, ""))
        self._tell(job)
        job.emit(self._finished(decoding.finish_reason, stats))

    def _prompt(self, job: Job) -> list[int]:
        """The prompt's ids; the oldest turns are left out, with a notice, when they do not fit."""
        messages = list(self._request.messages)
        if not messages:
            raise UsageError("There is nothing to answer.", hint="Give at least one message.")
        dropped = 0
        prompt = self._render(messages)
        while len(prompt) > self._most_prompt_tokens() and (oldest := _oldest_turn(messages)):
            del messages[oldest]
            dropped += 1
            prompt = self._render(messages)
        if len(prompt) >= self._context_tokens:
            raise PromptTooLong(
                f"The prompt has {len(prompt)} tokens and the context holds {self._context_tokens}.",
                hint="Shorten the prompt, or give a larger --context if the model has one.",
            )
        if dropped:
            turns = "turn" if dropped == 1 else "turns"
            text = f"The context is full: the oldest {dropped} {turns} left the prompt."
            job.emit(Notice(text, left_out_turns=dropped))
        return prompt

    def _render(self, messages: Sequence[Message]) -> list[int]:
        return render(self._target.tokenizer, tuple(messages), think=self._request.think)

    def _most_prompt_tokens(self) -> int:
        reserve = self._context_tokens // ANSWER_SHARE
        if self._request.max_tokens is not None:
            reserve = min(reserve, self._request.max_tokens)
        return self._context_tokens - max(1, reserve)

    def _budget(self, prompt_tokens: int) -> tuple[int, FinishReason]:
        room = self._context_tokens - prompt_tokens
        asked = self._request.max_tokens
        if asked is not None and asked < 1:
            raise UsageError(f"An answer of {asked} tokens is none.", hint="Give --max-tokens 1 or more.")
        if asked is None or asked > room:
            return room, FinishReason.CONTEXT
        return asked, FinishReason.LENGTH

    def _sampler(self) -> Sampler:
        request = self._request
        asked = asdict(request.sampling or SamplingOverrides())
        values = {
            **self._target.defaults,
            **self._defaults,
            **{name: value for name, value in asked.items() if value is not None},
        }
        rule = request.accept or (Rule.BLOCK if request.seed is None else Rule.COUPLED)
        seed = secrets.randbits(32) if request.seed is None else request.seed
        params = SamplingParams(**values)
        return Sampler(params, vocab_size=self._target.vocab_size, rule=Rule(rule), seed=seed)

    def _watch(self, token: int) -> int | None:
        self._ready.extend(self._text.add(token))
        return None if self._text.stopped is None else self._text.dropped

    def _take(self, landed: Round, job: Job) -> None:
        self._rounds.extend((origin, landed.drafter, landed.index) for origin in landed.origins)
        if self._request.report_rounds:
            job.emit(self._report(landed))
        self._tell(job)

    def _report(self, landed: Round) -> RoundReport:
        return RoundReport(
            round=landed.index,
            drafter=landed.drafter,
            guesses=landed.guesses,
            guess_texts=tuple(self._text_of(guess) for guess in landed.guesses),
            accepted=landed.accepted,
            next_id=landed.next_token,
            next_text=self._text_of(landed.next_token),
            p=landed.p,
            q=landed.q,
            p_next=landed.p_next,
            draft_s=landed.draft_s,
            verify_s=max(0.0, landed.round_s - landed.draft_s),
            round_s=landed.round_s,
            parked=landed.parked,
        )

    def _text_of(self, token: int) -> str:
        return str(self._target.tokenizer.decode([token]))

    def _tell(self, job: Job) -> None:
        """Say the tokens whose text is certain, those of one origin and round together."""
        while self._ready:
            about = self._rounds[0]
            pieces: list[Piece] = []
            while self._ready and self._rounds and self._rounds[0] == about:
                pieces.append(self._ready.popleft())
                self._rounds.popleft()
            ids = tuple(piece.token_id for piece in pieces)
            text = "".join(piece.text for piece in pieces)
            self._told_ids.extend(ids)
            self._told_text.append(text)
            origin, drafter, index = about
            job.emit(Tokens(ids, text, origin, drafter, index))

    def _finished(self, reason: FinishReason, stats: DecodeStats) -> Finished:
        stats.peak_memory_bytes = mx.get_peak_memory()
        return Finished(reason, "".join(self._told_text), tuple(self._told_ids), stats)


def _oldest_turn(messages: Sequence[Message]) -> slice | None:
    """Where the oldest turn stands: a question and what answers it, but never the last question."""
    start = 1 if messages[0].role == "system" else 0
    end = start + 1
    while end < len(messages) and messages[end].role != "user":
        end += 1
    return slice(start, end) if end < len(messages) else None
