"""What is trained of each kind of draft, how it begins, and what it would guess in a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from mlxspec.decoding.hidden import LAST, HiddenStates
from mlxspec.drafters.trained import MODULES
from mlxspec.drafters.trained_maker import embedding_of
from mlxspec.errors import UsageError
from mlxspec.models.loading import LoadedModel
from mlxspec.training.batches import Batch
from mlxspec.training.losses import Guess
from mlxspec.training.teacher import Teacher

KINDS = ("tiny", "head", "medusa", "exit")
HEAD_STEPS = ((0.0, 1), (0.65, 2), (0.9, 3))
"""From which share of the training on a head learns how many guesses behind one another: the first one
counts most, and the others cost as much."""

LATER_SHARE = 0.8  # weight of each further guess, that of the one before being 1
MEDUSA_HEADS = 4
EXIT_SHARE = 8  # one part in so many of the layers, at least two, run before an early exit
TINY_LAYERS = 2
TINY_WIDTH = 3  # a tiny model has one part in so many of the target's width
HEAD_SIZE = 64  # values of an attention head of a tiny model


class Student(Protocol):
    """A draft in training.

    Attributes:
        config: what its folder will say (`drafters/trained.py`), without the vocabulary.
        module: the trained part.
        points: whose rows batches must have.
        later_cost: what a step takes on average over the training, the first ones taking 1.
    """

    config: dict[str, Any]
    module: nn.Module
    points: tuple[int, ...]
    later_cost: float

    def guesses(self, batch: Batch, done: float = 1.0) -> list[Guess]:
        """What it would guess from every position, in the order of the guesses.

        While training, `done` is the share of it that is over; some guesses are learnt later than others.
        """


class HeadStudent:
    """See `drafters/head.py`.

    The layer begins as the target's last one, what it reads as the sum of both, the output head as the
    target's rows.
    """

    later_cost = 1.3

    def __init__(self, target: LoadedModel, teacher: Teacher) -> None:
        states = HiddenStates(target.model, (LAST,))
        self._embed = embedding_of(states)
        rows = teacher.rows()
        width = states.widths[LAST]
        token_width = self._embed(mx.array([[0]])).shape[-1]
        self.points: tuple[int, ...] = (LAST,)
        self.config: dict[str, Any] = {
            "kind": "head",
            "shape": layer_shape(target, width),
            "width": width,
            "token_width": token_width,
            "columns": rows.shape[0],
            "point": LAST,
        }
        self.module: nn.Module = MODULES["head"](self.config)
        self.module.from_hidden.weight = mx.eye(*self.module.from_hidden.weight.shape)
        self.module.from_token.weight = mx.eye(*self.module.from_token.weight.shape)
        begin_as(self.module.layer, target.model.layers[-1])
        begin_norm(self.module.norm, states.norm)
        self.module.output.weight = rows

    def guesses(self, batch: Batch, done: float = 1.0) -> list[Guess]:
        """Guess s from position t: the token behind s more, the next token being known."""
        from mlxspec.training.unrolled import unrolled

        after = mx.concatenate([batch.tokens[:, 1:], batch.tokens[:, -1:]], axis=1)
        steps = max(steps for begin, steps in HEAD_STEPS if done >= begin)
        made = unrolled(self.module, batch.rows[LAST], self._embed(after), steps)
        return [
            Guess(self.module.output(_from_origin(rows, step)), step + 1, LATER_SHARE**step)
            for step, rows in enumerate(made)
        ]


class MedusaStudent:
    """See `drafters/medusa.py`; every head begins as the target's own."""

    later_cost = 1.0

    def __init__(self, target: LoadedModel, teacher: Teacher) -> None:
        self._head = teacher.head
        width = HiddenStates(target.model, (LAST,)).widths[LAST]
        self.points: tuple[int, ...] = (LAST,)
        self.config: dict[str, Any] = {
            "kind": "medusa",
            "width": width,
            "count": MEDUSA_HEADS,
            "point": LAST,
            "scale": teacher.scale,
        }
        self.module: nn.Module = MODULES["medusa"](self.config)

    def guesses(self, batch: Batch, done: float = 1.0) -> list[Guess]:
        """Head i guesses the token i places behind the next one."""
        del done
        return [
            Guess(self._head(rows), i, LATER_SHARE ** (i - 1))
            for i, rows in enumerate(self.module(batch.rows[LAST]), start=1)
        ]


class ExitStudent:
    """See `drafters/exit.py`; the adapter begins as the target's last layer."""

    later_cost = 1.0

    def __init__(self, target: LoadedModel, teacher: Teacher, *, layers: int | None = None) -> None:
        count = len(target.model.layers)
        layers = min(max(2, count // EXIT_SHARE), count - 1) if layers is None else layers
        if not 0 < layers < count:
            raise UsageError(
                f"There is no exit behind layer {layers} of {count}.",
                hint=f"Give --layers from 1 to {count - 1}.",
            )
        self._head = teacher.head
        states = HiddenStates(target.model, (layers, LAST))
        width = states.widths[layers]
        self.points: tuple[int, ...] = (layers, LAST)
        self._point = layers
        self.config: dict[str, Any] = {
            "kind": "exit",
            "shape": layer_shape(target, width),
            "width": width,
            "layers": layers,
            "mlp": True,
            "scale": teacher.scale,
        }
        self.module: nn.Module = MODULES["exit"](self.config)
        begin_as(self.module, target.model.layers[-1])
        begin_norm(self.module.norm, states.norm)

    def guesses(self, batch: Batch, done: float = 1.0) -> list[Guess]:
        """The token that the target's own row is about."""
        del done
        return [Guess(self._head(self.module(batch.rows[self._point])), 0)]


class TinyStudent:
    """See `drafters/tiny.py`; embedding and head begin as the target's, projected to the narrow width."""

    later_cost = 1.0

    def __init__(self, target: LoadedModel, teacher: Teacher) -> None:
        states = HiddenStates(target.model, (LAST,))
        embed = embedding_of(states)
        width = max(HEAD_SIZE, states.widths[LAST] // TINY_WIDTH // HEAD_SIZE * HEAD_SIZE)
        heads = width // HEAD_SIZE
        columns = target.vocab_size if teacher.ids is None else teacher.ids.shape[0]
        self.points: tuple[int, ...] = (LAST,)
        self.config: dict[str, Any] = {
            "kind": "tiny",
            "columns": columns,
            "shape": {
                "vocab_size": target.vocab_size,
                "hidden_size": width,
                "num_hidden_layers": TINY_LAYERS,
                "intermediate_size": 4 * width,
                "num_attention_heads": heads,
                "num_key_value_heads": heads,
                "rms_norm_eps": 1e-5,
                "rope_theta": float(_of_config(target, "rope_theta", 10000.0)),
                "tie_word_embeddings": False,
            },
        }
        self.module: nn.Module = MODULES["tiny"](self.config)
        ids = mx.arange(target.vocab_size) if teacher.ids is None else teacher.ids
        rows = embed(mx.arange(target.vocab_size)[None])[0].astype(mx.float32)
        narrow = rows @ principal(rows, width)
        self.module.model.embed_tokens.weight = narrow / mx.sqrt(mx.mean(narrow * narrow))
        self.module.lm_head.weight = narrow[ids]

    def guesses(self, batch: Batch, done: float = 1.0) -> list[Guess]:
        """The token after each."""
        del done
        return [Guess(self.module(batch.tokens), 0)]


def make_student(kind: str, target: LoadedModel, teacher: Teacher, *, layers: int | None = None) -> Student:
    """A student that has learnt nothing yet; `layers` are those before an exit, None for a few.

    Raises:
        UnsupportedModel: what it reads of the target cannot be reached.
        UsageError: the target has not so many layers.
    """
    if kind == "exit":
        return ExitStudent(target, teacher, layers=layers)
    simple: Mapping[str, Callable[[LoadedModel, Teacher], Student]] = {
        "tiny": TinyStudent,
        "head": HeadStudent,
        "medusa": MedusaStudent,
    }
    return simple[kind](target, teacher)


def layer_shape(target: LoadedModel, width: int) -> dict[str, Any]:
    """The arguments of a llama layer that is like the target's own, as far as its config tells."""
    heads = int(_of_config(target, "num_attention_heads", max(1, width // HEAD_SIZE)))
    size = int(_of_config(target, "head_dim", width // heads))
    return {
        "hidden_size": width,
        "intermediate_size": int(_of_config(target, "intermediate_size", 4 * width)),
        "num_attention_heads": heads,
        "num_key_value_heads": int(_of_config(target, "num_key_value_heads", heads)),
        "head_dim": size,
        "rms_norm_eps": float(_of_config(target, "rms_norm_eps", 1e-5)),
        "rope_theta": float(_of_config(target, "rope_theta", 10000.0)),
    }


def begin_as(module: nn.Module, layer: nn.Module) -> None:
    """Take over the weights of a target's layer where name and shape are the same."""
    from mlx_lm.utils import dequantize_model

    theirs = dict(tree_flatten(dequantize_model(copy.deepcopy(layer)).parameters()))
    ours = dict(tree_flatten(module.parameters()))
    same = [
        (name, theirs[name].astype(mx.float32))
        for name, array in ours.items()
        if name in theirs and theirs[name].shape == array.shape
    ]
    module.update(tree_unflatten(same))


def begin_norm(norm: Any, theirs: Any) -> None:
    """Take over the weight of the target's final norm, if it is of a kind that has just that."""
    if isinstance(theirs, nn.RMSNorm) and theirs.weight.shape == norm.weight.shape:
        norm.weight = theirs.weight.astype(mx.float32)


def principal(rows: mx.array, width: int) -> mx.array:
    """Directions [columns, width] in which rows [n, columns] vary most."""
    _, vectors = mx.linalg.eigh(rows.T @ rows / rows.shape[0], stream=mx.cpu)
    return vectors[:, -width:]


def _from_origin(rows: mx.array, step: int) -> mx.array:
    """Rows of step `step` (from 0) at the positions where their guesses began."""
    if step == 0:
        return rows
    return mx.concatenate([rows[:, step:], mx.zeros_like(rows[:, :step])], axis=1)


def _of_config(target: LoadedModel, key: str, otherwise: float) -> float:
    """A number of the target's config, or of the text model's inside it."""
    for config in (target.config, target.config.get("text_config", {})):
        if isinstance(value := config.get(key), int | float) and not isinstance(value, bool):
            return value
    return otherwise
