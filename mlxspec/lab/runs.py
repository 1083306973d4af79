"""One timed answer to one prompt, decoded by mlxspec."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.chat.conversation import Message, render
from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import Controller, FixedController
from mlxspec.decoding.decode import Decoding
from mlxspec.decoding.proposal import Drafter
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.errors import PromptTooLong
from mlxspec.models.device import wired_limit
from mlxspec.models.loading import LoadedModel


@dataclass(frozen=True, slots=True)
class Run:
    """One answer.

    Attributes:
        ids: its tokens, end-of-sequence included.
        decode_s: seconds from the end of the prefill to the last token.
        ttft_s: seconds from the start of the prefill to the first token.
        proposed, accepted: guesses.
        ks: guesses of each round, 0 for plain ones; as many as there were target passes.
        parked_s, rounds_s: seconds of the parked rounds, and of all.
        peak_bytes: most memory that MLX held.
    """

    ids: tuple[int, ...]
    decode_s: float
    ttft_s: float
    proposed: int
    accepted: int
    ks: tuple[int, ...]
    parked_s: float
    rounds_s: float
    peak_bytes: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, prefill not counted."""
        return len(self.ids) / self.decode_s


class Runner:
    """Decodes prompts with one target and one cache, which keeps what a prompt shares with the last one.

    All runs sample from the plain softmax at their temperature: no filters, no penalties.
    """

    def __init__(self, target: LoadedModel, *, max_tokens: int) -> None:
        self.target = target
        self._max_tokens = max_tokens
        self._state = TargetState(PromptCache(target.model))

    def prompt_ids(self, text: str) -> list[int]:
        """The prompt as a chat's first message.

        Raises:
            PromptTooLong: it leaves no room for an answer.
        """
        ids = render(self.target.tokenizer, (Message("user", text),), think=None)
        if len(ids) >= self.target.context_tokens:
            raise PromptTooLong(
                f"A prompt has {len(ids)} tokens, and {self.target.name} can read"
                f" {self.target.context_tokens}.",
                hint="Take it out of the prompts, or shorten it.",
            )
        return ids

    def budget(self, prompt: Sequence[int]) -> int:
        """Tokens of an answer to this prompt at most."""
        return min(self._max_tokens, self.target.context_tokens - len(prompt))

    def plain(self, prompt: Sequence[int], *, temperature: float, seed: int, cold: bool = False) -> Run:
        """Decode without drafters."""
        return self.run(
            prompt, (), FixedController(0), temperature=temperature, seed=seed, rule=Rule.BLOCK, cold=cold
        )

    def run(
        self,
        prompt: Sequence[int],
        drafters: Sequence[Drafter],
        controller: Controller,
        *,
        temperature: float,
        seed: int,
        rule: Rule = Rule.BLOCK,
        cold: bool = False,
    ) -> Run:
        """Decode once. `cold` forgets first what target and drafters have read already."""
        if cold:
            self._state.clear()
            for drafter in drafters:
                drafter.close()
        params = SamplingParams(temperature=temperature, top_p=1.0)
        ids: list[int] = []
        ks: list[int] = []
        parked_s = rounds_s = ttft_s = 0.0
        mx.synchronize()
        mx.reset_peak_memory()
        began = time.perf_counter()
        with wired_limit(self.target.model):
            prefill(
                self._state,
                prompt,
                cancelled=lambda: False,
                progress=lambda _done, _reused: None,
                drafters=drafters,
            )
            decoding = Decoding(
                self._state,
                sampler=Sampler(params, vocab_size=self.target.vocab_size, rule=rule, seed=seed),
                drafters=drafters,
                controller=controller,
                max_tokens=self.budget(prompt),
                eos_ids=self.target.eos_ids,
            )
            for landed in decoding.rounds():
                ttft_s = ttft_s or time.perf_counter() - began
                ids.extend(landed.tokens)
                ks.append(len(landed.guesses))
                rounds_s += landed.round_s
                parked_s += landed.round_s if landed.parked else 0.0
            mx.synchronize()
        stats = decoding.stats
        return Run(
            ids=tuple(ids),
            decode_s=stats.decode_s,
            ttft_s=ttft_s,
            proposed=stats.proposed,
            accepted=stats.accepted,
            ks=tuple(ks),
            parked_s=parked_s,
            rounds_s=rounds_s,
            peak_bytes=mx.get_peak_memory(),
        )


def repeated_share(ids: Sequence[int], width: int = 8) -> float:
    """Share of an answer's n-grams of `width` tokens that it had before: how much it repeats itself."""
    grams = [tuple(ids[i : i + width]) for i in range(len(ids) - width + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0
