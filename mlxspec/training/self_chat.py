"""A target talks to itself: it ends a question in the user's place, and answers it.

As Magpie (Xu et al. 2024, arXiv 2406.08464). Many answers are generated at once by mlx-lm's batches; a model
whose caches cannot be put together answers one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from mlxspec.chat.conversation import Message, has_chat_template, render, user_turn
from mlxspec.errors import MlxspecError
from mlxspec.models.loading import LoadedModel
from mlxspec.training.corpus import Conversation, CorpusWriter, answer_tokens
from mlxspec.training.openings import some_openings

AT_ONCE = 32  # sequences in one pass
WAVE = 64  # conversations that are made together
QUESTION_TOKENS = 80
ANSWER_TOKENS = 256
QUESTION_TEMPERATURE = 0.9
TEMPERATURES = (0.0, 0.5, 0.7, 1.0)  # of the answers, in turn

Ids = Sequence[int]


class SelfChat:
    """Makes conversations of one target.

    Args:
        given: questions to be answered before it asks its own.
    """

    def __init__(self, target: LoadedModel, *, seed: int, given: Sequence[Ids] = ()) -> None:
        self._target = target
        self._seed = seed
        self._room = target.context_tokens // 2  # tokens of a prompt, and as many of an answer
        self._given = [prompt for prompt in given if len(prompt) <= self._room]
        self._chats = has_chat_template(target.tokenizer)

    def fill(
        self,
        writer: CorpusWriter,
        conversations: list[Conversation],
        tokens: int,
        progress: Callable[[int, int], None],
    ) -> None:
        """Add conversations, to the file and to the list, until their answers have so many tokens.

        What is done when it is interrupted stays; the next call goes on from there.
        """
        while (have := answer_tokens(conversations)) < tokens:
            progress(have, tokens)
            wave = len(conversations)
            rng = random.Random(f"{self._seed} {wave}")
            temperature = TEMPERATURES[wave // WAVE % len(TEMPERATURES)]
            prompts = self._prompts(wave, rng)
            made: list[Conversation] = []
            try:
                for i, ids in self._continued(prompts, temperature, ANSWER_TOKENS, rng):
                    if ids:
                        made.append(Conversation(len(prompts[i]), temperature, (*prompts[i], *ids)))
                    progress(have + answer_tokens(made), tokens)
            finally:
                writer.add(made)
                conversations += made
        progress(tokens, tokens)

    def greedy_answers(self, prompts: Sequence[Ids], max_tokens: int) -> list[list[int]]:
        """The target's greedy answer to each prompt."""
        answers: list[list[int]] = [[] for _ in prompts]
        for i, ids in self._continued(prompts, 0.0, max_tokens, random.Random(self._seed)):
            answers[i] = ids
        return answers

    def _prompts(self, wave: int, rng: random.Random) -> list[Ids]:
        """The prompts of the next wave."""
        if given := self._given[wave : wave + WAVE]:
            return given
        openings = some_openings(WAVE, rng)
        tokenizer = self._target.tokenizer
        if not self._chats:
            return [render(tokenizer, (Message("user", text or "The "),)) for text in openings]
        before, after = user_turn(tokenizer)
        begun = [[*before, *_plain(tokenizer, text)] for text in openings]
        texts = list(openings)
        ends = frozenset(after[:1]) | self._target.eos_ids
        for i, ids in self._continued(begun, QUESTION_TEMPERATURE, QUESTION_TOKENS, rng, ends=ends):
            texts[i] += tokenizer.decode([token for token in ids if token not in ends])
        return [self._rendered(text.strip()) for text in texts if text.strip()]

    def _rendered(self, text: str) -> Ids:
        try:
            return render(self._target.tokenizer, (Message("user", text),))
        except MlxspecError:  # text that cannot be written as text, such as a control token
            return render(self._target.tokenizer, (Message("user", "Hello!"),))

    def _continued(
        self,
        prompts: Sequence[Ids],
        temperature: float,
        max_tokens: int,
        rng: random.Random,
        *,
        ends: frozenset[int] | None = None,
    ) -> Iterator[tuple[int, list[int]]]:
        """(index of the prompt, ids of its continuation), as they are done."""
        mx.random.seed(rng.getrandbits(32))
        max_tokens = min(max_tokens, self._room)
        ends = self._target.eos_ids if ends is None else ends

        def sample(logprobs: mx.array) -> mx.array:
            if temperature == 0:
                return mx.argmax(logprobs, axis=-1)
            return mx.random.categorical(logprobs.astype(mx.float32) * (1.0 / temperature))

        if can_batch(self._target.model):
            yield from _batched(self._target.model, prompts, sample, max_tokens, ends)
        else:
            for i, prompt in enumerate(prompts):
                yield i, _alone(self._target.model, prompt, sample, max_tokens, ends)


def can_batch(model: Any) -> bool:
    """Whether mlx-lm can put this model's caches together."""
    from mlx_lm.models.cache import make_prompt_cache

    return all(hasattr(cache, "merge") for cache in make_prompt_cache(model))


def _batched(
    model: Any,
    prompts: Sequence[Ids],
    sample: Callable[[mx.array], mx.array],
    max_tokens: int,
    ends: frozenset[int],
) -> Iterator[tuple[int, list[int]]]:
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(
        model,
        max_tokens=max_tokens,
        stop_tokens=[[end] for end in sorted(ends)],
        sampler=sample,
        completion_batch_size=AT_ONCE,
        prefill_batch_size=AT_ONCE,
    )
    try:
        uids = generator.insert([list(prompt) for prompt in prompts])
        place = {uid: i for i, uid in enumerate(uids)}
        said: dict[int, list[int]] = {uid: [] for uid in uids}
        while place:
            for response in generator.next_generated():
                said[response.uid].append(response.token)
                if response.finish_reason is not None:
                    yield place.pop(response.uid), said[response.uid]
    finally:
        generator.close()
        mx.clear_cache()


def _alone(
    model: Any,
    prompt: Ids,
    sample: Callable[[mx.array], mx.array],
    max_tokens: int,
    ends: frozenset[int],
) -> list[int]:
    from mlx_lm.generate import generate_step

    ids: list[int] = []
    for token, _ in generate_step(mx.array(list(prompt)), model, max_tokens=max_tokens, sampler=sample):
        ids.append(int(token))
        if ids[-1] in ends:
            break
    return ids


def _plain(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False)) if text else []
