"""A model folder is loaded whole, or one sentence says why not."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx
import mlx.nn as nn
import pytest
from gguf_files import Q4_1, Q8_0, TOKENS, tiny_model
from mlx.utils import tree_flatten

from mlxspec.errors import BrokenModel, ModelError, NotAModel, OutOfMemory, UnsupportedModel
from mlxspec.models import loading
from mlxspec.models.loading import load_model
from mlxspec.models.model_limits import FALLBACK_CONTEXT_TOKENS, context_tokens, sampling_defaults


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, 4-bit with an 8-bit embedding as the default model is."""
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model", kind=Q4_1, embedding=Q8_0)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model to do harm to."""
    return Path(shutil.copytree(made, tmp_path / "model"))


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


def logits(model: Any) -> mx.array:
    return model(mx.array([[5, 9, 200, 17]])).astype(mx.float32)


# ---------------------------------------------------------------- what is loaded


def test_the_facts_about_a_model_are_in_one_place(folder: Path) -> None:
    change(folder / "generation_config.json", temperature=0.2, top_p=0.9, eos_token_id=[0, 7])
    loaded = load_model("tiny", folder)
    assert (loaded.name, loaded.folder) == ("tiny", folder)
    assert loaded.config["model_type"] == "llama"
    assert loaded.vocab_size == len(TOKENS)
    assert loaded.context_tokens == 128
    assert loaded.defaults == {"temperature": 0.2, "top_p": 0.9}
    assert loaded.has_chat_template
    assert loaded.eos_ids == {0, 7}
    assert loaded.weight_bytes == sum(a.nbytes for _, a in tree_flatten(loaded.model.parameters()))


def test_a_model_without_a_template_says_so(folder: Path) -> None:
    change(folder / "tokenizer_config.json", chat_template=None)
    assert not load_model("tiny", folder).has_chat_template


def test_the_vocabulary_is_as_wide_as_the_logits_whatever_the_tokenizer_holds(folder: Path) -> None:
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    for part in ("weight", "scales", "biases"):
        name = f"model.embed_tokens.{part}"
        padding = mx.zeros((57, weights[name].shape[1]), weights[name].dtype)
        weights[name] = mx.concatenate([weights[name], padding])
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    change(folder / "config.json", vocab_size=len(TOKENS) + 57)
    loaded = load_model("tiny", folder)
    assert loaded.vocab_size == len(TOKENS) + 57
    assert len(loaded.tokenizer) == len(TOKENS)


def test_weights_become_float32_where_the_device_wants_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "dequantise_on_this_device", lambda: True)
    model = load_model("tiny", folder).model
    assert {array.dtype for _, array in tree_flatten(model.parameters())} == {mx.float32}
    assert not any(isinstance(m, nn.QuantizedLinear | nn.QuantizedEmbedding) for m in model.modules())


def test_dequantised_weights_are_not_rounded_to_16_bits_in_between(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "dequantise_on_this_device", lambda: True)
    stored: Any = mx.load(str(folder / "model.safetensors"))
    name = "model.layers.0.mlp.up_proj"
    packed, scales, biases = (stored[f"{name}.{part}"] for part in ("weight", "scales", "biases"))
    exact = mx.dequantize(packed, scales.astype(mx.float32), biases.astype(mx.float32), 32, 4)
    assert mx.array_equal(load_model("tiny", folder).model.model.layers[0].mlp.up_proj.weight, exact)


def test_weights_stay_as_stored_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "dequantise_on_this_device", lambda: True)
    float32 = logits(load_model("tiny", folder).model)
    monkeypatch.setattr(loading, "dequantise_on_this_device", lambda: False)
    model = load_model("tiny", folder).model
    assert isinstance(model.layers[0].mlp.up_proj, nn.QuantizedLinear)
    assert mx.allclose(logits(model), float32, atol=0.05)


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4", "mxfp8", "affine"])
def test_every_kind_of_quantisation_becomes_float32(
    folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "dequantise_on_this_device", lambda: True)
    model = load_model("tiny", folder).model
    group, bits = {"mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8), "affine": (64, 3)}[mode]
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, group_size=group, bits=bits, mode=mode, class_predicate=_wide)
    expected = logits(model)
    model.save_weights(str(folder / "model.safetensors"))
    change(folder / "config.json", quantization={"group_size": group, "bits": bits, "mode": mode})
    loaded = load_model("tiny", folder).model
    assert {array.dtype for _, array in tree_flatten(loaded.parameters())} == {mx.float32}
    assert mx.allclose(logits(loaded), expected, atol=0.1)


def _wide(_name: str, module: nn.Module) -> bool:
    """Whether a module has rows that every kind of quantisation can divide."""
    return isinstance(module, nn.Linear) and module.weight.shape[1] % 64 == 0


def test_no_connection_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")

    def refuse(*_arguments: Any) -> NoReturn:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert load_model("tiny", folder).vocab_size == len(TOKENS)


def test_loading_and_long_prompts_print_nothing(folder: Path) -> None:
    program = (
        "from pathlib import Path; from mlxspec.models.loading import load_model; "
        f"loaded = load_model('m', Path({str(folder)!r})); loaded.tokenizer.encode('hello ' * 500)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "")


# ---------------------------------------------------------------- what is not


def cut(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


@pytest.mark.parametrize("keep", [0, 0.0001, 0.01, 0.5, 0.999])
def test_half_a_weight_file_is_broken(folder: Path, keep: float) -> None:
    cut(folder / "model.safetensors", keep)
    with pytest.raises(BrokenModel, match=r"model\.safetensors is damaged or was cut short"):
        load_model("tiny", folder)


def test_a_weight_file_that_was_resumed_in_the_wrong_place_is_broken(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"again")
    with pytest.raises(BrokenModel, match="damaged"):
        load_model("tiny", folder)


def test_a_weight_file_of_noise_is_broken(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x10" + bytes(7) + b"no json here, but 16" * 50)
    with pytest.raises(BrokenModel):
        load_model("tiny", folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    change(folder / "model.safetensors.index.json", weight_map=shards)
    with pytest.raises(BrokenModel, match="model-00002-of-00002"):
        load_model("tiny", folder)


def test_pickled_weights_are_not_loaded(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(NotAModel, match=r"\.bin"):
        load_model("tiny", folder)


def test_a_folder_without_a_model_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="missing"):
        load_model("tiny", tmp_path / "missing")
    with pytest.raises(NotAModel, match=r"config\.json"):
        load_model("tiny", tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model_type": 3}', "\xff\xfe"])
def test_a_damaged_config_is_named(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(BrokenModel, match=r"config\.json is damaged"):
        load_model("tiny", folder)


@pytest.mark.parametrize("model_type", ["gpt5", "cache", "base", "..os"])
def test_an_architecture_that_mlx_lm_lacks_is_named(folder: Path, model_type: str) -> None:
    change(folder / "config.json", model_type=model_type)
    with pytest.raises(UnsupportedModel, match=f"of the type {model_type}"):
        load_model("tiny", folder)


@pytest.mark.parametrize(
    "values",
    [{"hidden_size": 128}, {"num_hidden_layers": 3}, {"num_hidden_layers": 1}, {"hidden_size": None}],
)
def test_weights_that_do_not_fit_the_config_are_broken(folder: Path, values: dict[str, Any]) -> None:
    change(folder / "config.json", **values)
    with pytest.raises(BrokenModel, match=r"do not fit"):
        load_model("tiny", folder)


def test_code_of_the_models_own_is_never_run(folder: Path) -> None:
    (folder / "model.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    change(folder / "config.json", model_file="model.py")
    with pytest.raises(UnsupportedModel, match=r"model\.py"):
        load_model("tiny", folder)
    assert not (folder / "ran").exists()


def test_code_of_the_tokenizers_own_is_never_run(folder: Path) -> None:
    (folder / "tok.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    change(
        folder / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map={"AutoTokenizer": ["tok.OwnTokenizer", None]},
    )
    with pytest.raises(UnsupportedModel, match="program code"):
        load_model("tiny", folder)
    assert not (folder / "ran").exists()


def test_a_missing_tokenizer_is_said(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="tokenizer"):
        load_model("tiny", folder)


@pytest.mark.parametrize("content", ["", "{}", "null", '{"model": {"type": "Nothing"}}'])
def test_a_damaged_tokenizer_is_broken(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(BrokenModel, match="tokenizer"):
        load_model("tiny", folder)


def test_too_little_memory_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any) -> NoReturn:
        raise RuntimeError(
            "[metal::malloc] Attempting to allocate 99 bytes which is greater than the maximum"
        )

    monkeypatch.setattr(mx, "eval", refuse)
    with pytest.raises(OutOfMemory, match="tiny"):
        load_model("tiny", folder)


def test_messages_are_one_line_and_say_what_to_do(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(BrokenModel) as caught:
        load_model("tiny", folder)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.hint


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 8192}, "max_position_embeddings": 77}, 8192),
        ({"text_config": {}, "max_position_embeddings": 77}, 77),
        # Qwen: the length before scaling.
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
            },
            131072,
        ),
        # Llama 3.1: the length after it.
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {
                    "factor": 8.0,
                    "original_max_position_embeddings": 8192,
                    "rope_type": "llama3",
                },
            },
            131072,
        ),
        # Gemma 3: no length of its own beside the factor.
        ({"max_position_embeddings": 131072, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, 131072),
        ({"max_position_embeddings": "many"}, FALLBACK_CONTEXT_TOKENS),
        ({}, FALLBACK_CONTEXT_TOKENS),
    ],
)
def test_the_context_is_what_the_config_says(config: dict[str, Any], tokens: int) -> None:
    assert context_tokens(config) == tokens


@pytest.mark.parametrize(
    ("generation_config", "defaults"),
    [
        ({}, {}),
        ({"temperature": 0.6, "top_k": 20, "max_length": 9}, {"temperature": 0.6, "top_k": 20.0}),
        ({"temperature": None, "top_p": True, "repetition_penalty": 1.05}, {"repetition_penalty": 1.05}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"temperature": -1, "top_p": 2, "min_p": float("nan"), "top_k": "all"}, {}),
    ],
)
def test_sampling_defaults_are_what_makes_sense_of_the_generation_config(
    generation_config: dict[str, Any], defaults: dict[str, float]
) -> None:
    assert sampling_defaults(generation_config) == defaults
