"""An engine that says what a test wrote down: every origin, at any speed, failing or hanging."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlxspec.decoding.stats import DecodeStats, DrafterStats
from mlxspec.engine.job import Job
from mlxspec.engine.requests import GenerateRequest, LoadRequest
from mlxspec.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    Origin,
    Prefill,
    RoundReport,
    Tokens,
)


@dataclass
class Script:
    """How an engine behaves.

    Attributes:
        answers: one list of events an answer; the last one is used again when there are no more.
        load: what a load says.
        tokens_per_s: how fast tokens come; None as fast as they can.
        hang: after how many tokens nothing more comes until the answer is cancelled, or `go` is set.
        requests, loads: what was asked for.
    """

    answers: Sequence[Sequence[Event]] = ()
    load: Sequence[Event] = (Loaded("tiny", "tiny-draft", "cpu", 0.1, 4096),)
    tokens_per_s: float | None = None
    hang: int | None = None
    go: threading.Event = field(default_factory=threading.Event)
    requests: list[GenerateRequest] = field(default_factory=list)
    loads: list[LoadRequest] = field(default_factory=list)


class ScriptedEngine:
    """Follows a script on threads of its own."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.closed = False
        self._asked = 0
        self.jobs: list[Job] = []

    def load(self, request: LoadRequest) -> Job:
        """Say the script's load."""
        self.script.loads.append(request)
        return self._start(self.script.load, paced=False)

    def generate(self, request: GenerateRequest) -> Job:
        """Say the next answer."""
        self.script.requests.append(request)
        answers = self.script.answers
        answer = answers[min(self._asked, len(answers) - 1)] if answers else answer_of("Yes.")
        self._asked += 1
        return self._start(answer, paced=True)

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def _start(self, events: Sequence[Event], *, paced: bool) -> Job:
        job = Job()
        self.jobs.append(job)
        threading.Thread(target=self._say, args=(job, events, paced), daemon=True).start()
        return job

    def _say(self, job: Job, events: Sequence[Event], paced: bool) -> None:
        said: list[Tokens] = []
        began, count = time.perf_counter(), 0
        for event in events:
            if job.cancelled():
                job.emit(finished(said, FinishReason.CANCELLED))
                return
            if paced and isinstance(event, Tokens):
                said.append(event)
                count += len(event.ids)
                if self.script.hang is not None and count > self.script.hang:
                    while not job.cancelled() and not self.script.go.is_set():
                        time.sleep(0.002)
                if self.script.tokens_per_s:
                    time.sleep(max(0.0, began + count / self.script.tokens_per_s - time.perf_counter()))
            job.emit(event)


def answer_of(text: str, *, drafter: str = "draft_model", prompt_tokens: int = 20) -> list[Event]:
    """A whole answer: words as tokens, in rounds of every kind in turn."""
    events: list[Event] = [Prefill(prompt_tokens, prompt_tokens, 0)]
    tokens = list(tokens_of(text, drafter=drafter))
    for group in _by_round(tokens):
        events += [*group, report_of(group)]
    return [*events, finished(tokens, FinishReason.STOP, prompt_tokens=prompt_tokens)]


def tokens_of(text: str, *, drafter: str = "draft_model") -> Iterator[Tokens]:
    """Rounds: two kept and one resampled; three kept and a bonus; looked up and resampled; plain."""
    plans = (
        ((2, Origin.ACCEPTED), (1, Origin.RESAMPLED)),
        ((3, Origin.ACCEPTED), (1, Origin.BONUS)),
        ((2, Origin.ACCEPTED), (1, Origin.RESAMPLED)),
        ((1, Origin.PLAIN),),
    )
    words, at, number = pieces(text), 0, 0
    while at < len(words):
        plan = plans[number % len(plans)]
        who = "lookup" if number % len(plans) == 2 else drafter
        for count, origin in plan:
            group = words[at : at + count]
            if group:
                ids = tuple(range(at, at + len(group)))
                yield Tokens(ids, "".join(group), origin, None if origin is Origin.PLAIN else who, number)
            at += count
        number += 1


def pieces(text: str) -> list[str]:
    """The text in pieces of a word with its space, as tokens are."""
    found, start = [], 0
    for i in range(1, len(text)):
        if text[i] in " \n" or text[i - 1] == "\n":
            found.append(text[start:i])
            start = i
    return [*found, text[start:]] if text else []


def report_of(group: Sequence[Tokens]) -> RoundReport:
    """What the engine would tell of these tokens' round."""
    kept = [t for t in group if t.origin is Origin.ACCEPTED]
    own = next((t for t in group if t.origin is not Origin.ACCEPTED), None)
    texts = [piece for t in kept for piece in pieces(t.text)]
    accepted = len(texts)
    if own is not None and own.origin is Origin.RESAMPLED:
        texts += [" wrong", " unseen"]
    p = tuple(0.92 - 0.1 * i if i < accepted else 0.04 for i in range(len(texts)))
    q = tuple(0.88 - 0.07 * i if i < accepted else 0.41 for i in range(len(texts)))
    return RoundReport(
        round=group[0].round,
        drafter=group[0].drafter,
        guesses=tuple(range(len(texts))),
        guess_texts=tuple(texts),
        accepted=accepted,
        next_id=0,
        next_text=own.text if own else "",
        p=p,
        q=q,
        p_next=0.83 if own else None,
        draft_s=0.008 if texts else 0.0,
        verify_s=0.049,
        round_s=0.06 if texts else 0.04,
        parked=False,
    )


def finished(
    tokens: Sequence[Tokens], reason: FinishReason, *, prompt_tokens: int = 20, decode_s: float = 2.0
) -> Finished:
    """The last event, with figures that go with the tokens."""
    counts = {origin: sum(len(t.ids) for t in tokens if t.origin is origin) for origin in Origin}
    rounds = len({t.round for t in tokens})
    accepted, resampled = counts[Origin.ACCEPTED], counts[Origin.RESAMPLED]
    proposed = accepted + 2 * resampled
    stats = DecodeStats(
        prompt_tokens=prompt_tokens,
        tokens=sum(counts.values()),
        rounds=rounds,
        target_passes=rounds,
        proposed=proposed,
        accepted=accepted,
        resampled=resampled,
        bonus=counts[Origin.BONUS],
        plain=counts[Origin.PLAIN],
        ttft_s=0.31,
        decode_s=decode_s,
        peak_memory_bytes=412_000_000,
        seed=7,
        drafters={"draft_model": DrafterStats(rounds, proposed, accepted)},
    )
    ids = tuple(i for t in tokens for i in t.ids)
    return Finished(reason, "".join(t.text for t in tokens), ids, stats)


def failing(kind: str = "EngineError", message: str = "The device caught fire.") -> Failed:
    """A failure."""
    return Failed(kind, message, "Start mlxspec again.", 1)


def _by_round(tokens: Iterable[Tokens]) -> Iterator[list[Tokens]]:
    group: list[Tokens] = []
    for one in tokens:
        if group and group[0].round != one.round:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
