"""One transformer layer behind the target guesses: from its last hidden state and the next token.

EAGLE (Li et al. 2024, arXiv 2401.15077) and Hydra (Ankner et al. 2024, arXiv 2402.05109). The layer's
output stands in for the target's next hidden state, so that it can go on from its own guesses.
The embedding is the target's. The output head is the target's too, or has been trained on from it, as in
EAGLE-3 (Li et al. 2025, arXiv 2503.01840); it may be trimmed to the tokens that occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.decoding.cache import PromptCache, common_prefix
from mlxspec.decoding.controller import Option
from mlxspec.decoding.proposal import Proposal
from mlxspec.decoding.sampling import Sampler
from mlxspec.drafters.guessing import Guesses
from mlxspec.drafters.heard_rows import HeardRows

MOST_GUESSES = 16


class HeadLayer(nn.Module):  # type: ignore[misc]
    """The trained part: [hidden; token] -> one transformer layer -> the next hidden state.

    Args:
        shape: arguments of mlx-lm's llama for the layer (`hidden_size`, `num_attention_heads` and so on).
        width: values of a hidden row that is given.
        token_width: values of a row of the target's embedding.
        columns: tokens of an output head of its own; None to share the target's.
    """

    def __init__(
        self, shape: Mapping[str, Any], *, width: int, token_width: int, columns: int | None = None
    ) -> None:
        super().__init__()
        from mlx_lm.models.llama import ModelArgs, TransformerBlock

        args = ModelArgs.from_dict({"model_type": "llama", "vocab_size": 1, "num_hidden_layers": 1, **shape})
        eps = args.rms_norm_eps
        self.hidden_norm = nn.RMSNorm(width, eps=eps)
        self.token_norm = nn.RMSNorm(token_width, eps=eps)
        self.from_hidden = nn.Linear(width, args.hidden_size, bias=False)
        self.from_token = nn.Linear(token_width, args.hidden_size, bias=False)
        self.layer = TransformerBlock(args)
        self.norm = nn.RMSNorm(args.hidden_size, eps=eps)
        self.to_hidden = nn.Linear(args.hidden_size, width, bias=False) if args.hidden_size != width else None
        self.output = None if columns is None else nn.Linear(width, columns, bias=False)

    def join(self, hidden: mx.array, token: mx.array) -> mx.array:
        """Rows [.., width] and [.., token_width] -> what the layer reads [.., hidden_size]."""
        made: mx.array = self.from_hidden(self.hidden_norm(hidden)) + self.from_token(self.token_norm(token))
        return made

    def finish(self, made: mx.array) -> mx.array:
        """What the layer made -> the next hidden state, as the target's head wants it [.., width]."""
        rows: mx.array = self.norm(made)
        return rows if self.to_hidden is None else self.to_hidden(rows)

    def __call__(self, hidden: mx.array, token: mx.array, cache: Any | None = None) -> mx.array:
        """[batch, n, width] and [batch, n, token_width] -> the next hidden states [batch, n, width]."""
        from mlx_lm.models.base import create_attention_mask

        x = self.join(hidden, token)
        return self.finish(self.layer(x, create_attention_mask(x, cache), cache))


class Head:
    """The drafter around a `HeadLayer`.

    Args:
        layer: trained for this target.
        embed: the target's embedding.
        head: hidden rows -> logits of `ids`, for a layer without an output head of its own.
        ids: the target's id of each column of these logits; None for all tokens.
        point: where the target's rows come from (`decoding/hidden.py`).
    """

    name = "head"

    def __init__(
        self,
        layer: HeadLayer,
        *,
        embed: Callable[[mx.array], mx.array],
        head: Callable[[mx.array], mx.array],
        ids: mx.array | None,
        point: int,
    ) -> None:
        from mlx_lm.models.cache import KVCache

        self.needs_hidden: tuple[int, ...] = (point,)
        self._point = point
        self._layer = layer
        self._embed = embed
        self._head = head if layer.output is None else layer.output
        self._ids = ids
        self._cache = KVCache()
        self._rows = HeardRows()
        self._tokens: list[int] = []
        self._last: mx.array | None = None  # [1, 1, width], made from the last row that was read
        self._sampler: Sampler | None = None
        self._cancelled: Callable[[], bool] = lambda: False

    def attach(self, target: PromptCache) -> None:
        """The rows that it reads are all it needs of the target."""

    def reset(self, tokens: Sequence[int], sampler: Sampler, cancelled: Callable[[], bool]) -> None:
        """Begin an answer to `tokens`, keeping what was read of them.

        What was read of the last token in common had another token after it: so much stays wrong.
        """
        common = common_prefix(self._tokens, tokens)
        if common <= self._rows.read:
            self._last = None
        self._rows.keep(min(common, len(tokens) - 1))
        self._tokens = list(tokens)
        self._sampler = sampler
        self._cancelled = cancelled

    def read_hidden(self, start: int, rows: Mapping[int, mx.array]) -> None:
        """Note rows; they are read before the next guess."""
        self._rows.hear(start, rows[self._point])

    def offer(self) -> Option:
        """Guesses, if the rows of all but the pending token were heard of."""
        able = self._rows.end == len(self._tokens) - 1 and (self._rows.waiting > 0 or self._last is not None)
        return Option(self.name, max_k=MOST_GUESSES if able else 0, catch_up=self._rows.waiting)

    def propose(self, k: int) -> Proposal | None:
        """`k` guesses; None when cancelled while reading, or where rows are missing."""
        assert self._sampler is not None, "reset comes before propose"
        if self.offer().max_k == 0 or not self._rows.read_into(self._cache, self._read, self._cancelled):
            return None
        made = self._last
        assert made is not None
        guesses = Guesses(self._sampler, self._tokens, self._ids)
        for i in range(k):
            guess = guesses.draw(self._head(made[:, -1]))
            if i + 1 < k:
                made = self._layer(made, self._embed(guess[None]), self._cache)
        return guesses.proposal()

    def committed(self, tokens: Sequence[int], accepted: int) -> None:
        """Note the tokens; their rows, the true ones, come from the target."""
        del accepted
        self._tokens.extend(tokens)

    def close(self) -> None:
        """Forget the sequence."""
        self._rows.forget()
        self._tokens = []
        self._last = None

    def _read(self, start: int, rows: mx.array) -> None:
        after = mx.array(self._tokens[start + 1 : start + 1 + rows.shape[0]], mx.uint32)
        self._last = self._layer(rows[None], self._embed(after[None]), self._cache)[:, -1:]
