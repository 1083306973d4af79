"""GGUF files become mlx-lm model folders; those that cannot say why."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from gguf_files import (
    F16,
    F32,
    HEADS,
    KV_HEADS,
    Q4_0,
    Q4_1,
    Q4_K,
    Q8_0,
    SPECIAL,
    TEMPLATE,
    TOKENS,
    blocks,
    ggml_tensors,
    gguf_bytes,
    interleaved,
    metadata,
    tiny_gguf,
    tiny_model,
    weights,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlxspec.errors import BrokenModel, MlxspecError, NotAModel, NotWritable, UnsupportedModel
from mlxspec.models.gguf import convert
from mlxspec.models.gguf_header import read_header


def converted(folder: Path) -> dict[str, mx.array]:
    arrays = mx.load(str(folder / "model.safetensors"))
    assert isinstance(arrays, dict)
    return arrays


def config_of(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    assert isinstance(config, dict)
    return config


# ---------------------------------------------------------------- weights


def test_weights_get_their_names_and_the_order_of_rows_before_llama_cpp_changed_it(tmp_path: Path) -> None:
    arrays = converted(tiny_model(tmp_path / "m", kind=F32))
    assert arrays.keys() == weights().keys()
    for name, array in weights().items():
        assert np.array_equal(np.array(arrays[name]), array), name


@pytest.mark.parametrize(("kind", "bits"), [(Q4_0, 4), (Q4_1, 4), (Q8_0, 8)])
def test_quantised_blocks_keep_their_values(tmp_path: Path, kind: int, bits: int) -> None:
    folder = tiny_model(tmp_path / "m", kind=kind)
    arrays = converted(folder)
    assert config_of(folder)["quantization"] == {"group_size": 32, "bits": bits, "mode": "affine"}
    for name, array in weights().items():
        if array.ndim == 1:
            continue
        heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
        _, values = blocks(interleaved(array, heads) if heads else array, kind)
        packed, scales, biases = (
            arrays[name.replace("weight", part)] for part in ("weight", "scales", "biases")
        )
        got = mx.dequantize(packed, scales.astype(mx.float32), biases.astype(mx.float32), 32, bits)
        if heads:
            got = mx.array(interleaved(np.array(got), heads))
        np.testing.assert_allclose(np.array(got), values, atol=1e-6, err_msg=name)


def test_norms_become_16_bit_beside_16_bit_weights(tmp_path: Path) -> None:
    arrays = converted(tiny_model(tmp_path / "m", kind=Q4_1))
    assert arrays["model.norm.weight"].dtype == mx.float16
    assert converted(tiny_model(tmp_path / "n", kind=F32))["model.norm.weight"].dtype == mx.float32


# ---------------------------------------------------------------- config


def test_config_says_what_the_metadata_says(tmp_path: Path) -> None:
    config = config_of(tiny_model(tmp_path / "m", kind=F16))
    assert config["rms_norm_eps"] == pytest.approx(1e-5)
    assert {k: v for k, v in config.items() if k not in ("rms_norm_eps", "architectures")} == {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 128,
        "rope_theta": 5000.0,
        "vocab_size": len(TOKENS),
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 0,
    }
    assert json.loads((tmp_path / "m" / "generation_config.json").read_text()) == {"eos_token_id": 0}


def test_a_module_of_another_width_is_named_in_the_config(tmp_path: Path) -> None:
    config = config_of(tiny_model(tmp_path / "m", kind=Q4_1, embedding=Q8_0))
    assert config["quantization"] == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 8, "mode": "affine"},
    }


def test_an_output_matrix_of_its_own_unties_the_embedding(tmp_path: Path) -> None:
    of = weights()
    of["lm_head.weight"] = of["model.embed_tokens.weight"] * 2
    folder = tiny_model(tmp_path / "m", of=of)
    assert config_of(folder)["tie_word_embeddings"] is False
    assert "lm_head.weight" in converted(folder)


# ---------------------------------------------------------------- tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(tiny_model(tmp_path / "m") / "tokenizer.json"))


def texts(tokenizer: Any, text: str) -> list[str]:
    return [str(token) for token in tokenizer.encode(text).tokens]


def test_merges_are_applied_within_words_only(tokenizer: Any) -> None:
    assert texts(tokenizer, "hello world") == ["hello", "Ġw", "o", "r", "l", "d"]


def test_digits_stand_alone(tokenizer: Any) -> None:
    assert texts(tokenizer, "he12 34") == ["he", "1", "2", "Ġ", "3", "4"]


def test_special_tokens_are_one_id_and_nothing_else_is(tokenizer: Any) -> None:
    assert tokenizer.encode("<|start|>he<|end|>").ids == [1, TOKENS.index("he"), 0]
    assert [t.content for t in tokenizer.get_added_tokens_decoder().values()] == SPECIAL


@pytest.mark.parametrize(
    "text", ["naïve café", "日本語 🙂👩‍👩‍👧", "\ttabs\r\n\n  spaces ", "\x00\x7f\u200b", "hello"]
)
def test_every_text_comes_back_as_it_was(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_chat_template_and_roles_of_special_tokens_are_kept(tmp_path: Path) -> None:
    config = json.loads((tiny_model(tmp_path / "m") / "tokenizer_config.json").read_text())
    assert config["chat_template"] == TEMPLATE
    assert (config["bos_token"], config["eos_token"]) == ("<|start|>", "<|end|>")
    assert "pad_token" not in config


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general__architecture": "qwen2"}, "qwen2"),
        ({"general__architecture": None}, "None"),
        ({"tokenizer__ggml__model": "llama"}, "llama"),
        ({"tokenizer__ggml__pre": "llama-bpe"}, "llama-bpe"),
        ({"llama__rope__scaling__type": "yarn"}, "yarn"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        convert(tiny_gguf(tmp_path / "m.gguf", **changes), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_an_unsupported_tensor_type_is_named_with_its_tensor(tmp_path: Path) -> None:
    data = bytearray(tiny_gguf(tmp_path / "m.gguf", kind=F32).read_bytes())
    name = b"blk.1.ffn_up.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8
    assert struct.unpack_from("<I", data, at) == (F32,)
    struct.pack_into("<I", data, at, Q4_K)
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.ffn_up\.weight.*Q4_K"):
        convert(tmp_path / "m.gguf", tmp_path / "m")


def test_a_tensor_that_llama_has_not_is_named(tmp_path: Path) -> None:
    tensors = {name: (array, F32) for name, array in ggml_tensors(weights()).items()}
    tensors["rope_freqs.weight"] = (np.ones(16, np.float32), F32)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata(), tensors))
    with pytest.raises(UnsupportedModel, match="rope_freqs"):
        convert(tmp_path / "m.gguf", tmp_path / "m")


@pytest.mark.parametrize(
    "changes",
    [
        {"llama__context_length": None},
        {"llama__attention__head_count": "two"},
        {"llama__attention__head_count": 7},
        {"tokenizer__ggml__tokens": None},
        {"tokenizer__ggml__token_type": [3]},
        {"tokenizer__ggml__merges": ["h e", "he xx"]},
        {"tokenizer__ggml__merges": ["alone"]},
        {"tokenizer__ggml__eos_token_id": 99_999},
    ],
)
def test_contradictions_are_said_to_be_damage(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(BrokenModel):
        convert(tiny_gguf(tmp_path / "m.gguf", **changes), tmp_path / "m")


def test_a_file_that_was_cut_short_anywhere_is_broken(tmp_path: Path) -> None:
    whole = tiny_gguf(tmp_path / "m.gguf", kind=Q4_1).read_bytes()
    for length in [*range(0, 400, 7), *range(400, len(whole) - 1, 997), len(whole) - 32]:
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(BrokenModel):
            read_header(tmp_path / "cut.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04" + bytes(100), b"GGUF" + b"\xff" * 100])
def test_a_foreign_file_is_broken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises((BrokenModel, UnsupportedModel)):
        convert(tmp_path / "m.gguf", tmp_path / "m")


def test_a_missing_file_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="nothing"):
        convert(tmp_path / "nothing.gguf", tmp_path / "m")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(NotWritable, match="taken"):
        convert(tiny_gguf(tmp_path / "m.gguf"), tmp_path / "taken" / "m")


@given(flips=st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_header_ends_in_an_error_of_ours_or_in_a_model(
    tmp_path: Path, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(tiny_gguf(tmp_path / "whole.gguf").read_bytes())
    for at, value in flips:
        data[at] = value
    (tmp_path / "m.gguf").write_bytes(data)
    with contextlib.suppress(MlxspecError):
        convert(tmp_path / "m.gguf", tmp_path / "m")


# ---------------------------------------------------------------- the real default model

SYSTEM = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712]
QUESTION = [8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3003, 3695, 282, 260, 2388, 47, 2, 198, 1, 520]
ANSWER = [504, 3003, 3695, 282, 260, 2388, 314, 260, 5430, 506, 2261, 14091, 28, 527, 314, 260, 44416, 4070]
ASSISTANT = [9531, 198]
REST = [282, 260, 5430, 506, 5264, 30, 2]


def test_the_default_model_answers_as_it_did_elsewhere(default_model: Path) -> None:
    """Ids recorded from this model in another program, at a temperature near 0."""
    from mlxspec.models.loading import load_model

    loaded = load_model("smollm2-135m", default_model)
    prompt = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the primary location of the sun?"}], add_generation_prompt=True
    )
    assert prompt == SYSTEM + QUESTION + ASSISTANT
    answer = ANSWER + REST
    logits = loaded.model(mx.array([prompt + answer]))[0, len(prompt) - 1 : -1]
    assert mx.argmax(logits, axis=-1).tolist() == answer
    assert loaded.tokenizer.decode(answer) == (
        "The primary location of the sun is the Sun's photosphere, "
        "which is the outermost layer of the Sun's atmosphere.<|im_end|>"
    )


def test_the_default_tokenizer_cuts_text_as_the_original_does(default_model: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(default_model / "tokenizer.json"))
    text = "Give me a concise summary of the article in 150 words or less and no more than 50 words."
    recorded = [26533, 549, 253, 19484, 7127, 282, 260, 2524, 281, 216, 33, 37, 32, 1924, 355, 1181, 284, 787]
    assert tokenizer.encode(text).ids == [*recorded, 540, 670, 216, 37, 32, 1924, 30]
