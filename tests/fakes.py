"""The one place for fakes: small, exact stand-ins that make the tests run in milliseconds.

Sections: tokenizers; the table model; the scripted engine.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

# ---------------------------------------------------------------- tokenizers


class ByteTokenizer:
    """Ids 0..255 are bytes, 256 is the end of the answer, 257 a special token; there is no template."""

    eos_token_id = 256
    vocab_size = 258
    chat_template = None
    has_chat_template = False
    bos_token = None
    bos_token_id = None

    def __init__(self) -> None:
        self.eos_token_ids = {self.eos_token_id}
        self.decoded_ids = 0  # how many ids `decode` was given, all calls together

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, **_options: bool) -> list[int]:
        """UTF-8, with no token of its own in front or behind."""
        return list(text.encode())

    def decode(
        self,
        token_ids: list[int],
        skip_special_tokens: bool = False,
        **_options: bool,
    ) -> str:
        """The text of all ids, replacement characters for what is not UTF-8."""
        self.decoded_ids += len(token_ids)
        special = {
            256: b"" if skip_special_tokens else b"<eos>",
            257: b"" if skip_special_tokens else b"<special>",
        }
        return b"".join(special.get(i, bytes([i]) if i < 256 else b"") for i in token_ids).decode(
            errors="replace"
        )

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """A name for each id, None beyond the vocabulary."""
        names = {256: "<eos>", 257: "<special>"}
        return names.get(ids, chr(256 + ids) if ids < 256 else None)

    def get_vocab(self) -> dict[str, int]:
        """All names with their ids."""
        return {str(self.convert_ids_to_tokens(i)): i for i in range(self.vocab_size)}


class WordTokenizer(ByteTokenizer):
    """A vocabulary of whole words for tests that want to say which token holds which text."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False, **_options: bool) -> str:
        """The words, joined."""
        del skip_special_tokens  # no word is special
        self.decoded_ids += len(token_ids)
        return "".join(self.words[i] for i in token_ids)

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """The word itself."""
        return self.words[ids] if ids < len(self.words) else None


# ---------------------------------------------------------------- the table model


class TableModel:
    """An mlx-lm model in miniature: the next token's logits stand in a table, by the last token.

    It writes to a real KVCache, so lengths and rewinds are real, and every pass is recorded.
    """

    def __init__(self, table: mx.array) -> None:
        self.table = table  # [vocab, vocab]
        self.layers = [None]
        self.passes: list[int] = []  # rows of each pass
        self.fail_at: int | None = None  # the pass that raises

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        """Logits [1, n, vocab]."""
        if self.fail_at is not None and len(self.passes) == self.fail_at:
            self.fail_at = None
            raise RuntimeError("injected failure")
        rows = inputs.shape[1]
        self.passes.append(rows)
        blank = mx.zeros((1, 1, rows, 1))
        cache[0].update_and_fetch(blank, blank)
        return self.table[inputs]


def table_model(vocab: int = 12, *, seed: int = 0, sharpness: float = 2.0) -> TableModel:
    """A random table."""
    return TableModel(mx.random.normal((vocab, vocab), key=mx.random.key(seed)) * sharpness)


def chain_model(*tokens: int, vocab: int = 12) -> TableModel:
    """Writes `tokens` for sure, each after the one before it, and the first one after the last."""
    table = mx.zeros((vocab, vocab))
    for now, then in zip(tokens, (*tokens[1:], tokens[0]), strict=True):
        table[now, then] = 50.0
    return TableModel(table)
