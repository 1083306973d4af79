"""What each layer of a model keeps of the tokens before, read off its config.json.

The plan follows mlx-lm's `make_cache`: which layers hold all tokens, which a window of them, which a
state of constant size. Where a config does not say, a layer counts as holding all tokens, so that an
estimate is too high rather than too low.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlxspec.models.model_limits import text_config

if TYPE_CHECKING:
    from collections.abc import Mapping

QUANTISED_GROUP = 64  # numbers that share a scale and a bias in a quantised cache
_STEP = 256  # mlx-lm enlarges a cache by so many rows at a time
_STATE_BYTES = 4  # recurrent states are float32

# Models whose sliding layers mlx-lm keeps in a window; other models keep all tokens in every layer.
_WINDOWED = frozenset(
    {
        "cohere2", "exaone4", "gemma3", "gemma3_text", "gemma3n", "gemma4", "gemma4_text",
        "gpt_oss", "llama", "ministral3", "mistral", "olmo3",
    }
)  # fmt: skip

# Models that keep one compressed row a token instead of keys and values of every head.
_LATENT = frozenset(
    {
        "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "joyai_llm_flash", "kimi_k2",
        "mistral4",
    }
)  # fmt: skip

# Numbers that configs of these models may leave out, as mlx-lm fills them in.
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "gemma3": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window_pattern": 6,
    },
    "gemma3_text": {
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
}

_STATE_LAYERS = ("linear_attention", "mamba", "conv", "recurrent")


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer: `row` numbers a token, at most `window` tokens (None: all), and a constant state."""

    row: int = 0
    window: int | None = None
    state_bytes: int = 0

    def bytes(self, tokens: int, number_bytes: int, *, chunk: int, kv_bits: int | None) -> int:
        """Bytes at `tokens` tokens, read in passes of `chunk` rows, each number `number_bytes` wide.

        `kv_bits` quantises the layers that hold all tokens, as mlx-lm does.
        """
        if self.window is not None:
            return self.state_bytes + min(tokens, self.window + chunk - 1) * self.row * number_bytes
        rows = -(-tokens // _STEP) * _STEP
        if kv_bits is None:
            return self.state_bytes + rows * self.row * number_bytes
        scales = self.row // QUANTISED_GROUP * 2 * number_bytes
        return self.state_bytes + rows * (self.row * kv_bits // 8 + scales)


def cache_plan(config: Mapping[str, Any]) -> tuple[LayerCache, ...]:
    """The caches that a model of this config.json keeps, one entry a layer that keeps anything."""
    model_type = str(config.get("model_type"))
    text = {**_LEFT_OUT.get(model_type, {}), **text_config(config)}
    kinds = _layer_kinds(text)
    kinds = kinds[: len(kinds) - _number(text, "num_kv_shared_layers")]
    kinds *= _number(text, "num_loops", "loop_num") or 1
    window = _number(text, "sliding_window") if model_type in _WINDOWED else 0
    state = LayerCache(state_bytes=_state_bytes(text))
    plan = []
    for kind in kinds:
        if kind in _STATE_LAYERS:
            plan.append(state)
        elif kind == "both":
            plan.append(LayerCache(row=_row(text), state_bytes=state.state_bytes))
        elif kind == "sliding_attention" and window:
            plan.append(LayerCache(row=_row(text), window=window))
        else:
            plan.append(LayerCache(row=_global_row(text)))
    return tuple(plan)


def _layer_kinds(text: Mapping[str, Any]) -> list[str]:
    """The kind of each layer, in transformers' words; layers without any cache are left out."""
    count = _number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
    if isinstance(pattern := text.get("hybrid_override_pattern"), str | list):
        return [{"M": "mamba", "*": "full_attention"}[mark] for mark in pattern if mark in "M*"]
    named = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(named, list):
        return [str(kind) for kind in named]
    if text.get("model_type") == "falcon_h1":
        return ["both"] * count
    if str(text.get("model_type")).startswith("mamba"):
        return ["mamba"] * count
    if (every := _number(text, "full_attention_interval", "sliding_window_pattern")) > 1:
        other = "linear_attention" if "full_attention_interval" in text else "sliding_attention"
        return ["full_attention" if i % every == every - 1 else other for i in range(count)]
    if period := _number(text, "attn_layer_period"):
        offset = _number(text, "attn_layer_offset")
        return ["full_attention" if i % period == offset else "mamba" for i in range(count)]
    return ["full_attention"] * count


def _row(text: Mapping[str, Any]) -> int:
    """Numbers of keys and values that one token adds to one attention layer."""
    heads = _number(text, "num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
    index = 2 * _number(text, "index_head_dim")  # what sparse attention looks its tokens up with
    if latent := _number(text, "kv_lora_rank"):
        rope = _number(text, "qk_rope_head_dim")
        if text.get("model_type") in _LATENT:
            return latent + rope + index
        key = _number(text, "qk_nope_head_dim") + rope
        return heads * (key + (_number(text, "v_head_dim") or key))
    width = _number(text, "hidden_size", "n_embd", "d_model", "dim", "model_dim", "hidden_dim")
    size = _number(text, "head_dim") or (width // heads if heads else width)
    key_heads = _number(text, "num_key_value_heads", "num_kv_heads", "n_kv_heads") or heads or 1
    return 2 * size * key_heads + index


def _global_row(text: Mapping[str, Any]) -> int:
    """As `_row`, for layers that see all tokens: Gemma 4 gives them heads of another size."""
    heads, size = _number(text, "num_global_key_value_heads"), _number(text, "global_head_dim")
    if not size:
        return _row(text)
    return 2 * size * (heads or _number(text, "num_key_value_heads") or 1)


def _state_bytes(text: Mapping[str, Any]) -> int:
    """Bytes of a recurrent layer's state and of the tokens that its convolution still needs."""
    if value_heads := _number(text, "linear_num_value_heads"):
        value_size, key_size = _number(text, "linear_value_head_dim"), _number(text, "linear_key_head_dim")
        wide = 2 * _number(text, "linear_num_key_heads") * key_size + value_heads * value_size
        state = value_heads * value_size * key_size
        kernel = _number(text, "linear_conv_kernel_dim")
    elif kernel := _number(text, "conv_L_cache"):
        wide, state = _number(text, "hidden_size"), 0
    else:
        heads = _number(text, "mamba_n_heads", "mamba_num_heads", "num_heads")
        size = _number(text, "mamba_d_head", "mamba_head_dim", "head_dim")
        hidden = _number(text, "hidden_size", "d_model")
        inner = heads * size or (_number(text, "mamba_expand", "expand") or 2) * hidden
        depth = _number(text, "mamba_d_state", "ssm_state_size", "state_size", "d_state")
        groups = _number(text, "mamba_n_groups", "n_groups") or 1
        wide, state = inner + 2 * groups * depth, inner * depth
        kernel = _number(text, "mamba_d_conv", "conv_kernel", "d_conv") or 4
    return (state + max(kernel - 1, 0) * wide) * _STATE_BYTES


def _number(text: Mapping[str, Any], *keys: str) -> int:
    """The first of these that the config gives as a positive whole number, else 0; of a list the largest."""
    for key in keys:
        value = text.get(key)
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        if isinstance(value, int) and value > 0:
            return value
    return 0
