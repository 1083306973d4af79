"""What can be asked of the engine. Plain values, which load neither MLX nor a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxspec.chat.conversation import Message
    from mlxspec.decoding.overrides import SamplingOverrides


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Which models to have in memory.

    Attributes:
        target: a name in models.toml, a folder or a Hub repo id; None for models.toml's default.
        draft: as `target`, or "auto", "lookup", "lookahead", "exit:N", "none"; a model's options may stand
            behind it: "NAME --translate --draft-vocab 8192".
        context: most tokens of prompt and answer together; None for what the model was made for.
        kv_bits: 4 or 8 to quantise the target's cache.
        datastore: guess from earlier answers too, and learn from these; the user's settings may still say no.
    """

    target: str | None = None
    draft: str = "auto"
    context: int | None = None
    kv_bits: int | None = None
    datastore: bool = True


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One answer.

    Attributes:
        messages: the conversation; the answer follows the last one.
        sampling: what the user asked for; the model's defaults fill the rest. None: the defaults.
        max_tokens: most tokens of the answer; None for as many as the context holds.
        stop: strings that end the answer and are not part of it.
        seed: pins the noise; None draws a fresh one, which the statistics name.
        accept: "block", "token" or "coupled"; None means block, or coupled when there is a seed.
        num_draft: guesses a round; None leaves it to the controller.
        think: for templates that can think: on, off, or None for the template's own way.
        speculate: False decodes plainly, whatever drafters there are.
        report_rounds: also say a `RoundReport` for every round.
    """

    messages: tuple[Message, ...]
    sampling: SamplingOverrides | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    accept: str | None = None
    num_draft: int | None = None
    think: bool | None = None
    speculate: bool = True
    report_rounds: bool = False
