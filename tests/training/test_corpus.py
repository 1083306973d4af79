"""The corpus: written and read whole, and filled by the target itself."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from mlxspec.errors import UsageError
from mlxspec.models.loading import LoadedModel
from mlxspec.training import self_chat
from mlxspec.training.corpus import Conversation, CorpusWriter, answer_tokens, read_corpus
from mlxspec.training.vocabulary import coverage, frequent_ids
from tests.test_decode import Answering


def test_conversations_are_read_as_they_were_written(tmp_path: Path) -> None:
    said = [Conversation(2, 0.7, (1, 2, 3)), Conversation(1, 0.0, (4, 5))]
    for name in ("c.jsonl.gz", "c.jsonl"):
        writer = CorpusWriter(tmp_path / name)
        writer.add(said[:1])
        writer.add(said[1:])
        assert read_corpus(tmp_path / name) == said
    assert answer_tokens(said) == 2


@pytest.mark.parametrize("cut", [1, 9, 20])
def test_a_corpus_that_was_cut_short_goes_on_behind_its_last_whole_part(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "c.jsonl.gz"
    said = [Conversation(1, 0.5, tuple(range(i, i + 30))) for i in range(6)]
    writer = CorpusWriter(path)
    writer.add(said[:4])
    writer.add(said[4:])
    path.write_bytes(path.read_bytes()[:-cut])
    kept = read_corpus(path)
    assert said[:4] == kept[:4]
    CorpusWriter(path).add([said[5]])
    assert read_corpus(path) == [*kept, said[5]]


@pytest.mark.parametrize(
    "line", ["{}", "[1, 0.5]", "[3, 0.5, [1, 2]]", "[1, 0.5, [1, 900]]", "[0, 1, []]", "x"]
)
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f"[1, 0.5, [1, 2]]\n{line}\n")
    with pytest.raises(UsageError, match="Line 2"):
        read_corpus(path, vocab_size=100)


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_corpus(tmp_path / "none.jsonl")


def test_the_target_fills_a_corpus_and_goes_on_where_it_stopped(tmp_path: Path, target: LoadedModel) -> None:
    path = tmp_path / "c.jsonl.gz"
    conversations: list[Conversation] = []
    given = [[1, 7, 8], [1, 9]]
    self_chat.SelfChat(target, seed=2, given=given).fill(
        CorpusWriter(path), conversations, 40, lambda *_: None
    )
    assert sorted(c.ids[: c.prompt_tokens] for c in conversations[:2]) == [(1, 7, 8), (1, 9)]
    some = read_corpus(path)
    assert sorted(c.digest for c in some) == sorted(c.digest for c in conversations)
    more = some.copy()
    wanted = answer_tokens(some) + 60
    self_chat.SelfChat(target, seed=2).fill(CorpusWriter(path), more, wanted, lambda *_: None)
    assert read_corpus(path) == more
    assert more[: len(some)] == some
    assert answer_tokens(more) >= wanted


def test_an_interrupted_corpus_keeps_what_was_said(tmp_path: Path, target: LoadedModel) -> None:
    path = tmp_path / "c.jsonl.gz"

    def stop(done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        self_chat.SelfChat(target, seed=2).fill(CorpusWriter(path), [], 10_000, stop)
    assert answer_tokens(read_corpus(path)) > 0


@pytest.mark.parametrize("batches", [True, False])
def test_greedy_answers_are_those_of_plain_decoding(
    batches: bool, target: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_chat, "can_batch", lambda _model: batches)
    prompts = [[1, 5, 9], [1, 7, 8, 20, 30]]
    answers = self_chat.SelfChat(target, seed=0).greedy_answers(prompts, 12)
    for prompt, answer in zip(prompts, answers, strict=True):
        plain = Answering(target.model, vocab=target.vocab_size).answer(
            prompt=prompt, max_tokens=12, eos_ids=target.eos_ids
        )
        assert answer == plain


def test_a_draft_can_guess_the_tokens_that_the_target_says() -> None:
    said = [Conversation(1, 0.0, (9, 5, 5, 3)), Conversation(1, 0.0, (9, 5, 7))]
    ids = frequent_ids(said, 4, vocab_size=20, always={2})
    assert ids is not None
    assert ids.tolist() == [2, 3, 5, 7]
    assert coverage(said, ids) == 1.0
    assert coverage(said, mx.array([5])) == pytest.approx(3 / 5)
    assert frequent_ids(said, 20, vocab_size=20) is None
