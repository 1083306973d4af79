"""Figures of the main job on the default model: overheads, plain speed, lookup, start-up, reuse, memory.

    python benchmarks/main_job.py [--pairs N]

Ratios are medians of alternating pairs in one process; nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import mlxspec  # noqa: F401  (before MLX: chooses the BLAS)

import mlx.core as mx  # isort: skip
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_sampler

from benchmarks.losslessness import default_target
from mlxspec.chat.conversation import Message, render
from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import FixedController
from mlxspec.decoding.decode import Decoding
from mlxspec.decoding.proposal import Drafter, Proposal
from mlxspec.decoding.sampling import History, Rule, Sampler, SamplingParams
from mlxspec.decoding.stats import DecodeStats
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.decoding.verdict import judge
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.lookup import Lookup
from mlxspec.models.loading import LoadedModel

TOKENS = 96


def decode(
    target: LoadedModel,
    prompt: Sequence[int],
    drafters: Sequence[Drafter],
    k: int,
    *,
    temperature: float = 0.0,
) -> tuple[float, DecodeStats]:
    """Seconds from the first token to the last, and the statistics."""
    state = TargetState(PromptCache(target.model))
    prefill(state, prompt, cancelled=lambda: False, progress=lambda _done, _reused: None)
    params = SamplingParams(temperature=temperature)
    decoding = Decoding(
        state,
        sampler=Sampler(params, vocab_size=target.vocab_size, rule=Rule.BLOCK, seed=0),
        drafters=drafters,
        controller=FixedController(k),
        max_tokens=TOKENS,
        eos_ids=frozenset(),
    )
    rounds = decoding.rounds()
    next(rounds)
    began = time.perf_counter()
    for _ in rounds:
        pass
    return time.perf_counter() - began, decoding.stats


def reference(target: LoadedModel, prompt: Sequence[int], temperature: float = 0.0) -> float:
    """The same seconds of mlx-lm's `generate_step`."""
    sampler = make_sampler(temperature, top_p=0.95)
    steps = generate_step(mx.array(prompt), target.model, max_tokens=TOKENS, sampler=sampler)
    next(steps)
    began = time.perf_counter()
    for _ in steps:
        pass
    return time.perf_counter() - began


def plain_speed(target: LoadedModel, prompt: Sequence[int], pairs: int) -> None:
    """Ours without drafters against mlx-lm's."""
    for temperature in (0.0, 0.7):
        ours = [decode(target, prompt, (), 0, temperature=temperature)[0]]
        ratios = []
        for _ in range(pairs):
            theirs = reference(target, prompt, temperature)
            ours.append(decode(target, prompt, (), 0, temperature=temperature)[0])
            ratios.append(theirs / ours[-1])
        rate = (TOKENS - 1) / median(ours)
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(
            f"plain against generate_step, T = {temperature}: {median(ratios):.3f} ({spread}), "
            f"{rate:.1f} tok/s"
        )


def round_overhead(target: LoadedModel, prompt: Sequence[int]) -> None:
    """What a round takes outside the passes: choosing, committing, rewinding."""
    drafters: dict[str, Callable[[], list[Drafter]]] = {
        "lookup": lambda: [Lookup()],
        "draft_model": lambda: [DraftModel(target.model)],
    }
    for name, make in drafters.items():
        _, stats = decode(target, prompt, make(), 4)
        per_round_ms = stats.overhead_s / stats.rounds * 1e3
        share = stats.overhead_s / stats.decode_s
        print(f"outside the passes, T = 0, {name}: {share:.2%} of decoding, {per_round_ms:.2f} ms a round")


def verdict_time(target: LoadedModel, pairs: int) -> None:
    """The verdict at T > 0 over five rows against mlx-lm's sampler five times."""
    rows = mx.random.normal((5, target.vocab_size)) * 3
    guesses = Proposal(mx.argmax(rows[:4], axis=-1).astype(mx.uint32), mx.softmax(rows[:4], axis=-1))
    mx.eval(rows, guesses.tokens, guesses.q)
    for top_p in (1.0, 0.95):
        params = SamplingParams(temperature=0.7, top_p=top_p)
        sampler = Sampler(params, vocab_size=target.vocab_size, rule=Rule.BLOCK, seed=0)
        theirs = make_sampler(0.7, top_p=top_p if top_p < 1 else 0.0)

        def ours_once(sampler: Sampler = sampler) -> None:
            made = judge(sampler, rows, guesses, History([], guesses.tokens, rows=5), position=1)
            mx.eval(made.verdict.accepted, made.verdict.next_token)

        def theirs_once(theirs: Callable[[mx.array], mx.array] = theirs) -> None:
            for i in range(5):
                mx.eval(theirs(rows[i : i + 1] - mx.logsumexp(rows[i : i + 1], axis=-1, keepdims=True)))

        ours_once(), theirs_once()
        times = [(_seconds(ours_once), _seconds(theirs_once)) for _ in range(pairs)]
        ours_ms, theirs_ms = (median(column) * 1e3 for column in zip(*times, strict=True))
        print(
            f"verdict on 5 rows, T = 0.7, top-p {top_p}: {ours_ms:.1f} ms; "
            f"mlx-lm's sampler x 5: {theirs_ms:.1f} ms"
        )


def lookup_in_a_long_chat() -> None:
    """50,000 tokens, words as frequent as in text."""
    rng = random.Random(0)
    tokens = [int(rng.paretovariate(0.7)) % 49152 for _ in range(50_000)]
    sampler = Sampler(SamplingParams(temperature=0), vocab_size=49152, rule=Rule.BLOCK, seed=0)
    lookup = Lookup(floor=0.0)
    index_s = _seconds(lambda: lookup.reset(tokens, sampler, lambda: False))
    proposals = []
    for i in range(1000):
        lookup.committed([tokens[i]], 0)
        proposals.append(_seconds(lambda: lookup.propose(8)))
    print(
        f"lookup in 50,000 tokens: {index_s:.2f} s to index, {median(proposals) * 1e3:.3f} ms a proposal of 8"
    )


def start_up(repeats: int = 7) -> None:
    """Wall time of fresh processes."""
    for what, command in {
        "an empty program": ["-c", "pass"],
        "import mlxspec": ["-c", "import mlxspec"],
        "mlxspec --help": ["-m", "mlxspec", "--help"],
    }.items():
        run = [sys.executable, *command]
        seconds = [
            _seconds(lambda run=run: subprocess.run(run, check=True, capture_output=True))
            for _ in range(repeats)
        ]
        print(f"{what}: {median(seconds):.3f} s")


def second_turn(target: LoadedModel, tokens: Sequence[int], pairs: int = 3) -> None:
    """Time to the first token behind 2,000 tokens, cold and with the cache of the turn before."""
    prompt = (list(tokens) * 60)[:2000]
    cold, warm = [], []
    for _ in range(pairs):
        state = TargetState(PromptCache(target.model))
        cold.append(_seconds(lambda state=state: _first_token(target, state, prompt)))
        longer = [*state.tokens, *tokens[:30]]
        warm.append(_seconds(lambda state=state, longer=longer: _first_token(target, state, longer)))
    print(
        f"second turn behind 2,000 tokens: {median(warm):.2f} s against {median(cold):.2f} s cold, "
        f"{median(w / c for w, c in zip(warm, cold, strict=True)):.1%}"
    )


def _first_token(target: LoadedModel, state: TargetState, prompt: Sequence[int]) -> None:
    prefill(state, prompt, cancelled=lambda: False, progress=lambda _done, _reused: None)
    sampler = Sampler(SamplingParams(temperature=0.0), vocab_size=target.vocab_size, rule=Rule.BLOCK, seed=0)
    decoding = Decoding(
        state, sampler=sampler, drafters=(), controller=FixedController(0), max_tokens=1, eos_ids=frozenset()
    )
    list(decoding.rounds())


def peak_memory(target: LoadedModel, prompt: Sequence[int]) -> None:
    """The most that MLX held during an answer, against weights and cache."""
    mx.clear_cache()
    mx.reset_peak_memory()
    state = TargetState(PromptCache(target.model))
    prefill(state, prompt, cancelled=lambda: False, progress=lambda _done, _reused: None)
    sampler = Sampler(SamplingParams(), vocab_size=target.vocab_size, rule=Rule.BLOCK, seed=0)
    decoding = Decoding(
        state,
        sampler=sampler,
        drafters=[Lookup()],
        controller=FixedController(4),
        max_tokens=TOKENS,
        eos_ids=frozenset(),
    )
    list(decoding.rounds())
    needed = target.weight_bytes + sum(layer.nbytes for layer in state.cache.layers)
    print(
        f"peak memory: {mx.get_peak_memory() / 1e6:.0f} MB, weights and cache {needed / 1e6:.0f} MB, "
        f"{mx.get_peak_memory() / needed:.1%}"
    )


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    start_up()
    lookup_in_a_long_chat()
    target = default_target()
    ask = "Write a Python class for a bank account with deposit, withdraw and a transaction history."
    prompt = render(target.tokenizer, (Message("user", ask),), think=None)
    plain_speed(target, prompt, options.pairs)
    round_overhead(target, prompt)
    verdict_time(target, options.pairs)
    second_turn(target, prompt)
    peak_memory(target, prompt)


if __name__ == "__main__":
    main()
