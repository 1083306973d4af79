"""A model and its cache: forward, rewind, checkpoint.

mlx-lm gives a model one cache object per layer, of several kinds. `PromptCache` takes tokens back
out of each in the way that is exact for its kind (`layer_kinds.py`), all layers to the same length.

After a checkpoint is restored, the cache is shorter than what was asked for. Whoever owns the token
sequence feeds the difference again (it is *carried* into the next pass), so a rewind is always exact.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx

from mlxspec.decoding.hidden import HiddenRows, HiddenStates
from mlxspec.decoding.kv_bits import check_quantisable, quantise
from mlxspec.decoding.layer_kinds import can_shorten, forgets, leaves_of, shorten, way_back

TURN_CHECKPOINTS = 4
"""How many ends of prompts are remembered for models whose caches cannot be trimmed."""

ROW_BY_ROW = frozenset({"phi3small"})
"""Models of mlx-lm that let the rows of one pass see each other's future: they add a mask of truth
values to the scores. Only passes of one row are right."""

WINDOW_AND_ONE_MORE = frozenset({"plamo3"})
"""Models of mlx-lm whose passes of several rows attend to one token more than their caches keep."""


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    length: int
    leaves: dict[int, Any]  # position among the leaves -> a copy of the cache object


class PromptCache:
    """One model with one sequence's cache. `length` is how many tokens every layer holds.

    Args:
        model: an mlx-lm model.
        kv_bits: 4 or 8 quantises attention caches after every pass, as mlx-lm's generation does.

    Raises:
        UnsupportedCache: `kv_bits` for a model with a layer that cannot be quantised.
    """

    def __init__(self, model: Any, *, kv_bits: int | None = None) -> None:
        self.model = model
        self.kv_bits = kv_bits
        self.length = 0
        self.row_by_row = _module_name(model) in ROW_BY_ROW
        self._turns: list[_Checkpoint] = []
        self._round: _Checkpoint | None = None
        self._hidden: HiddenRows | None = None
        self.layers: list[Any] = []
        self._make_layers()
        if kv_bits is not None:
            check_quantisable(model, self.layers, kv_bits)
            self._make_layers()

    def forward(self, tokens: mx.array) -> mx.array:
        """Append tokens [n] and return the logits [n, vocab] after each, in the model's own type."""
        logits = []
        for part in self._passes(tokens):
            logits.append(self._pass(part))
            self.length += part.shape[0]
            self._quantise()
        return logits[0] if len(logits) == 1 else mx.concatenate(logits)

    def prefill(self, tokens: mx.array) -> None:
        """Append tokens [n] whose logits nobody wants, and wait until they are in the cache."""
        for part in self._passes(tokens):
            self.forward(part)
            hidden = self._hidden.waiting() if self._hidden else []
            mx.eval([leaf.state for leaf in self._leaves()], hidden)

    def rewind_to(self, length: int) -> None:
        """Hold at most the first `length` tokens; less when only an older checkpoint is exact."""
        if self.length <= length:
            return
        if length <= 0:
            self.clear()
            return
        leaves = list(self._leaves())
        if all(can_shorten(leaf, self.length, length) for leaf in leaves):
            for leaf in leaves:
                shorten(leaf, self.length - length)
            self.length = length
        else:
            self._restore(self._nearest(length))
        self._forget_later_checkpoints()
        if self._hidden:
            self._hidden.cut(self.length)

    def checkpoint(self, *, one_row_passes: bool = False) -> None:
        """Remember this point, so that the rows of the next passes can be taken back.

        A model whose layers all shorten exactly needs none, and nothing is kept. Windows shorten
        after one pass of several rows, but not after `one_row_passes`.
        """
        self._round = self._copy(all_that_forget=one_row_passes or self.row_by_row)

    def mark_turn(self) -> None:
        """Remember this point for later turns: the end of a prompt, which the next one may share."""
        saved = self._copy(all_that_forget=True)
        if saved is None or any(turn.length == saved.length for turn in self._turns):
            return
        self._turns = [*self._turns[-(TURN_CHECKPOINTS - 1) :], saved]

    def watch_hidden(self, points: Sequence[int]) -> None:
        """From now on keep the hidden states of passes at these points (`hidden.py`), none for none.

        Raises:
            UnsupportedModel: this model's cannot be reached.
        """
        if not points:
            self._hidden = None
        elif self._hidden is None or set(self._hidden.states.widths) != set(points):
            self._hidden = HiddenRows(HiddenStates(self.model, points))

    def take_hidden(self, length: int) -> list[tuple[int, dict[int, mx.array]]]:
        """What was kept of the tokens before `length` and not taken yet: (first position, rows by point).

        Rows [n, width] may still be on the device. A rewind drops the rows of the tokens it takes out.
        """
        return self._hidden.take(length) if self._hidden else []

    def clear(self) -> None:
        """Hold nothing, as a new cache does. The way back from a pass that failed half-way."""
        self.length = 0
        self._turns = []
        self._round = None
        self._make_layers()
        if self._hidden:
            self._hidden.cut(0)

    @property
    def always_exact(self) -> bool:
        """Can every rewind be made without carrying tokens (no recurrent state, no windows)?"""
        return not any(forgets(leaf) for leaf in self._leaves())

    @property
    def kinds(self) -> dict[str, str]:
        """Each kind of cache in this model and how it is rewound: trim, slice or checkpoint."""
        return {type(leaf).__name__: way_back(leaf) for leaf in self._leaves()}

    def _make_layers(self) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        # In place: a model may be handed this very list for as long as it lives.
        self.layers[:] = make_prompt_cache(self.model)
        if _module_name(self.model) in WINDOW_AND_ONE_MORE:
            for window in self._leaves():
                if hasattr(window, "max_size"):
                    window.max_size += 1

    def _pass(self, tokens: mx.array) -> mx.array:
        if self._hidden is None:
            return cast(mx.array, self.model(tokens[None], cache=self.layers)[0])
        with self._hidden.states.reading():
            logits = self.model(tokens[None], cache=self.layers)[0]
        self._hidden.add(self.length)
        return cast(mx.array, logits)

    def _passes(self, tokens: mx.array) -> list[mx.array]:
        return list(mx.split(tokens, tokens.shape[0])) if self.row_by_row else [tokens]

    def _leaves(self) -> Iterator[Any]:
        return leaves_of(self.layers)

    def _copy(self, *, all_that_forget: bool) -> _Checkpoint | None:
        leaves = list(self._leaves())
        recurrent = {i for i, leaf in enumerate(leaves) if way_back(leaf) == "checkpoint"}
        wanted = recurrent
        if recurrent or all_that_forget:
            # A restored recurrent layer takes the windows beside it back by the whole pass.
            wanted = {i for i, leaf in enumerate(leaves) if forgets(leaf)}
        saved = {i: copy.deepcopy(leaves[i]) for i in sorted(wanted)}
        return _Checkpoint(self.length, saved) if saved else None

    def _nearest(self, length: int) -> _Checkpoint | None:
        points = [point for point in [*self._turns, self._round] if point and point.length <= length]
        return max(points, key=lambda point: point.length, default=None)

    def _restore(self, point: _Checkpoint | None) -> None:
        if point is None:
            self.clear()
            return
        for i, leaf in enumerate(self._leaves()):
            if i in point.leaves:
                # A copy of the copy: the point may be needed again.
                leaf.__dict__.update(copy.deepcopy(point.leaves[i]).__dict__)
            elif can_shorten(leaf, self.length, point.length):
                shorten(leaf, self.length - point.length)
            else:
                self.clear()
                return
        self.length = point.length

    def _forget_later_checkpoints(self) -> None:
        self._turns = [turn for turn in self._turns if turn.length <= self.length]
        if self._round and self._round.length > self.length:
            self._round = None

    def _quantise(self) -> None:
        if self.kv_bits is not None:
            quantise(self.layers, self.kv_bits)


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    return next(i for i in range(shorter) if first[i] != second[i])


def _module_name(model: Any) -> str:
    """The file of mlx_lm.models that a model comes from."""
    return type(model).__module__.rpartition(".")[2]
