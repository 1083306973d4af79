"""Controllers in scripted worlds: seconds and acceptance as written here, chance from fixed seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.controller import Choice, Controller, FixedController, Option, Outcome, Situation
from mlxspec.decoding.cost import VerifyCurve, best_k, speedup
from mlxspec.lab.world import Played, ScriptedDrafter, World, play

LINUX = VerifyCurve.measured({1: 1.0, 2: 1.1, 3: 1.23, 4: 1.34, 5: 1.38, 6: 1.39, 8: 1.45, 16: 1.9})
MAC = VerifyCurve.measured({1: 1.0, 2: 1.03, 3: 1.22, 4: 1.47, 6: 2.07, 8: 2.69})
STEEP = VerifyCurve.measured({1: 1.0, 2: 1.8, 8: 7.0})
STAIRS = VerifyCurve.typed([1.0, *[1.2] * 3, *[1.8] * 4, *[3.0] * 8])
QUEUED = 1 / 1.05

Alphas = Callable[[int], Sequence[float]]


class Plain:
    """No speculation at all."""

    def choose(self, situation: Situation) -> Choice:
        del situation
        return Choice(None, parked=True)

    def observe(self, outcome: Outcome) -> None:
        del outcome


def flat(*alphas: float) -> Alphas:
    """The same all along; the last one goes on for all later guesses."""
    return lambda _emitted: [*alphas, *[alphas[-1]] * 16][:16]


def costs(curve: VerifyCurve) -> Callable[[int, int], float]:
    """The same all along."""
    return lambda rows, _emitted: curve.seconds(rows)


def drafted(alphas: Alphas, *, curve: VerifyCurve = LINUX, step: float = 0.1, **more: bool) -> World:
    """A world with a draft model, some noise, and plain passes that are cheaper when queued."""
    drafter = ScriptedDrafter("draft_model", alphas, step)
    return World(costs(curve), (drafter,), queued=QUEUED, noise=0.05, **more)


def adaptive(
    world: World, *, curve: VerifyCurve = LINUX, history: AcceptanceHistory | None = None
) -> AdaptiveController:
    steps = {drafter.name: drafter.step_s for drafter in world.drafters if drafter.step_s}
    return AdaptiveController(curve, steps, history or AcceptanceHistory())


def answer(world: World, controller: Controller, *, tokens: int = 2000, seed: int = 0) -> Played:
    return play(world, controller, tokens=tokens, rng=random.Random(seed))


def speedup_of(world: World, *, curve: VerifyCurve = LINUX, tokens: int = 2000, seeds: int = 2) -> float:
    """The mean over a few answers, each with a history of its own."""
    runs = [answer(world, adaptive(world, curve=curve), tokens=tokens, seed=seed) for seed in range(seeds)]
    return sum(run.speedup for run in runs) / seeds


def best_fixed(alphas: Sequence[float], curve: VerifyCurve, step: float) -> float:
    """Speed-up of the best fixed k, by the closed form, over plain decoding that is queued."""
    k = best_k(alphas, curve, draft_step_s=step)
    fastest = speedup(alphas, k, curve=curve, draft_step_s=step) * QUEUED
    return max(1.0, fastest)


def situation(*options: Option, owed: int = 1, room: int = 100) -> Situation:
    return Situation(owed, context=50, room=room, options=options)


# ---------------------------------------------------------------- fixed


def test_a_fixed_controller_asks_for_as_many_as_there_are_to_have() -> None:
    controller = FixedController(4)
    assert controller.choose(situation(Option("draft_model", 16))) == Choice("draft_model", 4)
    assert controller.choose(situation(Option("draft_model", 2))) == Choice("draft_model", 2)
    assert controller.choose(situation(Option("draft_model", 16), room=3)) == Choice("draft_model", 2)
    assert controller.choose(situation(Option("draft_model", 16), room=1)) == Choice(None)
    assert controller.choose(situation(Option("draft_model", 0))) == Choice(None)
    assert FixedController(0).choose(situation(Option("draft_model", 16))) == Choice(None)


def test_a_fixed_controller_trusts_a_copy_with_a_long_match_more_than_a_draft() -> None:
    controller = FixedController(4)
    draft = Option("draft_model", 16)
    assert controller.choose(situation(draft, Option("lookup", 4, match_length=5))).drafter == "lookup"
    assert controller.choose(situation(draft, Option("lookup", 4, match_length=1))).drafter == "draft_model"
    assert controller.choose(situation(Option("lookup", 4, match_length=1))).drafter == "lookup"


# ---------------------------------------------------------------- one decision


def test_the_first_round_is_plain_because_all_is_measured_against_it() -> None:
    controller = AdaptiveController(LINUX, {"draft_model": 0.1}, AcceptanceHistory())
    assert controller.choose(situation(Option("draft_model", 16))) == Choice(None)


def test_guesses_never_exceed_the_offer_or_the_room() -> None:
    controller = AdaptiveController(LINUX, {}, AcceptanceHistory())
    tell(controller, Choice(None), accepted=0)
    sure = Option("lookup", 5, (0.99,) * 5, match_length=9)
    assert controller.choose(situation(sure)).k == 5
    assert controller.choose(situation(sure, room=3)).k == 2
    assert controller.choose(situation(sure, room=1)).drafter is None


def test_asking_twice_gives_the_same_answer() -> None:
    controller = AdaptiveController(LINUX, {"draft_model": 0.1}, AcceptanceHistory())
    tell(controller, Choice(None), accepted=0)
    asked = situation(Option("draft_model", 16), Option("lookup", 3, (0.6, 0.5, 0.5), match_length=2))
    assert controller.choose(asked) == controller.choose(asked)


def test_nothing_on_offer_is_a_plain_round() -> None:
    controller = AdaptiveController(LINUX, {"draft_model": 0.1}, AcceptanceHistory())
    assert controller.choose(situation(Option("lookup", 0))).drafter is None
    assert controller.choose(situation()).drafter is None


def test_the_drafter_that_promises_more_proposes() -> None:
    history = AcceptanceHistory()
    for _ in range(200):
        history.record("draft_model", 2, proposed=3)  # 1, 1, 0
    controller = AdaptiveController(LINUX, {"draft_model": 0.1}, history)
    tell(controller, Choice(None), accepted=0)
    draft = Option("draft_model", 16)
    assert (
        controller.choose(situation(draft, Option("lookup", 8, (0.9,) * 8, match_length=5))).drafter
        == "lookup"
    )
    assert (
        controller.choose(situation(draft, Option("lookup", 1, (0.5,), match_length=1))).drafter
        == "draft_model"
    )
    assert controller.choose(situation(draft)).k == 2


def test_many_carried_tokens_are_flushed_rather_than_fed_again_with_guesses() -> None:
    """Guesses that are likely to fail would leave all of them, and more, to be fed once more."""
    history = AcceptanceHistory()
    for i in range(400):
        history.record("draft_model", int(i % 20 < 9), proposed=1)  # 0.45: pays with one owed token
    linear = VerifyCurve.typed([1.0 + 0.2 * n for n in range(60)])
    plans = {}
    for owed in (1, 30):
        controller = AdaptiveController(linear, {"draft_model": 0.01}, history)
        tell(controller, Choice(None), accepted=0, rows=2)
        plans[owed] = controller.choose(situation(Option("draft_model", 16), owed=owed))
    assert plans[1].drafter == "draft_model"
    assert plans[30] == Choice(None)


def test_a_copy_whose_next_token_is_in_the_air_is_worth_waiting_for() -> None:
    controller = AdaptiveController(LINUX, {}, AcceptanceHistory())
    tell(controller, Choice(None), accepted=0)
    for _ in range(80):
        controller.choose(situation(Option("lookup", 0)))
        tell(controller, Choice(None, parked=True), accepted=0, queued=True)
    nothing = Situation(1, 50, 100, (Option("lookup", 0),), ahead=True)
    last_of_its_chain = Situation(1, 50, 100, (Option("lookup", 1, (0.9,), match_length=5),), ahead=True)
    goes_on = Situation(1, 50, 100, (Option("lookup", 8, (0.9,) * 8, match_length=5),), ahead=True)
    assert controller.choose(nothing).parked
    assert controller.choose(last_of_its_chain).parked
    assert not controller.choose(goes_on).parked


def tell(
    controller: AdaptiveController,
    choice: Choice,
    *,
    accepted: int,
    rows: int | None = None,
    queued: bool = False,
    slowness: float = 1.0,
) -> None:
    """A round went as it should, or took longer."""
    rows = rows or 1 + choice.k
    seconds = slowness * LINUX.seconds(rows) * (QUEUED if queued else 1.0)
    controller.observe(
        Outcome(choice, choice.k, accepted, accepted + 1, rows, 50, (), 0, None, seconds, queued)
    )


# ---------------------------------------------------------------- worlds that stay as they are


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize(("curve", "step"), [(LINUX, 0.1), (MAC, 0.05)], ids=["linux", "mac"])
def test_regret_against_the_best_fixed_k_is_small(alpha: float, curve: VerifyCurve, step: float) -> None:
    world = drafted(flat(alpha), curve=curve, step=step)
    assert speedup_of(world, curve=curve, tokens=1200) > 0.93 * best_fixed([alpha] * 16, curve, step)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "world",
    [drafted(flat(0.02)), drafted(flat(0.02), carries=True), drafted(flat(0.6), curve=STEEP)],
    ids=["nothing is kept", "and what was fed is carried", "a row costs almost a pass"],
)
def test_where_speculation_never_pays_it_costs_less_than_one_percent(world: World, seed: int) -> None:
    curve = VerifyCurve.measured({n: world.pass_s(n, 0) for n in range(1, 18)})
    plain = answer(world, Plain(), seed=seed)
    tried = answer(world, adaptive(world, curve=curve), seed=seed)
    assert tried.seconds <= 1.01 * plain.seconds
    assert tried.parked > 0.95 * tried.rounds


def test_a_good_history_in_a_world_that_never_pays_costs_less_than_one_percent() -> None:
    history = AcceptanceHistory()
    for _ in range(200):
        history.record("draft_model", 6, proposed=6)
    world = drafted(flat(0.05))
    assert answer(world, adaptive(world, history=history)).speedup > 0.99


def test_a_draft_that_costs_more_than_it_gives_is_left_alone() -> None:
    world = drafted(flat(0.9), step=1.0)
    played = answer(world, adaptive(world))
    assert played.proposed == 0
    assert played.speedup > 0.99


@pytest.mark.parametrize("seed", range(3))
def test_a_calibration_that_promises_too_much_is_found_out(seed: int) -> None:
    world = drafted(flat(0.6), curve=STEEP)
    assert answer(world, adaptive(world, curve=MAC), seed=seed).speedup > 0.98


def test_a_draft_that_is_dearer_than_calibrated_is_found_out() -> None:
    world = drafted(flat(0.6), step=0.9)
    controller = AdaptiveController(LINUX, {"draft_model": 0.1}, AcceptanceHistory())
    assert answer(world, controller).speedup > 0.98


def test_a_lookup_that_is_too_sure_costs_less_than_one_percent() -> None:
    liar = ScriptedDrafter("lookup", flat(0.03), claims=0.8)
    world = World(costs(LINUX), (liar,), queued=QUEUED, noise=0.05)
    assert answer(world, adaptive(world)).speedup > 0.99


@pytest.mark.parametrize(("alpha", "end"), [(0.6, 3), (0.9, 7)])
def test_on_a_staircase_k_stands_at_the_ends_of_plateaus(alpha: float, end: int) -> None:
    world = drafted(flat(alpha), curve=STAIRS, step=0.01)
    played = answer(world, adaptive(world, curve=STAIRS))
    at_ends = sum(count for k, count in played.ks.items() if k in (3, 7, 15))
    assert at_ends > 0.9 * played.rounds
    assert played.ks.most_common(1)[0][0] == end


def test_falling_acceptance_along_the_run_keeps_it_short() -> None:
    alphas = (0.95, 0.9, 0.3, 0.2)
    world = drafted(flat(*alphas))
    played = answer(world, adaptive(world))
    assert played.ks.most_common(1)[0][0] == 2
    assert played.speedup > 0.93 * best_fixed(alphas, LINUX, 0.1)


def test_in_an_answer_of_128_tokens_a_known_draft_is_as_fast_as_its_best_k() -> None:
    """Bad luck at the start must not park a draft that has been good in all answers before."""
    history = AcceptanceHistory()
    world = drafted(flat(0.8))
    runs = [answer(world, adaptive(world, history=history), tokens=128, seed=seed) for seed in range(40)]
    later = runs[5:]
    plain_s, seconds = sum(run.plain_s for run in later), sum(run.seconds for run in later)
    assert plain_s / seconds > 0.93 * best_fixed([0.8] * 16, LINUX, 0.1)


# ---------------------------------------------------------------- worlds that change


def test_when_acceptance_falls_mid_answer_speculation_stops() -> None:
    world = drafted(lambda emitted: [0.9 if emitted < 1000 else 0.05] * 16)
    ideal = 2000 / (1000 / best_fixed([0.9] * 16, LINUX, 0.1) + 1000)
    assert speedup_of(world) > 0.92 * ideal


def test_when_acceptance_rises_mid_answer_speculation_starts() -> None:
    world = drafted(lambda emitted: [0.05 if emitted < 1000 else 0.9] * 16)
    ideal = 2000 / (1000 / best_fixed([0.9] * 16, LINUX, 0.1) + 1000)
    assert speedup_of(world, seeds=4) > 0.8 * ideal


def test_domains_that_alternate_are_worth_more_than_any_fixed_k() -> None:
    world = drafted(lambda emitted: [0.9 if emitted // 250 % 2 else 0.05] * 16)
    fixed = max(answer(world, FixedController(k)).speedup for k in (1, 2, 4, 8))
    assert speedup_of(world, seeds=3) > max(1.0, fixed)


def test_when_guesses_get_dear_and_acceptance_stays_the_same_k_falls() -> None:
    """Another program takes the arithmetic: many rows get slow, one row stays as it is."""

    def pass_s(rows: int, emitted: int) -> float:
        return (LINUX if emitted < 1000 else STEEP).seconds(rows)

    drafter = ScriptedDrafter("draft_model", flat(0.8), 0.1)
    world = World(pass_s, (drafter,), queued=QUEUED, noise=0.05)
    ideal = 2000 / (1000 / best_fixed([0.8] * 16, LINUX, 0.1) + 1000)
    assert speedup_of(world) > 0.92 * ideal


def test_plain_rounds_are_rare_but_never_given_up_where_guesses_win() -> None:
    controller = AdaptiveController(LINUX, {}, AcceptanceHistory())
    copy = Option("lookup", 4, (0.95,) * 4, match_length=9)
    plain_at = []
    for i in range(400):
        choice = controller.choose(situation(copy))
        tell(controller, choice, accepted=choice.k)
        if choice.k == 0:
            plain_at.append(i)
    gaps = [later - earlier for earlier, later in pairwise(plain_at)]
    assert plain_at[0] == 0
    assert len(gaps) >= 3
    assert gaps == sorted(gaps)
    assert gaps[-1] > 100


def test_slow_rounds_one_after_another_make_a_plain_one_due() -> None:
    controller = AdaptiveController(LINUX, {}, AcceptanceHistory())
    copy = Option("lookup", 4, (0.95,) * 4, match_length=9)
    tell(controller, Choice(None), accepted=0)
    for slowness in (1.0, 1.0, 1.0, 3.0, 1.0, 3.0, 3.0):
        assert controller.choose(situation(copy)).drafter == "lookup"
        tell(controller, Choice("lookup", 4), accepted=4, slowness=slowness)
    assert controller.choose(situation(copy)).drafter == "lookup"
    tell(controller, Choice("lookup", 4), accepted=4, slowness=3.0)
    assert controller.choose(situation(copy)) == Choice(None)


def test_when_the_whole_machine_gets_slow_speculation_goes_on() -> None:
    def pass_s(rows: int, emitted: int) -> float:
        return LINUX.seconds(rows) * (1.0 if emitted < 1000 else 1.6)

    drafter = ScriptedDrafter("lookup", flat(0.8), claims=0.8)
    world = World(pass_s, (drafter,), queued=QUEUED, noise=0.05)
    assert speedup_of(world) > 0.92 * best_fixed([0.8] * 16, LINUX, 0.0)


# ---------------------------------------------------------------- more than one drafter, and carried rows


def test_lookup_and_a_draft_serve_one_answer() -> None:
    """Copies come now and then; between them the draft does."""
    lookup = ScriptedDrafter("lookup", lambda emitted: [0.95] * 12 if emitted // 40 % 2 else [])
    draft = ScriptedDrafter("draft_model", flat(0.6), 0.1)

    def speed(*drafters: ScriptedDrafter) -> float:
        tells = [ScriptedDrafter(d.name, d.alphas, d.step_s, tells=d.name == "lookup") for d in drafters]
        return speedup_of(World(costs(LINUX), tuple(tells), queued=QUEUED, noise=0.05))

    both = speed(lookup, draft)
    assert both > 1.05 * speed(lookup)
    assert both > 1.05 * speed(draft)


def test_carried_rows_are_priced() -> None:
    """Where a rejection leaves tokens to be fed again, still no fixed k does much better."""
    world = drafted(flat(0.8), curve=MAC, step=0.05, carries=True)
    fixed = max(answer(world, FixedController(k)).speedup for k in (1, 2, 3, 4))
    assert speedup_of(world, curve=MAC) > 0.95 * max(1.0, fixed)
