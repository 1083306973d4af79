"""Does speculation change an answer? Checked on this machine with these models.

Two things are compared. Texts: prompts are decoded plainly and speculatively, greedily and with a seed
under the coupled rule, and the ids must be the same. Where they are not, a fresh cache reads the common text
once more, in passes of several widths: a choice between two tokens that is as close as these passes
are among themselves is a tie, which a model with 16-bit numbers has now and then; anything else is a bug.
And one distribution: the token that the block rule emits first, drawn many times, against the target's p.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxspec.decoding.cache import PromptCache, common_prefix
from mlxspec.decoding.controller import FixedController
from mlxspec.decoding.proposal import Proposal, target_readers
from mlxspec.decoding.sampling import History, Rule, Sampler, SamplingParams, Stream
from mlxspec.decoding.target import PREFILL_CHUNK, TargetState, prefill
from mlxspec.decoding.verdict import judge
from mlxspec.lab.drafts import Draft
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.lab.runs import Runner
from mlxspec.models.loading import LoadedModel

WIDTHS = (1, 2, 3, 5, 9, 17)  # rows of the passes in which a text is read again
ROUNDING = {mx.float32: 2.0**-23, mx.float16: 2.0**-10, mx.bfloat16: 2.0**-7}
"""Distance of neighbouring numbers near 1: logits that are nearer than this, times their size, are equal."""

SAFETY = 2.0  # times the differences seen between passes of several widths

SEED = 7
DRAWS = 2000
AT_ONCE = 50  # draws on the device
LEAST_EXPECTED = 20.0  # draws in a bin of the chi-square test
MOST_CERTAIN = 0.5  # probability of the likeliest token that is drawn
WARMER = 1.1

BUG_BELOW = 1e-6
"""A p-value less than this is a bug: right software has one in a million audits."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two ways to decode went apart at token `position` of the answer.

    Attributes:
        plain, speculative: the ids there; None where that answer had ended.
        margin: how far the worse of the two is from the target's first choice, as it reads the text
            again; None where an answer ended without saying so.
        tolerance: how far two passes of the target may be apart.
    """

    position: int
    plain: int | None
    speculative: int | None
    margin: float | None
    tolerance: float

    @property
    def verdict(self) -> str:
        """tie: neither token is better for sure; or bug."""
        return "bug" if self.margin is None or self.margin > self.tolerance else "tie"


@dataclass(frozen=True, slots=True)
class TextCheck:
    """One prompt decoded both ways. `proposed` says how much there was to check."""

    domain: str
    prompt: str
    temperature: float
    tokens: int
    proposed: int
    accepted: int
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class SamplingCheck:
    """One distribution: `draws` tokens in `bins` bins, the chi-square of observed against expected."""

    guesses: str
    draws: int
    bins: int
    chi_square: float
    p_value: float

    @property
    def passed(self) -> bool:
        """Could these draws be the target's own?"""
        return self.p_value >= BUG_BELOW


class Audit:
    """Checks one target with the drafters of one draft, `k` guesses a round."""

    def __init__(self, target: LoadedModel, draft: Draft, *, k: int, max_tokens: int) -> None:
        self._target = target
        self._draft = draft
        self._k = k
        self._runner = Runner(target, max_tokens=max_tokens)

    def text(self, prompt: BenchPrompt, *, temperature: float) -> TextCheck:
        """Decode a prompt both ways; above temperature 0 with one seed and the coupled rule."""
        ids = self._runner.prompt_ids(prompt.prompt)
        rule = Rule.BLOCK if temperature == 0 else Rule.COUPLED
        plain, speculative = (
            self._runner.run(
                ids,
                drafters,
                FixedController(self._k),
                temperature=temperature,
                seed=SEED,
                rule=rule,
                cold=True,
            )
            for drafters in ((), self._draft.drafters)
        )
        return TextCheck(
            domain=prompt.domain,
            prompt=prompt.prompt,
            temperature=temperature,
            tokens=len(plain.ids),
            proposed=speculative.proposed,
            accepted=speculative.accepted,
            difference=self.difference(ids, plain.ids, speculative.ids, temperature=temperature),
        )

    def difference(
        self, prompt: Sequence[int], plain: Sequence[int], speculative: Sequence[int], *, temperature: float
    ) -> Difference | None:
        """Where two answers to a prompt go apart, and whether that is a tie; None when they are the same."""
        if plain == speculative:
            return None
        position = common_prefix(plain, speculative)
        ours, theirs = (ids[position] if position < len(ids) else None for ids in (plain, speculative))
        if ours is None or theirs is None:
            return Difference(position, ours, theirs, None, 0.0)
        text = [*prompt, *plain[:position]]
        sampler = self._sampler(temperature, SEED, Rule.COUPLED)
        margins: list[float] = []
        gaps: list[float] = []
        for rows in WIDTHS:
            logits = _read(self._target.model, text, rows)
            scores: Any = _scores(sampler, logits, text)
            best, first, second = (scores[token].item() for token in (mx.argmax(scores), ours, theirs))
            margins.append(best - min(first, second))
            gaps.append(first - second)
        step = ROUNDING.get(logits.dtype, ROUNDING[mx.float32]) * float(mx.abs(logits).max())
        tolerance = max(SAFETY * (max(gaps) - min(gaps)), step / (temperature or 1.0))
        return Difference(position, ours, theirs, min(margins), tolerance)

    def sampling(self, prompt: BenchPrompt, *, temperature: float = 1.0) -> list[SamplingCheck]:
        """The first token of an answer: with a certain guess, and with those that each drafter draws."""
        ids = self._runner.prompt_ids(prompt.prompt)
        logits = _read(self._target.model, ids, 1)
        # A token that is nearly certain would leave nothing to check.
        while float(mx.softmax(logits.astype(mx.float32) / temperature, axis=-1).max()) > MOST_CERTAIN:
            temperature *= WARMER
        sampler = self._sampler(temperature, SEED, Rule.BLOCK)
        certain = mx.argmax(logits, axis=-1).astype(mx.uint32)
        draw = _FirstToken(logits, ids, temperature=temperature, vocab_size=self._target.vocab_size)
        checks = [draw.check("certain guesses", certain, q=None)]
        checks += [
            draw.check(f"guesses drawn by {name}", None, q=q) for name, q in self._drawing(ids, sampler)
        ]
        return checks

    def _drawing(self, prompt: Sequence[int], sampler: Sampler) -> Iterator[tuple[str, mx.array]]:
        """The drafters that draw what they guess, each with the distribution [1, vocab] of its first."""
        drafters = self._draft.drafters
        state = TargetState(PromptCache(self._target.model))
        prefill(
            state, prompt, cancelled=lambda: False, progress=lambda _done, _reused: None, drafters=drafters
        )
        hidden = state.cache.take_hidden(len(prompt))
        for drafter in drafters:
            for reader in target_readers([drafter]):
                reader.attach(state.cache)
            drafter.reset(prompt, sampler, lambda: False)
            for reader in target_readers([drafter]):
                for start, rows in hidden:
                    reader.read_hidden(start, rows)
            proposal = drafter.propose(1) if drafter.offer().max_k > 0 else None
            drafter.close()
            if proposal is not None and proposal.q is not None:
                yield drafter.name, proposal.q

    def _sampler(self, temperature: float, seed: int, rule: Rule) -> Sampler:
        params = SamplingParams(temperature=temperature, top_p=1.0)
        return Sampler(params, vocab_size=self._target.vocab_size, rule=rule, seed=seed)


class _FirstToken:
    """Draws the first token after a text again and again, with one guess each time."""

    def __init__(self, logits: mx.array, text: Sequence[int], *, temperature: float, vocab_size: int) -> None:
        self._logits = mx.concatenate([logits, logits])  # what follows the guess is not looked at
        self._text = text
        self._params = SamplingParams(temperature=temperature, top_p=1.0)
        self._vocab_size = vocab_size
        p: Any = self._sampler(0).distribution(logits, History(text))[0].tolist()
        self._p: list[float] = p

    def check(self, name: str, guess: mx.array | None, *, q: mx.array | None) -> SamplingCheck:
        """`guess` [1] every time, or another one drawn from `q` [1, vocab] each time."""
        drawn: list[int] = []
        for start in range(0, DRAWS, AT_ONCE):
            tokens = [self._draw(seed, guess, q) for seed in range(start, min(start + AT_ONCE, DRAWS))]
            mx.eval(tokens)
            drawn += [_id(token) for token in tokens]
        bins, chi_square, p_value = chi_square_test(drawn, self._p)
        return SamplingCheck(name, DRAWS, bins, chi_square, p_value)

    def _draw(self, seed: int, guess: mx.array | None, q: mx.array | None) -> mx.array:
        sampler = self._sampler(seed)
        position = len(self._text)
        if guess is None:
            assert q is not None
            guess = mx.argmax(mx.log(q) + sampler.draft_noise(position, 0), axis=-1).astype(mx.uint32)
        history = History(self._text, guess, rows=2)
        judged = judge(sampler, self._logits, Proposal(guess, q), history, position=position)
        verdict = judged.verdict
        return mx.where(verdict.accepted.reshape(()) > 0, guess[0], verdict.next_token.reshape(()))

    def _sampler(self, seed: int) -> Sampler:
        return Sampler(self._params, vocab_size=self._vocab_size, rule=Rule.BLOCK, seed=seed)


def chi_square_test(drawn: Sequence[int], p: Sequence[float]) -> tuple[int, float, float]:
    """Bins, chi-square and p-value of tokens that should be drawn from p.

    Likely tokens have a bin each, less likely ones share one with those next to them in rank. The p-value is
    Wilson and Hilferty's approximation (1931). A token that p excludes makes it 0.
    """
    observed = Counter(drawn)
    if any(p[token] == 0.0 for token in observed):
        return 0, math.inf, 0.0
    cells: list[tuple[int, float]] = []  # observed, expected
    seen, expected = 0, 0.0
    for token in sorted(range(len(p)), key=p.__getitem__, reverse=True):
        seen += observed[token]
        expected += p[token] * len(drawn)
        if expected >= LEAST_EXPECTED:
            cells.append((seen, expected))
            seen, expected = 0, 0.0
    if cells:  # what is left is too little for a bin of its own
        cells[-1] = (cells[-1][0] + seen, cells[-1][1] + expected)
    else:
        cells = [(seen, expected)]
    chi_square = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    if freedom == 0:
        return 1, chi_square, 1.0
    spread = 2.0 / (9.0 * freedom)
    z = ((chi_square / freedom) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return len(cells), chi_square, 0.5 * math.erfc(z / math.sqrt(2.0))


def _read(model: Any, text: Sequence[int], rows: int) -> mx.array:
    """Logits [1, vocab] after a text, with a cache of its own, the last pass being `rows` rows wide."""
    cache = PromptCache(model)
    end = max(0, len(text) - rows)
    for start in range(0, end, PREFILL_CHUNK):
        cache.prefill(mx.array(list(text[start : min(start + PREFILL_CHUNK, end)]), mx.uint32))
    return cache.forward(mx.array(list(text[end:]), mx.uint32))[-1:]


def _scores(sampler: Sampler, logits: mx.array, text: Sequence[int]) -> mx.array:
    """What decoding takes the argmax of after this text [vocab]: logits, or p with the seed's noise."""
    if sampler.greedy:
        return sampler.processed(logits, History(text))[0]
    return mx.log(sampler.distribution(logits, History(text))[0]) + sampler.gumbel(Stream.POSITION, len(text))


def _id(token: mx.array) -> int:
    number: Any = token.item()
    return int(number)
