"""Five real pairs of models.toml: are greedy ids equal with the draft, and how fast is it?

    python benchmarks/real_pairs.py [--pairs qwen-7b qwen3-8b ...] [--limit N] [--max-tokens N]

Fetches what is missing from the Hub (about 30 GB for the five) and needs the memory for the largest, so it is
for a Mac, or another machine with a Hub at hand. It has not been run where mlxspec was written: no Hub is
reachable there. In 16 bits a difference can be a tie; `mlxspec audit` tells ties from bugs.
"""

from __future__ import annotations

import argparse
import sys
import time

import mlxspec  # noqa: F401  (before MLX: chooses the BLAS)

import mlx.core as mx  # isort: skip

from benchmarks.losslessness import decode, reference
from mlxspec.chat.conversation import Message, render
from mlxspec.drafters.draft_model import DraftModel
from mlxspec.errors import MlxspecError
from mlxspec.lab.prompts import bench_prompts
from mlxspec.models import sources
from mlxspec.models.compatibility import incompatibility
from mlxspec.models.loading import LoadedModel, load_model
from mlxspec.models.registry import ModelSpec, load_registry
from mlxspec.places import places

PAIRS = ("qwen-7b", "qwen3-8b", "llama-8b", "gemma-12b", "smollm2-1.7b")
GUESSES = 4


def load(spec: ModelSpec) -> LoadedModel:
    """The model, fetched when it is not here."""
    folder = sources.pull(spec, places(), progress=lambda _event: None, cancelled=lambda: False)
    return load_model(spec.name, folder)


def row(name: str, limit: int | None, budget: int) -> str:
    """One line of the table."""
    registry = load_registry(places())
    spec = registry.resolve(name)
    draft_spec = registry.draft_of(spec)
    if draft_spec is None:
        return f"{name:<14} has no draft in models.toml"
    target, draft = load(spec), load(draft_spec)
    if (reason := incompatibility(target, draft)) is not None:
        return f"{name:<14} {draft_spec.name} cannot serve: {reason}"
    equal = tokens = proposed = accepted = passes = 0
    plain_s = speculative_s = 0.0
    prompts = bench_prompts()[:limit]
    for prompt in prompts:
        ids = render(target.tokenizer, (Message("user", prompt.prompt),), think=None)
        began = time.perf_counter()
        expected = reference(target, ids, budget)
        plain_s += time.perf_counter() - began
        began = time.perf_counter()
        got, stats = decode(target, ids, [DraftModel(draft.model)], GUESSES, budget)
        speculative_s += time.perf_counter() - began
        equal += got == expected
        tokens += stats.tokens
        passes += stats.target_passes
        proposed += stats.proposed
        accepted += stats.accepted
    peak_gb = mx.get_peak_memory() / 1e9
    return (
        f"{name:<14} {draft_spec.name:<14} {equal}/{len(prompts)} equal  "
        f"{accepted / max(proposed, 1):.2f} accepted  "
        f"{tokens / max(passes, 1):.2f} tokens/pass  {plain_s / speculative_s:.2f}x  {peak_gb:.1f} GB"
    )


def main() -> int:
    """Print a row for each pair; 1 when one could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="+", default=PAIRS, metavar="TARGET")
    parser.add_argument("--limit", type=int, default=None, help="prompts")
    parser.add_argument("--max-tokens", type=int, default=128)
    options = parser.parse_args()
    failed = False
    for name in options.pairs:
        try:
            print(row(name, options.limit, options.max_tokens), flush=True)
        except MlxspecError as error:
            failed = True
            print(f"{name:<14} not measured: {error}", flush=True)
        mx.clear_cache()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
