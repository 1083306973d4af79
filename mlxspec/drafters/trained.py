"""The folder of a trained draft: what it is in its config, its weights and its vocabulary beside it.

The config, `mlxspec_draft.json`, has these keys: `kind` (a key of `MODULES`), `vocabulary` (the hash of
the target's tokenizer), `bits` and `group_size` where weights are quantised, and those of its kind:

- head: `shape` (of llama's layer), `width` and `token_width` (of the target's rows), `point`, and `columns`
  where the output head is its own;
- medusa: `width`, `count`, `point`;
- exit: `shape`, `width`, `layers`, `mlp`;
- tiny: `shape`, `columns`.

`scale` is what the target multiplies its head's logits by, where it does.

`weights.safetensors` holds the trained part, and as `ids` the target's id of each column of the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxspec.drafters.exit import ExitAdapter
from mlxspec.drafters.head import HeadLayer
from mlxspec.drafters.medusa import MedusaHeads
from mlxspec.drafters.tiny import TinyModel
from mlxspec.errors import BrokenModel
from mlxspec.models.device import dequantise_on_this_device

WEIGHTS = "weights.safetensors"
IDS = "ids"
AGAIN = "Make the draft again with `mlxspec distill`, or fetch it again."

Config = Mapping[str, Any]

MODULES: dict[str, Callable[[Config], nn.Module]] = {
    "head": lambda config: HeadLayer(
        config["shape"],
        width=config["width"],
        token_width=config["token_width"],
        columns=config.get("columns"),
    ),
    "medusa": lambda config: MedusaHeads(config["width"], config["count"]),
    "exit": lambda config: ExitAdapter(config["shape"], mlp=config["mlp"]),
    "tiny": lambda config: TinyModel(config["shape"], columns=config["columns"]),
}
"""The trained part of each kind, with random weights."""


def load_trained(folder: Path, config: Config, *, dtype: mx.Dtype) -> tuple[nn.Module, mx.array | None]:
    """The trained part, ready on this device, and the ids of its columns; None for all tokens.

    Where weights stay quantised, what is not quantised becomes `dtype`, the target's.

    Raises:
        BrokenModel: the config lacks something, or the weights are missing, damaged or of another shape.
    """
    try:
        module = MODULES[config["kind"]](config)
        arrays = cast(dict[str, mx.array], mx.load(str(folder / WEIGHTS)))
        ids = arrays.pop(IDS, None)
        if "bits" in config:
            quantise(module, bits=config["bits"], group_size=config["group_size"], names=arrays)
        module.load_weights(list(arrays.items()), strict=True)
        if dequantise_on_this_device():
            from mlx_lm.utils import dequantize_model

            module.set_dtype(mx.float32)
            module = dequantize_model(module)
            module.set_dtype(mx.float32)
        else:
            module.set_dtype(dtype)
        module.eval()
        mx.eval(module.parameters())
    # MLX fails with many kinds of error at a file that is damaged or of another shape.
    except Exception as error:
        raise BrokenModel(
            f"The draft in {folder} is damaged or incomplete: {_line(error)}.", hint=AGAIN
        ) from error
    return module, ids


def save_trained(folder: Path, config: Config, module: nn.Module, ids: mx.array | None) -> None:
    """Write the weights of a module that is quantised as its config says. Raises OSError."""
    arrays = {
        name: array.astype(mx.float16) if array.dtype == mx.float32 else array
        for name, array in tree_flatten(module.parameters())
    }
    if ids is not None:
        arrays[IDS] = ids.astype(mx.int32)
    mx.save_safetensors(str(folder / WEIGHTS), arrays, metadata={"kind": str(config["kind"])})


def quantise(
    module: nn.Module, *, bits: int, group_size: int, names: Mapping[str, Any] | None = None
) -> None:
    """Quantise the matrices that the group size divides; with `names`, those that have scales there."""

    def wanted(path: str, layer: nn.Module) -> bool:
        if not hasattr(layer, "to_quantized") or layer.weight.shape[-1] % group_size:
            return False
        return names is None or f"{path}.scales" in names

    nn.quantize(module, group_size=group_size, bits=bits, class_predicate=wanted)


def _line(error: Exception) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200].rstrip(".")
