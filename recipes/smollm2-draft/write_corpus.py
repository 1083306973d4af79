"""More conversations for the corpus: the target asks itself and answers, 128 conversations at once, in NumPy.

    python recipes/smollm2-draft/write_corpus.py MORE.jsonl.gz --minutes 60 --seed 11

The same as the first stage of `mlxspec distill`, but a conversation keeps its place in a full batch from
its question to the end of its answer, questions about a text or code that the target wrote before are
among them, and NumPy takes 1 ns for an exponential where MLX on Linux takes 9 to 12. For models of
llama's architecture in 32 bits.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxspec.chat.conversation import user_turn
from mlxspec.lab.drafts import load_target, wanted
from mlxspec.places import places
from mlxspec.training.corpus import Conversation, CorpusWriter
from mlxspec.training.openings import OPENINGS

Array = NDArray[np.float32]

SLOTS = 128  # conversations at once
ROOM = 448  # tokens of a conversation
QUESTION_TOKENS, ANSWER_TOKENS, GIVEN_TOKENS = 80, 280, 200
QUESTION_TEMPERATURE = 0.9
TEMPERATURES = (0.0, 0.0, 0.5, 0.7, 0.7, 1.0)  # of the answers
SAVE_EVERY_S = 60.0

ON_TEXT = (
    "Summarize this text in one sentence:\n\n{}",
    "Summarize the following text:\n\n{}",
    "What is the main idea of this text?\n\n{}",
    "Fix the grammar and spelling of this text and give back the whole text:\n\n{}",
    "Rewrite this text so that it is shorter:\n\n{}",
    "Rewrite this text more formally:\n\n{}",
    "Turn this text into a list of key points:\n\n{}",
    "{}\n\nSummarize the above in two sentences.",
    "Extract the names and facts of this text as JSON:\n\n{}",
    "Give this text a title and go on with it:\n\n{}",
)
ON_CODE = (
    "Add comments to this code:\n\n```\n{}\n```",
    "Rename the variables of this code so that they say what they are:\n\n```\n{}\n```",
    "Explain this code:\n\n```\n{}\n```",
    "Find the bug in this code and fix it:\n\n```\n{}\n```",
    "Write a test for this code:\n\n```\n{}\n```",
    "Rewrite this code in JavaScript:\n\n```\n{}\n```",
    "Make this code handle wrong input:\n\n```\n{}\n```",
)


class Llama:
    """A pass of many sequences, one token each."""

    def __init__(self, model: Any) -> None:
        args = model.args
        self.heads, self.kv_heads = args.num_attention_heads, args.num_key_value_heads
        self.size = args.head_dim or args.hidden_size // self.heads
        self.inner, self.eps = args.intermediate_size, np.float32(args.rms_norm_eps)
        self.embedding = _array(model.model.embed_tokens.weight)
        self.norm = _array(model.model.norm.weight)
        self.blocks = [_block(layer) for layer in model.layers]
        powers = args.rope_theta ** (-np.arange(0, self.size, 2) / self.size)
        angles = np.arange(ROOM)[:, None] * powers[None]
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def caches(self) -> tuple[Array, Array]:
        """Keys and values [layers, slots, heads, room, size]."""
        shape = (len(self.blocks), SLOTS, self.kv_heads, ROOM, self.size)
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def step(self, ids: NDArray[Any], places: NDArray[Any], keys: Array, values: Array) -> Array:
        """Rows [slots, width] after the last norm, each token attending to those before it in its slot."""
        slots, half, turned = len(ids), self.size // 2, self.heads + self.kv_heads
        x = self.embedding[ids]
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        n = int(places.max()) + 1
        hidden = np.where(np.arange(n) > places[:, None], np.float32(-1e9), np.float32(0.0))[:, None, None]
        for layer, (first_norm, qkv, out, second_norm, gate_up, down) in enumerate(self.blocks):
            y = self._normed(x, first_norm) @ qkv.T
            heads = y[:, : turned * self.size].reshape(slots, turned, self.size)
            a, b = heads[..., :half], heads[..., half:]
            heads = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
            keys[layer][np.arange(slots), :, places] = heads[:, self.heads :]
            values[layer][np.arange(slots), :, places] = y[:, turned * self.size :].reshape(
                slots, self.kv_heads, self.size
            )
            queries = heads[:, : self.heads] * np.float32(self.size**-0.5)
            queries = queries.reshape(slots, self.kv_heads, self.heads // self.kv_heads, self.size)
            scores = queries @ keys[layer][:slots, :, :n].swapaxes(-1, -2) + hidden
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            x = x + (scores @ values[layer][:slots, :, :n]).reshape(slots, -1) @ out.T
            y = self._normed(x, second_norm) @ gate_up.T
            gate, up = y[:, : self.inner], y[:, self.inner :]
            x = x + (gate / (1.0 + np.exp(-gate)) * up) @ down.T
        return self._normed(x, self.norm)

    def _normed(self, x: Array, weight: Array) -> Array:
        normed: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * weight
        return normed


def _array(weights: Any) -> Array:
    return np.ascontiguousarray(np.array(weights, dtype=np.float32))


def _block(layer: Any) -> tuple[Array, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = np.concatenate([_array(p.weight) for p in (attention.q_proj, attention.k_proj, attention.v_proj)])
    gate_up = np.concatenate([_array(p.weight) for p in (mlp.gate_proj, mlp.up_proj)])
    norms = _array(layer.input_layernorm.weight), _array(layer.post_attention_layernorm.weight)
    return norms[0], qkv, _array(attention.o_proj.weight), norms[1], gate_up, _array(mlp.down_proj.weight)


@dataclass
class Slot:
    """A conversation that is being written: `forced` tokens come before its own."""

    forced: list[int]
    asks: bool
    temperature: float
    ids: list[int] = field(default_factory=list)
    asked: int = 0
    prompt_tokens: int = 0


class Author:
    """Begins conversations and keeps what comes of them."""

    def __init__(self, tokenizer: Any, eos_ids: frozenset[int], seed: int) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)
        before, after = user_turn(tokenizer)
        self.before, self.after, self.eos_ids = list(before), list(after), eos_ids
        self.done: list[Conversation] = []
        self._texts: list[str] = []
        self._codes: list[str] = []
        self._begun = 0

    def begin(self) -> Slot:
        """A conversation of the next kind."""
        rng, kinds = self._rng, list(OPENINGS)
        self._begun += 1
        kind = self._begun % (len(kinds) + 2)
        temperature = rng.choice(TEMPERATURES)
        made = (self._texts, ON_TEXT) if kind == len(kinds) else (self._codes, ON_CODE)
        if kind >= len(kinds) and len(made[0]) > 20:
            given = self._encoded(rng.choice(made[1]).format(rng.choice(made[0])))[:GIVEN_TOKENS]
            forced = [*self.before, *given, *self.after]
            return Slot(forced, False, temperature, prompt_tokens=len(forced))
        opening = rng.choice(OPENINGS[kinds[kind % len(kinds)]])
        return Slot([*self.before, *self._encoded(opening)], True, temperature)

    def next_token(self, slot: Slot, drawn: int) -> int | None:
        """What follows the slot's tokens; None at the end of its answer."""
        if slot.forced:
            return slot.forced.pop(0)
        if slot.asks:
            slot.asked += 1
            if drawn == self.after[0] or slot.asked >= QUESTION_TOKENS:
                slot.asks, slot.forced = False, self.after[1:]
                slot.prompt_tokens = len(slot.ids) + len(self.after)
                return self.after[0]
            return drawn
        said = len(slot.ids) - slot.prompt_tokens
        if said and (slot.ids[-1] in self.eos_ids or said >= ANSWER_TOKENS or len(slot.ids) >= ROOM - 2):
            return None
        return drawn

    def keep(self, slot: Slot) -> None:
        """Note a finished conversation, and what others may be about."""
        if len(slot.ids) - slot.prompt_tokens < 2:
            return
        self.done.append(Conversation(slot.prompt_tokens, slot.temperature, tuple(slot.ids)))
        text = self._tokenizer.decode(slot.ids[slot.prompt_tokens : -1])
        if text.count("```") > 1:
            code = text.split("```")[1].partition("\n")[2].rstrip()
            if 40 < len(code) < 700:
                self._codes = [*self._codes[-300:], code]
        elif slot.temperature < QUESTION_TEMPERATURE:
            cut = text[: self._rng.randint(250, 800)]
            if (end := max(cut.rfind(". "), cut.rfind(".\n"))) > 120:
                self._texts = [*self._texts[-300:], cut[: end + 1].strip()]

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []


def drawn_tokens(logits: Array, temperatures: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """A token for each row [slots, vocab]; at temperature 0 the likeliest."""
    tokens: NDArray[np.int64] = logits.argmax(axis=-1)
    for i in np.flatnonzero(temperatures > 0):
        total = np.cumsum(np.exp((logits[i] - logits[i, tokens[i]]) / temperatures[i]), dtype=np.float64)
        tokens[i] = min(int(np.searchsorted(total, rng.random() * total[-1], side="right")), len(total) - 1)
    return tokens


def write(
    llama: Llama, author: Author, writer: CorpusWriter, *, seed: int, going_on: Callable[[], bool]
) -> None:
    """Fill the slots again and again."""
    rng = np.random.default_rng(seed)
    keys, values = llama.caches()
    slots = [author.begin() for _ in range(SLOTS)]
    ids, places = np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)
    for i, slot in enumerate(slots):
        ids[i] = slot.forced.pop(0)
    saved = time.monotonic()
    while going_on():
        rows = llama.step(ids, places, keys, values)
        free = [not slot.forced for slot in slots]
        heats = [QUESTION_TEMPERATURE if slot.asks else slot.temperature for slot in slots]
        drawn = drawn_tokens(rows @ llama.embedding.T, np.array(heats, np.float32) * free, rng)
        for i, slot in enumerate(slots):
            slot.ids.append(int(ids[i]))
            following = author.next_token(slot, int(drawn[i]))
            places[i] += 1
            if following is None:
                author.keep(slot)
                slots[i] = author.begin()
                following, places[i] = slots[i].forced.pop(0), 0
            ids[i] = following
        if time.monotonic() - saved > SAVE_EVERY_S:
            saved = time.monotonic()
            writer.add(author.done)
            print(f"{len(author.done)} more conversations", flush=True)
            author.done = []
    writer.add(author.done)


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    where = places()
    target = load_target(wanted("smollm2-135m", (), where), where, lambda _event: None)
    author = Author(target.tokenizer, target.eos_ids, options.seed)
    writer = CorpusWriter(options.corpus)
    end = time.monotonic() + 60 * options.minutes
    write(Llama(target.model), author, writer, seed=options.seed, going_on=lambda: time.monotonic() < end)


if __name__ == "__main__":
    main()
