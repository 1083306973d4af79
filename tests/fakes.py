"""The one place for fakes: small, exact stand-ins that make the tests run in milliseconds.

Sections: tokenizers; the table model; the scripted engine.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import mlx.core as mx

from mlxspec.decoding.stats import DecodeStats, DrafterStats
from mlxspec.engine import GenerateRequest, Job, LoadRequest
from mlxspec.errors import DownloadCancelled, MlxspecError
from mlxspec.events import Event, Failed, Finished, FinishReason, Loaded, Origin, Prefill, Tokens

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


class LetterTokenizer(ByteTokenizer):
    """Token i is the letter `letters[i]`; no token is special, and none ends the answer."""

    def __init__(self, letters: str) -> None:
        super().__init__()
        self.letters = letters
        self.vocab_size = len(letters)
        self.eos_token_ids = set()

    def encode(self, text: str, **_options: bool) -> list[int]:
        """An id a letter; letters that it does not know are left out."""
        return [self.letters.index(letter) for letter in text if letter in self.letters]

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False, **_options: bool) -> str:
        """The letters, joined."""
        del skip_special_tokens
        return "".join(self.letters[i] for i in token_ids)

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """The letter itself."""
        return self.letters[ids] if ids < len(self.letters) else None


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


# ---------------------------------------------------------------- the scripted engine


def token(text: str, origin: Origin = Origin.PLAIN) -> Tokens:
    """One token of a scripted answer."""
    return Tokens((0,), text, origin, None if origin is Origin.PLAIN else "lookup", 0)


ANSWER = (
    token("The", Origin.ACCEPTED),
    token(" capital", Origin.RESAMPLED),
    token(" is", Origin.BONUS),
    token(" Paris.", Origin.PLAIN),
)


def failed(error: MlxspecError) -> Failed:
    """The event by which a job says this error."""
    return Failed(error.kind, error.message, error.hint, error.exit_code)


Answer = Iterable[Event] | Callable[[GenerateRequest], Iterable[Event]]


class ScriptedEngine:
    """Says what it was told to say: each answer is tokens and other events; the last one repeats.

    Attributes:
        requests: everything that was asked of it, in order.
        closed: whether it was closed.
    """

    def __init__(self, *answers: Answer, loading: Iterable[Event] = (), pause_s: float = 0.0) -> None:
        self._answers = list(answers) or [ANSWER]
        self._loading = loading
        self._pause_s = pause_s
        self.requests: list[LoadRequest | GenerateRequest] = []
        self.closed = False

    def __enter__(self) -> ScriptedEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True

    def load(self, request: LoadRequest) -> Job:
        """The scripted events of loading, then Loaded unless one is Failed or the load is stopped."""
        self.requests.append(request)
        name = request.target or "smollm2-135m"
        stopped = DownloadCancelled(f"The download of {name} was stopped.", hint="Pull it again to go on.")

        def say(job: Job) -> None:
            for event in self._loading:
                if job.cancelled():
                    job.emit(failed(stopped))
                    return
                job.emit(event)
                if isinstance(event, Failed):
                    return
                time.sleep(self._pause_s)
            job.emit(Loaded(name, "lookup", "cpu", 0.5, 8192))

        return self._start(say)

    def generate(self, request: GenerateRequest) -> Job:
        """The next scripted answer, until it ends or is cancelled."""
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        events = answer(request) if callable(answer) else answer

        def say(job: Job) -> None:
            text: list[str] = []
            job.emit(Prefill(0, 9, 0))
            for event in events:
                if job.cancelled():
                    break
                job.emit(event)
                if isinstance(event, Failed):
                    return
                if isinstance(event, Tokens):
                    text.append(event.text)
                time.sleep(self._pause_s)
            reason = FinishReason.CANCELLED if job.cancelled() else FinishReason.STOP
            job.emit(Finished(reason, "".join(text), (0,) * len(text), scripted_stats(len(text))))

        return self._start(say)

    def _start(self, say: Callable[[Job], None]) -> Job:
        job = Job()
        threading.Thread(target=say, args=(job,), daemon=True).start()
        return job


def scripted_stats(tokens: int) -> DecodeStats:
    """Figures that are easy to recognise."""
    return DecodeStats(
        prompt_tokens=9,
        tokens=tokens,
        target_passes=max(1, tokens // 2),
        proposed=4,
        accepted=3,
        ttft_s=0.25,
        decode_s=tokens / 50,
        drafters={"lookup": DrafterStats(rounds=2, proposed=4, accepted=3)},
    )


def endless(text: str = "word ") -> Iterable[Event]:
    """An answer without an end."""
    return itertools.repeat(token(text))


def echo(request: GenerateRequest) -> Iterable[Event]:
    """An answer that shows the question as Python writes it."""
    return [token(f"heard {request.messages[-1].content!r}")]


def run_scripted(engine: ScriptedEngine) -> None:
    """Be the command line program, with this engine; for processes of their own."""
    from mlxspec.cli import following, main

    following.open_engine = lambda: engine  # type: ignore[assignment, return-value]
    sys.argv[0] = "mlxspec"
    main()
