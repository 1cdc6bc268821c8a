"""Weights in files: safetensors and GGUF, read by their own libraries, which are asked for on use only.

GGUF's quantised blocks become numbers by graph operations on the raw bytes, so what is uploaded is as small as the
file.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

from ringup.compiler.files import gguf_layout
from ringup.compiler.files.gguf_layout import Blocks
from ringup.compiler.files.whole_file import write_whole
from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.movement import cut
from ringup.compiler.tensor.tensor import Tensor
from ringup.errors import CompileError

SAFETENSORS_TYPES = {  # the names in a file's header; safetensors' README, "Format"
    "BOOL": dtypes.bool_,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "U16": dtypes.uint16,
    "I16": dtypes.int16,
    "U32": dtypes.uint32,
    "I32": dtypes.int32,
    "U64": dtypes.uint64,
    "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3,
    "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
GGUF_PLAIN = {  # ggml's names of types that are not in blocks
    "F32": dtypes.float32,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F64": dtypes.float64,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
}


def _library(name: str, purpose: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise CompileError(
            f"{purpose} needs the {name.split('.')[0]} package: pip install {name.split('.')[0]}"
        ) from error


def _raw(data: Any, dtype: DType, shape: tuple[int, ...], name: str) -> Tensor:
    made = Tensor._of(graph.buffer(dtype, shape, name, bytes(data)))
    made._owns = True
    return made


def load_safetensors(path: str | PathLike[str]) -> dict[str, Tensor]:
    """Return the tensors of a file by name. A damaged or cut-short file is a CompileError that names it."""
    library = _library("safetensors", "loading a safetensors file")
    try:
        data = Path(path).read_bytes()
        found = library.deserialize(data)
    except library.SafetensorError as error:
        raise CompileError(f"{path} is no whole safetensors file: {error}") from error
    _check_names(data, path)
    made = {}
    for name, what in found:
        kind = SAFETENSORS_TYPES.get(what["dtype"])
        if kind is None:
            raise CompileError(
                f"{path}: {name} holds {what['dtype']}, which has no type here; there are {', '.join(SAFETENSORS_TYPES)}"
            )
        made[name] = _raw(what["data"], kind, tuple(what["shape"]), name)
    return made


def _check_names(data: bytes, path: str | PathLike[str]) -> None:
    """Refuse a header that says something of one tensor twice: its reader takes the last. The rest of it the reader has
    checked.
    """

    def one_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
            raise CompileError(f"{path} is no whole safetensors file: its header says {twice} twice; fetch it again")
        return made

    size_bytes = int.from_bytes(data[:8], "little")
    json.loads(data[8 : 8 + size_bytes], object_pairs_hook=one_each)


def save_safetensors(
    tensors: dict[str, Tensor], path: str | PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Compute tensors and write them to a file under their names."""
    library = _library("safetensors.numpy", "saving a safetensors file")
    if tensors:
        first, *others = tensors.values()
        first.realize(*others)
    arrays = {name: one.numpy() for name, one in tensors.items()}
    write_whole(Path(path), library.save(arrays, metadata))


def load_gguf(path: str | PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a file by name and its other fields. Blocks are f32 tensors, computed from the file's bytes
    when needed.

    A damaged or cut-short file is a CompileError that names it.
    """
    library = _library("gguf", "loading a GGUF file")
    types = {kind.value: Blocks(kind.name, *size) for kind, size in library.GGML_QUANT_SIZES.items()}
    with Path(path).open("rb") as file:
        gguf_layout.check(_mapped(file), path, types)
    try:
        reader = library.GGUFReader(str(path))
        fields = {name: field.contents() for name, field in reader.fields.items()}
        tensors = list(reader.tensors)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, UnicodeDecodeError) as error:
        raise CompileError(f"{path} is no whole GGUF file: {error}") from error
    made = {}
    for one in tensors:
        kind, shape = one.tensor_type.name, tuple(int(size) for size in reversed(one.shape))
        if kind in GGUF_PLAIN:
            made[one.name] = _raw(one.data.tobytes(), GGUF_PLAIN[kind], shape, one.name)
        elif kind in BLOCKS:
            raw = _raw(
                one.data.tobytes(),
                dtypes.uint8,
                (one.data.nbytes // BLOCKS[kind].size_bytes, BLOCKS[kind].size_bytes),
                one.name,
            )
            made[one.name] = dequantised(raw, kind).reshape(shape)
        else:
            raise CompileError(f"{path}: {one.name} is in {kind} blocks; there are {', '.join([*GGUF_PLAIN, *BLOCKS])}")
    return made, fields


def _mapped(file: BinaryIO) -> memoryview:
    """Return a file's bytes without reading them."""
    if not os.fstat(file.fileno()).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def dequantised(blocks: Tensor, kind: str) -> Tensor:
    """Return f32 numbers (blocks, elements of each) from bytes (blocks, bytes of each) in ggml's format of that
    name.
    """
    row = BLOCKS[kind]
    if blocks.dtype is not dtypes.uint8 or blocks.ndim != 2 or blocks.shape[1] != row.size_bytes:
        raise ValueError(f"{kind} blocks are uint8 (count, {row.size_bytes}), not {blocks.dtype} {list(blocks.shape)}")
    return row.decode(blocks)


def _half(blocks: Tensor, at: int) -> Tensor:
    return cut(blocks, 1, at, at + 2).view(dtypes.float16).float()


def _nibbles(bytes_: Tensor) -> Tensor:
    """Return the low halves of bytes, then the high ones, as int32."""
    return (bytes_ & 15).cat(bytes_ >> 4, axis=-1).int()


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:
    bits = cut(blocks, 1, at, at + 4).view(dtypes.uint32)
    return ((bits >> Tensor.arange(32, dtype=dtypes.uint32)) & 1).int() << 4


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(cut(blocks, 1, 2, 18)) - 8).float()


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(cut(blocks, 1, 4, 20)).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * ((_nibbles(cut(blocks, 1, 6, 22)) | _fifth_bits(blocks, 2)) - 16).float()


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(cut(blocks, 1, 8, 24)) | _fifth_bits(blocks, 4)).float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * cut(blocks, 1, 2, 34).view(dtypes.int8).float()


def _q4_k(blocks: Tensor) -> Tensor:
    """Return eight groups of 32, each with a scale and a least value of 6 bits: four whole in low bits, four whose top
    2 bits lie above them.
    """
    first, second, third = (cut(blocks, 1, 4 + 4 * i, 8 + 4 * i) for i in range(3))
    scales = (first & 63).cat((third & 15) | ((first >> 6) << 4), axis=1).int().float()
    least = (second & 63).cat((third >> 4) | ((second >> 6) << 4), axis=1).int().float()
    numbers = _nibbles(cut(blocks, 1, 16, 144).reshape((-1, 4, 32))).reshape((-1, 8, 32)).float()
    made = (_half(blocks, 0) * scales).unsqueeze(2) * numbers - (_half(blocks, 2) * least).unsqueeze(2)
    return made.reshape((-1, 256))


def _q6_k(blocks: Tensor) -> Tensor:
    """Return two halves of 128: four rows of 32 with 4 bits from one half of two rows of bytes, 2 bits from a third; a
    scale for every 16.
    """
    low = _nibbles(cut(blocks, 1, 0, 128).reshape((-1, 2, 64))).reshape((-1, 2, 4, 32))
    shifts = Tensor.arange(0, 8, 2, dtype=dtypes.uint8).reshape((1, 1, 4, 1))
    high = ((cut(blocks, 1, 128, 192).reshape((-1, 2, 1, 32)) >> shifts) & 3).int() << 4
    scales = _half(blocks, 208) * cut(blocks, 1, 192, 208).view(dtypes.int8).float()
    numbers = ((low | high) - 32).float().reshape((-1, 16, 16))
    return (scales.unsqueeze(2) * numbers).reshape((-1, 256))


class Block(NamedTuple):
    """A block format of ggml: bytes and elements of one block, and what makes numbers of it."""

    size_bytes: int
    elements: int
    decode: Callable[[Tensor], Tensor]


BLOCKS = {  # ggml-common.h, block_q4_0 and on
    "Q4_0": Block(18, 32, _q4_0),
    "Q4_1": Block(20, 32, _q4_1),
    "Q5_0": Block(22, 32, _q5_0),
    "Q5_1": Block(24, 32, _q5_1),
    "Q8_0": Block(34, 32, _q8_0),
    "Q4_K": Block(144, 256, _q4_k),
    "Q6_K": Block(210, 256, _q6_k),
}
