"""What must hold for a model of every architecture: each check raises AssertionError where it does not.

Used by `tests/test_every_architecture.py` on some architectures and by `benchmarks/architectures.py`
on all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.proposal import Drafter, Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.decoding.target import TargetState
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.lookahead import Lookahead
from mlxspec.drafters.lookup import Lookup
from mlxspec.drafters.translated_draft import TranslatedDraft
from mlxspec.drafters.translation import Tongue, Translation
from mlxspec.drafters.trimmed_head import trim_head
from mlxspec.errors import UnsupportedCache
from tests import tiny_models
from tests.answers import (
    TIE,
    TOKENS,
    Answer,
    answer,
    fill,
    first_difference,
    loop,
    margin_at,
    plain_ids,
    sampler_of,
    some_prompt,
)
from tests.fakes import LetterTokenizer
from tests.tiny_models import VOCAB

SHORT = 6
"""Tokens of an answer that is run once for every place where it can fail."""

WIDE: dict[str, Any] = dict.fromkeys(
    ("hidden_size", "n_embd", "hidden_dim", "d_model", "model_dim", "dim_model_base"), 256
)
WIDE |= dict.fromkeys(("head_dim", "kv_channels", "hidden_size_per_head", "global_head_dim"), 64)
WIDE |= dict.fromkeys(("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 64)
WIDE |= dict.fromkeys(("swa_head_dim", "swa_v_head_dim", "index_head_dim"), 64)
WIDE |= {"block_dim": 256, "rotary_dim": 64, "num_attention_heads": 4}
"""Arguments that make heads which quantised groups of 64 divide."""


@dataclass
class Subject:
    """One architecture with its answers, made once each. `ties`: margins where a tie fell otherwise."""

    name: str
    ties: list[float] = field(default_factory=list)

    @cached_property
    def model(self) -> Any:
        """The tiny model."""
        return tiny_models.build(self.name)

    @cached_property
    def erring(self) -> Any:
        """A draft of the same architecture that is right about as often as not."""
        return tiny_models.erring_draft(self.model, some_prompt(), self.plain(0.0))

    def plain(self, temperature: float) -> list[int]:
        """The reference answer."""
        if temperature not in self._plain:
            self._plain[temperature] = plain_ids(self.model, some_prompt(), temperature=temperature)
        return self._plain[temperature]

    @cached_property
    def _plain(self) -> dict[float, list[int]]:
        return {}

    def state(self) -> TargetState:
        """The model as a target that has read nothing."""
        return TargetState(PromptCache(self.model))


def _lookahead(_subject: Subject) -> list[Drafter]:
    copies = Lookup()
    return [Lookahead(copies), copies]


class Renamed:
    """A model that calls token i by the number `names[i]`."""

    def __init__(self, model: Any, names: list[int]) -> None:
        self._model = model
        self._names = mx.array(names)
        self._ids = mx.argsort(self._names)

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        logits: mx.array = self._model(self._ids[tokens], cache=cache)[..., self._ids]
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def translated(model: Any, *, context_tokens: int = 1000) -> TranslatedDraft:
    """A draft that knows the tokens by other numbers."""
    names = [(7 * i + 3) % VOCAB for i in range(VOCAB)]
    letters = [chr(0x4E00 + i) for i in range(VOCAB)]
    renamed = [letters[names.index(i)] for i in range(VOCAB)]
    tongues = [Tongue(LetterTokenizer("".join(order)), frozenset()) for order in (letters, renamed)]
    # The module's name tells how a cache has to be treated.
    own_kind = type("Renamed", (Renamed,), {"__module__": type(model).__module__})
    draft = DraftModel(own_kind(model, names))
    return TranslatedDraft(draft, Translation(*tongues), vocab_size=VOCAB, context_tokens=context_tokens)


def _trimmed(subject: Subject) -> list[Drafter]:
    draft = copy.deepcopy(subject.erring)
    ids = mx.arange(0, VOCAB, 2)
    trim_head(draft, ids)
    return [DraftModel(draft, ids=ids)]


DRAFTS: dict[str, Callable[[Subject], list[Drafter]]] = {
    "erring": lambda subject: [DraftModel(subject.erring)],
    "itself": lambda subject: [DraftModel(subject.model)],
    "lookup": lambda _: [Lookup()],
    "lookahead": _lookahead,
    "translated": lambda subject: [translated(subject.erring)],
    "translated itself": lambda subject: [translated(subject.model)],
    "trimmed": _trimmed,
}
"""Who drafts for a subject: a draft that is the target itself is always right."""


def check_equal(subject: Subject, ids: list[int], *, temperature: float, what: str) -> None:
    """The ids are those of plain decoding, but for a tie, which is noted."""
    expected = subject.plain(temperature)[: len(ids)]
    place = first_difference(ids, expected)
    if place is None:
        return
    margin = margin_at(subject.model, some_prompt(), expected, place, temperature=temperature)
    assert margin < TIE, f"{what}: token {place} differs, the best two logits are {margin:.2g} apart"
    subject.ties.append(margin)


def check_target(subject: Subject, *, draft: str, k: int, temperature: float, tokens: int = TOKENS) -> Answer:
    """As a target, with one of `DRAFTS`: the ids of plain decoding."""
    drafters = DRAFTS[draft](subject)
    given = answer(
        subject.state(), some_prompt(), drafters=drafters, k=k, temperature=temperature, tokens=tokens
    )
    what = f"target with {draft}, k {k}, temperature {temperature:.0f}"
    check_equal(subject, given.ids, temperature=temperature, what=what)
    if draft in ("itself", "translated itself"):
        assert given.accepted == given.proposed > 0, f"{what}: {given.accepted} of {given.proposed} accepted"
    return given


def check_draft(
    subject: Subject, target: Subject, *, k: int, temperature: float, tokens: int = TOKENS
) -> Answer:
    """As the draft of another target: the ids of that target's plain decoding."""
    drafter = DraftModel(subject.model)
    given = answer(
        target.state(), some_prompt(), drafters=[drafter], k=k, temperature=temperature, tokens=tokens
    )
    what = f"draft, k {k}, temperature {temperature:.0f}"
    check_equal(target, given.ids, temperature=temperature, what=what)
    return given


class _ForgetfulDraft(DraftModel):
    """Reads everything again before each proposal."""

    def propose(self, k: int) -> Proposal | None:
        tokens, sampler, cancelled = self._tokens, self._sampler, self._cancelled
        assert sampler is not None
        self.close()
        self.reset(tokens, sampler, cancelled)
        return super().propose(k)


class _WatchedDraft(DraftModel):
    """Notes how many tokens it lacked at each proposal."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.lacked: list[int] = []

    def _catch_up(self) -> bool:
        done = super()._catch_up()
        self.lacked.append(len(self._tokens) - self._cache.length)
        return done


def check_draft_keeps_nothing_rejected(subject: Subject, *, k: int = 4, tokens: int) -> None:
    """After any rejection a draft guesses what one would that reads everything again, and reads little."""
    watched = _WatchedDraft(subject.erring)
    kept, read_again = (
        answer(subject.state(), some_prompt(), drafters=[draft], k=k, tokens=tokens)
        for draft in (watched, _ForgetfulDraft(subject.erring))
    )
    assert kept.accepted < kept.proposed, "nothing was rejected"
    assert (kept.proposed, kept.accepted) == (read_again.proposed, read_again.accepted)
    assert max(watched.lacked[1:]) <= k + 1, f"a draft read {max(watched.lacked[1:])} tokens again"


def check_turns(subject: Subject, *, tokens: int = 16) -> list[int]:
    """Later turns equal cold runs, and target and draft reuse what they read. The tokens reused.

    The second turn goes on behind the first; the third has lost the first answer, as where a chat
    template drops what a model was thinking; the fourth is the first again, cut short.
    """
    state, drafter = subject.state(), DraftModel(subject.erring)
    first = some_prompt()
    said = answer(state, first, drafters=[drafter], tokens=tokens).ids
    longer = [*first, *said]
    reused = []
    for prompt, least in (
        ([*longer, 7, 9, 4], len(first) - 1),
        ([*first, *longer[-9:], 3, 8], len(first) - 1),
        (first[:-4], 0),
        (some_prompt(5, seed=9), 0),
    ):
        begun = answer(state, prompt, drafters=[drafter], tokens=tokens)
        cold = answer(subject.state(), prompt, tokens=tokens).ids
        if (place := first_difference(begun.ids, cold)) is not None:
            margin = margin_at(subject.model, prompt, cold, place)
            assert margin < TIE, f"turn {len(reused) + 2}: token {place} differs, margin {margin:.2g}"
            subject.ties.append(margin)
        assert begun.reused >= least, f"turn {len(reused) + 2}: {begun.reused} tokens reused"
        reused.append(begun.reused)
    drafter.reset([*state.tokens, 5], sampler_of(0.0), lambda: False)
    assert drafter.offer().catch_up < len(begun.ids), "the draft reuses nothing"
    return reused


def points_of(subject: Subject) -> dict[str, tuple[Any, str]]:
    """Where a round is made to fail. A model that fails has written to its caches already."""
    return {
        "forward": (type(subject.model), "__call__"),
        "rewind": (PromptCache, "rewind_to"),
        "sample": (Sampler, "processed"),
        "noise": (Sampler, "gumbel"),
    }


class Injected(RuntimeError):
    """The failure that these tests bring about."""


@contextmanager
def failing(owner: Any, name: str, *, at: int, before: bool) -> Iterator[Callable[[], int]]:
    """Call number `at` of a function fails, before or after its work. Gives the number of calls so far."""
    whole = getattr(owner, name)
    calls = 0

    def half(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls - 1 == at:
            raise Injected(name)
        done = whole(*arguments, **named)
        if not before and calls - 1 == at:
            raise Injected(name)
        return done

    with patch.object(owner, name, half):
        yield lambda: calls


def check_failures(
    subject: Subject, *, draft: str = "erring", tokens: int = SHORT, temperature: float = 1.0
) -> int:
    """After a failure at any forward, sample or rewind the next answer is a fresh state's.

    Returns how many failures were brought about.
    """
    count = 0
    fresh = _after_failure(subject.state(), DRAFTS[draft](subject), temperature=temperature)
    for point, (owner, name) in points_of(subject).items():
        at = 0
        while True:
            state, drafters = subject.state(), DRAFTS[draft](subject)
            before = at % 2 == 1 and point != "forward"
            try:
                with failing(owner, name, at=at, before=before) as calls:
                    answer(
                        state, some_prompt(), drafters=drafters, k=3, tokens=tokens, temperature=temperature
                    )
                    if calls() <= at:
                        break
            except Injected:
                count += 1
                given = _after_failure(state, drafters, temperature=temperature)
                assert given == fresh, f"the answer after a failure at {point} {at} is another one"
            at += 1
        assert at, f"nothing failed at {point}"
    return count


def check_closed(
    subject: Subject, *, draft: str = "erring", rounds: int = 3, temperature: float = 1.0
) -> int:
    """After an answer that was closed, or failed, at a yield the next answer is a fresh state's.

    Returns how many answers were ended so.
    """
    count = 0
    fresh = _after_failure(subject.state(), DRAFTS[draft](subject), temperature=temperature)
    for place in range(1, rounds + 1):
        for how in ("close", "throw"):
            state, drafters = subject.state(), DRAFTS[draft](subject)
            fill(state, some_prompt())
            decoding = loop(state, drafters=drafters, k=3, temperature=temperature).rounds()
            for _ in range(place):
                next(decoding)
            if how == "close":
                decoding.close()  # type: ignore[attr-defined]
                assert state.cache.length <= len(state.tokens), "rows stay behind the committed tokens"
            else:
                with suppress(Injected):
                    decoding.throw(Injected("yield"))  # type: ignore[attr-defined]
            count += 1
            given = _after_failure(state, drafters, temperature=temperature)
            assert given == fresh, f"the answer after {how} at yield {place} is another one"
    return count


def _after_failure(
    state: TargetState, drafters: list[Drafter], *, temperature: float
) -> tuple[list[int], int]:
    """The next answer, to a prompt that begins as the one before, and how many guesses were right."""
    prompt = [*some_prompt()[:-3], 2, 6]
    given = answer(state, prompt, drafters=drafters, k=3, tokens=2 * SHORT, temperature=temperature)
    return given.ids, given.accepted


def check_kv_bits(name: str, *, tokens: int = 24) -> str:
    """With kv-bits the ids of mlx-lm's quantised generation, or a refusal: "yes", or the reason."""
    refused = ""
    try:
        PromptCache(tiny_models.build(name), kv_bits=8)
    except UnsupportedCache as error:
        refused = error.message
    else:
        raise AssertionError("heads of 8 values are quantised in groups of 64")
    try:
        model = tiny_models.build(name, **WIDE)
        PromptCache(model, kv_bits=8)
    except UnsupportedCache as error:
        return error.message
    except ValueError:
        return refused
    for bits in (4, 8):
        plain = plain_ids(model, some_prompt(), tokens=tokens, kv_bits=bits)
        draft = DraftModel(tiny_models.perturbed(model, 0.05))
        state = TargetState(PromptCache(model, kv_bits=bits))
        given = answer(state, some_prompt(), drafters=[draft], k=4, tokens=tokens)
        place = first_difference(given.ids, plain)
        assert place is None, f"kv-bits {bits}: token {place} differs"
    return "yes"
