"""Training a draft: rows, batches, losses, and the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.hidden import LAST
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.drafters.head import Head
from mlxspec.drafters.trained_maker import embedding_of, head_of
from mlxspec.models.loading import LoadedModel
from mlxspec.training.batches import Batches
from mlxspec.training.corpus import Conversation, read_corpus
from mlxspec.training.features import Features
from mlxspec.training.held_out import HeldOut
from mlxspec.training.losses import Guess, distribution_loss
from mlxspec.training.students import make_student
from mlxspec.training.teacher import Teacher
from mlxspec.training.trainer import Plan, Report, Trainer
from mlxspec.training.vocabulary import frequent_ids
from tests.trainees import CONVERSATIONS


def test_rows_are_those_of_the_target_and_survive_an_interruption(
    tmp_path: Path, target: LoadedModel, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxspec.training.features.INDEX_EVERY", 2)
    said = read_corpus(corpus)[:7]
    features = Features(tmp_path / "rows", said, (LAST, 1), most=32)

    def stop(done: int, _total: int) -> None:
        if done > 3 * 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features.make(target.model, stop)
    seen: list[int] = []
    features = Features(tmp_path / "rows", said, (LAST, 1), most=32)
    features.make(target.model, lambda done, _total: seen.append(done))
    assert seen[0] > 0, "what was done is not done again"
    for i in (0, 3, 6):
        cache = PromptCache(target.model)
        cache.watch_hidden((LAST, 1))
        cache.forward(mx.array(said[i].ids[:32]))
        ((_, rows),) = cache.take_hidden(32)
        for point in (LAST, 1):
            assert np.allclose(features.rows(i, point), np.array(rows[point]), atol=1e-2)
    changed = [*said[:5], Conversation(1, 0.0, (1, 2, 3)), said[6]]
    again: list[int] = []
    Features(tmp_path / "rows", changed, (LAST, 1), most=32).make(
        target.model, lambda done, _total: again.append(done)
    )
    assert again[0] == sum(min(32, len(c.ids)) for c in said[:5]), "rows of what changed are made again"


def batches_of(target: LoadedModel, corpus: Path, folder: Path, points: Sequence[int]) -> Batches:
    said = read_corpus(corpus)
    features = Features(folder, said, points, most=64)
    features.make(target.model, lambda *_: None)
    return Batches(said, features, points, range(4, len(said)), size=4, seed=1, part_tokens=96)


def test_an_epoch_has_every_conversation_once_and_a_seed_means_one_order(
    tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    first, second = (batches_of(target, corpus, tmp_path, (LAST,)) for _ in range(2))
    rows = [
        tuple(row) for i in range(first.steps_an_epoch) for b in first.step(i) for row in b.tokens.tolist()
    ]
    assert len(rows) == len(set(rows)) == CONVERSATIONS - 4
    for i in (7, 2):
        assert all(
            mx.array_equal(a.tokens, b.tokens) for a, b in zip(first.step(i), second.step(i), strict=True)
        )
    assert all(batch.tokens.size <= 96 for batch in first.step(0))


def test_filling_counts_nothing_and_prompts_little(tmp_path: Path, target: LoadedModel, corpus: Path) -> None:
    (batch,) = batches_of(target, corpus, tmp_path, (LAST,)).parts([5])
    length = len(read_corpus(corpus)[5].ids)
    weights = batch.weights[0].tolist()
    assert weights[:4] == pytest.approx([0.3, 0.3, 0.3, 1.0])
    assert set(weights[3:length]) == {1.0}
    assert set(weights[length:]) <= {0.0}


def test_the_loss_is_least_where_the_draft_says_what_the_target_says() -> None:
    teacher = mx.random.normal((1, 6, 5), key=mx.random.key(1)) * 3
    weights = mx.array([[0.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
    shifted = mx.concatenate([teacher[:, 1:], teacher[:, :1]], axis=1)
    same = distribution_loss([Guess(shifted, 1)], teacher, weights).item()
    assert same < distribution_loss([Guess(teacher, 1)], teacher, weights).item()
    p = mx.softmax(teacher[0, 1:5], axis=-1)
    assert same == pytest.approx(-(p * mx.log(p)).sum().item() / 4, rel=1e-4)


def test_training_sees_the_guesses_that_the_drafter_makes(
    tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    """The first, second and third guess from a position, as trained in one go and as drafted in steps."""
    from mlxspec.decoding.hidden import HiddenStates
    from mlxspec.training.unrolled import unrolled

    student: Any = make_student("head", target, Teacher(target, None))
    student.module.output.weight = student.module.output.weight[::-1]  # its own, no longer the target's
    (batch,) = batches_of(target, corpus, tmp_path, (LAST,)).parts([6])
    states = HiddenStates(target.model)
    embed, head, output = embedding_of(states), head_of(states, None), student.module.output
    after = mx.concatenate([batch.tokens[:, 1:], batch.tokens[:, -1:]], axis=1)
    tokens = list(read_corpus(corpus)[6].ids)
    for place in (8, 17):
        drafter = Head(student.module, embed=embed, head=head, ids=None, point=LAST)
        drafter.reset(tokens[: place + 2], greedy(target), lambda: False)
        drafter.read_hidden(0, {LAST: batch.rows[LAST][0, : place + 1]})
        proposal = drafter.propose(3)
        assert proposal is not None
        guesses: list[int] = proposal.tokens.tolist()  # type: ignore[assignment]
        # What the drafter guessed stands where the corpus has its own tokens.
        fed = mx.array([[*after[0, : place + 1].tolist(), *guesses, *[0] * 3]])  # type: ignore[misc]
        rows = unrolled(student.module, batch.rows[LAST][:, : fed.shape[1]], embed(fed), 3)
        said = [int(mx.argmax(output(made[0, place + step])).item()) for step, made in enumerate(rows)]
        assert said == guesses


def greedy(target: LoadedModel) -> Sampler:
    return Sampler(SamplingParams(temperature=0.0), vocab_size=target.vocab_size, rule=Rule.BLOCK, seed=0)


def trainer_of(
    kind: str,
    target: LoadedModel,
    corpus: Path,
    folder: Path,
    *,
    steps: int,
    tell: Any = lambda _: None,
    learning_rate: float = 3e-3,
) -> Trainer:
    teacher = Teacher(target, frequent_ids(read_corpus(corpus), 128, vocab_size=target.vocab_size))
    mx.random.seed(0)
    student = make_student(kind, target, teacher)
    batches = batches_of(target, corpus, folder / "rows", student.points)
    return Trainer(
        student,
        teacher,
        batches,
        HeldOut(batches, range(4), teacher),
        plan=Plan(steps=steps, learning_rate=learning_rate),
        folder=folder / kind,
        tell=tell,
    )


@pytest.mark.parametrize(("kind", "ratio"), [("head", 0.8), ("tiny", 0.8), ("medusa", 0.97)])
def test_training_lowers_the_loss_and_raises_the_acceptance(
    kind: str, ratio: float, tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    reports: list[Report] = []
    trainer_of(kind, target, corpus, tmp_path, steps=40, tell=reports.append).run()
    losses = [report.loss for report in reports]
    assert sum(losses[-5:]) < ratio * sum(losses[:5])
    checked = [report.held_out for report in reports if report.held_out]
    assert max(held.alphas[0] for held in checked) > max(0.1, checked[0].alphas[0])
    assert all(0.0 <= alpha <= 1.0 for held in checked for alpha in held.alphas)


@pytest.mark.parametrize("kind", ["medusa", "exit"])
def test_a_draft_that_shares_the_output_head_keeps_what_the_target_multiplies_it_by(
    kind: str, target: LoadedModel
) -> None:
    teacher = Teacher(target, None)
    teacher.scale = 0.5
    assert make_student(kind, target, teacher).config["scale"] == 0.5


def test_an_adapter_that_stands_for_the_last_layer_begins_as_the_target(
    tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    reports: list[Report] = []
    trainer_of("exit", target, corpus, tmp_path, steps=1, learning_rate=0.0, tell=reports.append).run()
    assert reports[0].held_out is not None
    assert reports[0].held_out.alphas[0] > 0.9


def test_going_on_gives_what_an_uninterrupted_training_gives(
    tmp_path: Path, target: LoadedModel, corpus: Path
) -> None:
    def stop_at_5(report: Report) -> None:
        if report.step == 5:
            raise KeyboardInterrupt

    whole = trainer_of("head", target, corpus, tmp_path / "whole", steps=9)
    whole.run()
    begun = trainer_of("head", target, corpus, tmp_path / "parts", steps=9, tell=stop_at_5)
    with pytest.raises(KeyboardInterrupt):
        begun.run()
    gone_on = trainer_of("head", target, corpus, tmp_path / "parts", steps=9)
    assert gone_on.resume()
    assert gone_on.state.step == 5
    gone_on.run()
    assert replace(gone_on.state, trained_s=0.0) == replace(whole.state, trained_s=0.0)
    for (_, a), (_, b) in zip(
        tree_flatten(whole._student.module.parameters()),
        tree_flatten(gone_on._student.module.parameters()),
        strict=True,
    ):
        assert mx.array_equal(a, b)


def test_a_training_without_progress_ends_early(tmp_path: Path, target: LoadedModel, corpus: Path) -> None:
    trainer = trainer_of("medusa", target, corpus, tmp_path, steps=400, learning_rate=0.0)
    trainer.run()
    assert trainer.state.step < 200


def test_the_steps_follow_from_the_minutes(tmp_path: Path, target: LoadedModel, corpus: Path) -> None:
    trainer = trainer_of("medusa", target, corpus, tmp_path, steps=1)
    trainer.state.total = 0
    trainer._plan = Plan(minutes=0.01)
    trainer.run()
    assert trainer.state.total >= trainer.state.step >= 4
