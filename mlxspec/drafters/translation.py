"""Between two tokenizers, by the text: the target's ids -> the draft's, its guesses -> the target's ids.

Everything here may be wrong without harm: it makes guesses, and the target checks every one of them.

- Special tokens are no text. One that the other vocabulary has under the same name is exchanged for it,
  an end of answer for an end of answer; others are left out. Text never becomes a special token.
- A character that is spelt with several tokens may be unfinished. Then the draft reads up to it, guesses
  it anew, and its guess counts if it begins as the target began.
- Text is encoded as it stands inside a text: some tokenizers put a space in front of every text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

REPLACEMENT = "\ufffd"
CONTEXT_TOKENS = 8  # decoded in front, for a decoder may treat the first token apart
MOST_UNFINISHED = 3  # tokens of an unfinished character: UTF-8 has at most four bytes
ANCHORS = ("\n", "x")  # what stands in front of text that is encoded as the middle of a text
SPACES = ("Ġ", "▁", "Ċ", " ", "\n")  # how token names begin that begin a word


class Tongue:
    """One model's tokenizer: text to ids and back, special tokens apart.

    Args:
        tokenizer: Hugging Face's, or mlx-lm's wrapper around it.
        eos_ids: tokens that end an answer.

    Attributes:
        end: the usual one of them; None where there is none.
        special: ids that are no text, by name.
        beginning: ids that begin every text.
    """

    def __init__(self, tokenizer: Any, eos_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_ids = eos_ids
        usual = getattr(tokenizer, "eos_token_id", None)
        self.end: int | None = usual if usual in eos_ids else min(eos_ids, default=None)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        ids = {i for i, token in added.items() if token.special}
        ids |= {*getattr(tokenizer, "all_special_ids", ()), *eos_ids}
        self.special: dict[str, int] = {}
        for i in sorted(ids):
            if name := tokenizer.convert_ids_to_tokens(i):
                self.special[name] = i
        self.special_names = {i: name for name, i in self.special.items()}
        self.beginning = self._encode("", add_special_tokens=True)[:1]
        if self.beginning and self.beginning[0] in eos_ids:
            self.beginning = []  # some tokenizers close every text
        self._puts_a_space = self._decode([*self._encode("x"), *self._encode("x")]) == "x x"

    def encode(self, text: str, *, within: bool) -> list[int]:
        """The ids of a text, at the beginning or within another one. Special tokens in it are text."""
        if within and self._puts_a_space:
            for anchor in ANCHORS:
                ids, front = self._encode(anchor + text), self._encode(anchor)
                if ids[: len(front)] == front:
                    return ids[len(front) :]
        return self._encode(text)

    def text(self, ids: Sequence[int], start: int, end: int) -> str:
        """What the ids from `start` to `end` add to the text; a character begins at `start`."""
        context = list(ids[self._begin(ids, max(0, start - CONTEXT_TOKENS)) : start])
        return self._decode([*context, *ids[start:end]])[len(self._decode(context)) :]

    def finished(self, ids: Sequence[int], start: int) -> int:
        """The largest length of `ids` up to which no character is unfinished, at least `start`."""
        for left_out in range(MOST_UNFINISHED + 1):
            end = len(ids) - left_out
            if end <= start:
                return start
            near = max(start, self._begin(ids, max(0, end - CONTEXT_TOKENS)))
            if not self.text(ids, near, end).endswith(REPLACEMENT):
                return end
        return len(ids)  # a real U+FFFD

    def begins_a_word(self, token: int) -> bool:
        """Whether a space or a new line stands at its beginning."""
        name = self._tokenizer.convert_ids_to_tokens(token)
        return bool(name) and str(name).startswith(SPACES)

    def _begin(self, ids: Sequence[int], place: int) -> int:
        """Where the character that `place` stands in begins.

        Some decoders spoil a whole run of bytes when it begins or ends within a character.
        """
        for begin in range(place, max(0, place - MOST_UNFINISHED) - 1, -1):
            for end in range(begin + 1, begin + MOST_UNFINISHED + 2):
                if not self._decode(list(ids[begin:end])).startswith(REPLACEMENT):
                    return begin
        return place  # no character at all

    def _encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        options = {"add_special_tokens": add_special_tokens, "split_special_tokens": True}
        return list(self._tokenizer.encode(text, **options))

    def _decode(self, ids: list[int]) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self._tokenizer.decode(ids, **options))


class Translation:
    """Between the target's tongue and the draft's."""

    def __init__(self, target: Tongue, draft: Tongue) -> None:
        self.target = target
        self.draft = draft
        self._to_draft = _exchange(target, draft)
        self._to_target = _exchange(draft, target)

    def for_draft(self, tokens: Sequence[int], start: int, *, within: bool) -> list[int]:
        """The draft's ids of the target's `tokens` from `start` on; `within`: text stands before them."""
        ids: list[int] = []
        for special, first, end in self._runs(tokens, start):
            if special:
                ids += [self._to_draft[token] for token in tokens[first:end] if token in self._to_draft]
            else:
                ids += self.draft.encode(self.target.text(tokens, first, end), within=within)
            within = True
        return ids

    def for_target(self, ids: Sequence[int], guesses: Sequence[int], unfinished: Sequence[int]) -> list[int]:
        """The target's ids of what the draft guesses to follow its `ids`.

        `unfinished` are the target's last tokens, which its ids do not hold: the guesses have to begin
        with them, or there is none.
        """
        end = next((i for i, guess in enumerate(guesses) if guess in self.draft.special_names), len(guesses))
        said = [*ids, *guesses[:end]]
        text = self.draft.text(said, len(ids), self.draft.finished(said, len(ids)))
        tokens = self.target.encode(text, within=True) if text else []
        if end < len(guesses) and guesses[end] in self._to_target:
            tokens.append(self._to_target[guesses[end]])
        if tokens[: len(unfinished)] != list(unfinished):
            return []
        return tokens[len(unfinished) :]

    def _runs(self, tokens: Sequence[int], start: int) -> Iterator[tuple[bool, int, int]]:
        """Special tokens and text by turns: (special, first, end)."""
        for special, run in groupby(
            range(start, len(tokens)), key=lambda i: tokens[i] in self.target.special_names
        ):
            places = list(run)
            yield special, places[0], places[-1] + 1


def _exchange(here: Tongue, there: Tongue) -> dict[int, int]:
    """Special ids of one tongue -> those of the other."""
    exchanged = {i: there.special[name] for name, i in here.special.items() if name in there.special}
    for i in here.eos_ids:
        if there.end is not None:
            exchanged.setdefault(i, there.end)
    return exchanged
