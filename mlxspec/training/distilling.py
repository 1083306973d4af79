"""`mlxspec distill` from the first prompt to the finished folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from mlxspec.chat.conversation import Message, render
from mlxspec.drafters.datastore import vocabulary_hash
from mlxspec.drafters.loading import DRAFT_FILE
from mlxspec.drafters.trained import IDS, load_trained, quantise, save_trained
from mlxspec.drafters.trained_maker import dtype_of
from mlxspec.errors import NotWritable, UsageError
from mlxspec.events import Event
from mlxspec.lab.drafts import load_target, wanted
from mlxspec.lab.prompts import BenchPrompt
from mlxspec.models.loading import LoadedModel
from mlxspec.places import Places
from mlxspec.training.batches import Batches
from mlxspec.training.corpus import Conversation, CorpusWriter, answer_tokens, read_corpus
from mlxspec.training.features import Features
from mlxspec.training.held_out import HeldOut
from mlxspec.training.outcome import Outcome, examine
from mlxspec.training.self_chat import SelfChat
from mlxspec.training.students import KINDS, Student, make_student
from mlxspec.training.teacher import Teacher
from mlxspec.training.trainer import Plan, Report, Trainer
from mlxspec.training.vocabulary import coverage, frequent_ids

TOKENS = 200_000  # of answers, where neither a number nor a corpus is given
LONGEST = 512  # tokens of a conversation that count
HELD_OUT_SHARE = 16  # one conversation in so many is not trained on
HELD_OUT_MOST = 40
GROUP_SIZE = 64
WORK = "training"  # folder of the checkpoint, inside the draft's
OPTIONS, VOCABULARY = "options.json", "vocabulary.safetensors"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; with `resume` all but `minutes` comes from the training that is gone on with.

    Attributes:
        target: a model's name; "" for the default.
        kind: one of `students.KINDS`.
        corpus: a file of conversations; None for the target's own in the cache.
        tokens: tokens of answers that there should be; None for what the corpus has, or `TOKENS`.
        vocabulary: tokens that the output head covers.
        steps: of training; None for as many as `minutes` hold.
        layers: of the target before an exit; None for a few.
        batch: conversations in a step.
        part_tokens: tokens that are in memory at once.
        bits: of the weights that are written.
    """

    target: str = ""
    kind: str = "head"
    corpus: str | None = None
    tokens: int | None = None
    minutes: float = 60.0
    steps: int | None = None
    seed: int = 0
    vocabulary: int = 6144
    layers: int | None = None
    batch: int = 2
    part_tokens: int = 2048
    learning_rate: float = 7e-4
    bits: int = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """What is being done now: `done` of `total`, in `unit`."""

    what: str
    done: int
    total: int
    unit: str = "tokens"


@dataclass(slots=True)
class Ears:
    """Who hears what: events of loading, stages, steps of training, and sentences."""

    event: Callable[[Event], None]
    stage: Callable[[Stage], None]
    step: Callable[[Report], None]
    say: Callable[[str], None]


def distill(
    wish: Wish,
    out: Path,
    where: Places,
    ears: Ears,
    *,
    resume: bool,
    given: Callable[[LoadedModel], Sequence[Sequence[int]]] = lambda _target: (),
    prompts: Sequence[BenchPrompt],
) -> Outcome:
    """Train a draft, write its folder `out`, and find out what it brings.

    Args:
        given: prompts of the user's own for a target, to be answered first.
        prompts: those that the finished draft is tried on.

    Raises:
        UsageError: an option makes no sense, the folder is taken, or there is nothing to go on with.
        NotWritable: the disk is full.
        UnsupportedModel: what this kind needs of the target cannot be reached.
        KeyboardInterrupt: the user stopped; a training that had begun can be gone on with.
    """
    work = out / WORK
    wish = _known(wish, out, resume=resume)
    asked = wanted(wish.target or None, (), where)
    target = load_target(asked, where, ears.event)
    _remember(wish, target, work)
    conversations = _corpus(wish, target, where, ears, given)
    ids = _vocabulary(wish, target, conversations, work)
    ears.say(
        f"{answer_tokens(conversations):,} tokens of answers; the {wish.vocabulary:,} tokens that the draft"
        f" can guess are {coverage(conversations, ids):.1%} of them."
    )
    teacher = Teacher(target, ids)
    mx.random.seed(wish.seed)
    student = make_student(wish.kind, target, teacher, layers=wish.layers)
    features = Features(_cache(target, where) / "rows", conversations, student.points, most=LONGEST)
    features.make(
        target.model, lambda done, total: ears.stage(Stage("reading the target's hidden states", done, total))
    )
    _train(wish, student, teacher, conversations, features, work, ears, resume=resume)
    config = write_folder(out, student, ids, target, bits=wish.bits)
    student.module, _ = load_trained(out, config, dtype=dtype_of(target.model))
    speaker = SelfChat(target, seed=wish.seed)
    ears.stage(Stage("trying the draft", 0, len(prompts), "prompts"))
    return examine(student, teacher, target, prompts, speaker, work / "trial", config, ids)


def write_folder(
    out: Path, student: Student, ids: mx.array | None, target: LoadedModel, *, bits: int
) -> dict[str, Any]:
    """Quantise the trained part and write the draft's folder; its config.

    Raises:
        NotWritable: the folder cannot be written.
    """
    config = {
        **student.config,
        "target": target.name,
        "vocabulary": vocabulary_hash(target.tokenizer.get_vocab()),
        "bits": bits,
        "group_size": GROUP_SIZE,
    }
    quantise(student.module, bits=bits, group_size=GROUP_SIZE)
    try:
        save_trained(out, config, student.module, ids)
        (out / DRAFT_FILE).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise NotWritable(
            f"The draft cannot be written to {out}: {error.strerror or error}.",
            hint="Free some space, and go on with --resume.",
        ) from error
    return config


def _known(wish: Wish, out: Path, *, resume: bool) -> Wish:
    """The wish, or that of the training that is gone on with."""
    options = out / WORK / OPTIONS
    if not resume:
        if options.exists() or (out / DRAFT_FILE).exists():
            raise UsageError(
                f"There is a draft in {out} already, or one in training.",
                hint="Go on with --resume, or give another --out.",
            )
        if wish.kind not in KINDS:
            raise UsageError(
                f"There is no kind {wish.kind!r} of draft to train.",
                hint=f"Give --kind {', '.join(KINDS)}.",
            )
        return wish
    try:
        return Wish(**json.loads(options.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"There is no training in {out} to go on with.", hint="Begin one without --resume."
        ) from error


def _remember(wish: Wish, target: LoadedModel, work: Path) -> None:
    try:
        work.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**asdict(wish), "target": target.name}, indent=1)
        (work / OPTIONS).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotWritable(
            f"{work} cannot be written: {error.strerror or error}.", hint="Give another --out."
        ) from error


def _corpus(
    wish: Wish,
    target: LoadedModel,
    where: Places,
    ears: Ears,
    given: Callable[[LoadedModel], Sequence[Sequence[int]]],
) -> list[Conversation]:
    """The conversations that there are, and as many more as are wanted."""
    path = Path(wish.corpus) if wish.corpus else _cache(target, where) / "corpus.jsonl.gz"
    if wish.corpus and not path.exists() and wish.tokens is None:
        raise UsageError(f"There is no corpus {path}.", hint="Give one that is there, or --tokens too.")
    conversations = read_corpus(path, vocab_size=target.vocab_size) if path.exists() else []
    tokens = wish.tokens if wish.tokens is not None else 0 if wish.corpus else TOKENS
    if answer_tokens(conversations) < tokens:
        speaker = SelfChat(target, seed=wish.seed, given=given(target))
        speaker.fill(
            CorpusWriter(path),
            conversations,
            tokens,
            lambda done, total: ears.stage(Stage("the target talks to itself", done, total)),
        )
    if len(conversations) < 2 * wish.batch:
        raise UsageError(
            f"{path} has {len(conversations)} conversations, which are too few.", hint="Give more --tokens."
        )
    return conversations


def _vocabulary(
    wish: Wish, target: LoadedModel, conversations: Sequence[Conversation], work: Path
) -> mx.array | None:
    """The ids that the draft can guess; those of a training that is gone on with stay."""
    file = work / VOCABULARY
    if file.exists():
        return cast(dict[str, mx.array], mx.load(str(file))).get(IDS)
    ids = frequent_ids(conversations, wish.vocabulary, vocab_size=target.vocab_size, always=target.eos_ids)
    mx.save_safetensors(str(file), {"all": mx.array([1])} if ids is None else {IDS: ids})
    return ids


def _train(
    wish: Wish,
    student: Student,
    teacher: Teacher,
    conversations: Sequence[Conversation],
    features: Features,
    work: Path,
    ears: Ears,
    *,
    resume: bool,
) -> None:
    apart = [i for i, c in enumerate(conversations) if c.digest % HELD_OUT_SHARE == 0][:HELD_OUT_MOST]
    apart = apart or [len(conversations) - 1]
    chosen = sorted(set(range(len(conversations))) - set(apart))
    batches = Batches(
        conversations,
        features,
        student.points,
        chosen,
        size=wish.batch,
        seed=wish.seed,
        part_tokens=wish.part_tokens,
    )
    plan = Plan(minutes=wish.minutes, steps=wish.steps, learning_rate=wish.learning_rate)
    trainer = Trainer(
        student,
        teacher,
        batches,
        HeldOut(batches, apart, teacher),
        plan=plan,
        folder=work,
        tell=ears.step,
    )
    if resume:
        trainer.resume()
    trainer.run()
    trainer.take_best()


def user_prompts(target: LoadedModel, texts: Sequence[str]) -> list[list[int]]:
    """Prompts of the user's own as conversations that wait for an answer."""
    return [render(target.tokenizer, (Message("user", text),)) for text in texts]


def _cache(target: LoadedModel, where: Places) -> Path:
    """Where corpus and hidden rows of a target are kept."""
    name = "".join(letter if letter.isalnum() else "-" for letter in target.name)[:40]
    key = vocabulary_hash({str(target.folder.resolve()): target.weight_bytes})[:8]
    return where.cache / "distill" / f"{name}-{key}"
