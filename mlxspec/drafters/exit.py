"""The target's own first layers guess, by its own norm and head or by a small trained adapter.

LayerSkip (Elhoushi et al. 2024, arXiv 2404.16710) trains models for the first way; the second is
Kangaroo (Liu et al. 2024, arXiv 2404.18911). The layers read and write the target's own cache: guessed
rows are taken out again before the target's pass writes them, whatever the kinds of its caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.decoding.cache import PromptCache, common_prefix
from mlxspec.decoding.controller import Option
from mlxspec.decoding.hidden import LAST, HiddenStates
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.first_layers import borrowed
from mlxspec.drafters.guessing import Guesses
from mlxspec.drafters.heard_rows import HeardRows

MOST_GUESSES = 16


class ExitAdapter(nn.Module):  # type: ignore[misc]
    """The trained part: what layer N hands on -> attention -> what the target's output head reads.

    Args:
        shape: arguments of mlx-lm's llama for the layer.
        mlp: whether the layer has one.
    """

    def __init__(self, shape: Mapping[str, Any], *, mlp: bool) -> None:
        super().__init__()
        from mlx_lm.models.llama import MLP, Attention, ModelArgs

        args = ModelArgs.from_dict({"model_type": "llama", "vocab_size": 1, "num_hidden_layers": 1, **shape})
        width, eps = args.hidden_size, args.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(width, eps=eps)
        self.self_attn = Attention(args)
        if mlp:
            self.post_attention_layernorm = nn.RMSNorm(width, eps=eps)
            self.mlp = MLP(args)
        self.norm = nn.RMSNorm(width, eps=eps)

    def __call__(self, x: mx.array, cache: Any | None = None) -> mx.array:
        """Rows [batch, n, width] -> rows [batch, n, width]."""
        from mlx_lm.models.base import create_attention_mask

        mask = create_attention_mask(x, cache)
        x = x + self.self_attn(self.input_layernorm(x), mask, cache)
        if "mlp" in self:
            x = x + self.mlp(self.post_attention_layernorm(x))
        made: mx.array = self.norm(x)
        return made


class EarlyExit:
    """The drafter on a target's own cache.

    Args:
        shallow: the target's first layers as a model.
        lent: how many of the target's caches they use.
        layers: how many layers they are.
        adapter: goes on from what they hand on; None for the target's own norm and head.
        head: rows after the norm -> logits of `ids`; None for the target's head as it is.
        ids: the target's id of each column of these logits; None for all tokens.
    """

    name = "exit"

    def __init__(
        self,
        shallow: nn.Module,
        *,
        lent: int,
        layers: int,
        adapter: ExitAdapter | None = None,
        head: Callable[[mx.array], mx.array] | None = None,
        ids: mx.array | None = None,
    ) -> None:
        from mlx_lm.models.cache import KVCache

        assert adapter is None or head is not None, "an adapter's rows need a head"
        self._point = layers if adapter is not None else LAST
        self.needs_hidden: tuple[int, ...] = (layers,) if adapter is not None else ()
        self._states = HiddenStates(shallow, (self._point,)) if head is not None else None
        self._shallow = shallow
        self._lent = lent
        self._adapter = adapter
        self._head = head
        self._ids = ids
        self._adapted = KVCache()
        self._rows = HeardRows()
        self._target: PromptCache | None = None
        self._tokens: list[int] = []
        self._sampler: Sampler | None = None
        self._cancelled: Callable[[], bool] = lambda: False

    def attach(self, target: PromptCache) -> None:
        """Guess from this cache's first layers."""
        if self._target is not target:
            self.close()
        self._target = target

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer to `tokens`."""
        self._rows.keep(min(common_prefix(self._tokens, tokens), len(tokens) - 1))
        self._tokens = list(tokens)
        self._sampler = sampler
        self._cancelled = cancelled

    def read_hidden(self, start: int, rows: Mapping[int, mx.array]) -> None:
        """Note rows for the adapter; it reads them before the next guess."""
        if self._adapter is not None:
            self._rows.hear(start, rows[self._point])

    def offer(self) -> Option:
        """Guesses, if the adapter knows all tokens before the pending one."""
        able = self._adapter is None or self._rows.end == len(self._tokens) - 1
        return Option(self.name, max_k=MOST_GUESSES if able else 0, catch_up=self._rows.waiting)

    def propose(self, k: int) -> Proposal | None:
        """`k` guesses; None when cancelled while the adapter reads, or where its rows are missing."""
        assert self._sampler is not None, "reset comes before propose"
        assert self._target is not None, "attach comes before propose"
        if self.offer().max_k == 0 or not self._rows.read_into(self._adapted, self._read, self._cancelled):
            return None
        guesses = Guesses(self._sampler, self._tokens, self._ids)
        with borrowed(self._target.layers[: self._lent]) as layers:
            given = mx.array(self._tokens[self._target.length :], mx.uint32)
            known = max(0, self._rows.end - self._target.length)  # of a target that carries tokens
            for _ in range(k):
                given = guesses.draw(self._logits(given, layers, known=known))
                known = 0
        return guesses.proposal()

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """Note the tokens; the target's pass has put their rows into the cache."""
        del accepted
        self._tokens.extend(tokens)

    def close(self) -> None:
        """Forget the sequence."""
        self._rows.forget()
        self._tokens = []

    def _logits(self, tokens: mx.array, layers: Sequence[Any], *, known: int) -> mx.array:
        """Logits [1, columns] after the last of the tokens [n], `known` of which the adapter has read."""
        assert self._target is not None
        parts = mx.split(tokens, tokens.shape[0]) if self._target.row_by_row else [tokens]
        if self._states is None:
            logits: mx.array = [self._shallow(part[None], cache=layers) for part in parts][-1]
            return logits[0, -1:]
        rows = []
        for part in parts:
            with self._states.reading():
                self._shallow(part[None], cache=layers)  # computed only as far as the rows need it
            rows.append(self._states.rows[self._point])
        assert self._head is not None
        if self._adapter is None:
            return self._head(rows[-1][0, -1:])
        return self._head(self._adapter(mx.concatenate(rows, axis=1)[:, known:], self._adapted)[0, -1:])

    def _read(self, start: int, rows: mx.array) -> None:
        del start
        assert self._adapter is not None
        self._adapter(rows[None], self._adapted)  # for what it leaves in the cache


class ExitCopy(DraftModel):
    """The first layers with a cache of their own, for a target whose cache they cannot use."""

    name = "exit"
