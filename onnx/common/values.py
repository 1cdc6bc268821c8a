"""Values between the nodes of a model: tensors, arrays that the host knows, lists of them (ONNX's sequences), None (an
input left out, or an optional without value).

An array of a shape with symbolic sizes has elements of NumPy's type `object`: whole numbers and sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Expr
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.arrays import numpy_dtype
from ringup.compiler.tensor.realize import is_symbolic
from ringup.errors import NotSupported

Array: TypeAlias = np.ndarray[Any, Any]

# TensorProto.DataType of onnx.proto
FLOAT, UINT8, INT32 = 1, 2, 6
DTYPES = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool_,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    16: dtypes.bfloat16,
    17: dtypes.float8_e4m3,
    19: dtypes.float8_e5m2,
}
# the names of those that have no type here
OTHERS = {
    8: "string",
    14: "complex64",
    15: "complex128",
    18: "float8e4m3fnuz",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
# arrays up to this number of elements are compared with a constant before they become memory
MAX_CONSTANT = 1 << 12


def dtype_of(number: int, what: str) -> DType:
    """Return the element type of a number of ONNX's; a NotSupported that says `what` has it where there is none."""
    found = DTYPES.get(number)
    if found is None:
        raise NotSupported(f"{what} is of ONNX's type {OTHERS.get(number, number)}, which has no element type here")
    return found


def is_known(value: object) -> bool:
    """Return whether the host knows it without a card."""
    return isinstance(value, np.ndarray)


def as_tensor(value: Any) -> Tensor:
    """Return a value as a tensor; an array whose elements are all the same is a constant."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple)) or value is None:
        raise TypeError(f"a tensor is needed, and this is {'a sequence' if value is not None else 'nothing'}")
    if value.dtype == object:
        zero = Tensor(0, "int64")
        parts = [zero._lift(one if isinstance(one, Expr) else int(one)).cast("int64") for one in value.reshape(-1)]
        return Tensor.stack(parts).reshape(value.shape)
    if value.dtype.kind not in "biuf" and value.dtype.name not in dtypes.OTHER_NAMES:
        raise NotSupported(f"elements of {value.dtype} have no type here")
    if value.size and value.size <= MAX_CONSTANT:
        data = np.ascontiguousarray(value).reshape(-1)
        if value.size == 1 or (data.view(np.uint8).reshape(value.size, -1) == data[:1].view(np.uint8)).all():
            return Tensor.full(value.shape, data[0].item(), value.dtype.name)
    return Tensor._from_array(value)


def as_array(value: Any) -> Array:
    """Return a value as an array of the host. A tensor whose bytes the host does not have is computed."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Tensor):
        if is_symbolic([value.node]):
            raise NotSupported("the host has to know a value that depends on sizes which are still open")
        constant = _constant(value)
        return value.numpy() if constant is None else constant
    raise TypeError("an array is needed, and this is a sequence or nothing")


def _constant(tensor: Tensor) -> Array | None:
    """Return the elements of a tensor that is one constant everywhere, which needs no card."""
    node = tensor.node
    while node.op in (Op.RESHAPE, Op.EXPAND, Op.PERMUTE):
        node = node.sources[0]
    if node.op is not Op.CONST:
        return None
    return np.full(cast("tuple[int, ...]", tensor.shape), node.arg, numpy_dtype(tensor.dtype))


def numbers(array: Array) -> list[Any]:
    """Return the elements of an array as whole numbers and sizes."""
    return [one if isinstance(one, Expr) else int(one) for one in np.asarray(array).reshape(-1).tolist()]


def array_of_sizes(sizes: Sequence[Any]) -> Array:
    """Return sizes as an array of int64, or of objects where some are symbolic."""
    if all(isinstance(size, int) for size in sizes):
        return np.array(sizes, np.int64).reshape(len(sizes))
    made = np.empty(len(sizes), object)
    made[:] = [size.plain() if hasattr(size, "plain") else size for size in sizes]
    return made


def known_size(size: Any, what: str) -> int:
    """Return a size that has to be a number here."""
    if not isinstance(size, int):
        raise NotSupported(f"{what} needs a size known now, not {size}")
    return int(size)
