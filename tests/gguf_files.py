"""Tiny GGUF files written byte by byte, and the model folders made from them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlxspec.models.gguf import convert

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, LAYERS = 64, 2, 1, 32, 96, 2
ALIGNMENT = 32

# ggml's numbers for its tensor types.
F32, F16, Q4_0, Q4_1, Q8_0, Q4_K = 0, 1, 2, 3, 8, 12


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the bytes 0..255, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


MERGES = ["1 2", "Ġ 3", "h e", "l l", "he ll", "hell o", "Ġ w"]
SPECIAL = ["<|end|>", "<|start|>"]
TOKENS = [*SPECIAL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
TEMPLATE = "{% for m in messages %}{{ '<|start|>' + m['content'] + '<|end|>' }}{% endfor %}"


def metadata(**changes: Any) -> dict[str, Any]:
    """The metadata of a llama with a byte-level tokenizer. `a__b=` sets the key `a.b`; None removes it."""
    pairs: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INTERMEDIATE,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 5000.0,
        "llama.rope.dimension_count": HEAD_DIM,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": TEMPLATE,
    }
    pairs.update({key.replace("__", "."): value for key, value in changes.items()})
    return {key: value for key, value in pairs.items() if value is not None}


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights of the tiny llama under mlx-lm's names, rows in mlx-lm's order."""
    random = np.random.default_rng(seed)
    shapes = {"model.embed_tokens": (len(TOKENS), HIDDEN), "model.norm": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {
            f"model.layers.{i}.input_layernorm": (HIDDEN,),
            f"model.layers.{i}.post_attention_layernorm": (HIDDEN,),
            f"model.layers.{i}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"model.layers.{i}.mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            f"model.layers.{i}.mlp.up_proj": (INTERMEDIATE, HIDDEN),
            f"model.layers.{i}.mlp.down_proj": (HIDDEN, INTERMEDIATE),
        }
    return {
        f"{name}.weight": (random.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in shapes.items()
    }


_GGML_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "model.layers": "blk",
}  # fmt: skip


def ggml_tensors(of: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same weights as llama.cpp's converter names and orders them."""
    tensors = {}
    for name, array in of.items():
        for ours, ggml in _GGML_NAMES.items():
            name = name.replace(ours, ggml)
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
        tensors[name] = interleaved(array, heads) if heads else array
    return tensors


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of q and k: in every head row i of the first half, then row i of the second."""
    result = np.empty_like(rows)
    size = rows.shape[0] // heads
    for head in range(heads):
        start = head * size
        for i in range(size // 2):
            result[start + 2 * i] = rows[start + i]
            result[start + 2 * i + 1] = rows[start + size // 2 + i]
    return result


def blocks(array: np.ndarray, kind: int) -> tuple[bytes, np.ndarray]:
    """ggml's blocks of 32 of an array, and the float32 values that they stand for."""
    groups = array.reshape(-1, 32).astype(np.float32)
    if kind == Q8_0:
        scale = (np.abs(groups).max(1) / 127).astype(np.float16)
        q = np.rint(groups / scale[:, None].astype(np.float32)).clip(-127, 127).astype(np.int8)
        values = q * scale[:, None].astype(np.float32)
        data = b"".join(s.tobytes() + row.tobytes() for s, row in zip(scale, q, strict=True))
        return data, values.reshape(array.shape)
    low = groups.min(1)
    scale = ((groups.max(1) - low) / 15).astype(np.float16)
    if kind == Q4_0:
        low = scale.astype(np.float32) * -8
    low16 = low.astype(np.float16)
    wide = scale[:, None].astype(np.float32)
    q = np.rint((groups - low16[:, None].astype(np.float32)) / wide).clip(0, 15).astype(np.uint8)
    packed = q[:, :16] | q[:, 16:] << 4
    values = q * wide + low16[:, None].astype(np.float32)
    heads = [s.tobytes() + (m.tobytes() if kind == Q4_1 else b"") for s, m in zip(scale, low16, strict=True)]
    data = b"".join(head + row.tobytes() for head, row in zip(heads, packed, strict=True))
    return data, values.reshape(array.shape)


def encoded(array: np.ndarray, kind: int) -> bytes:
    """An array as a tensor of this type is stored."""
    if kind in (F32, F16):
        return array.astype({F32: np.float32, F16: np.float16}[kind]).tobytes()
    return blocks(array, kind)[0]


def gguf_bytes(pairs: Mapping[str, Any], tensors: Mapping[str, tuple[np.ndarray, int]]) -> bytes:
    """A GGUF file of version 3: metadata, and tensors each with its type."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, value in pairs.items():
        head += _text(key) + _value(value)
    body = b""
    for name, (array, kind) in tensors.items():
        data = encoded(array, kind)
        dims = array.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(body))
        body += data + bytes(-len(data) % ALIGNMENT)
    return head + bytes(-len(head) % ALIGNMENT) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if value and isinstance(value[0], int):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_text(text) for text in value)


def tiny_gguf(
    path: Path,
    *,
    kind: int = F32,
    embedding: int | None = None,
    of: Mapping[str, np.ndarray] | None = None,
    **changes: Any,
) -> Path:
    """Write the tiny llama: matrices of type `kind`, the embedding of type `embedding`, norms in F32."""
    tensors = {}
    for name, array in ggml_tensors(weights() if of is None else of).items():
        matrix = (kind if embedding is None else embedding) if name == "token_embd.weight" else kind
        tensors[name] = (array, matrix if array.ndim > 1 else F32)
    path.write_bytes(gguf_bytes(metadata(**changes), tensors))
    return path


def tiny_model(folder: Path, *, kind: int = F32, **changes: Any) -> Path:
    """A model folder of the tiny llama."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf = tiny_gguf(folder / "tiny.gguf", kind=kind, **changes)
    convert(gguf, folder)
    gguf.unlink()
    return folder
