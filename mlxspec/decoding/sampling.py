"""Sampling parameters, the pipeline from logits to the distribution p (or q), and its noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import mlx.core as mx

LogitsProcessor = Callable[[mx.array, mx.array], mx.array]
"""mlx-lm's own kind: (all tokens so far [n], logits [1, vocab]) -> logits [1, vocab]."""


SHORTLIST = 256
"""Likeliest tokens among which the filters are tried first."""


class Rule(StrEnum):
    """The acceptance rules."""

    TOKEN = "token"
    BLOCK = "block"
    COUPLED = "coupled"


class Stream(IntEnum):
    """Independent sources of noise, all split from one seed."""

    DRAFT = 1  # draws the guesses (token and block)
    ACCEPT = 2  # decides about them
    RESIDUAL = 3  # draws the target's own token
    POSITION = 4  # shared by draft and target, by position alone (coupled)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn, in mlx-lm's order: penalties and bias, top-p, min-p, top-k, temperature.

    `top_p` 1.0, `top_k` 0, `min_p` 0.0, `repetition_penalty` 1.0 and the other penalties 0.0 are off;
    `temperature` 0 is greedy. Penalties see the last `penalty_context` tokens. `processors` are
    mlx-lm's logits processors, called row by row after the penalties.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    penalty_context: int = 20
    processors: tuple[LogitsProcessor, ...] = ()

    @property
    def reads_history(self) -> bool:
        """Does a row's distribution depend on the tokens before it in a way of its own?"""
        return self._penalises or bool(self.processors)

    @property
    def _penalises(self) -> bool:
        return bool(self.repetition_penalty != 1.0 or self.presence_penalty or self.frequency_penalty)


class Sampler:
    """The pipeline with its parameters, seed and rule: what target and draft share in one answer.

    `vocab_size` is the width of the target's logits; a draft's are cut or padded to it.
    """

    def __init__(self, params: SamplingParams, *, vocab_size: int, rule: Rule, seed: int) -> None:
        self.params = params
        self.vocab_size = vocab_size
        self.rule = rule
        self.seed = seed

    @property
    def greedy(self) -> bool:
        """Is every draw an argmax?"""
        return self.params.temperature == 0

    def processed(self, logits: mx.array, history: History) -> mx.array:
        """Logits [n, any] after bias, penalties and processors -> [n, vocab] float32."""
        logits = _fit_width(logits.astype(mx.float32), self.vocab_size)
        params = self.params
        if params.logit_bias:
            ids = mx.array(list(params.logit_bias.keys()))
            logits = logits.at[:, ids].add(mx.array(list(params.logit_bias.values())))
        if params._penalises:
            logits = _penalised(logits, history.windows(params.penalty_context), params)
        if params.processors:
            rows = []
            for i in range(logits.shape[0]):
                row = logits[i : i + 1]
                for processor in params.processors:
                    row = processor(history.before_row(i), row)
                rows.append(row)
            logits = mx.concatenate(rows, axis=0)
        return logits

    def distribution(self, logits: mx.array, history: History) -> mx.array:
        """p [n, vocab] float32, from logits [n, any] whose row i follows `history.before_row(i)`."""
        params = self.params
        logits = self.processed(logits, history)
        if not _filters(params):
            return mx.softmax(logits * (1.0 / params.temperature), axis=-1)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return mx.softmax(_filtered(logprobs, params) * (1.0 / params.temperature), axis=-1)

    def likely(self, logits: mx.array, history: History) -> tuple[mx.array, mx.array]:
        """As `distribution`, from each row's likeliest tokens alone, and whether that was enough.

        Sorting a whole vocabulary is most of what top-p costs. Where a filter took out one of the
        shortlist, it takes out all the less likely ones as well, and p is the same. The second value,
        a truth value on the device, says so for all rows; where it is false, p is another distribution.
        """
        params = self.params
        if not _filters(params) or self.vocab_size <= SHORTLIST:
            return self.distribution(logits, history), mx.array(True)
        logits = self.processed(logits, history)
        ids = mx.argpartition(-logits, kth=SHORTLIST - 1, axis=-1)[:, :SHORTLIST]
        logprobs = mx.take_along_axis(logits, ids, axis=-1) - mx.logsumexp(logits, axis=-1, keepdims=True)
        logprobs = _filtered(logprobs, params)
        enough = ((logprobs > -mx.inf).sum(axis=-1) < SHORTLIST).all()
        p = mx.softmax(logprobs * (1.0 / params.temperature), axis=-1)
        return mx.put_along_axis(mx.zeros(logits.shape), ids, p, axis=-1), enough

    def draft_noise(self, position: int, index: int) -> mx.array:
        """Gumbel noise [vocab] for guess `index` of the proposal that begins at `position`.

        Under `coupled` it is the noise of the guess's own position, which the target draws with too.
        Elsewhere it belongs to this proposal alone: a position that is guessed again gets other noise.
        """
        if self.rule is Rule.COUPLED:
            return self.gumbel(Stream.POSITION, position + index)
        return self.gumbel(Stream.DRAFT, position, index)

    def gumbel(self, stream: Stream, position: int, index: int = 0) -> mx.array:
        """Gumbel noise [vocab] of its own for this seed, stream, position in the sequence and index."""
        key = mx.random.key(_mix(self.seed, int(stream), position, index))
        return mx.random.gumbel((self.vocab_size,), key=key)

    def uniform(self, stream: Stream, position: int, count: int) -> mx.array:
        """Uniform noise [count] in [0, 1)."""
        return mx.random.uniform(shape=(count,), key=mx.random.key(_mix(self.seed, int(stream), position, 0)))


class History:
    """The tokens before each row of a pass: those on the host, then some that are still on the device.

    The last row sees all of `host` and of `device` [d]; each row before it sees one token less.
    """

    __slots__ = ("_device", "_host", "_rows")

    def __init__(self, host: Sequence[int], device: mx.array | None = None, *, rows: int = 1) -> None:
        self._host = host
        self._device = device
        self._rows = rows

    def windows(self, width: int) -> mx.array:
        """The last `width` tokens before each row: [rows, width], -1 where there are fewer."""
        before_first = self._on_device() - (self._rows - 1)
        tail = list(self._host[-width:])
        sequence = mx.array([-1] * (width - len(tail)) + tail, mx.int32)
        if self._device is not None:
            sequence = mx.concatenate([sequence, self._device.astype(mx.int32)])
        index = mx.arange(self._rows)[:, None] + mx.arange(width)[None, :] + before_first
        return sequence[index]

    def before_row(self, row: int) -> mx.array:
        """All tokens before a row [n], uint32."""
        host = mx.array(list(self._host), mx.uint32)
        count = self._on_device() - (self._rows - 1) + row
        if count == 0 or self._device is None:
            return host
        return mx.concatenate([host, self._device[:count].astype(mx.uint32)])

    def _on_device(self) -> int:
        return 0 if self._device is None else self._device.shape[0]


def _fit_width(logits: mx.array, vocab_size: int) -> mx.array:
    width = logits.shape[-1]
    if width == vocab_size:
        return logits
    if width > vocab_size:
        return logits[..., :vocab_size]
    padding = mx.full((*logits.shape[:-1], vocab_size - width), -mx.inf)
    return mx.concatenate([logits, padding], axis=-1)


def _penalised(logits: mx.array, windows: mx.array, params: SamplingParams) -> mx.array:
    """mlx-lm's repetition, presence and frequency penalties, each row with its own window."""
    rows, vocab = logits.shape
    # One column more than the vocabulary takes the -1 of windows that are not full.
    ids = mx.where(windows < 0, vocab, windows)
    counts = mx.zeros((rows, vocab + 1)).at[mx.arange(rows)[:, None], ids].add(1.0)[:, :vocab]
    seen = counts > 0
    if params.repetition_penalty != 1.0:
        penalty = params.repetition_penalty
        logits = mx.where(seen, mx.where(logits < 0, logits * penalty, logits / penalty), logits)
    if params.presence_penalty:
        logits = mx.where(seen, logits - params.presence_penalty, logits)
    if params.frequency_penalty:
        logits = logits - counts * params.frequency_penalty
    return logits


def _filters(params: SamplingParams) -> bool:
    return params.top_p < 1.0 or params.min_p > 0.0 or params.top_k > 0


def _filtered(logprobs: mx.array, params: SamplingParams) -> mx.array:
    """Log-probabilities [n, any] with -inf for what the filters take out, in mlx-lm's order.

    mlx-lm's own filters are compiled functions; called outside the main thread (measured, MLX 0.32.4)
    they abort the process when it exits. The tests hold these to theirs.
    """
    width = logprobs.shape[-1]
    if params.top_p < 1.0:
        ascending = mx.sort(logprobs, axis=-1)
        above = mx.cumsum(mx.exp(ascending), axis=-1, reverse=True, inclusive=False)
        dropped = (above >= params.top_p).sum(axis=-1, keepdims=True)
        lowest = mx.take_along_axis(ascending, mx.minimum(dropped, width - 1), axis=-1)
        logprobs = mx.where(logprobs < lowest, -mx.inf, logprobs)
    if params.min_p > 0.0:
        lowest = logprobs.max(axis=-1, keepdims=True) + math.log(params.min_p)
        logprobs = mx.where(logprobs < lowest, -mx.inf, logprobs)
    if 0 < params.top_k < width:
        # By place and not by value: of equal tokens at the border, only as many as fit stay.
        out = mx.argpartition(-logprobs, kth=params.top_k - 1, axis=-1)[:, params.top_k :]
        logprobs = mx.put_along_axis(logprobs, out, mx.array(-mx.inf), axis=-1)
    return logprobs


def _mix(*parts: int) -> int:
    """One 63-bit number from several, by splitmix64 (Steele, Lea and Flood 2014)."""
    state = 0
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state & 0x7FFFFFFFFFFFFFFF
