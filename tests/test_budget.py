"""What a pair needs is read off its config.json, and never less than what the caches then take."""

from __future__ import annotations

import copy
import dataclasses
import importlib
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache
from tiny_models import ARCHITECTURES, SMALL, build

from mlxspec.models.budget import (
    PREFILL_CHUNK,
    Budget,
    ModelSize,
    cache_bytes,
    estimate,
    largest_context,
    weight_bytes,
)
from mlxspec.models.cache_plan import cache_plan

TOKENS, CHUNK = 48, 16

# Where a config does not say what a layer keeps, or says it in words of its own, the estimate is higher.
TOO_HIGH = {
    "afm7", "afmoe", "baichuan_m1", "bailing_hybrid", "bailing_moe_linear", "bailing_moe_v3", "dbrx",
    "deepseek_v41", "exaone4", "exaone_moe", "gear", "gpt_bigcode", "iquestloopcoder", "jamba", "kimi_k3",
    "kimi_linear", "laguna", "longcat_flash", "longcat_flash_ngram", "mamba", "mellum",
    "mimo_v2_flash", "minicpm3", "minimax_m3_vl", "muse_glimmer", "nemotron-nas", "plamo", "plamo2", "plamo3",
    "recurrent_gemma", "rwkv7", "spark2_5", "step3p5",
}  # fmt: skip

# Chunks of 8 tokens, far shorter than the steps by which their cache grows: no real model has them.
NEARLY = {"llama4"}

# Where mlx-lm keeps the arguments of a text model that is not a module of its own.
TEXT_ARGUMENTS = {
    "kimi_k2": ("deepseek_v3", "ModelArgs"),
    "llama4_text": ("llama4", "TextArgs"),
    "minimax_m3": ("minimax_m3_vl", "TextArgs"),
    "gemma3n": ("gemma3n", "TextConfig"),
    "qwen3_5": ("qwen3_5", "TextModelArgs"),
    "qwen3_5_moe": ("qwen3_5", "TextModelArgs"),
}

LLAMA = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}


def config_of(name: str) -> dict[str, Any]:
    """What a config.json of this tiny model says: the arguments that its module knows."""
    module = name.split("/")[0]
    config = copy.deepcopy({**SMALL, "model_type": module, **ARCHITECTURES[name]})
    config = known(config, module, "ModelArgs")
    if inner := config.get("text_config"):
        where = TEXT_ARGUMENTS.get(inner["model_type"], (inner["model_type"], "ModelArgs"))
        config = {"model_type": module, "text_config": known(inner, *where)}
    return config


def known(config: dict[str, Any], module: str, arguments: str) -> dict[str, Any]:
    kind = getattr(importlib.import_module(f"mlx_lm.models.{module}"), arguments)
    names = {field.name for field in dataclasses.fields(kind)} | {"model_type"}
    return {key: value for key, value in config.items() if key in names}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_plan_is_what_the_caches_take(name: str) -> None:
    model = build(name)
    caches = make_prompt_cache(model)
    for _ in range(TOKENS // CHUNK):
        mx.eval(model(mx.zeros((1, CHUNK), mx.int32), cache=caches))
    taken = sum(cache.nbytes for cache in caches)
    plan = cache_plan(config_of(name))
    planned = sum(layer.bytes(TOKENS, 4, chunk=CHUNK, kv_bits=None) for layer in plan)
    if name in TOO_HIGH:
        assert planned > taken
    elif name in NEARLY:
        assert planned == pytest.approx(taken, rel=0.05)
    else:
        assert planned == taken


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_cache_is_planned_with_its_scales(bits: int) -> None:
    from mlx_lm.models.cache import QuantizedKVCache

    heads, size, tokens = 3, 64, 300
    cache = QuantizedKVCache(group_size=64, bits=bits)
    rows = mx.zeros((1, heads, tokens, size), mx.float16)
    cache.update_and_fetch(rows, rows)
    one_layer = {**LLAMA, "num_hidden_layers": 1}
    assert cache_bytes(one_layer, tokens, kv_bits=bits) == cache.nbytes


def test_a_window_stops_growing() -> None:
    config = {
        **LLAMA,
        "layer_types": ["sliding_attention"] * 30,
        "sliding_window": 1024,
    }
    assert cache_bytes(config, 8192) == cache_bytes(config, 2048)
    assert cache_bytes(config, 8192) == 30 * (1024 + PREFILL_CHUNK - 1) * 2 * 192 * 2


def test_recurrent_layers_cost_the_same_at_every_length() -> None:
    config = {"model_type": "mamba2", "num_hidden_layers": 4, "num_heads": 4, "head_dim": 8, "state_size": 8}
    assert cache_bytes(config, 100) == cache_bytes(config, 100_000) > 0


def test_numbers_that_gemma3_leaves_out_are_filled_in() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 6, "sliding_window": 1024}
    config = {"model_type": "gemma3", "text_config": text}
    full, windows = 8192, 5 * (1024 + PREFILL_CHUNK - 1)
    assert cache_bytes(config, 8192) == (full + windows) * 2 * 4 * 256 * 2


def test_an_empty_config_costs_nothing_and_does_not_fail() -> None:
    assert cache_bytes({}, 1000) == 0


# ---------------------------------------------------------------- weights


def test_weights_take_what_they_take_on_disk_unless_they_become_float32() -> None:
    bf16 = ModelSize({"torch_dtype": "bfloat16"}, 1000)
    assert weight_bytes(bf16) == 1000
    assert weight_bytes(bf16, float32=True) == 2000
    assert weight_bytes(ModelSize({"dtype": "float32"}, 1000), float32=True) == 1000
    four_bits = ModelSize({"quantization": {"bits": 4, "group_size": 64}}, 4500)
    assert weight_bytes(four_bits, float32=True) == 32_000


# ---------------------------------------------------------------- the pair

TARGET = ModelSize(LLAMA, 100_000_000)
DRAFT = ModelSize({**LLAMA, "num_hidden_layers": 10, "max_position_embeddings": 2048}, 30_000_000)


def test_a_pair_needs_both_weights_both_caches_and_a_tenth_more() -> None:
    budget = estimate(TARGET, DRAFT, context_tokens=1024, available_bytes=10**9)
    row = 2 * 192 * 2
    assert budget == Budget(130_000_000, 30 * 1024 * row, 10 * 1024 * row, 10**9)
    assert budget.needed_bytes == int((130_000_000 + 40 * 1024 * row) * 1.1)


def test_a_draft_of_shorter_context_holds_no_more_than_its_own() -> None:
    budget = estimate(TARGET, DRAFT, context_tokens=8192, available_bytes=10**9)
    assert budget.draft_cache_bytes == 10 * 2048 * 2 * 192 * 2


def test_it_fits_when_all_it_needs_is_there_and_not_with_a_byte_less() -> None:
    needed = estimate(TARGET, None, context_tokens=1024, available_bytes=0).needed_bytes
    assert estimate(TARGET, None, context_tokens=1024, available_bytes=needed).fits
    assert not estimate(TARGET, None, context_tokens=1024, available_bytes=needed - 1).fits


@pytest.mark.parametrize("available_mb", [115, 150, 200, 300])
def test_the_largest_context_fits_and_the_next_larger_one_does_not(available_mb: int) -> None:
    available = available_mb * 10**6
    tokens = largest_context(TARGET, None, available_bytes=available)
    assert tokens % 256 == 0
    assert estimate(TARGET, None, context_tokens=tokens, available_bytes=available).fits
    assert not estimate(TARGET, None, context_tokens=tokens + 256, available_bytes=available).fits


def test_the_largest_context_ends_at_the_models_own_and_at_nothing() -> None:
    assert largest_context(TARGET, None, available_bytes=10**12) == 8192
    assert largest_context(TARGET, None, available_bytes=10**6) == 0


def test_a_quantised_cache_leaves_room_for_a_longer_context() -> None:
    plain = largest_context(TARGET, None, available_bytes=150_000_000)
    assert largest_context(TARGET, None, available_bytes=150_000_000, kv_bits=4) > 2 * plain
