"""How large a model is, as far as that can be known without reading its weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mlxspec.models.budget import ModelSize
from mlxspec.models.model_folder import CONFIG, DRAFT_FILE, is_draft, json_object
from mlxspec.models.registry import ModelSpec, PackageSource, RepoSource

FAR = 1 << 30  # tokens


def known_size(spec: ModelSpec, folder: Path | None) -> ModelSize | None:
    """What the files say, or what the registry and the name say of a model that is not here."""
    if folder is not None:
        stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        return ModelSize(_of_draft(folder) if is_draft(folder) else json_object(folder / CONFIG), stored)
    if spec.download_gb is None:
        return None
    # Conversions carry their bits in their names: Qwen3-4B-4bit, SmolLM2-135M-Instruct.Q4_1.gguf.
    name = {RepoSource: "repo", PackageSource: "file"}.get(type(spec.source), "path")
    bits = re.search(r"(\d)-?bit|q(\d)_", str(getattr(spec.source, name)).lower())
    config = {"quantization": {"bits": int(bits[1] or bits[2]), "group_size": 64}} if bits else {}
    return ModelSize(config, int(spec.download_gb * 1e9))


def _of_draft(folder: Path) -> dict[str, Any]:
    """A trained draft as a config.json would describe it: a layer of llama, where it has one of its own."""
    config = json_object(folder / DRAFT_FILE)
    shape = config.get("shape")
    described = {"model_type": "llama", "num_hidden_layers": 1, **shape} if isinstance(shape, dict) else {}
    quantization = {"bits": config.get("bits"), "group_size": config.get("group_size")}
    # It reads as far as its target does.
    return {"model_type": "none", **described, "quantization": quantization, "max_position_embeddings": FAR}
