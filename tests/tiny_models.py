"""Tiny random float32 models of every architecture that mlx_lm.models can build small.

`ARCHITECTURES` is a table: a name, which begins with the module's, and what differs from `SMALL`.
The arguments that a module does not know are left out, as mlx-lm does with a config.json.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map, tree_unflatten

VOCAB = 64
LAYERS = 4
WINDOW = 8
"""Rows of every sliding window and chunk: smaller than any text of these tests."""

GAIN = 2.0
"""What the library's initial weights are multiplied by: the text then depends on far tokens too."""

EMBEDDING_GAIN = 0.5

NOISE = 0.2
"""Added to the parameters that the library starts at zero, one or another rule."""

SEEDS = {
    "Klear": 1, "afmoe": 1, "apertus": 3, "dots1": 2, "gemma2": 3, "gemma3n": 3, "gpt2": 4, "gpt_bigcode": 1,
    "gptj": 2, "hunyuan": 2, "mimo": 2, "minimax": 3, "nanbeige/loops": 1, "nanochat": 2, "phi": 4,
    "phi3small": 3, "phixtral": 4, "plamo3": 2, "qwen2": 2, "qwen2_vl": 2, "qwen3_moe": 4, "qwen3_vl_moe": 4,
    "rwkv7": 3, "starcoder2": 1,
}  # fmt: skip
"""Where seed 0 makes a model that repeats itself too soon."""

SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "layernorm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "max_position_embeddings": 512,
    "sliding_window": WINDOW,
    "sliding_window_size": WINDOW,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "use_conv_bias": True,
    "partial_rotary_factor": 0.5,
    # experts
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_layer_freq": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    # latent attention
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 16,
    # recurrent layers
    "conv_kernel": 4,
    "state_size": 8,
    "n_groups": 1,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
}

_SLIDING_FULL = {"layer_types": ["sliding_attention", "full_attention"] * 2}
_LINEAR_FULL = {"layer_types": ["linear_attention", "full_attention"] * 2}
_CONV_FULL = {"layer_types": ["conv", "full_attention"] * 2}
_GRANITE = {
    "logits_scaling": 1.0,
    "attention_multiplier": 0.35,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
}
_GPT = {
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 3,
    "n_positions": 512,
    "n_ctx": 512,
    "num_key_value_heads": None,
}
_LFM2 = {"conv_bias": False, "conv_L_cache": 3, "block_dim": 32, "block_ff_dim": 48, "block_multiple_of": 4}
_LFM2 |= {"block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True, **_CONV_FULL}
_LONGCAT = {"attention_method": "MLA", "zero_expert_type": "identity", "ffn_hidden_size": 48, "moe_topk": 2}
_LONGCAT |= {"expert_ffn_hidden_size": 32, "zero_expert_num": 2, "num_layers": 2}
_LONGCAT |= {"mla_scale_q_lora": True, "mla_scale_kv_lora": True}
_LONGROPE = {"type": "longrope", "original_max_position_embeddings": 512, "long_factor": [1.0]}
_LONGROPE |= {"short_factor": [1.0], "long_mscale": 1.0, "short_mscale": 1.0}
_MINICPM = {"dim_model_base": 32, "scale_depth": 1.4, "scale_emb": 1.0}
_YARN = {"type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
_YARN |= {"original_max_position_embeddings": 128, "rope_theta": 1000.0, "llama_4_scaling_beta": 0.1}
_ROPES = {"rope_theta": 1000.0, "rope_type": "default"}
_ROPES_BY_TYPE = {"sliding_attention": _ROPES, "full_attention": _ROPES}
_GEMMA3N = {"num_kv_shared_layers": 2, "vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 16}
_GEMMA4 = {**_GEMMA3N, "global_head_dim": 16, "sliding_window_pattern": 2}
_GEMMA3N |= {"rope_local_base_freq": 1000.0, "final_logit_softcapping": 30.0, "laurel_rank": 8}
_GEMMA3N |= {"activation_sparsity_pattern": [0.5] * 4, "altup_num_inputs": 2, "altup_coef_clip": 1.0}
_GEMMA3N |= {"altup_correct_scale": True, "altup_active_idx": 0, **_SLIDING_FULL}
_LLAMA4 = {"attention_chunk_size": WINDOW, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 48}
_LLAMA4 |= {"rope_scaling": None, "use_qk_norm": True, "num_experts_per_tok": 1}
_KDA = {"num_heads": 4, "head_dim": 8, "kda_layers": [1, 3], "full_attn_layers": [2, 4]}
_KDA |= {"short_conv_kernel_size": 4}
_MIMO2 = {"hybrid_layer_pattern": [0, 1, 0, 1], "moe_layer_freq": [0, 1, 0, 1], "swa_rope_theta": 1000.0}
_MIMO2 |= {"add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False, "swa_head_dim": 8}
_MIMO2 |= {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_v_head_dim": 8}
_NAS = [
    {
        "attention": {"n_heads_in_group": 2, "no_op": i == 1, "replace_with_linear": i == 2},
        "ffn": {"ffn_mult": 1.3, "no_op": False, "replace_with_linear": False},
    }
    for i in range(LAYERS)
]


def _nested(model_type: str, **arguments: Any) -> dict[str, Any]:
    """The arguments of a model with a text model inside, as multimodal configs have them."""
    return {"text_config": {**SMALL, "model_type": model_type, **arguments}}


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Klear": {"mlp_only_layers": [0]},
    "afm7": {"hidden_dim": 32, "num_layers": 4, "num_kv_reuse_layers": 2, "num_heads": 4, "num_kv_heads": 2},
    "afmoe": _SLIDING_FULL,
    "apertus": {"post_norm": True, "qk_norm": True},
    "baichuan_m1": {"sliding_window_layers": [0, 2], "conv_window": 2},
    "bailing_hybrid": {"layer_group_size": 2, "group_norm_size": 1},
    "bailing_moe": {},
    "bailing_moe_linear": {"layer_group_size": 2, "group_norm_size": 1},
    "bailing_moe_v3": {"layer_group_size": 2},
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"sliding_window_pattern": 2, "logit_scale": 1.0},
    "dbrx": {
        "d_model": 32,
        "n_layers": 3,
        "n_heads": 4,
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1000.0},
    },
    "deepseek": {},
    "deepseek_v2": {"rope_scaling": _YARN},
    "deepseek_v3": {},
    "deepseek_v32": {},
    "deepseek_v41": {
        "head_dim": 16,
        "o_groups": 2,
        "o_lora_rank": 8,
        "scoring_func": "sqrtsoftplus",
        "rms_norm_eps": 1e-6,
        "compress_ratios": [0, 4, 4, 4],
        "kv_source_layer_ids": [1],
        "index_source_layer_ids": [1, 3],
        "hc_mult": 2,
        "hc_sinkhorn_iters": 3,
    },
    "dots1": {},
    "ernie4_5": {},
    "ernie4_5_moe": {"moe_num_experts": 4},
    "exaone": {"num_layers": 4},
    "exaone4": {"rope_scaling": None, "sliding_window_pattern": "LLGL"},
    "exaone_moe": {"is_moe_layer": [False, True, True, True], **_SLIDING_FULL},
    "falcon_h1": {
        "mamba_chunk_size": 8,
        "mamba_d_head": 8,
        "mamba_d_ssm": 32,
        "mamba_d_state": 8,
        "mamba_n_heads": 4,
        "lm_head_multiplier": 1.0,
    },
    "gear": {"layer_types": ["sliding_attention", "conv_mixer", "full_attention", "conv_mixer"]},
    "gemma": {},
    "gemma2": {},
    "gemma3": _nested("gemma3_text", sliding_window_pattern=2),
    "gemma3_text": {"sliding_window_pattern": 2},
    "gemma3n": _nested("gemma3n", **_GEMMA3N),
    "gemma4": _nested("gemma4_text", **_GEMMA4),
    "gemma4_text": _GEMMA4,
    "glm": {},
    "glm4": {},
    "glm4_moe": {"rope_scaling": None, "use_qk_norm": True},
    "glm4_moe_lite": {},
    "glm_moe_dsa": {"rope_parameters": _ROPES},
    "gpt2": _GPT,
    "gpt_bigcode": {**_GPT, "n_inner": 64},
    "gpt_neox": {"rotary_emb_base": 1000, "rotary_pct": 0.5, "num_key_value_heads": 4},
    "gpt_oss": _SLIDING_FULL,
    "gptj": {**_GPT, "rotary_dim": 4},
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "granitemoehybrid": {
        **_GRANITE,
        "layer_types": ["mamba", "attention"] * 2,
        "shared_intermediate_size": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_proj_bias": False,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_conv_bias": True,
    },
    "helium": {},
    "hunyuan": {
        "moe_topk": 2,
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_qk_norm": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"},
    },
    "hunyuan_v1_dense": {},
    "internlm2": {},
    "internlm3": {},
    "iquestloopcoder": {"loop_num": 2, "loop_window_size": WINDOW, "num_hidden_layers": 2},
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 8,
        "mamba_expand": 2,
    },
    "kimi_k25": _nested("kimi_k2"),
    "kimi_k3": _nested(
        "kimi_linear", linear_attn_config=_KDA, num_experts_per_token=2, attn_res_block_size=2
    ),
    "kimi_linear": {"linear_attn_config": _KDA, "model_max_length": 512},
    "kimi_vl": _nested("deepseek_v3"),
    "laguna": _SLIDING_FULL,
    "lfm2": _LFM2,
    "lfm2-vl": _nested("lfm2", **_LFM2),
    "lfm2_moe": {**_LFM2, "use_expert_bias": True, "num_dense_layers": 1},
    "lille-130m": {"block_size": 512, "n_embd": 64, "n_head": 4, "n_kv_heads": 2, "n_layer": 3},
    "llama": {},
    "llama/window": _SLIDING_FULL,
    "llama4": _nested("llama4_text", **_LLAMA4),
    "llama4_text": {"intermediate_size_mlp": 48, "no_rope_layers": [1, 0, 1, 0], "use_qk_norm": True},
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": {
        **_LONGCAT,
        "ngram_vocab_size_ratio": 4,
        "emb_neighbor_num": 3,
        "emb_split_num": 2,
    },
    "mamba": {"time_step_rank": 4},
    "mamba2": {"num_heads": 8, "time_step_limit": (0.001, 100.0), "time_step_rank": 4, "chunk_size": 8},
    "mellum": {"rope_parameters": _ROPES_BY_TYPE, **_SLIDING_FULL},
    "mimo": {},
    "mimo_v2_flash": _MIMO2,
    "minicpm": _MINICPM,
    "minicpm3": {**_MINICPM, "rope_scaling": _LONGROPE},
    "minimax": {"shared_intermediate_size": 32, "rotary_dim": 4},
    "minimax_m3_vl": _nested(
        "minimax_m3",
        dense_intermediate_size=48,
        shared_intermediate_size=32,
        rotary_dim=4,
        moe_layer_freq=[0, 1, 1, 1],
        sparse_attention_freq=[0, 1, 0, 1],
        index_block_size=4,
        index_topk_blocks=2,
    ),
    "ministral3": {"rope_parameters": _YARN, **_SLIDING_FULL},
    "mistral3": _nested("ministral3", rope_parameters=_YARN, **_SLIDING_FULL),
    "mistral4": {"rope_parameters": _YARN},
    "mixtral": {},
    "muse_glimmer": _SLIDING_FULL,
    "nanbeige": {},
    "nanbeige/loops": {"num_loops": 2, "num_hidden_layers": 2},
    "nanochat": {},
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {"block_configs": _NAS},
    "nemotron_h": {
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "mamba_proj_bias": False,
        "ssm_state_size": 8,
        "hybrid_override_pattern": ["M", "*", "M", "-"],
    },
    "olmo2": {},
    "olmo3": _SLIDING_FULL,
    "olmo_hybrid": {"linear_allow_neg_eigval": True, **_LINEAR_FULL},
    "olmoe": {},
    "openelm": {
        "num_transformer_layers": 3,
        "model_dim": 32,
        "ffn_dim_divisor": 8,
        "num_query_heads": [4] * 3,
        "num_kv_heads": [2] * 3,
        "ffn_multipliers": [1.0, 1.5, 2.0],
    },
    "phi": {},
    "phi3": {"partial_rotary_factor": 1.0},
    "phi3small": {
        "dense_attention_every_n_layers": 2,
        "ff_intermediate_size": 48,
        "gegelu_limit": 20.0,
        "mup_embedding_multiplier": 1.0,
        "mup_width_multiplier": 1.0,
    },
    "phimoe": {"rope_scaling": _LONGROPE},
    "phixtral": {"num_vocab": VOCAB, "model_dim": 32, "num_heads": 4, "num_layers": 3, "rotary_dim": 4},
    "pixtral": _nested("llama"),
    "plamo": {"n_shared_head": 2},
    "plamo2": {
        "hidden_size_per_head": 8,
        "mamba_d_state": 8,
        "mamba_num_heads": 4,
        "mamba_step": 2,
        "mamba_chunk_size": 8,
        "attention_window_size": WINDOW,
    },
    "plamo3": {"window_size": WINDOW, "sliding_window_pattern": 2},
    "qwen": {"kv_channels": 8},
    "qwen2": {},
    "qwen2_moe": {},
    "qwen2_vl": _nested("qwen2"),
    "qwen3": {},
    "qwen3_5": _nested("qwen3_5", num_experts=0),
    "qwen3_5_moe": _nested("qwen3_5_moe"),
    "qwen3_moe": {},
    "qwen3_next": {},
    "qwen3_vl": _nested("qwen3"),
    "qwen3_vl_moe": _nested("qwen3_moe"),
    "recurrent_gemma": {
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "attention_window_size": WINDOW,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "rwkv7": {"a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8, "decay_low_rank_dim": 8},
    "seed_oss": {},
    "smollm3": {},
    "solar_open": {},
    "spark2_5": {"rope_parameters": {"rope_theta": 1000.0, **_ROPES_BY_TYPE}, **_SLIDING_FULL},
    "stablelm": {"use_qkv_bias": False},
    "starcoder2": {},
    "step3p5": {
        "num_attention_groups": 2,
        "moe_num_experts": 4,
        "moe_top_k": 2,
        "share_expert_dim": 32,
        **_SLIDING_FULL,
    },
    "talkie": {},
    "telechat3": {},
    "youtu_llm": {},
}

LEFT_OUT = {
    "bitnet": "its ternary layers are a Metal kernel, which a CPU cannot run",
    "muse_spark": "its attention is a Metal kernel, which a CPU cannot run",
    "olmo": "it needs the package ai2-olmo",
    "prism_hadamard_qwen35": "a 2-bit, 16-bit float repacking of qwen3_5, which is in the table",
}
"""Modules of mlx_lm.models with a model that these tests cannot run, and why."""


def build(name: str, *, seed: int | None = None, **arguments: Any) -> Any:
    """The tiny model of that name. `arguments` replace those of the table, in a text_config too."""
    module_name = name.split("/")[0]
    module = importlib.import_module(f"mlx_lm.models.{module_name}")
    config = copy.deepcopy({**SMALL, "model_type": module_name, **ARCHITECTURES[name], **arguments})
    if "text_config" in config:
        config["text_config"].update(arguments)
    mx.random.seed(SEEDS.get(name, 0) if seed is None else seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    if module_name == "phi3small":
        # The unused ids of its tokenizer lie outside a tiny vocabulary; writing there breaks memory.
        model._dummy_tokenizer_ids = mx.array([VOCAB - 1])
    model.eval()
    _liven(model)
    return model


def perturbed(model: Any, amount: float, *, seed: int = 1) -> Any:
    """A copy whose weights are off by noise of `amount` of their own size: a draft that errs at times."""
    twin = copy.deepcopy(model)
    key = mx.random.key(seed)
    noisy = []
    for name, weights in tree_flatten(model.parameters()):
        key, own = mx.random.split(key)
        size = mx.sqrt(mx.mean(weights * weights))
        noisy.append((name, weights + amount * size * mx.random.normal(weights.shape, key=own)))
    twin.update(tree_unflatten(noisy))
    mx.eval(twin.parameters())
    return twin


def erring_draft(
    model: Any, prompt: Sequence[int], answer: Sequence[int], *, between: tuple[float, float] = (0.45, 0.8)
) -> Any:
    """A perturbed copy that agrees with a share, `between` these two, of a model's greedy `answer`."""
    low, high = 0.0, 1.0
    draft = model
    for _ in range(12):
        amount = (low + high) / 2
        draft = perturbed(model, amount)
        agreement = agreement_on(draft, prompt, answer)
        if between[0] <= agreement <= between[1]:
            break
        low, high = (amount, high) if agreement > between[1] else (low, amount)
    return draft


def agreement_on(draft: Any, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The share of `answer` that a draft would have guessed greedily, each token by itself."""
    from mlxspec.decoding.cache import PromptCache

    tokens = mx.array([*prompt, *answer])
    guesses = mx.argmax(PromptCache(draft).forward(tokens), axis=-1)[len(prompt) - 1 : -1]
    return float((guesses == tokens[len(prompt) :]).mean().item())


def _liven(model: Any) -> None:
    """Float32, larger matrices but for the embedding, and no parameter exactly zero or one."""
    weights = tree_map(lambda array: array.astype(mx.float32), model.parameters())
    lively = []
    for name, array in tree_flatten(weights):
        if array.ndim >= 2 and name.endswith("weight") and mx.any(array != 0):
            # An embedding that is also the output layer would make each token predict itself.
            gain = EMBEDDING_GAIN if "embed" in name or "wte" in name else GAIN
            lively.append((name, array * gain))
        else:
            lively.append((name, array + NOISE * mx.random.normal(array.shape)))
    model.update(tree_unflatten(lively))
    mx.eval(model.parameters())
