"""Token ids -> text, whole characters only, and never a part of a stop string.

`Detokenizer` turns ids into the text that is certain so far, `StopScanner` holds back what may be the
beginning of a stop string, and `AnswerText` joins both and says which id carries which text.

The two ready-made streams are not exact. `tokenizers.decoders.DecodeStream` raises when a run of byte
tokens turns out invalid, keeps a literal U+FFFD back for ever and has no end; mlx-lm's detokenizers drop
a leading space that byte-level decoding keeps, and one of them decodes the whole line at every token.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_REPLACEMENT = "\ufffd"
# A decoder may treat the first token apart (a stripped space), and a character may begin up to three
# tokens back. Eight tokens of context put both out of reach of the text that is still to come.
_CONTEXT_TOKENS = 8
_WINDOW_TOKENS = 2 * _CONTEXT_TOKENS


class Vocabulary(Protocol):
    """What is needed of a tokenizer: Hugging Face's, mlx-lm's wrapper around it, or a fake."""

    def decode(
        self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        """The text of all ids."""
        ...

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """The vocabulary's name of one id; None beyond the vocabulary."""
        ...


class Detokenizer:
    """Decodes ids one by one: all of `add` and then `finish` join to `tokenizer.decode(ids)`.

    Exact for byte-level, SentencePiece and WordPiece decoders, special tokens shown, with no clean-up
    of spaces. A run of byte tokens (`<0xE2>`) comes out when it has ended: an invalid byte turns the whole
    run into replacement characters. The cost of a token does not depend on the answer's length.
    """

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []  # the last ids; older ones are decoded for good
        self._shown = 0  # characters of the window's text that were given out
        self._pending = False

    @property
    def pending(self) -> bool:
        """Whether the text of the last id is not yet all given out."""
        return self._pending

    def add(self, token_id: int) -> str:
        """The text that became certain with this id: "" inside a character or a run of bytes."""
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if not token:  # an id beyond the vocabulary, or an empty token: it decodes to nothing
            return ""
        self._window.append(token_id)
        if _is_byte(token):
            self._pending = True
            return ""
        text = self._decode()
        # Only the last one can be the beginning of a character: what follows an earlier one ended it.
        self._pending = text.endswith(_REPLACEMENT)
        piece = self._take(text, len(text) - self._pending)
        if len(self._window) > _WINDOW_TOKENS:
            self._forget()
        return piece

    def finish(self) -> str:
        """The tail: what an unfinished character or run of bytes decodes to."""
        text = self._decode()
        self._pending = False
        return self._take(text, len(text))

    def _decode(self) -> str:
        return self._tokenizer.decode(
            self._window, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    def _take(self, text: str, certain: int) -> str:
        piece = text[self._shown : certain]
        self._shown = max(self._shown, certain)
        return piece

    def _forget(self) -> None:
        """Keep the last ids only, and count anew what they have shown."""
        self._window = self._window[-_CONTEXT_TOKENS:]
        self._shown = len(self._decode()) - self._pending


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


class StopScanner:
    """Passes text on, except what may be the beginning of a stop string.

    The stop that is complete first ends the text, and of those that end there the longest, however the
    text is cut into pieces. It reads character by character (Knuth, Morris, Pratt), so that neither the
    number of pieces nor their length matters.

    Attributes:
        found: the stop string that ended the text, None so far.
        safe: characters passed on so far; the stop begins there once it is found.
    """

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._patterns = [_Pattern(stop) for stop in stops]
        self._held = ""
        self.found: str | None = None
        self.safe = 0

    def feed(self, text: str) -> str:
        """The text that is now certain to stand before any stop string."""
        if self.found is not None:
            return ""
        held = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            complete = [pattern.stop for pattern in self._patterns if pattern.step(character)]
            if complete:
                self.found = max(complete, key=len)
                self._held = ""
                return self._pass(held[: end - len(self.found)])
        longest = max((pattern.matched for pattern in self._patterns), default=0)
        cut = len(held) - longest
        self._held = held[cut:]
        return self._pass(held[:cut])

    def finish(self) -> str:
        """What was held back and is no stop string after all."""
        held, self._held = self._held, ""
        return self._pass(held)

    def _pass(self, text: str) -> str:
        self.safe += len(text)
        return text


class _Pattern:
    """How much of one stop string the end of the text matches."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._shorter = _borders(stop)

    def step(self, character: str) -> bool:
        """Read one character; True when the stop string is complete."""
        while self.matched and self.stop[self.matched] != character:
            self.matched = self._shorter[self.matched - 1]
        if self.stop[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.stop)


def _borders(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that it also ends with."""
    borders = [0] * len(stop)
    length = 0
    for i in range(1, len(stop)):
        while length and stop[i] != stop[length]:
            length = borders[length - 1]
        if stop[i] == stop[length]:
            length += 1
        borders[i] = length
    return borders


@dataclass(frozen=True, slots=True)
class Piece:
    """One id of the answer and the text it adds: "" when a later id completes its character."""

    token_id: int
    text: str


class _Waiting(NamedTuple):
    token_id: int
    text: str
    start: int  # characters of the answer before this text


class AnswerText:
    """The answer's text, id by id, up to the first stop string.

    `add` gives the ids whose text is certain, in order, each exactly once: an id waits while its last
    character is unfinished or while its text may belong to a stop string. Once `stopped`, the text is cut
    where the stop string begins: an id across that place keeps its first part, and ids wholly behind it
    never come out.

    Attributes:
        stopped: the stop string that ended the answer, None so far.
        dropped: how many of the last ids added stand wholly at or behind the stop's beginning; they are
            no part of the answer.
    """

    def __init__(self, tokenizer: Vocabulary, stops: tuple[str, ...] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._scanner = StopScanner(stops)
        self._waiting: deque[_Waiting] = deque()
        self._unfinished = 0  # how many at the end of `_waiting` end inside a character
        self._length = 0  # characters of all ids so far
        self.dropped = 0

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer, None so far."""
        return self._scanner.found

    @property
    def waiting(self) -> int:
        """How many ids were added and have neither come out nor been dropped."""
        return len(self._waiting)

    def add(self, token_id: int) -> list[Piece]:
        """The pieces that became certain with this id; none after a stop."""
        if self.stopped is not None:
            self.dropped += 1
            return []
        text = self._detokenizer.add(token_id)
        self._waiting.append(_Waiting(token_id, text, self._length))
        if not self._detokenizer.pending:
            self._unfinished = 0
        elif text:  # it finished the character before it and ends inside another
            self._unfinished = 1
        else:
            self._unfinished += 1
        return self._advance(text)

    def finish(self) -> list[Piece]:
        """Everything that was held back, when no id will follow; nothing the second time."""
        if self.stopped is not None:
            return []
        tail = self._detokenizer.finish()
        if tail:  # the last id began it, and so it is still waiting
            last = self._waiting.pop()
            self._waiting.append(last._replace(text=last.text + tail))
        self._unfinished = 0
        pieces = self._advance(tail)
        self._scanner.finish()
        return pieces + self._release()

    def _advance(self, text: str) -> list[Piece]:
        self._length += len(text)
        self._scanner.feed(text)
        return self._cut() if self.stopped is not None else self._release()

    def _release(self) -> list[Piece]:
        """Take out the ids that are finished and stand before everything that is held back."""
        ready = 0
        for i in range(len(self._waiting) - self._unfinished):
            token = self._waiting[i]
            end = token.start + len(token.text)
            if end > self._scanner.safe:
                break
            if token.text or end < self._scanner.safe or self._scanner.safe == self._length:
                ready = i + 1
        return [Piece(token.token_id, token.text) for token in self._take(ready)]

    def _cut(self) -> list[Piece]:
        """Take out what stands before the stop string and drop the rest."""
        stop = self._scanner.safe
        kept = sum(1 for token in self._waiting if token.start < stop)
        self.dropped = len(self._waiting) - kept
        pieces = [Piece(token.token_id, token.text[: stop - token.start]) for token in self._take(kept)]
        self._waiting.clear()
        return pieces

    def _take(self, count: int) -> list[_Waiting]:
        return [self._waiting.popleft() for _ in range(count)]
