"""A GGUF file of a llama model -> a model folder that mlx-lm reads.

The weights stay quantised as they are: MLX reads ggml's 4-bit and 8-bit blocks as its own affine
quantisation with groups of 32.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from mlxspec.errors import BrokenModel, UnsupportedModel
from mlxspec.models.cache_folder import cannot_write
from mlxspec.models.gguf_header import GgufHeader, read_header
from mlxspec.models.gguf_tokenizer import tokenizer_config_json, tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import mlx.core as mx

GROUP_SIZE = 32  # weights that share a scale, in every type of ggml's that MLX reads
_BITS = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHER_FORMAT = "Use the model's safetensors version, for example from mlx-community on the Hub."
_FETCH_AGAIN = "Remove the file and fetch it again."


def convert(gguf: Path, folder: Path) -> None:
    """Make the model folder `folder` from the file `gguf`.

    It gets config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
    generation_config.json. One that is interrupted leaves some of them: use a temporary folder.

    Raises:
        NotAModel: there is no such file.
        BrokenModel: the file is damaged, cut short or no GGUF file.
        UnsupportedModel: another architecture, tokenizer or tensor type; the message names it.
        NotWritable: the folder cannot be written.
    """
    header = read_header(gguf)
    files = {
        "config.json": config_json(header, gguf),
        "tokenizer.json": tokenizer_json(header.metadata, gguf),
        "tokenizer_config.json": tokenizer_config_json(header.metadata, gguf),
        "generation_config.json": _generation_config_json(header.metadata),
    }
    weights = _weights(gguf, header)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
        _save(weights, folder / "model.safetensors")
    except OSError as error:
        raise cannot_write(folder, error) from error


def config_json(header: GgufHeader, path: Path) -> dict[str, Any]:
    """mlx-lm's config.json of a llama model.

    Raises:
        UnsupportedModel: another architecture or a variant of llama that is not llama's plain form.
        BrokenModel: a value is missing.
    """
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModel(
            f"{path} holds a model of the architecture {architecture}; supported is llama.",
            hint=_OTHER_FORMAT,
        )
    if metadata.get("llama.rope.scaling.type", "none") != "none":
        raise UnsupportedModel(
            f"{path} scales its positions ({metadata['llama.rope.scaling.type']}), "
            "which is not supported in GGUF files.",
            hint=_OTHER_FORMAT,
        )
    modules = {tensor.name.removesuffix(".weight"): tensor for tensor in header.tensors}
    names = {module: _mlx_name(module, path) for module in modules}
    if "token_embd" not in modules:
        raise BrokenModel(f"{path} has no tensor token_embd.", hint=_FETCH_AGAIN)
    heads = _whole_number(header, "llama.attention.head_count", path)
    hidden = _whole_number(header, "llama.embedding_length", path)
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": _whole_number(header, "llama.feed_forward_length", path),
        "num_hidden_layers": _whole_number(header, "llama.block_count", path),
        "num_attention_heads": heads,
        "num_key_value_heads": _whole_number(header, "llama.attention.head_count_kv", path, heads),
        "head_dim": _whole_number(header, "llama.rope.dimension_count", path, hidden // heads),
        "max_position_embeddings": _whole_number(header, "llama.context_length", path),
        "rms_norm_eps": metadata.get("llama.attention.layer_norm_rms_epsilon", 1e-5),
        "rope_theta": metadata.get("llama.rope.freq_base", 10000.0),
        "vocab_size": modules["token_embd"].shape[0],
        "tie_word_embeddings": "output" not in modules,
    }
    for role in ("bos", "eos"):
        if (token_id := metadata.get(f"tokenizer.ggml.{role}_token_id")) is not None:
            config[f"{role}_token_id"] = token_id
    bits = {names[module]: _BITS[tensor.type] for module, tensor in modules.items() if tensor.type in _BITS}
    if bits:
        config["quantization"] = _quantisation(bits)
    return config


def _whole_number(header: GgufHeader, key: str, path: Path, default: int | None = None) -> int:
    """A positive whole number of the metadata."""
    value = header.metadata.get(key, default)
    if not isinstance(value, int) or value < 1:
        raise BrokenModel(f"{path} does not say {key}, or not as a positive number.", hint=_FETCH_AGAIN)
    return value


def _quantisation(bits: Mapping[str, int]) -> dict[str, Any]:
    """The commonest width for all modules, and an entry for each module of another width."""
    (common, _), *_ = Counter(bits.values()).most_common(1)
    others = {
        name: {"group_size": GROUP_SIZE, "bits": width, "mode": "affine"}
        for name, width in bits.items()
        if width != common
    }
    return {"group_size": GROUP_SIZE, "bits": common, "mode": "affine", **others}


def _generation_config_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    return {} if eos is None else {"eos_token_id": eos}


def _weights(path: Path, header: GgufHeader) -> dict[str, mx.array]:
    """The tensors under mlx-lm's names; rows of q and k in mlx-lm's order."""
    import mlx.core as mx

    heads = _whole_number(header, "llama.attention.head_count", path)
    rows_of_heads = {
        "attn_q": heads,
        "attn_k": _whole_number(header, "llama.attention.head_count_kv", path, heads),
    }
    try:
        loaded: Any = mx.load(str(path), format="gguf")
    except (RuntimeError, ValueError) as error:
        raise BrokenModel(f"{path} cannot be read as a GGUF file.", hint=_FETCH_AGAIN) from error
    half = any(name.endswith(".scales") or array.dtype == mx.float16 for name, array in loaded.items())
    weights = {}
    for name, array in loaded.items():
        module, _, part = name.rpartition(".")
        if head_count := rows_of_heads.get(module.rpartition(".")[2]):
            if array.shape[0] % (2 * head_count):
                raise BrokenModel(f"{path}: {name} has no whole heads.", hint=_FETCH_AGAIN)
            array = _unpermuted(array, head_count)
        if half and array.dtype == mx.float32:
            # A float32 norm would make every activation after it float32.
            array = array.astype(mx.float16)
        weights[f"{_mlx_name(module, path)}.{part}"] = array
    return weights


def _unpermuted(rows: mx.array, heads: int) -> mx.array:
    """Undo llama.cpp's order of q's and k's rows: in each head the two halves are interleaved."""
    per_head = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, head_dim / 2, half, ...]
    return per_head.swapaxes(1, 2).reshape(rows.shape)


def _mlx_name(module: str, path: Path) -> str:
    """`blk.3.attn_q` -> `model.layers.3.self_attn.q_proj`."""
    if module in _TOP:
        return _TOP[module]
    if (match := re.fullmatch(r"blk\.(\d+)\.(\w+)", module)) and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}"
    raise UnsupportedModel(f"{path} has a tensor {module} that no plain llama has.", hint=_OTHER_FORMAT)


def _save(weights: dict[str, mx.array], path: Path) -> None:
    import mlx.core as mx

    try:
        mx.save_safetensors(str(path), weights, metadata={"format": "mlx"})
    except RuntimeError as error:
        raise OSError(str(error)) from error
