"""A GGUF file's tokenizer as the files that transformers reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxspec.errors import BrokenModel, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CONTROL, _USER_DEFINED = 3, 4

# How text is cut before merging, by the name that llama.cpp gives the pre-tokenizer.
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}

_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def tokenizer_json(metadata: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The content of tokenizer.json: byte-level BPE with the file's merges and special tokens.

    Raises:
        UnsupportedModel: another kind of tokenizer; the message names it.
        BrokenModel: the tokenizer's parts are missing or do not fit together.
    """
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise UnsupportedModel(
            f"{path} has the tokenizer {model} with the pre-tokenizer {pre}; "
            f"supported is gpt2 with {', '.join(_PRE_TOKENIZERS)}.",
            hint="Use the model's safetensors version, for example from mlx-community on the Hub.",
        )
    tokens = _tokens(metadata, path)
    types = metadata.get("tokenizer.ggml.token_type", [])
    merges = [merge.split(" ") for merge in metadata.get("tokenizer.ggml.merges", [])]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if (
        len(types) != len(tokens)
        or len(vocabulary) != len(tokens)
        or any(len(pair) != 2 or "".join(pair) not in vocabulary for pair in merges)
    ):
        raise BrokenModel(
            f"The tokenizer in {path} does not fit together.", hint="Remove the file and fetch it again."
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind == _CONTROL,
            }
            for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[pre]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def tokenizer_config_json(metadata: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json: special tokens and the chat template.

    Raises:
        BrokenModel: a special token's id is no token.
    """
    tokens = _tokens(metadata, path)
    config: dict[str, Any] = {
        # The class that reads tokenizer.json as it stands; a model's own class would rebuild it.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        "model_max_length": metadata.get(f"{metadata['general.architecture']}.context_length"),
    }
    for role, key in _ROLES.items():
        if (token_id := metadata.get(f"tokenizer.ggml.{key}")) is None:
            continue
        if not 0 <= token_id < len(tokens):
            raise BrokenModel(
                f"The {role} in {path} is no token of it.", hint="Remove the file and fetch it again."
            )
        config[role] = tokens[token_id]
    if template := metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config


def _tokens(metadata: Mapping[str, Any], path: Path) -> list[str]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise BrokenModel(f"{path} holds no tokenizer.", hint="Use a GGUF file with its tokenizer inside.")
    return tokens
