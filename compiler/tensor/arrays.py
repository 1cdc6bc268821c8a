"""Numbers of the host: NumPy arrays, DLPack objects and nested lists, made memory of a graph."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Node
from ringup.compiler.tensor.exchange import dlpack
from ringup.errors import CompileError

Array: TypeAlias = np.ndarray[Any, Any]
BY_NUMPY = {one.numpy: one for one in dtypes.EVERY}
# the types that NumPy itself has
PLAIN = tuple(one for one in dtypes.EVERY if one not in (dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2))


def as_array(data: object, kind: DType | None) -> Array:
    """Return anything array-like as a contiguous NumPy array of a type we have; lists of Python numbers in their
    default types.
    """
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        # NumPy would refuse bf16 and float8
        found = dlpack.imported(data)
        array = np.frombuffer(found.data, numpy_dtype(found.dtype)).reshape(found.shape)
    elif hasattr(data, "__cuda_array_interface__"):
        raise BufferError(
            f"the memory of {type(data).__name__} lies on a card of another runtime, which the CPU does not read: copy it to"
            " the host first, as with .get()"
        )
    elif hasattr(data, "__array__"):
        array = np.asarray(data)
    else:
        array = _listed(data, kind)
    if kind is not None:
        _check_fits(array, kind)
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
    large = array.dtype.kind == "f" and array.size and np.abs(array).max() >= 1 << 63
    if (large or array.dtype.kind == "O") and (kind is None or not kind.is_float):
        # NumPy makes floats of integers beside some past int64, and objects of those past uint64
        every = np.asarray(data, object)
        if all(isinstance(one, int) for one in every.reshape(-1)):
            array = every.astype(dtypes.of_range(*every.reshape(-1)).numpy)
    if array.dtype.kind == "c":
        _check_fits(array, BY_NUMPY[_default(array).name] if kind is None else kind)
        return array.astype(kind.numpy if kind is not None and kind.is_complex else np.complex64)
    if array.dtype.kind not in "fiu":
        return array
    _check_fits(array, BY_NUMPY[_default(array).name] if kind is None else kind)
    if kind is not None and kind.is_float and kind not in PLAIN and array.dtype.kind == "f":
        # rounded once, by a cast
        return array
    exact = kind is not None and kind in PLAIN and (kind.is_float or array.dtype.kind != "f")
    return array.astype(np.dtype(kind.numpy) if exact and kind is not None else _default(array))


def _check_fits(array: Array, kind: DType) -> None:
    """Raise a ValueError where an element does not fit a type (`dtypes.fits`)."""
    have = BY_NUMPY.get(array.dtype.name)
    if have is None or have is kind or not array.size or kind.kind == "bool" or have.kind == "bool":
        return
    if have.is_complex or kind.is_complex:
        if not kind.is_complex:
            raise TypeError(f"complex numbers do not fit {kind}: use complex64, or .real or .imag of the array")
        for part in (array.real, array.imag) if have.is_complex else (array,):
            _check_fits(part, kind.part)
        return
    if (
        kind.is_float
        and have.exponent_bits <= kind.exponent_bits
        and have.mantissa_bits <= kind.mantissa_bits
        and have.is_float
    ):
        return
    wide = array.astype(np.float64) if have.is_float else array
    if have.is_float:
        unknown = np.isnan(wide)
        if not kind.is_float and unknown.any():
            dtypes.fitting(math.nan, kind)
        wide = wide[~unknown] if kind is dtypes.float8_e4m3 else wide[np.isfinite(wide)] if kind.is_float else wide
    if wide.size:
        dtypes.fitting(wide.min().item(), kind)
        dtypes.fitting(wide.max().item(), kind)


def _default(array: Array) -> np.dtype[Any]:
    if array.dtype.kind in "fc":
        return np.dtype(np.float32 if array.dtype.kind == "f" else np.complex64)
    if array.dtype == np.uint64:
        return np.dtype(np.uint64)
    small = not array.size or (array.max() < 1 << 31 and array.min() >= -1 << 31)
    return np.dtype(np.int32 if small else np.int64)


def filled(shape: tuple[int, ...], value: float, kind: DType) -> Array:
    """Return an array of one value, as NumPy's type of a kind or f32 where NumPy has none of it."""
    return np.full(shape, value, kind.numpy if kind.bits >= 32 else np.float32)


def memory_of(array: Array, name: str) -> Node:
    """Return a buffer that holds a copy of an array's bytes."""
    data = array.reshape(-1).view(np.uint8).tobytes() if array.dtype != np.bool_ else array.tobytes()
    return nodes.buffer(BY_NUMPY[array.dtype.name], array.shape, name, data)


def handed_memory(source: object, name: str = "") -> Node:
    """Return a buffer that holds a copy of the bytes of a DLPack object or capsule."""
    if not hasattr(source, "__dlpack__") and not dlpack.is_capsule(source):
        raise TypeError(f"{type(source).__name__} is no DLPack object: it has no __dlpack__")
    found = dlpack.imported(source)
    return nodes.buffer(found.dtype, found.shape, name, found.data)


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
