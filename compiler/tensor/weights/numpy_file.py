"""NumPy's files: `.npy`, and `.npz`, an archive of them. Arrays of Python objects are never read.

Source: numpy.lib.format, "Format Version 1.0" and "2.0": magic, version, the header's length, the header as a dict in
Python's notation, the elements.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ringup.compiler.files.archive import Archive
from ringup.compiler.files.mapped import MappedFile
from ringup.compiler.tensor.arrays import BY_NUMPY
from ringup.compiler.tensor.tensor import Tensor
from ringup.compiler.tensor.weights.elements import Source, row_major, strided
from ringup.errors import CompileError

MAGIC = b"\x93NUMPY"
# by the version: struct's code of the header's length
LENGTHS = {(1, 0): "<H", (2, 0): "<I"}
LENGTH_AT = 8
SUFFIX = ".npy"
# of magic, length and header; NumPy itself takes headers of 10,000 bytes
MAX_HEAD_BYTES = 12_000
DAMAGE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, struct.error)


def read_array(file: MappedFile) -> Tensor:
    """Return the array of a `.npy` file. A damaged one is a `CompileError`."""
    return _array(
        file.view()[:MAX_HEAD_BYTES], file.size_bytes, lambda at: file.part(at, file.size_bytes), file.path, ""
    )


def read_archive(archive: Archive, path: object) -> dict[str, Tensor]:
    """Return the arrays of a `.npz` file by name. A damaged one is a `CompileError`."""
    made = {}
    for member in archive.names:
        name = member.removesuffix(SUFFIX)
        if name in made or name == member:
            raise CompileError(f"{path}: its member {member} is no array: .npz files hold members {SUFFIX}, each once")
        made[name] = _array(
            memoryview(archive.first(member, MAX_HEAD_BYTES)),
            archive.size_bytes(member),
            partial(archive.part, member),
            path,
            name,
        )
    return made


def _array(head: memoryview, size_bytes: int, source: Callable[[int], Source], path: object, name: str) -> Tensor:
    what = f"{path}{f', {name}' if name else ''}"
    try:
        shape, columns_first, kind, at = _header(bytes(head))
    except DAMAGE as error:
        raise CompileError(f"{what} is no whole array of NumPy's: {error!s:.200}; fetch it again") from error
    if kind.hasobject:
        raise CompileError(f"{what} holds Python objects, which only running code could make: save an array of numbers")
    found = BY_NUMPY.get(kind.name)
    if found is None:
        hint = "; NumPy writes bf16 and float8 as raw bytes: save them as safetensors" if kind.kind == "V" else ""
        raise CompileError(f"{what} holds {kind}, which has no type here{hint}")
    if prod(shape) * kind.itemsize != size_bytes - at:
        raise CompileError(
            f"{what} is no whole array of NumPy's: {list(shape)} of {kind} and {size_bytes - at} bytes; fetch it again"
        )
    sizes = shape[::-1] if columns_first else shape
    made = strided(source(at), found, 0, sizes, row_major(sizes), name, path, swapped=kind.byteorder == ">")
    return made.permute(tuple(range(len(shape)))[::-1]) if columns_first else made


def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether the first axis is the fastest, element type, and where the elements begin."""
    code = LENGTHS.get((head[6], head[7])) if len(head) > LENGTH_AT and head.startswith(MAGIC) else None
    if code is None:
        raise ValueError("it does not begin with NumPy's magic and version 1 or 2")
    start = LENGTH_AT + struct.calcsize(code)
    (length,) = struct.unpack_from(code, head, LENGTH_AT)
    if start + length > len(head):
        raise ValueError(f"its header of {length} bytes is longer than the file or {MAX_HEAD_BYTES}")
    found = ast.literal_eval(head[start : start + length].decode("latin1").strip())
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header has other entries than descr, fortran_order and shape")
    shape, columns_first = found["shape"], found["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(size) is int and 0 <= size < 1 << 63 for size in shape):
        raise ValueError("its shape holds other things than sizes")
    if not isinstance(columns_first, bool) or not isinstance(found["descr"], (str, list)):
        raise TypeError("its order or its type is none")
    return shape, columns_first, np.dtype(found["descr"]), start + length
