"""The one place for fakes: small, exact stand-ins that make the tests run in milliseconds.

Sections: tokenizers; the scripted engine.
"""

from __future__ import annotations

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
