"""A world of numbers in which a controller can be tried: no model, no clock, seconds as scripted."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mlxspec.decoding.controller import Choice, Controller, Option, Outcome, Situation
from mlxspec.decoding.cost import MAX_GUESSES

READING = (
    0.06  # cost of one more row in a draft's pass, the first being 1: a draft reads faster than it writes
)


@dataclass(frozen=True, slots=True)
class ScriptedDrafter:
    """A drafter whose guesses are kept by chance.

    Attributes:
        name: as in `Option`.
        alphas: acceptance of each guess given those before it, at a number of tokens emitted; as many
            as the drafter can make there.
        step_s: seconds of one guess.
        tells: does it give its alphas as confidences, as lookup would?
        claims: a confidence that it gives instead, true or not.
    """

    name: str
    alphas: Callable[[int], Sequence[float]]
    step_s: float = 0.0
    tells: bool = False
    claims: float | None = None


@dataclass(frozen=True, slots=True)
class World:
    """What rounds cost and who can guess.

    Attributes:
        pass_s: seconds of a target pass that is waited for, by rows and tokens emitted so far.
        drafters: who can guess.
        queued: cost of a plain pass queued ahead, one that is waited for being 1.
        noise: standard deviation of the logarithm of a round's time.
        carries: a rejection leaves the round's tokens owed, as in a model with recurrent state.
    """

    pass_s: Callable[[int, int], float]
    drafters: tuple[ScriptedDrafter, ...]
    queued: float = 1.0
    noise: float = 0.0
    carries: bool = False


@dataclass(slots=True)
class Played:
    """What an answer cost in a world, and what plain decoding would have cost there."""

    tokens: int = 0
    seconds: float = 0.0
    plain_s: float = 0.0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    parked: int = 0
    ks: Counter[int] = field(default_factory=Counter)

    @property
    def speedup(self) -> float:
        """Plain seconds / seconds."""
        return self.plain_s / self.seconds

    @property
    def tokens_per_pass(self) -> float:
        """Emitted tokens / target passes."""
        return self.tokens / self.rounds

    def add(self, outcome: Outcome, plain_s: float) -> None:
        """Count a round; each of its tokens would have cost `plain_s` in plain decoding."""
        self.tokens += outcome.emitted
        assert outcome.round_s is not None, "this world has a time for every round"
        self.seconds += outcome.round_s
        self.plain_s += outcome.emitted * plain_s
        self.rounds += 1
        self.proposed += outcome.proposed
        self.accepted += outcome.accepted
        self.parked += outcome.choice.parked
        self.ks[outcome.proposed] += 1


def play(world: World, controller: Controller, *, tokens: int, rng: random.Random) -> Played:
    """Decode `tokens` tokens; the controller is asked and told as the round loop does it."""
    played = Played()
    owed = 1
    behind = {drafter.name: 1 for drafter in world.drafters}
    parked: Choice | None = None  # the last round, if it was parked: another pass may be queued behind it
    while played.tokens < tokens:
        options = tuple(_offer(drafter, played.tokens, behind[drafter.name]) for drafter in world.drafters)
        situation = Situation(owed, played.tokens - owed + 1, tokens - played.tokens, options)
        queued = parked is not None and controller.choose(replace(situation, ahead=True)).parked
        choice = parked if parked and queued else controller.choose(situation)
        outcome = _play_round(world, situation, choice, queued=queued, emitted=played.tokens, rng=rng)
        controller.observe(outcome)
        for name in behind:
            behind[name] = 1 if name == choice.drafter else behind[name] + outcome.emitted
        owed = owed + outcome.emitted if world.carries and outcome.accepted < outcome.proposed else 1
        plain_s = world.queued * world.pass_s(1, played.tokens)
        played.add(outcome, plain_s)
        parked = choice if choice.parked else None
    return played


def _play_round(
    world: World, situation: Situation, choice: Choice, *, queued: bool, emitted: int, rng: random.Random
) -> Outcome:
    """What `choice` comes to, after `emitted` tokens."""
    drafters = {drafter.name: drafter for drafter in world.drafters}
    offered = {option.drafter: option for option in situation.options}
    seconds = world.pass_s(situation.owed + choice.k, emitted) * (world.queued if queued else 1.0)
    accepted = 0
    confidences: tuple[float, ...] = ()
    if choice.drafter is not None:
        drafter, option = drafters[choice.drafter], offered[choice.drafter]
        seconds += drafter.step_s * (choice.k + READING * max(0, option.catch_up - 1))
        accepted = kept(drafter.alphas(emitted)[: choice.k], rng)
        confidences = option.confidences[: choice.k]
    return Outcome(
        choice=choice,
        proposed=choice.k,
        accepted=accepted,
        emitted=accepted + 1,
        rows=situation.owed + choice.k,
        context=situation.context,
        confidences=confidences,
        match_length=0,
        draft_s=None,
        round_s=seconds * math.exp(rng.gauss(0.0, world.noise)),
        queued=queued,
    )


def _offer(drafter: ScriptedDrafter, emitted: int, behind: int) -> Option:
    alphas = tuple(drafter.alphas(emitted))[:MAX_GUESSES]
    claimed = alphas if drafter.claims is None else (drafter.claims,) * len(alphas)
    return Option(
        drafter.name,
        max_k=len(alphas),
        confidences=claimed if drafter.tells or drafter.claims is not None else (),
        catch_up=behind if drafter.step_s else 0,
    )


def kept(alphas: Sequence[float], rng: random.Random) -> int:
    """How many guesses are kept before the first one that is not."""
    for i, alpha in enumerate(alphas):
        if rng.random() >= alpha:
            return i
    return len(alphas)
