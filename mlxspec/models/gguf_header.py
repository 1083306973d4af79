"""The header of a GGUF file: its metadata and its table of tensors, checked against the file's size.

MLX maps the file and trusts what the header says: a file that was cut short would end the
process. So the header is read here first. Layout: the GGUF specification, versions 2 and 3.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlxspec.errors import BrokenModel, NotAModel, UnsupportedModel

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = b"GGUF"
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_UINT32, _STRING, _ARRAY, _UINT64 = 4, 8, 9, 10
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4  # ggml's own limit

# Names of ggml's tensor types, to say which one is not supported.
_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS",
    18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
    26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip

# (weights, bytes) of one block of the types that MLX takes as they are.
_BLOCKS = {"F32": (1, 4), "F16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34)}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` in MLX's order (rows first), `type` as ggml names it."""

    name: str
    shape: tuple[int, ...]
    type: str


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says of itself."""

    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]


def read_header(path: Path) -> GgufHeader:
    """Read a GGUF file's header and check that every tensor lies inside the file.

    Raises:
        NotAModel: there is no such file.
        BrokenModel: another kind of file, or one that ends too early or contradicts itself.
        UnsupportedModel: another version of the format, or a tensor type that MLX cannot keep as it is.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise BrokenModel(f"{path} is not a GGUF file.", hint="Give the path of a GGUF file.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _header(_Reader(data, at=len(_MAGIC)), path)
    except OSError as error:
        raise NotAModel(
            f"{path} cannot be read: {error.strerror}.", hint="Give the path of a GGUF file."
        ) from error
    except (struct.error, UnicodeDecodeError, _Contradiction) as error:
        raise BrokenModel(
            f"{path} is damaged or was cut short.", hint="Remove the file and fetch it again."
        ) from error


class _Contradiction(Exception):
    """The header says what cannot be."""


class _Reader:
    """Takes values one after another from the bytes of a file."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data = data
        self.at = at

    def scalar(self, kind: int) -> Any:
        try:
            layout = _SCALARS[kind]
        except KeyError:
            raise _Contradiction(f"value type {kind}") from None
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def text(self) -> str:
        length = self.scalar(_UINT64)
        end = self.at + length
        if end > len(self.data):
            raise _Contradiction("a text that ends after the file")
        value = self.data[self.at : end].decode("utf-8")
        self.at = end
        return value

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.scalar(kind)
        of, count = self.scalar(_UINT32), self.scalar(_UINT64)
        if of == _ARRAY or count > len(self.data) - self.at:
            raise _Contradiction("an array of arrays, or one that ends after the file")
        return [self.value(of) for _ in range(count)]


def _header(reader: _Reader, path: Path) -> GgufHeader:
    """Parse and check; `reader` stands after the magic."""
    version = reader.scalar(_UINT32)
    if version not in (2, 3):
        raise UnsupportedModel(
            f"{path} has version {version} of the GGUF format; 2 and 3 are supported.",
            hint="Convert the model with a current llama.cpp.",
        )
    tensor_count, pair_count = reader.scalar(_UINT64), reader.scalar(_UINT64)
    metadata = {}
    for _ in range(pair_count):
        key = reader.text()
        metadata[key] = reader.value(reader.scalar(_UINT32))
    tensors, ends = [], []
    for _ in range(tensor_count):
        name = reader.text()
        dims = [reader.scalar(_UINT64) for _ in range(reader.scalar(_UINT32))]
        kind, offset = reader.scalar(_UINT32), reader.scalar(_UINT64)
        type_name = _TYPE_NAMES.get(kind, f"number {kind}")
        if type_name not in _BLOCKS:
            raise UnsupportedModel(
                f"{path}: the tensor {name} has the type {type_name}; "
                f"supported are {', '.join(sorted(_BLOCKS))}.",
                hint="Choose a file of the same model in one of the supported types.",
            )
        block, block_bytes = _BLOCKS[type_name]
        if not 1 <= len(dims) <= _MAX_DIMENSIONS or min(dims) < 1 or dims[0] % block:
            raise _Contradiction(f"{name} has the shape {dims}")
        ends.append(offset + math.prod(dims) // block * block_bytes)
        tensors.append(TensorInfo(name=name, shape=tuple(reversed(dims)), type=type_name))
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _Contradiction("the alignment")
    data_start = -(-reader.at // alignment) * alignment
    if data_start + max(ends, default=0) > len(reader.data):
        raise _Contradiction("a tensor that ends after the file")
    return GgufHeader(metadata=metadata, tensors=tuple(tensors))
