"""Drafters on the target's hidden states and first layers: lossless, and in step however a round ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.calibrate import measure_reader_step
from mlxspec.decoding.controller import Choice, Outcome, Situation
from mlxspec.decoding.decode import Decoding
from mlxspec.decoding.hidden import LAST, HiddenStates
from mlxspec.decoding.proposal import Drafter
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.drafters.exit import EarlyExit, ExitAdapter, ExitCopy
from mlxspec.drafters.first_layers import borrowed, first_layers, lendable
from mlxspec.drafters.head import Head, HeadLayer
from mlxspec.drafters.lookup import Lookup
from mlxspec.drafters.medusa import Medusa, MedusaHeads
from mlxspec.drafters.output_head import rows_of
from mlxspec.drafters.tiny import TinyModel
from mlxspec.drafters.trained_maker import TinyDraft, head_of
from mlxspec.errors import UsageError
from tests import tiny_models
from tests.answers import TOKENS, plain_ids, some_prompt
from tests.tiny_models import VOCAB

IDS = mx.array([i for i in range(VOCAB) if i % 5])  # a head that is trimmed to these
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}
GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=1.0, top_p=1.0)


def head(model: Any) -> Head:
    """Untrained, so that it is mostly wrong."""
    states = HiddenStates(model)
    mx.random.seed(1)
    layer = HeadLayer(SHAPE, width=32, token_width=32)
    return Head(layer, embed=states.embedding, head=head_of(states, IDS), ids=IDS, point=LAST)


def medusa(model: Any) -> Medusa:
    return Medusa(MedusaHeads(32, 3), head=head_of(HiddenStates(model), IDS), ids=IDS, point=LAST)


def early_exit(model: Any) -> EarlyExit:
    shallow = first_layers(model, 3)
    lent = lendable(model, shallow)
    assert lent is not None
    return EarlyExit(shallow, lent=lent, layers=3)


def adapted_exit(model: Any) -> EarlyExit:
    shallow = first_layers(model, 2)
    lent = lendable(model, shallow)
    assert lent is not None
    mx.random.seed(1)
    adapter = ExitAdapter(SHAPE, mlp=True)
    head = head_of(HiddenStates(model), IDS)
    return EarlyExit(shallow, lent=lent, layers=2, adapter=adapter, head=head, ids=IDS)


def tiny(model: Any) -> TinyDraft:
    del model
    mx.random.seed(1)
    shape = {**SHAPE, "vocab_size": VOCAB, "num_hidden_layers": 1}
    return TinyDraft(TinyModel(shape, columns=len(IDS)), ids=IDS)


MAKERS: dict[str, Callable[[Any], Drafter]] = {
    "head": head,
    "medusa": medusa,
    "exit": early_exit,
    "adapted exit": adapted_exit,
    "tiny": tiny,
}
KINDS = tuple(MAKERS)
TARGETS = ("llama", "llama/window", "qwen3_5")
"""A plain cache, a sliding window, recurrent state."""

_models: dict[str, Any] = {}


def model_of(name: str) -> Any:
    """Each target once."""
    if name not in _models:
        _models[name] = tiny_models.build(name)
    return _models[name]


def decode(
    state: TargetState,
    drafters: Sequence[Drafter],
    *,
    params: SamplingParams = GREEDY,
    rule: Rule = Rule.COUPLED,
    controller: Any = None,
    prompt: Sequence[int] = (),
    tokens: int = TOKENS,
    **options: Any,
) -> Decoding:
    """The round loop behind a prompt, about to start."""
    prompt = prompt or some_prompt()
    prefill(state, prompt, cancelled=lambda: False, progress=lambda *_: None, drafters=drafters)
    return Decoding(
        state,
        sampler=Sampler(params, vocab_size=VOCAB, rule=rule, seed=11),
        drafters=drafters,
        controller=controller or Script(3),
        max_tokens=tokens,
        eos_ids=frozenset(),
        **options,
    )


class Script:
    """Reads k from a list, over and over; 0 is a parked round."""

    def __init__(self, *ks: int) -> None:
        self._ks = ks
        self._round = 0

    def choose(self, situation: Situation) -> Choice:
        k = min(self._ks[self._round % len(self._ks)], situation.options[0].max_k, situation.room - 1)
        return Choice(situation.options[0].drafter, k) if k else Choice(None, parked=True)

    def observe(self, outcome: Outcome) -> None:
        del outcome
        self._round += 1


def ids_of(decoding: Decoding) -> list[int]:
    return [token for landed in decoding.rounds() for token in landed.tokens]


def fresh(name: str) -> TargetState:
    return TargetState(PromptCache(model_of(name)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_are_those_of_plain_decoding(kind: str, name: str, temperature: float) -> None:
    params = GREEDY if temperature == 0 else WARM
    decoding = decode(
        fresh(name), [MAKERS[kind](model_of(name))], params=params, controller=Script(3, 0, 1, 4)
    )
    assert ids_of(decoding) == plain_ids(model_of(name), some_prompt(), temperature=temperature)
    assert decoding.stats.proposed > 0


@pytest.mark.parametrize("kind", KINDS)
def test_guesses_are_drawn_from_the_q_that_they_come_with(kind: str) -> None:
    drafter, state = MAKERS[kind](model_of("llama")), fresh("llama")
    next(decode(state, [drafter], params=WARM, rule=Rule.TOKEN).rounds())
    draws = 200
    counts = [0] * VOCAB
    for seed in range(draws):
        sampler = Sampler(WARM, vocab_size=VOCAB, rule=Rule.TOKEN, seed=seed)
        drafter.reset(state.tokens, sampler, lambda: False)
        proposal = drafter.propose(1)
        assert proposal is not None
        counts[int(proposal.tokens.item())] += 1
    if proposal.q is None:
        assert max(counts) == draws, "a certain guess"
        return
    q = proposal.q[0]
    assert q.shape == (VOCAB,)
    assert abs(q.sum().item() - 1.0) < 1e-5
    expected = np.array(q) * draws
    assert (np.abs(counts - expected) <= 4.5 * np.sqrt(expected) + 1e-6).all()
    if kind != "exit":
        assert not q[::5].any().item(), "tokens that the head does not cover"


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_means_one_text_for_a_fixed_k(kind: str, rule: Rule) -> None:
    texts = [
        ids_of(decode(fresh("llama"), [MAKERS[kind](model_of("llama"))], params=WARM, rule=rule, tokens=24))
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("params", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("kind", KINDS)
def test_penalties_and_biases_hold(kind: str, params: SamplingParams) -> None:
    params = SamplingParams(
        temperature=params.temperature,
        top_p=0.9,
        repetition_penalty=1.3,
        logit_bias={4: -100.0, 7: 2.0},
    )
    plain = ids_of(decode(fresh("llama"), [], params=params))
    assert ids_of(decode(fresh("llama"), [MAKERS[kind](model_of("llama"))], params=params)) == plain
    assert 4 not in plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_drafter_serves_the_next_turn_and_another_chat(kind: str) -> None:
    state, drafter = fresh("llama"), MAKERS[kind](model_of("llama"))
    said = ids_of(decode(state, [drafter], tokens=12))
    for prompt in ([*some_prompt(), *said, 7, 9], some_prompt()[:-4], some_prompt(9, seed=3)):
        expected = ids_of(decode(fresh("llama"), [], prompt=prompt, tokens=16))
        decoding = decode(state, [drafter], prompt=prompt, tokens=16)
        assert ids_of(decoding) == expected
        assert decoding.stats.proposed > 0, "it guesses again"


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failure_or_a_closed_answer_the_next_one_is_right(kind: str, name: str) -> None:
    state, drafter = fresh(name), MAKERS[kind](model_of(name))
    expected = plain_ids(model_of(name), some_prompt(), tokens=12)
    for how in ("close", "throw", "drafter"):
        rounds = decode(state, [drafter]).rounds()
        next(rounds)
        next(rounds)
        if how == "close":
            rounds.close()  # type: ignore[attr-defined]
        elif how == "throw":
            with pytest.raises(RuntimeError):
                rounds.throw(RuntimeError())  # type: ignore[attr-defined]
        else:
            with pytest.MonkeyPatch.context() as broken:
                broken.setattr("mlxspec.drafters.guessing.Guesses.proposal", _fail)
                with pytest.raises(RuntimeError, match="injected"):
                    list(rounds)
        assert ids_of(decode(state, [drafter], tokens=12)) == expected, how


def _fail(*_: Any) -> Any:
    raise RuntimeError("injected")


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_takes_effect_within_one_round(kind: str) -> None:
    cancelled = [False]
    state, drafter = fresh("llama"), MAKERS[kind](model_of("llama"))
    rounds = decode(state, [drafter], cancelled=lambda: cancelled[0], tokens=400).rounds()
    next(rounds)
    cancelled[0] = True
    assert len(list(rounds)) <= 1
    assert ids_of(decode(state, [drafter], tokens=12)) == plain_ids(
        model_of("llama"), some_prompt(), tokens=12
    )


@pytest.mark.parametrize("kv_bits", [4, 8])
def test_an_early_exit_works_on_a_quantised_cache(kv_bits: int) -> None:
    model = tiny_models.build("llama", hidden_size=128, head_dim=64, num_attention_heads=2)
    state = TargetState(PromptCache(model, kv_bits=kv_bits))
    decoding = decode(state, [early_exit(model)])
    assert ids_of(decoding) == plain_ids(model, some_prompt(), kv_bits=kv_bits)
    assert decoding.stats.accepted > 0


@pytest.mark.parametrize("name", [*TARGETS, "gpt2", "deepseek_v2", "mamba"])
def test_a_shared_cache_gives_the_guesses_of_a_cache_of_its_own(name: str) -> None:
    model = tiny_models.build(name)
    layers = len(model.layers) - 1
    shallow = first_layers(model, layers)
    lent = lendable(model, shallow)
    assert lent is not None
    counts = []
    for drafter in (EarlyExit(shallow, lent=lent, layers=layers), ExitCopy(shallow)):
        decoding = decode(TargetState(PromptCache(model)), [drafter])
        ids_of(decoding)
        counts.append((decoding.stats.proposed, decoding.stats.accepted))
    assert counts[0] == counts[1]
    assert counts[0][1] > 0


def test_a_cache_that_fewer_layers_would_use_otherwise_is_not_lent() -> None:
    model = tiny_models.build("iquestloopcoder")
    assert lendable(model, first_layers(model, 1)) is None


@pytest.mark.parametrize("name", ["llama", "llama/window", "mamba", "llama4_text"])
def test_a_lent_cache_comes_back_as_it_was(name: str) -> None:
    model = tiny_models.build(name)
    lent, kept = PromptCache(model), PromptCache(model)
    for cache in (lent, kept):
        cache.prefill(mx.array(some_prompt()))
    with borrowed(lent.layers) as layers:
        for _ in range(10):
            mx.eval(model(mx.array([[5]]), cache=layers))
    ids = mx.array([4, 2, 6])
    assert mx.array_equal(lent.forward(ids), kept.forward(ids))


@pytest.mark.parametrize("count", [0, 4, 9])
def test_an_exit_that_is_not_there_is_named(count: int) -> None:
    with pytest.raises(UsageError, match=f"exit:{count} is no draft"):
        first_layers(model_of("llama"), count, name="exit")


@pytest.mark.parametrize("kind", ["head", "medusa", "exit", "adapted exit"])
def test_the_cost_of_a_guess_can_be_measured(kind: str) -> None:
    ticks = iter(range(10_000))
    assert (
        measure_reader_step(MAKERS[kind](model_of("llama")), model_of("llama"), clock=lambda: next(ticks)) > 0
    )


def test_lookup_beside_a_head_leaves_it_in_step() -> None:
    model = model_of("llama")
    drafters = [head(model), Lookup()]
    decoding = decode(fresh("llama"), drafters, controller=InTurn())
    assert ids_of(decoding) == plain_ids(model, some_prompt())
    assert {name for name, part in decoding.stats.drafters.items() if part.proposed} == {"head", "lookup"}


class InTurn(Script):
    """Asks each drafter that has something to offer, in turn."""

    def choose(self, situation: Situation) -> Choice:
        able = [option for option in situation.options if option.max_k]
        if not able or situation.room < 2:
            return Choice(None)
        return Choice(able[self._round % len(able)].drafter, 1)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("quantised", [False, True])
def test_some_rows_of_an_output_head_give_some_of_its_logits(tied: bool, quantised: bool) -> None:
    import mlx.nn as nn

    model = tiny_models.build("llama", hidden_size=64, tie_word_embeddings=tied)
    if quantised:
        nn.quantize(model, group_size=32, bits=8, class_predicate=lambda _, m: m is states_head(model))
    states = HiddenStates(model)
    with states.reading():
        logits = model(mx.array([[3, 5]]))
    assert mx.allclose(rows_of(states.head, IDS)(states.rows[LAST]), logits[..., IDS], atol=1e-4)


def states_head(model: Any) -> Any:
    return HiddenStates(model).head
