"""Numbers of the host: NumPy arrays, DLPack objects and nested lists, made memory of a graph."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Node
from ringup.errors import CompileError

Array: TypeAlias = np.ndarray[Any, Any]
BY_NUMPY = {one.numpy: one for one in dtypes.ALL}
# the types that NumPy itself has
PLAIN = tuple(one for one in dtypes.ALL if one not in (dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2))


def as_array(data: object, kind: DType | None) -> Array:
    """Return anything array-like as a contiguous NumPy array of a type we have; lists of Python numbers in their
    default types.
    """
    if isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__"):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        array = np.from_dlpack(cast("Any", data))
    else:
        array = _listed(data, kind)
    if array.dtype.name not in BY_NUMPY:
        raise TypeError(f"elements of {array.dtype} have no type here; there are {', '.join(BY_NUMPY)}")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(array.shape)


def _listed(data: object, kind: DType | None) -> Array:
    try:
        array: Array = np.asarray(data)
    except ValueError as error:
        raise ValueError(f"the nested lists make no array: {error}") from error
    if array.dtype.kind not in "fiu":
        return array
    exact = kind is not None and kind in PLAIN and (kind.is_float or array.dtype.kind != "f")
    return array.astype(np.dtype(kind.numpy) if exact and kind is not None else _default(array))


def _default(array: Array) -> np.dtype[Any]:
    if array.dtype.kind == "f":
        return np.dtype(np.float32)
    if array.dtype == np.uint64:
        return np.dtype(np.uint64)
    small = not array.size or (array.max() < 1 << 31 and array.min() >= -1 << 31)
    return np.dtype(np.int32 if small else np.int64)


def memory_of(array: Array, name: str) -> Node:
    """Return a buffer that holds a copy of an array's bytes."""
    data = array.reshape(-1).view(np.uint8).tobytes() if array.dtype != np.bool_ else array.tobytes()
    return nodes.buffer(BY_NUMPY[array.dtype.name], array.shape, name, data)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's own type of that name; bf16 and float8 are the ml_dtypes package's."""
    if dtype in PLAIN:
        return np.dtype(dtype.numpy)
    try:
        # optional: NumPy has no such types of its own
        import ml_dtypes
    except ImportError as error:
        raise CompileError(f"NumPy has no {dtype}: install ml_dtypes, or cast to float32 first") from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.numpy))
    return found
