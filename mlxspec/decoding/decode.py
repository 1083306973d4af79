"""The round loop: propose, verify in one target pass, keep what the rule keeps, rewind, repeat.

Leviathan et al. 2022 and Chen et al. 2023 describe the round; `acceptance.py` has the rules. One
host sync a round: the verdict and the guesses come back as one small array. The device is never
left idle on purpose: the next round is queued before the tokens of this one are handed on, and
where rounds are plain, the next pass is queued before the token it starts from has been read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from mlxspec.decoding.controller import Choice, Controller, Option, Situation
from mlxspec.decoding.flight import Flight, Reading, Round
from mlxspec.decoding.proposal import Drafter, Proposal, choice_readers, hidden_points, target_readers
from mlxspec.decoding.sampling import History, Sampler
from mlxspec.decoding.stats import DecodeStats
from mlxspec.decoding.target import TargetState
from mlxspec.decoding.verdict import Judgement, judge, read_report, report
from mlxspec.events import FinishReason, Origin

CLEAR_EVERY_TOKENS = 256
"""How often freed buffers are given back to the system, as mlx-lm does."""

FIRST_CATCH_UP = 32
"""A drafter that is further behind than this leaves the first token to the target alone."""

TIMED_EVERY_ROUNDS = 32
"""Every so many proposals, drafting is waited for on its own, to learn its share of the time."""

Watch = Callable[[int], int | None]
"""Sees each token as it is committed. None goes on; n ends the answer and drops its last n tokens."""


class Decoding:
    """One answer. Iterate `rounds()`; `finish_reason` says afterwards why it ended.

    Args:
        state: the target, prefilled; it stays consistent however the iteration ends.
        sampler: the sampling pipeline, rule and seed.
        drafters: who may propose; none means plain decoding.
        controller: who decides about proposals; not asked when there are no drafters.
        max_tokens: tokens to emit at most, at least 1.
        eos_ids: tokens that end the answer; such a token is emitted and committed.
        watch: see `Watch`; this is where stop strings come in.
        cancelled: asked once a round.
        stats: counts and times are added here.
        length_reason: why the answer ends when `max_tokens` are out.
        probabilities: also report p and q of every guess; costs a softmax a row at temperature 0.
    """

    def __init__(
        self,
        state: TargetState,
        *,
        sampler: Sampler,
        drafters: Sequence[Drafter],
        controller: Controller,
        max_tokens: int,
        eos_ids: frozenset[int],
        watch: Watch = lambda _token: None,
        cancelled: Callable[[], bool] = lambda: False,
        stats: DecodeStats | None = None,
        length_reason: FinishReason = FinishReason.LENGTH,
        probabilities: bool = False,
    ) -> None:
        self.finish_reason: FinishReason | None = None
        self.stats = DecodeStats() if stats is None else stats
        self._state = state
        self._sampler = sampler
        self._drafters = {drafter.name: drafter for drafter in drafters}
        self._readers = target_readers(drafters)
        self._choice_readers = choice_readers(drafters)
        self._controller = controller
        self._max_tokens = max_tokens
        self._eos_ids = eos_ids
        self._watch = watch
        self._cancelled = cancelled
        self._length_reason = length_reason
        self._with_probabilities = probabilities
        self._emitted = 0
        self._counted: list[tuple[Origin, str | None]] = []
        self._proposals = 0
        self._draft_s_per_guess = 0.0
        self._last_landing = 0.0

    def rounds(self) -> Iterator[Round]:
        """Decode until the answer ends. However this ends, cache and tokens agree afterwards."""
        started = self._last_landing = time.perf_counter()
        try:
            self._state.cache.watch_hidden(hidden_points(self._readers))
            for reader in self._readers:
                reader.attach(self._state.cache)
            for drafter in self._drafters.values():
                drafter.reset(self._state.tokens, self._sampler, self._cancelled)
            self._tell_hidden(len(self._state.tokens))
            flight: Flight | None = self._launch()
            while flight is not None:
                ahead = self._launch_ahead(flight)
                landed = self._land(flight, followed=ahead is not None)
                if self.finish_reason is None and self._cancelled():
                    self.finish_reason = FinishReason.CANCELLED
                going_on = self.finish_reason is None
                # A draft may have a long prompt to read before its first guess: the first token goes ahead.
                flight = (ahead or self._launch()) if going_on and landed.index > 0 else ahead
                self.stats.decode_s = time.perf_counter() - started
                yield landed
                if not going_on:
                    return
                flight = flight or self._launch()
        except GeneratorExit:
            raise
        except BaseException:
            self._state.clear()
            for drafter in self._drafters.values():
                drafter.close()
            raise
        finally:
            # What stands behind the committed tokens is a round that nobody will read.
            self._state.cache.rewind_to(len(self._state.tokens))

    def _launch(self) -> Flight:
        """Queue a round: choose, propose, one target pass, the verdict."""
        begun = time.perf_counter()
        options = tuple(drafter.offer() for drafter in self._drafters.values())
        choice = self._choose(options)
        option = next((option for option in options if option.drafter == choice.drafter), None)
        self.stats.overhead_s += time.perf_counter() - begun
        proposal, draft_s = self._propose(choice)
        return self._queue_pass(choice, option, proposal, draft_s=draft_s)

    def _launch_ahead(self, flight: Flight) -> Flight | None:
        """Queue the plain pass after a plain pass whose token has not been read yet."""
        if flight.proposed or self._room() < 2:
            return None
        if self._drafters:
            if not flight.choice.parked:
                return None
            choice = self._choose(tuple(drafter.offer() for drafter in self._drafters.values()), ahead=True)
            if not choice.parked:
                return None
        else:
            choice = flight.choice
        return self._queue_pass(choice, None, None, unread=flight.reading.packed[2:3])

    def _choose(self, options: tuple[Option, ...], *, ahead: bool = False) -> Choice:
        if self._emitted == 0:
            options = tuple(option for option in options if option.catch_up <= FIRST_CATCH_UP)
        if not options:
            return Choice(None)
        cache, room = self._state.cache, self._room() - int(ahead)
        owed = max(1, len(self._state.tokens) - cache.length)
        choice = self._controller.choose(Situation(owed, cache.length, room, options, ahead))
        if choice.drafter is None or min(choice.k, room - 1) <= 0:
            return Choice(None, parked=choice.parked)
        return choice

    def _propose(self, choice: Choice) -> tuple[Proposal | None, float | None]:
        """The proposal, and the seconds it took on the rounds that are timed."""
        if choice.drafter is None:
            return None, None
        begun = time.perf_counter()
        proposal = self._drafters[choice.drafter].propose(min(choice.k, self._room() - 1))
        if proposal is None:
            return None, None
        self._proposals += 1
        if self._proposals % TIMED_EVERY_ROUNDS != 2:  # the first one pays for warming up
            mx.async_eval(proposal.tokens)
            return proposal, None
        mx.eval(proposal.tokens)
        draft_s = time.perf_counter() - begun
        self._draft_s_per_guess = draft_s / proposal.tokens.shape[0]
        return proposal, draft_s

    def _queue_pass(
        self,
        choice: Choice,
        option: Option | None,
        proposal: Proposal | None,
        *,
        draft_s: float | None = None,
        unread: mx.array | None = None,
    ) -> Flight:
        """One target pass over what is owed, a token not yet read, and the guesses; and its verdict."""
        state = self._state
        owed = state.owed
        on_device = [part for part in (unread, proposal.tokens if proposal else None) if part is not None]
        rows = [mx.array(owed, mx.uint32)] if owed else []
        rows += [part.astype(mx.uint32) for part in on_device]
        proposed = proposal.tokens.shape[0] if proposal else 0
        context = state.cache.length
        if proposed:
            state.cache.checkpoint()
        logits = state.cache.forward(mx.concatenate(rows))[-(proposed + 1) :]
        base = len(state.tokens) + (1 if unread is not None else 0)
        device = mx.concatenate(on_device) if on_device else None
        history = History(state.tokens, device, rows=proposed + 1)

        def read(*, whole: bool = False) -> Reading:
            judgement = judge(self._sampler, logits, proposal, history, position=base, whole=whole)
            return self._queue_reading(judgement, proposal)

        return Flight(
            read(), lambda: read(whole=True), base, len(owed), choice, option, proposed, draft_s, context
        )

    def _queue_reading(self, judgement: Judgement, proposal: Proposal | None) -> Reading:
        verdict = judgement.verdict
        parts = [judgement.sure.reshape(1), verdict.accepted.reshape(1), verdict.next_token.reshape(1)]
        if proposal:
            parts.append(proposal.tokens)
            if self._choice_readers:
                parts.append(judgement.choices())
        packed = mx.concatenate([part.astype(mx.int32) for part in parts])
        probabilities = report(judgement.p(), proposal, verdict) if self._with_probabilities else None
        mx.async_eval(packed, *([] if probabilities is None else [probabilities]))
        return Reading(packed, probabilities)

    def _land(self, flight: Flight, *, followed: bool) -> Round:
        """Wait for the verdict, take the rejected rows back, and commit token by token."""
        reading = flight.reading
        sure, accepted, next_token, *rest = reading.wait()
        if not sure:
            reading = flight.read_whole()
            _, accepted, next_token, *rest = reading.wait()
        guesses, choices = rest[: flight.proposed], rest[flight.proposed :]
        landed = time.perf_counter()
        round_s, self._last_landing = landed - self._last_landing, landed
        # Before the rewind: it may take out committed tokens too, which are then carried.
        self._tell_hidden(flight.base + accepted)
        if flight.proposed:
            self._state.cache.rewind_to(flight.base + accepted)
        tokens, origins = self._commit(guesses, accepted, next_token)
        if choices:
            for learner in self._choice_readers:
                learner.read_choices(guesses, choices, accepted)
        for name, drafter in self._drafters.items():
            own = name == flight.choice.drafter
            drafter.committed(tokens, min(accepted, len(tokens)) if own and guesses else 0)
        if self._drafters:
            self._controller.observe(flight.outcome(accepted, len(tokens), round_s, followed=followed))
        record = Round(
            index=self.stats.rounds,
            tokens=tuple(tokens),
            origins=tuple(origins),
            drafter=flight.choice.drafter if guesses else None,
            guesses=tuple(guesses),
            accepted=accepted,
            next_token=next_token,
            carried=max(0, flight.owed - 1),
            parked=flight.choice.parked,
            draft_s=self._draft_s_per_guess * len(guesses) if flight.draft_s is None else flight.draft_s,
            round_s=round_s,
            **read_report(reading.probabilities, len(guesses)),
        )
        self._count(record)
        self.stats.overhead_s += time.perf_counter() - landed
        return record

    def _tell_hidden(self, length: int) -> None:
        """Hand the hidden states of the tokens before `length` to those who read them."""
        for start, rows in self._state.cache.take_hidden(length):
            for reader in self._readers:
                reader.read_hidden(start, rows)

    def _commit(self, guesses: list[int], accepted: int, next_token: int) -> tuple[list[int], list[Origin]]:
        """Commit until the answer ends: end-of-sequence first, then stop strings, then the budget."""
        new = [*guesses[:accepted], next_token]
        last = Origin.PLAIN if not guesses else Origin.BONUS if accepted == len(guesses) else Origin.RESAMPLED
        origins = [*[Origin.ACCEPTED] * accepted, last]
        for i, token in enumerate(new):
            self._state.tokens.append(token)
            self._emitted += 1
            dropped = None if token in self._eos_ids else self._watch(token)
            if token in self._eos_ids or dropped is not None:
                self.finish_reason = FinishReason.STOP
            elif self._emitted == self._max_tokens:
                self.finish_reason = self._length_reason
            if self.finish_reason is not None:
                kept = self._drop(dropped or 0, of=i + 1)
                return new[:kept], origins[:kept]
        return new, origins

    def _drop(self, count: int, *, of: int) -> int:
        """Take the last `count` tokens out again, which belong to a stop string.

        The youngest `of` tokens are not counted yet. Returns how many of them stay.
        """
        if count:
            del self._state.tokens[-count:]
            self._emitted -= count
        for origin, drafter in reversed(self._counted[len(self._counted) - max(0, count - of) :]):
            self.stats.count(origin, drafter, -1)
        return max(0, of - count)

    def _room(self) -> int:
        return self._max_tokens - self._emitted

    def _count(self, record: Round) -> None:
        stats = self.stats
        stats.rounds += 1
        stats.target_passes += 1
        stats.carried += record.carried
        if record.drafter is not None:
            stats.count_proposal(record.drafter, len(record.guesses))
            stats.draft_s += record.draft_s
        before = stats.tokens
        for origin in record.origins:
            stats.count(origin, record.drafter, 1)
            self._counted.append((origin, record.drafter))
        if stats.tokens // CLEAR_EVERY_TOKENS != before // CLEAR_EVERY_TOKENS:
            mx.clear_cache()
