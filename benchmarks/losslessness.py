"""Greedy ids of speculative decoding against mlx-lm's `generate_step`, default model, float32 weights.

    python benchmarks/losslessness.py [--part 1/2] [--max-tokens N] [--bits 3] [--only draft_model:8]

All prompts of mlxspec's bench, lookup and a draft model (the target rounded to fewer bits), k = 1, 4, 8.
Prints a row for each way and exits with 1 when one answer differs. The speeds are for orientation: `mlxspec
bench` measures them properly.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from typing import Any

import mlxspec  # noqa: F401  (before MLX: chooses the BLAS)

import mlx.core as mx  # isort: skip
import mlx.nn as nn
from mlx_lm.generate import generate_step

from mlxspec.chat.conversation import Message, render
from mlxspec.decoding.cache import PromptCache
from mlxspec.decoding.controller import FixedController
from mlxspec.decoding.decode import Decoding
from mlxspec.decoding.proposal import Drafter
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.decoding.target import TargetState, prefill
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.drafters.lookup import Lookup
from mlxspec.lab.prompts import bench_prompts
from mlxspec.models import sources
from mlxspec.models.loading import LoadedModel, load_model
from mlxspec.models.registry import load_registry
from mlxspec.places import places


def rounded(model: nn.Module, bits: int) -> nn.Module:
    """The model rounded to `bits` and back to float32, which is faster than packed weights on a CPU."""
    draft = copy.deepcopy(model)
    for _, layer in draft.named_modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            packed = mx.quantize(layer.weight, group_size=64, bits=bits)
            layer.weight = mx.dequantize(*packed, group_size=64, bits=bits)
    mx.eval(draft.parameters())
    return draft


def default_target() -> LoadedModel:
    """The default target of models.toml, fetched when it is not here."""
    registry = load_registry(places())
    spec = registry.resolve(registry.default_target)
    folder = sources.pull(spec, places(), progress=lambda _event: None, cancelled=lambda: False)
    return load_model(spec.name, folder)


def decode(
    target: LoadedModel, prompt: Sequence[int], drafters: Sequence[Drafter], k: int, budget: int
) -> Any:
    """The ids and statistics of one answer from a cold cache."""
    state = TargetState(PromptCache(target.model))
    prefill(state, prompt, cancelled=lambda: False, progress=lambda _done, _reused: None)
    params = SamplingParams(temperature=0.0)
    decoding = Decoding(
        state,
        sampler=Sampler(params, vocab_size=target.vocab_size, rule=Rule.BLOCK, seed=0),
        drafters=drafters,
        controller=FixedController(k),
        max_tokens=budget,
        eos_ids=target.eos_ids,
    )
    ids = [token for landed in decoding.rounds() for token in landed.tokens]
    return ids, decoding.stats


def reference(target: LoadedModel, prompt: Sequence[int], budget: int) -> list[int]:
    """mlx-lm's plain decoding, up to and with the end-of-sequence token."""
    ids: list[int] = []
    for token, _ in generate_step(mx.array(prompt), target.model, max_tokens=budget):
        ids.append(int(token))
        if ids[-1] in target.eos_ids:
            break
    return ids


def main() -> int:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="1/1", help="I/N: every Nth prompt from the Ith on")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--bits", type=int, default=3, help="of the draft model")
    parser.add_argument("--only", help="WAY:K, such as draft_model:8")
    options = parser.parse_args()
    first, step = (int(number) for number in options.part.split("/"))
    target = default_target()
    draft = rounded(target.model, options.bits)
    prompts = [
        render(target.tokenizer, (Message("user", prompt.prompt),), think=None)
        for prompt in bench_prompts()[first - 1 :: step]
    ]
    began = time.perf_counter()
    expected = [reference(target, prompt, options.max_tokens) for prompt in prompts]
    plain_s = time.perf_counter() - began
    print(f"{'way':<14} {'k':>2}  equal  acceptance  tokens/pass  time against plain")
    ways: dict[str, list[int]] = {"plain": [0], "lookup": [1, 4, 8], "draft_model": [4, 1, 8]}
    if options.only:
        way, k = options.only.split(":")
        ways = {way: [int(k)]}
    different = 0
    for way, ks in ways.items():
        for k in ks:
            equal = proposed = accepted = tokens = passes = 0
            began = time.perf_counter()
            for prompt, ids in zip(prompts, expected, strict=True):
                drafters: list[Drafter] = {
                    "plain": [],
                    "lookup": [Lookup()],
                    "draft_model": [DraftModel(draft)],
                }[way]
                got, stats = decode(target, prompt, drafters, k, options.max_tokens)
                equal += got == ids
                proposed += stats.proposed
                accepted += stats.accepted
                tokens += stats.tokens
                passes += stats.target_passes
            share = (time.perf_counter() - began) / plain_s
            different += len(prompts) - equal
            rate = f"{accepted / proposed:.2f}" if proposed else "-"
            print(
                f"{way:<14} {k:>2}  {equal}/{len(prompts)}  {rate:>10}  {tokens / passes:>11.2f}  "
                f"{share:.2f}",
                flush=True,
            )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
