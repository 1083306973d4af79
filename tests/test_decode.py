"""The round loop: lossless whatever the draft, k and rule, and consistent however it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.sample_utils import make_logits_processors

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import Choice, FixedController, Outcome, Situation
from mlxspec.decoding.decode import Decoding, Watch
from mlxspec.decoding.flight import Round
from mlxspec.decoding.proposal import Drafter, Proposal
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.lookahead import Lookahead
from mlxspec.drafters.lookup import Lookup
from mlxspec.events import FinishReason, Origin
from tests.fakes import TableModel, chain_model, table_model

PROMPT = [1, 5, 3, 2, 7, 5, 3]
GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=1.0, top_p=1.0)


def ignore(done: int, reused: int) -> None:
    """Progress that nobody watches."""


class Answering:
    """A target with its state, which answers again and again as the engine does."""

    def __init__(self, model: Any, *, vocab: int, kv_bits: int | None = None) -> None:
        self.state = TargetState(PromptCache(model, kv_bits=kv_bits))
        self.vocab = vocab
        self.decoding: Decoding | None = None

    def start(
        self,
        drafters: Sequence[Drafter] = (),
        k: int = 4,
        *,
        prompt: Sequence[int] = PROMPT,
        params: SamplingParams = GREEDY,
        rule: Rule = Rule.BLOCK,
        seed: int = 3,
        controller: Any = None,
        **options: Any,
    ) -> Decoding:
        prefill(self.state, prompt, cancelled=lambda: False, progress=ignore)
        self.decoding = Decoding(
            self.state,
            sampler=Sampler(params, vocab_size=self.vocab, rule=rule, seed=seed),
            drafters=drafters,
            controller=controller or FixedController(k),
            **{"max_tokens": 40, "eos_ids": frozenset(), **options},
        )
        return self.decoding

    def answer(self, drafters: Sequence[Drafter] = (), k: int = 4, **options: Any) -> list[int]:
        return [token for landed in self.start(drafters, k, **options).rounds() for token in landed.tokens]

    @property
    def finish_reason(self) -> FinishReason | None:
        assert self.decoding is not None
        return self.decoding.finish_reason

    @property
    def stats(self) -> Any:
        assert self.decoding is not None
        return self.decoding.stats


def llama(seed: int, *, vocab: int = 24, noise: float = 0.0) -> Model:
    mx.random.seed(seed)
    args = ModelArgs(
        model_type="llama",
        hidden_size=64,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=1,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        vocab_size=vocab,
    )
    model = Model(args)
    if noise:
        model.update(tree_map(lambda x: x + noise * mx.random.normal(x.shape), model.parameters()))
    mx.eval(model.parameters())
    return model


@pytest.fixture(scope="module")
def target() -> Model:
    return llama(1)


@pytest.fixture(scope="module")
def draft() -> Model:
    """Right often, wrong often."""
    return llama(1, noise=0.02)


def drafters_of(kind: str, draft: Model) -> list[Drafter]:
    copies = Lookup()
    return {
        "draft": [DraftModel(draft)],
        "lookup": [copies],
        "lookahead": [Lookahead(copies), copies],
        "both": [DraftModel(draft), copies],
        "plain": [],
    }[kind]


@pytest.mark.parametrize("k", [1, 3, 4, 8])
@pytest.mark.parametrize("kind", ["draft", "lookup", "lookahead", "both"])
def test_greedy_ids_equal_those_of_mlx_lm(kind: str, k: int, target: Model, draft: Model) -> None:
    answering = Answering(target, vocab=24)
    expected = [int(token) for token, _ in generate_step(mx.array(PROMPT), target, max_tokens=80)]
    assert answering.answer(drafters_of(kind, draft), k, max_tokens=80) == expected
    assert answering.stats.accepted > 0
    assert answering.stats.resampled + answering.stats.bonus > 0


def test_plain_ids_equal_those_of_mlx_lm(target: Model) -> None:
    expected = [int(token) for token, _ in generate_step(mx.array(PROMPT), target, max_tokens=40)]
    assert Answering(target, vocab=24).answer() == expected


@pytest.mark.parametrize("kind", ["draft", "lookup", "lookahead"])
def test_greedy_with_penalties_equals_mlx_lm(kind: str, target: Model, draft: Model) -> None:
    processors = make_logits_processors({4: -100.0}, 1.4, 20, 0.5, 20, 0.3, 20)
    expected = [
        int(token)
        for token, _ in generate_step(mx.array(PROMPT), target, max_tokens=40, logits_processors=processors)
    ]
    params = SamplingParams(
        temperature=0.0,
        repetition_penalty=1.4,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        logit_bias={4: -100.0},
    )
    assert 4 not in expected
    assert Answering(target, vocab=24).answer(drafters_of(kind, draft), params=params) == expected
    assert Answering(target, vocab=24).answer(params=params) == expected


@pytest.mark.parametrize("kv_bits", [4, 8])
def test_greedy_with_a_quantised_cache_equals_mlx_lm(kv_bits: int, target: Model, draft: Model) -> None:
    steps = generate_step(mx.array(PROMPT), target, max_tokens=40, kv_bits=kv_bits, quantized_kv_start=0)
    expected = [int(token) for token, _ in steps]
    answering = Answering(target, vocab=24, kv_bits=kv_bits)
    assert answering.answer([DraftModel(draft)]) == expected
    assert answering.stats.accepted > 0


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("kind", ["draft", "lookup", "lookahead", "both"])
def test_a_seed_means_one_text_under_coupled(kind: str, k: int, target: Model, draft: Model) -> None:
    plain = Answering(target, vocab=24).answer(params=WARM, rule=Rule.COUPLED, seed=9)
    assert (
        Answering(target, vocab=24).answer(
            drafters_of(kind, draft), k, params=WARM, rule=Rule.COUPLED, seed=9
        )
        == plain
    )
    assert plain != Answering(target, vocab=24).answer(params=WARM, rule=Rule.COUPLED, seed=10)


@pytest.mark.parametrize("rule", list(Rule))
def test_a_seed_means_one_text_for_a_fixed_k(rule: Rule, target: Model, draft: Model) -> None:
    answers = [
        Answering(target, vocab=24).answer([DraftModel(draft)], params=WARM, rule=rule, seed=9)
        for _ in range(2)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("rule", list(Rule))
def test_a_draft_equal_to_the_target_is_always_accepted(rule: Rule) -> None:
    model = table_model()
    answering = Answering(model, vocab=12)
    answering.answer([DraftModel(model)], params=WARM, rule=rule, max_tokens=200)
    assert answering.stats.acceptance_rate == 1.0
    assert answering.stats.resampled == 0


class Script:
    """A controller that reads k from a list, over and over, by the position in the sequence."""

    def __init__(self, *ks: int, parked: bool = False) -> None:
        self.ks = ks
        self.parked = parked
        self.outcomes: list[Outcome] = []

    def choose(self, situation: Situation) -> Choice:
        k = self.ks[situation.context % len(self.ks)]
        return Choice(situation.options[0].drafter if k else None, k, parked=self.parked and not k)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@pytest.mark.parametrize("parked", [False, True])
def test_rounds_without_a_proposal_leave_the_draft_in_step(parked: bool, target: Model) -> None:
    answering = Answering(target, vocab=24)
    answering.answer([DraftModel(target)], controller=Script(0, 3, 0, 0, 3, parked=parked), max_tokens=60)
    assert answering.stats.acceptance_rate == 1.0
    assert answering.stats.plain > 0


def test_full_acceptance_leaves_the_draft_one_token_behind(target: Model) -> None:
    drafter = DraftModel(target)
    rounds = Answering(target, vocab=24).start([drafter], 4).rounds()
    next(rounds)
    rounds.close()
    assert drafter.offer().catch_up == 2  # its own last guess, and the bonus token


def test_acceptance_does_not_decay_over_a_long_answer(target: Model) -> None:
    answering = Answering(target, vocab=24)
    answering.answer([DraftModel(target)], 3, max_tokens=300)
    assert answering.stats.acceptance_rate == 1.0


def test_an_end_of_sequence_inside_an_accepted_run_ends_the_answer() -> None:
    model = chain_model(1, 2, 3, 4, 5)
    answering = Answering(model, vocab=12)
    ids = answering.answer([DraftModel(model)], 4, prompt=[5], eos_ids=frozenset({3}))
    assert ids == [1, 2, 3]
    assert answering.finish_reason is FinishReason.STOP
    assert answering.stats.tokens == answering.stats.accepted == 3
    assert answering.state.tokens == [5, 1, 2, 3]
    assert answering.state.cache.length <= 4


@pytest.mark.parametrize("budget", range(1, 8))
@pytest.mark.parametrize("kind", ["draft", "lookup", "lookahead", "plain"])
def test_no_answer_is_longer_than_max_tokens(kind: str, budget: int) -> None:
    model = chain_model(1, 2, 3, 4, 5)
    drafters = drafters_of(kind, model)
    answering = Answering(model, vocab=12)
    ids = answering.answer(drafters, 4, prompt=[1, 2, 3, 4, 5, 1, 2, 3, 4, 5], max_tokens=budget)
    assert ids == [1, 2, 3, 4, 5, 1, 2][:budget]
    assert answering.finish_reason is FinishReason.LENGTH


def stop_after(count: int, *, drop: int) -> Watch:
    seen = [0]

    def watch(token: int) -> int | None:
        del token
        seen[0] += 1
        return drop if seen[0] == count else None

    return watch


@pytest.mark.parametrize("drop", [0, 1, 3, 6])
@pytest.mark.parametrize("count", [6, 7, 8])
def test_a_stop_string_takes_its_tokens_out_of_ids_counts_and_cache(count: int, drop: int) -> None:
    model = chain_model(1, 2, 3, 4, 5)
    answering = Answering(model, vocab=12)
    decoding = answering.start([DraftModel(model)], 3, prompt=[5], watch=stop_after(count, drop=drop))
    list(decoding.rounds())
    stats = decoding.stats
    assert decoding.finish_reason is FinishReason.STOP
    assert answering.state.tokens == [5, *([1, 2, 3, 4, 5] * 2)[: count - drop]]
    assert answering.state.cache.length <= len(answering.state.tokens)
    assert stats.tokens == count - drop
    assert stats.tokens == stats.accepted + stats.resampled + stats.bonus + stats.plain
    assert stats.accepted == sum(part.accepted for part in stats.drafters.values()) <= stats.proposed


def test_every_round_emits_and_the_counts_add_up(target: Model, draft: Model) -> None:
    answering = Answering(target, vocab=24)
    rounds = list(answering.start([DraftModel(draft), Lookup()], 4, max_tokens=100).rounds())
    stats = answering.stats
    assert all(landed.tokens for landed in rounds)
    assert all(landed.accepted <= len(landed.guesses) for landed in rounds)
    assert stats.tokens == 100 == stats.accepted + stats.resampled + stats.bonus + stats.plain
    assert stats.accepted <= stats.proposed
    assert stats.rounds == stats.target_passes == len(rounds)


def test_origins_tell_accepted_from_resampled_from_bonus(target: Model, draft: Model) -> None:
    rounds = list(Answering(target, vocab=24).start([DraftModel(draft)], 3, max_tokens=100).rounds())

    def kind(landed: Round) -> Origin:
        return Origin.BONUS if landed.accepted == len(landed.guesses) else Origin.RESAMPLED

    for landed in rounds[:-1]:
        assert landed.tokens[:-1] == landed.guesses[: landed.accepted]
        assert landed.origins == (*[Origin.ACCEPTED] * landed.accepted, kind(landed))


def test_the_next_plain_pass_is_queued_before_the_token_is_read() -> None:
    model = chain_model(1, 2, 3, 4, 5)
    passes_when_read: list[int] = []

    def watch(token: int) -> None:
        del token
        passes_when_read.append(len(model.passes))

    Answering(model, vocab=12).answer(prompt=[5], max_tokens=5, watch=watch)
    assert passes_when_read == [2, 3, 4, 5, 5]


def test_nothing_is_queued_for_a_token_beyond_the_budget() -> None:
    model = chain_model(1, 2, 3)
    Answering(model, vocab=12).answer(prompt=[3], max_tokens=4)
    assert model.passes == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", ["draft", "lookup", "lookahead", "plain"])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_closed_generator_leaves_a_state_that_answers_as_a_fresh_one(
    kind: str, after: int, target: Model, draft: Model
) -> None:
    drafters = [] if kind == "plain" else drafters_of(kind, draft)
    answering = Answering(target, vocab=24)
    rounds = answering.start(drafters).rounds()
    for _ in range(after):
        next(rounds)
    rounds.close()
    assert answering.state.cache.length <= len(answering.state.tokens)
    assert answering.answer(drafters) == Answering(target, vocab=24).answer()


class Failing:
    """A drafter that raises at its nth proposal, half-way through its own work."""

    name = "draft_model"

    def __init__(self, inner: Drafter, fail_at: int) -> None:
        self._inner = inner
        self._left = fail_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def propose(self, k: int) -> Proposal | None:
        proposal = self._inner.propose(k)
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("injected failure")
        return proposal


@pytest.mark.parametrize("fail_at", [1, 2, 4])
def test_a_failing_drafter_leaves_a_state_that_answers_as_a_fresh_one(
    fail_at: int, target: Model, draft: Model
) -> None:
    drafter = Failing(DraftModel(draft), fail_at)
    answering = Answering(target, vocab=24)
    with pytest.raises(RuntimeError, match="injected"):
        answering.answer([drafter])
    assert answering.answer([drafter]) == Answering(target, vocab=24).answer()


@pytest.mark.parametrize("fail_at", range(6))
@pytest.mark.parametrize("failing", ["target", "draft"])
def test_a_failing_pass_leaves_a_state_that_answers_as_a_fresh_one(failing: str, fail_at: int) -> None:
    target, draft = table_model(seed=1), table_model(seed=2)
    expected = Answering(table_model(seed=1), vocab=12).answer()
    drafter = DraftModel(draft)
    answering = Answering(target, vocab=12)
    model: TableModel = {"target": target, "draft": draft}[failing]
    model.fail_at = fail_at
    with pytest.raises(RuntimeError, match="injected"):
        answering.answer([drafter])
    assert answering.answer([drafter]) == expected


def test_a_cancel_takes_effect_within_one_round(target: Model, draft: Model) -> None:
    cancelled = [False]
    answering = Answering(target, vocab=24)
    decoding = answering.start([DraftModel(draft)], cancelled=lambda: cancelled[0], max_tokens=500)
    rounds = decoding.rounds()
    next(rounds)
    cancelled[0] = True
    assert len(list(rounds)) <= 1
    assert decoding.finish_reason is FinishReason.CANCELLED
    assert answering.answer([DraftModel(draft)]) == Answering(target, vocab=24).answer()


def test_a_cancel_takes_effect_within_one_prefill_chunk() -> None:
    model = table_model()
    state = TargetState(PromptCache(model))
    reused = prefill(
        state,
        [1] * 100,
        cancelled=lambda: state.cache.length >= 20,
        progress=ignore,
        chunk=10,
    )
    assert reused is None
    assert model.passes == [10, 10]


@pytest.mark.parametrize("kind", ["draft", "lookup", "lookahead", "plain"])
def test_a_second_turn_reuses_what_both_turns_share(kind: str, target: Model, draft: Model) -> None:
    drafters = [] if kind == "plain" else drafters_of(kind, draft)
    answering = Answering(target, vocab=24)
    first = answering.answer(drafters)
    second_prompt = [*PROMPT, *first, 9, 9, 4]
    reused = prefill(answering.state, second_prompt, cancelled=lambda: False, progress=ignore)
    assert reused == len(PROMPT) + len(first) - 1
    assert answering.answer(drafters, prompt=second_prompt) == Answering(target, vocab=24).answer(
        prompt=second_prompt
    )


def test_a_changed_past_is_fed_again_from_where_it_changed(target: Model) -> None:
    answering = Answering(target, vocab=24)
    answering.answer()
    changed = [*PROMPT[:4], 9, 9, 9]
    assert prefill(answering.state, changed, cancelled=lambda: False, progress=ignore) == 4
    assert answering.answer(prompt=changed) == Answering(target, vocab=24).answer(prompt=changed)


def test_a_draft_that_is_far_behind_leaves_the_first_token_to_the_target() -> None:
    target, draft = table_model(seed=1), table_model(seed=1)
    rounds = Answering(target, vocab=12).start([DraftModel(draft)], prompt=[1] * 200).rounds()
    first = next(rounds)
    assert draft.passes == []
    assert first.origins == (Origin.PLAIN,)
    assert next(rounds).drafter == "draft_model"


def test_a_draft_with_a_short_context_steps_aside_when_it_is_full() -> None:
    model = table_model()
    answering = Answering(model, vocab=12)
    ids = answering.answer([DraftModel(model, context_tokens=20)], 4, max_tokens=40)
    assert ids == Answering(model, vocab=12).answer(max_tokens=40)
    assert answering.stats.plain > 0
    assert answering.stats.accepted > 0


def test_the_controller_hears_of_every_round(target: Model, draft: Model) -> None:
    script = Script(0, 2, 4)
    answering = Answering(target, vocab=24)
    rounds = list(answering.start([DraftModel(draft)], controller=script).rounds())
    assert [(o.proposed, o.accepted, o.emitted) for o in script.outcomes] == [
        (len(r.guesses), r.accepted, len(r.tokens)) for r in rounds
    ]
    assert all(outcome.round_s for outcome in script.outcomes)


def test_the_ends_of_a_row_of_queued_passes_are_not_timed(target: Model) -> None:
    script = Script(0, 0, 0, 0, 0, 3, parked=True)
    Answering(target, vocab=24).answer([DraftModel(target)], controller=script)
    told = script.outcomes
    for before, outcome, after in zip(told, told[1:], told[2:], strict=False):
        first = after.queued and not outcome.queued
        last = outcome.queued and not after.queued
        assert (outcome.round_s is None) == (first or last)
        assert not (before.proposed and outcome.queued)
    assert {outcome.round_s is None for outcome in told} == {True, False}


@pytest.mark.parametrize("params", [GREEDY, WARM])
def test_a_round_reports_the_probabilities_of_its_guesses(params: SamplingParams) -> None:
    target, draft = table_model(seed=1), table_model(seed=2)
    temperature = params.temperature or 1.0
    p = mx.softmax(target.table / temperature, axis=-1)
    q = mx.softmax(draft.table / temperature, axis=-1)
    answering = Answering(target, vocab=12)
    rounds = list(answering.start([DraftModel(draft)], 3, params=params, probabilities=True).rounds())
    before = PROMPT[-1]
    for landed in rounds:
        contexts = [before, *landed.guesses]
        assert landed.p == pytest.approx(
            [p[c, g].item() for c, g in zip(contexts, landed.guesses, strict=False)], abs=1e-5
        )
        drawn = [
            q[c, g].item() if params.temperature else 1.0
            for c, g in zip(contexts, landed.guesses, strict=False)
        ]
        assert landed.q == pytest.approx(drawn, abs=1e-5)
        assert landed.p_next == pytest.approx(
            p[contexts[landed.accepted], landed.next_token].item(), abs=1e-5
        )
        before = landed.tokens[-1]


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("sharpness", [0.01, 6.0], ids=["flat", "sharp"])
def test_a_wide_vocabulary_gives_the_verdict_of_the_whole_pipeline(
    sharpness: float, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(temperature=0.9, top_p=0.9)
    model = table_model(600, sharpness=sharpness)
    options: dict[str, Any] = {"params": params, "rule": rule, "max_tokens": 30}
    answers = [Answering(model, vocab=600).answer([Lookup(floor=0.0)], 3, prompt=[1, 2, 1, 2], **options)]
    monkeypatch.setattr(Sampler, "likely", lambda self, *args: (self.distribution(*args), mx.array(True)))
    answers.append(Answering(model, vocab=600).answer([Lookup(floor=0.0)], 3, prompt=[1, 2, 1, 2], **options))
    assert answers[0] == answers[1]
