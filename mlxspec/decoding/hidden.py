"""Hidden states out of a model's own passes, without a second pass and without its code knowing.

For the time of a pass the modules in question get a class derived from their own that notes what goes
in or comes out; they have their own class back afterwards. Which module is the output head is seen in
a pass of two tokens whose graph is built and never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.errors import UnsupportedModel

LAST = -1
"""The point after the final norm: what the output head reads. A point n >= 1 is behind layer n."""

MOST_ROWS = 4096
"""Rows that wait to be read at most: of a prompt of 100,000 tokens all would take hundreds of megabytes."""

HINT = "Choose a draft that needs no hidden states, such as --draft lookup or a draft model."

Note = Callable[[mx.array, Any], None]  # hears a call's first argument and what came of it


@dataclass(frozen=True, slots=True)
class _Call:
    module: nn.Module
    method: str
    given: mx.array
    made: Any


class HiddenStates:
    """Reads the hidden states of one model at some points.

    Args:
        model: an mlx-lm model.
        points: `LAST`, or numbers of layers.

    Attributes:
        widths: values of a row, by point.
        embedding: the module that turns ids into rows; None where it cannot be told.
        head: the module that turns rows into logits; None where the model multiplies by hand.
        norm: the module whose rows the head is given as they are; None where they are changed on the way.

    Raises:
        UnsupportedModel: a point cannot be reached; the message says why.
    """

    def __init__(self, model: Any, points: Sequence[int] = (LAST,)) -> None:
        calls, vocab = _calls_of_a_pass(model)
        self.embedding: Any = next(
            (call.module for call in calls if isinstance(call.module, nn.Embedding | nn.QuantizedEmbedding)),
            None,
        )
        head = _head_call(calls, vocab)
        self.head: Any = head.module if head is not None else None
        self.norm: Any = next(
            (call.module for call in calls if head is not None and call.made is head.given), None
        )
        self._points: dict[int, tuple[nn.Module, str, bool]] = {}  # module, method, is it the argument?
        self.widths: dict[int, int] = {}
        for point in points:
            if point == LAST:
                module, method, rows, given = _last_rows(calls, head, model)
            else:
                module, method, given = _layer(model, point), "__call__", False
                rows = _layer_rows(calls, module, model, point)
            self._points[point] = (module, method, given)
            self.widths[point] = rows.shape[-1]
        self.rows: dict[int, mx.array] = {}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Passes inside leave their rows [batch, n, width] in `rows`, by point; those of the last pass."""
        self.rows = {}
        by_module: dict[int, tuple[nn.Module, dict[str, list[Note]]]] = {}
        for point, (module, method, given) in self._points.items():
            _, notes = by_module.setdefault(id(module), (module, {}))
            notes.setdefault(method, []).append(self._note(point, given=given))
        with _noted(list(by_module.values())):
            yield

    def _note(self, point: int, *, given: bool) -> Note:
        def note(argument: mx.array, made: Any) -> None:
            self.rows[point] = argument if given else _first(made)

        return note


class HiddenRows:
    """The rows that a cache's passes left behind, by position, until somebody takes them.

    Of a long prompt only the last `MOST_ROWS` are kept.
    """

    def __init__(self, states: HiddenStates) -> None:
        self.states = states
        self._parts: list[tuple[int, dict[int, mx.array]]] = []  # start, rows [n, width] by point

    def add(self, start: int) -> None:
        """Keep the rows of the pass just made, whose first token stands at `start`."""
        self.cut(start)
        self._parts.append((start, {point: rows[0] for point, rows in self.states.rows.items()}))
        self.states.rows = {}
        while len(self._parts) > 1 and self._end - self._parts[1][0] >= MOST_ROWS:
            del self._parts[0]

    def cut(self, length: int) -> None:
        """Forget the rows of positions from `length` on."""
        self._parts = [_until(part, length) for part in self._parts if part[0] < length]

    def take(self, length: int) -> list[tuple[int, dict[int, mx.array]]]:
        """The rows of positions before `length`, in order and each once: (position of the first, rows)."""
        taken = [_until(part, length) for part in self._parts if part[0] < length]
        self._parts = [_from(part, length) for part in self._parts if part[0] + _count(part) > length]
        return taken

    def waiting(self) -> list[mx.array]:
        """The arrays that are kept, to be evaluated with a pass."""
        return [rows for _, part in self._parts for rows in part.values()]

    @property
    def _end(self) -> int:
        start, _ = self._parts[-1]
        return start + _count(self._parts[-1])


def _calls_of_a_pass(model: Any) -> tuple[list[_Call], int]:
    """What the modules of a model do in a pass of two tokens, as they return, and the logits' width."""
    from mlx_lm.models.cache import make_prompt_cache

    calls: list[_Call] = []

    def note_of(module: nn.Module, method: str) -> Note:
        def note(given: mx.array, made: Any) -> None:
            if isinstance(given, mx.array):
                calls.append(_Call(module, method, given, made))

        return note

    modules = {id(module): module for _, module in model.named_modules() if module is not model}
    watched = [
        (
            module,
            {
                method: [note_of(module, method)]
                for method in ("__call__", "as_linear")
                if hasattr(module, method)
            },
        )
        for module in modules.values()
    ]
    with _noted(watched):
        logits = model(mx.array([[0, 0]]), cache=make_prompt_cache(model))
    return calls, int(logits.shape[-1])


@contextmanager
def _noted(watched: Sequence[tuple[nn.Module, dict[str, list[Note]]]]) -> Iterator[None]:
    """Inside, calls of these modules' methods are heard by the notes."""
    own = [(module, type(module)) for module, _ in watched]
    try:
        for module, notes in watched:
            methods = {name: _heard(getattr(type(module), name), heard) for name, heard in notes.items()}
            object.__setattr__(module, "__class__", type(type(module).__name__, (type(module),), methods))
        yield
    finally:
        for module, kind in own:
            object.__setattr__(module, "__class__", kind)


def _heard(method: Callable[..., Any], notes: Sequence[Note]) -> Callable[..., Any]:
    def call(self: nn.Module, *arguments: Any, **named: Any) -> Any:
        made = method(self, *arguments, **named)
        if arguments:
            for note in notes:
                note(arguments[0], made)
        return made

    return call


def _head_call(calls: Sequence[_Call], vocab: int) -> _Call | None:
    """The last call that made logits out of narrower or wider rows."""
    for call in reversed(calls):
        made = call.made
        if (
            isinstance(made, mx.array)
            and made.shape[-1] == vocab
            and _are_rows(call.given)
            and hasattr(call.module, "weight")
            and (call.method == "as_linear" or isinstance(call.module, nn.Linear | nn.QuantizedLinear))
        ):
            return call
    return None


def _last_rows(
    calls: Sequence[_Call], head: _Call | None, model: Any
) -> tuple[nn.Module, str, mx.array, bool]:
    """Where the last hidden state is: what the head is given, or what the part before it makes of ids."""
    if head is not None:
        return head.module, head.method, head.given, True
    for call in reversed(calls):
        if call.given.ndim == 2 and _are_rows(_first(call.made)) and call.module.children():
            return call.module, call.method, _first(call.made), False
    raise _unreachable(model, "its output head is no part that can be watched")


def _layer(model: Any, number: int) -> nn.Module:
    layers = getattr(model, "layers", None)
    if not isinstance(layers, list):
        raise _unreachable(model, "it does not tell its layers")
    if not 1 <= number <= len(layers):
        raise _unreachable(model, f"it has {len(layers)} layers, and no layer {number}")
    module: nn.Module = layers[number - 1]
    return module


def _layer_rows(calls: Sequence[_Call], module: nn.Module, model: Any, number: int) -> mx.array:
    own = [call for call in calls if call.module is module and call.method == "__call__"]
    if len(own) != 1:
        raise _unreachable(model, f"layer {number} runs {len(own)} times in a pass")
    rows = _first(own[0].made)
    if not _are_rows(rows):
        raise _unreachable(model, f"layer {number} hands on something else than one row a token")
    made: mx.array = rows
    return made


def _unreachable(model: Any, reason: str) -> UnsupportedModel:
    kind = getattr(model, "model_type", None) or type(model).__module__.rpartition(".")[2]
    return UnsupportedModel(
        f"The hidden states of this target ({kind}) cannot be reached: {reason}.", hint=HINT
    )


def _are_rows(made: Any) -> bool:
    """Floating-point rows [1, 2, width] of the two tokens?"""
    return (
        isinstance(made, mx.array)
        and made.ndim == 3
        and made.shape[:2] == (1, 2)
        and mx.issubdtype(made.dtype, mx.floating)
    )


def _first(made: Any) -> Any:
    return made[0] if isinstance(made, tuple | list) and made else made


def _count(part: tuple[int, dict[int, mx.array]]) -> int:
    return next((rows.shape[0] for rows in part[1].values()), 0)


def _until(part: tuple[int, dict[int, mx.array]], length: int) -> tuple[int, dict[int, mx.array]]:
    start, rows = part
    if start + _count(part) <= length:
        return part
    return start, {point: values[: length - start] for point, values in rows.items()}


def _from(part: tuple[int, dict[int, mx.array]], length: int) -> tuple[int, dict[int, mx.array]]:
    start, rows = part
    if start >= length:
        return part
    return length, {point: values[length - start :] for point, values in rows.items()}
