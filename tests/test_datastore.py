"""The datastore: what it counts, its bound, two programs at once, damage, and answers that stay the same."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.chat.conversation import Message
from mlxspec.decoding.overrides import SamplingOverrides
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.drafters import ngram_file
from mlxspec.drafters.datastore import Datastore, all_contents, datastore_folder, vocabulary_hash
from mlxspec.drafters.lookup import CHAT_WEIGHT, Lookup, NgramIndex
from mlxspec.drafters.ngram_database import FORMAT, NewerFile
from mlxspec.drafters.ngram_file import NgramFile, disk_bytes
from mlxspec.drafters.ngram_rows import context_keys
from mlxspec.engine import Engine, GenerateRequest, LoadRequest
from mlxspec.events import Event, Finished, Notice, Tokens
from mlxspec.places import Places
from mlxspec.settings import change_setting
from tests.test_engine import make_model

SAMPLER = Sampler(SamplingParams(temperature=0), vocab_size=1000, rule=Rule.BLOCK, seed=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "datastore" / "words.ngrams"


def learn(path: Path, *texts: list[int], max_bytes: int = 64 << 20) -> None:
    with closing(NgramFile.open(path, max_bytes=max_bytes)) as file:
        for text in texts:
            file.learn(text, "smollm")


def known(path: Path, context: list[int]) -> dict[int, int]:
    file = NgramFile.open_to_read(path)
    assert file is not None
    with closing(file):
        return file.counts(context_keys(context)[len(context) - 1])


@pytest.fixture
def datastore(path: Path) -> Iterator[Datastore]:
    with closing(Datastore(path, target="target", vocab_size=1000)) as opened:
        yield opened


def looking_up(datastore: Datastore, tokens: list[int]) -> Lookup:
    lookup = Lookup(datastore=datastore)
    lookup.reset(tokens, SAMPLER, lambda: False)
    return lookup


def guesses(datastore: Datastore, tokens: list[int], k: int) -> list[int]:
    proposal = looking_up(datastore, tokens).propose(k)
    return [] if proposal is None else proposal.tokens.tolist()  # type: ignore[return-value]


# ---------------------------------------------------------------- counting


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=30), max_size=3))
def test_the_file_counts_as_the_index_of_a_chat_does(texts: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts"
        learn(path, [], *texts)
        contexts = {tuple(text[i : i + n]) for text in texts for n in range(1, 6) for i in range(len(text))}
        indexes = [NgramIndex() for _ in texts]
        for index, text in zip(indexes, texts, strict=True):
            index.extend(text)
        for context in contexts:
            expected: dict[int, int] = {}
            for index in indexes:
                for token, count in index.counts(context).items():
                    expected[token] = expected.get(token, 0) + count
            assert known(path, list(context)) == expected


def test_a_long_text_is_learnt_in_batches_without_seams(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_file, "BATCH_TOKENS", 7)
    text = list(range(40))
    learn(path, text)
    assert all(known(path, text[i - n : i]) == {i: 1} for i in range(5, 40) for n in range(1, 6))


def test_keys_differ_for_contexts_that_differ() -> None:
    rng = random.Random(0)
    contexts = {tuple(rng.randrange(50_000) for _ in range(rng.randrange(1, 6))) for _ in range(20_000)}
    assert len({context_keys(context)[-1] for context in contexts}) == len(contexts)
    assert context_keys([9, 1, 2, 3, 4, 5]) == context_keys([1, 2, 3, 4, 5])


def test_a_vocabulary_is_known_by_its_words_and_not_by_their_order() -> None:
    assert vocabulary_hash({"a": 0, "b": 1}) == vocabulary_hash({"b": 1, "a": 0})
    assert vocabulary_hash({"a": 0, "b": 1}) != vocabulary_hash({"a": 1, "b": 0})


# ---------------------------------------------------------------- looking up


def test_what_was_answered_before_is_guessed_in_another_chat(datastore: Datastore) -> None:
    learn(datastore.path, *[[1, 2, 3, 4, 5, 6]] * 20)
    assert guesses(datastore, [7, 1, 2, 3], 3) == [4, 5, 6]


def test_the_longest_context_decides_whether_the_chat_or_the_datastore_has_it(datastore: Datastore) -> None:
    learn(datastore.path, [1, 2, 3, 4])
    assert guesses(datastore, [3, 9, 1, 2, 3], 1) == [4]
    assert guesses(datastore, [2, 3, 9, 8, 2, 3], 1) == [9]


def test_the_chats_own_counts_weigh_more(datastore: Datastore) -> None:
    learn(datastore.path, *[[1, 2]] * (CHAT_WEIGHT - 1))
    assert guesses(datastore, [1, 3, 1], 1) == [3]
    learn(datastore.path, *[[1, 2]] * 2)
    assert guesses(datastore, [1, 3, 1], 1) == [2]


def test_confidence_is_count_over_total_plus_one_in_the_chats_measure(datastore: Datastore) -> None:
    learn(datastore.path, [1, 2], [1, 2], [1, 3])
    option = looking_up(datastore, [1]).offer()
    assert option.confidences[0] == pytest.approx((2 / CHAT_WEIGHT) / (3 / CHAT_WEIGHT + 1))
    assert looking_up(datastore, [8, 9, 8]).offer().confidences[0] == 0.5


def test_ids_beyond_the_vocabulary_are_never_guessed(datastore: Datastore) -> None:
    learn(datastore.path, *[[1, 5000]] * 30)
    assert guesses(datastore, [1], 1) == []


def test_what_another_program_learnt_is_guessed_from_the_next_answer_on(datastore: Datastore) -> None:
    learn(datastore.path, [5, 6])
    lookup = looking_up(datastore, [1, 2, 3])
    assert lookup.offer().max_k == 0
    learn(datastore.path, *[[1, 2, 3, 4]] * 9)
    lookup.reset([1, 2, 3], SAMPLER, lambda: False)
    assert lookup.offer().max_k > 0


def test_looking_up_never_waits_for_one_who_writes(datastore: Datastore) -> None:
    learn(datastore.path, *[[1, 2, 3, 4]] * 9)
    with closing(sqlite3.connect(datastore.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert guesses(datastore, [1, 2, 3], 1) == [4]
        datastore.learn([1, 2, 3, 5])  # comes back at once, though nobody can write now
        writer.execute("ROLLBACK")
    datastore.close()
    assert known(datastore.path, [1, 2, 3]) == {4: 9, 5: 1}


def test_a_look_up_leaves_no_lock_behind(datastore: Datastore) -> None:
    learn(datastore.path, [1, 2, 3, 4])
    assert guesses(datastore, [1, 2], 1) == [3]
    with closing(NgramFile.open(datastore.path)) as file:
        file.learn([5, 6, 7], "smollm")
        with closing(sqlite3.connect(datastore.path, isolation_level=None, timeout=0)) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


# ---------------------------------------------------------------- the file


def test_only_its_owner_can_read_it(path: Path) -> None:
    with closing(NgramFile.open(path)) as file:
        file.learn([1, 2, 3], "target")
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert all(file.stat().st_mode & 0o777 == 0o600 for file in path.parent.iterdir())


def test_it_keeps_below_its_bound_and_forgets_what_is_old_and_rare(path: Path) -> None:
    bound, rng = 1 << 20, random.Random(3)
    frequent, rare = [900, 901, 902], [903, 904, 905]
    largest = 0
    with closing(NgramFile.open(path, max_bytes=bound)) as file:
        file.learn(rare, "target")
        for _ in range(600):
            file.learn(frequent, "target")
        for _ in range(24):
            file.learn([rng.randrange(1000, 30_000) for _ in range(1024)], "target")
            largest = max(largest, path.stat().st_size)
        newest = [rng.randrange(1000, 30_000) for _ in range(10)]
        file.learn(newest, "target")
    assert largest <= bound
    assert disk_bytes(path) > bound // 2
    assert known(path, [900, 901]) == {902: 600}
    assert known(path, [903, 904]) == {}
    assert known(path, newest[:3]) == {newest[3]: 1}


def test_two_programs_learn_at_once_and_nothing_is_lost(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from mlxspec.drafters.ngram_file import NgramFile\n"
        "print(flush=True); sys.stdin.readline()\n"
        "file = NgramFile.open(Path(sys.argv[1]))\n"
        "for i in range(30): file.learn([1, 2, 3, 4, int(sys.argv[2]) + i], sys.argv[2])\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("100", "200")
    ]
    for process in running:
        assert process.stdout
        process.stdout.readline()
    for process in running:
        process.communicate("go\n")
        assert process.returncode == 0
    assert known(path, [1, 2, 3]) == {4: 60}
    with closing(NgramFile.open(path)) as file:
        assert file.contents().targets == {"100": 150, "200": 150}
        file.check()


def test_clearing_is_seen_by_a_program_that_runs(datastore: Datastore) -> None:
    learn(datastore.path, *[[1, 2, 3, 4]] * 9, list(range(900)))
    assert guesses(datastore, [1, 2, 3], 1) == [4]
    size = datastore.path.stat().st_size
    with closing(NgramFile.open(datastore.path)) as file:
        file.clear()
    assert datastore.path.stat().st_size < size // 2
    assert guesses(datastore, [1, 2, 3], 1) == []
    assert b"smollm" not in datastore.path.read_bytes()


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("wrong", ["text", "another database", "cut short"])
def test_a_file_that_is_no_datastore_is_set_aside_with_a_word(datastore: Datastore, wrong: str) -> None:
    path = datastore.path
    path.parent.mkdir(parents=True)
    if wrong == "text":
        path.write_text("These are notes of mine, and they are precious.\n" * 100)
    elif wrong == "another database":
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE recipes (name)")
    else:
        learn(path, [random.Random(1).randrange(900) for _ in range(2000)])
        path.write_bytes(path.read_bytes()[:5000])
    before = path.read_bytes()
    datastore.begin()
    for key in context_keys([1, 2, 3, 4]):
        datastore.counts(key)
    datastore.learn([1, 2, 3])
    datastore.close()
    (kept,) = path.parent.glob("*.unusable")
    assert kept.read_bytes() == before
    (told,) = datastore.troubles()
    assert str(kept) in told
    assert known(path, [1, 2]) == {3: 1}


def test_a_newer_file_is_left_alone_with_a_word(datastore: Datastore) -> None:
    learn(datastore.path, [1, 2, 3])
    with closing(sqlite3.connect(datastore.path, isolation_level=None)) as newer:
        newer.execute(f"PRAGMA user_version = {FORMAT + 1}")
    before = datastore.path.read_bytes()
    assert guesses(datastore, [1, 2], 1) == []
    datastore.learn([1, 2, 3])
    datastore.close()
    (told,) = datastore.troubles()
    assert "newer mlxspec" in told
    assert datastore.path.read_bytes() == before
    with pytest.raises(NewerFile):
        NgramFile.open(datastore.path)


def test_a_folder_that_cannot_be_written_costs_guesses_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    datastore = Datastore(tmp_path / "file" / "words", target="target", vocab_size=1000)
    assert guesses(datastore, [1, 2, 3, 1, 2], 1) == [3]
    datastore.learn([1, 2, 3])
    datastore.close()
    assert len(datastore.troubles()) == 1


# ---------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Answering:
    """An engine with a tiny target, shared by the tests because a tokenizer takes long to load."""

    engine: Engine
    target: Path
    where: Places

    def load(self, *, datastore: bool = True) -> None:
        list(self.engine.load(LoadRequest(str(self.target), "lookup", datastore=datastore)))

    def reload(self) -> None:
        """As another program would find it: all is written, and the file is opened anew."""
        self.load(datastore=False)
        self.load()

    def answer(self, **options: object) -> tuple[list[Event], Finished]:
        values = {"messages": (Message("user", "Hello."),), "max_tokens": 24, "num_draft": 4, **options}
        events = list(self.engine.generate(GenerateRequest(**values)))  # type: ignore[arg-type]
        assert isinstance(events[-1], Finished)
        return events, events[-1]

    def learnt(self) -> int:
        self.load(datastore=False)
        return sum(contents.tokens for contents in all_contents(self.where))


@pytest.fixture(scope="module")
def one_engine(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Answering]:
    root = tmp_path_factory.mktemp("datastore")
    where = Places(config=root / "config", data=root / "data", cache=root / "cache")
    with Engine(where) as engine:
        yield Answering(engine, make_model(root / "target", default_model), where)


@pytest.fixture
def answering(one_engine: Answering) -> Answering:
    one_engine.load(datastore=False)
    shutil.rmtree(datastore_folder(one_engine.where), ignore_errors=True)
    one_engine.load()
    return one_engine


def test_a_seed_means_one_text_whatever_the_datastore_holds(answering: Answering) -> None:
    """Invariant 10, and that the second answer is guessed from the first."""
    seeded = {"seed": 7, "accept": "coupled", "sampling": SamplingOverrides(temperature=0.8)}
    _, plain = answering.answer(speculate=False, **seeded)
    answering.learnt()
    shutil.rmtree(datastore_folder(answering.where))
    answering.load()
    _, first = answering.answer(**seeded)
    answering.reload()
    _, second = answering.answer(**seeded)
    assert plain.ids == first.ids == second.ids
    assert second.stats.accepted > first.stats.accepted


def test_answers_are_learnt_and_prompts_are_not(answering: Answering) -> None:
    _, finished = answering.answer()
    assert answering.learnt() == len(finished.ids) == 24


def test_an_answer_that_was_stopped_is_not_learnt(answering: Answering) -> None:
    job = answering.engine.generate(
        GenerateRequest((Message("user", "Hello."),), max_tokens=400, num_draft=1)
    )
    for event in job:
        if isinstance(event, Tokens):
            job.cancel()
    assert answering.learnt() == 0


@pytest.mark.parametrize("by", ["option", "settings"])
def test_switched_off_it_neither_learns_nor_guesses(answering: Answering, by: str) -> None:
    if by == "settings":
        change_setting(answering.where, "datastore", False)
    answering.load(datastore=by == "settings")
    answering.answer()
    answering.load(datastore=False)
    assert not datastore_folder(answering.where).exists()
    change_setting(answering.where, "datastore", True)


def test_damage_is_told_in_the_answer_that_meets_it(answering: Answering) -> None:
    answering.answer()
    answering.load(datastore=False)
    (file,) = datastore_folder(answering.where).iterdir()
    file.write_bytes(b"nonsense" * 1000)
    answering.load()
    events, _ = answering.answer()
    (kept,) = file.parent.glob("*.unusable")
    assert [event.message for event in events if isinstance(event, Notice)] == [
        f"The datastore was damaged and is now {kept}; a new one begins."
    ]
    assert answering.learnt() == 24


def test_a_file_that_another_program_just_writes_is_read_in_the_next_answer(path: Path) -> None:
    learn(path, [1, 2, 3] * 20)
    datastore = Datastore(path, target="t", vocab_size=100)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        datastore.begin()
        assert not any(datastore.counts(key) for key in context_keys([1, 2]))
        other.execute("ROLLBACK")
    datastore.begin()
    assert any(datastore.counts(key) for key in context_keys([1, 2]))
    assert datastore.troubles() == []
    datastore.close()
