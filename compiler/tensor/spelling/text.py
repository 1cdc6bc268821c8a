"""Values as text: what `print` and a debugger show of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringup.compiler.graph.dtypes import DType

# elements from which on the middle is left out, and how many are shown at each end of an axis; as NumPy has it
SUMMARISED, AT_ENDS = 1000, 3
# places after the point
PLACES = 4
PLAIN_FLOATS = ("float16", "float32", "float64")


def decoded(data: memoryview, dtype: DType, shape: Sequence[int]) -> Any:
    """Return the elements in row-major bytes as an array of a type that NumPy has: float32 for bf16 and float8."""
    if not dtype.is_float or dtype.name in PLAIN_FLOATS:
        return np.frombuffer(data, dtype.numpy).reshape(shape)
    bits = np.frombuffer(data, f"u{dtype.size_bytes}").reshape(shape).astype(np.int64)
    above = bits >> dtype.mantissa_bits & (1 << dtype.exponent_bits) - 1
    below = bits & (1 << dtype.mantissa_bits) - 1
    bias = (1 << dtype.exponent_bits - 1) - 1
    # numbers below the first power of 2 have no leading 1
    mantissa = below + ((above > 0).astype(np.int64) << dtype.mantissa_bits)
    size = np.ldexp(mantissa.astype(np.float64), np.maximum(above, 1) - bias - dtype.mantissa_bits)
    top = above == (1 << dtype.exponent_bits) - 1
    if dtype.name == "float8_e4m3":
        # no infinity; all ones are NaN
        size = np.where(top & (below == (1 << dtype.mantissa_bits) - 1), np.nan, size)
    else:
        size = np.where(top, np.where(below == 0, np.inf, np.nan), size)
    return np.where(bits >> dtype.bits - 1, -size, size).astype(np.float32)


def shown(array: Any, dtype: DType) -> str:
    """Return values as text: nested lists like NumPy's, shortened where there are many, then shape and type."""
    body = np.array2string(
        array, separator=", ", prefix="Tensor(", threshold=SUMMARISED, edgeitems=AT_ENDS, precision=PLACES, suffix=","
    )
    return f"Tensor({body}, shape={list(array.shape)}, dtype={dtype})"
