"""The standard's data types, and functions on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ringup.array_api.arguments import own, placed
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.arrays import numpy_dtype
from ringup.compiler.tensor.core import Core
from ringup.compiler.tensor.tensor import Tensor

# data types by the kinds that the standard names
KINDS = {
    "bool": (dtypes.bool_,),
    "signed integer": (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    "unsigned integer": (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    "real floating": (dtypes.float32, dtypes.float64),
    "complex floating": (dtypes.complex64, dtypes.complex128),
}
KINDS["integral"] = (*KINDS["signed integer"], *KINDS["unsigned integer"])
KINDS["numeric"] = (*KINDS["integral"], *KINDS["real floating"], *KINDS["complex floating"])
# floats that the standard does not have
NARROW = (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float16, dtypes.bfloat16)

# the types of results that the standard leaves to the library
DEFAULT_FLOAT, DEFAULT_COMPLEX, DEFAULT_INTEGER = dtypes.float32, dtypes.complex64, dtypes.int32


@dataclass(frozen=True)
class finfo_object:
    """The limits of a floating-point type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class iinfo_object:
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def _type_of(given: DType | Tensor) -> DType:
    """Return a type, or that of an array."""
    found = given.dtype if isinstance(given, Core) else given
    if not isinstance(found, DType):
        raise TypeError(f"{given!r:.80} is no data type of this namespace and no array")
    return found


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Return the elements converted: floats to integers cut off and saturate, to bool is x != 0."""
    made = placed(x.cast(_type_of(dtype)), device)
    if made.dtype is x.dtype and not copy and device in (None, x.device):
        return x
    return own(x, made)


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Return whether promotion with the second type keeps that type."""
    return dtypes.promote(_type_of(from_), _type_of(to)) is to


def finfo(type: DType | Tensor, /) -> finfo_object:
    """Return the limits of a floating-point type; of a complex one those of its parts."""
    kind = _type_of(type).part
    if not kind.is_float:
        raise TypeError(f"finfo of {kind}: floating-point types only")
    if kind in NARROW[:2] or kind is dtypes.bfloat16:
        # needed for these types alone, which NumPy does not have
        import ml_dtypes

        limits: Any = cast("Any", ml_dtypes).finfo(numpy_dtype(kind))
    else:
        limits = np.finfo(kind.numpy)
    return finfo_object(
        kind.bits, float(limits.eps), float(limits.max), float(limits.min), float(limits.smallest_normal), kind
    )


def iinfo(type: DType | Tensor, /) -> iinfo_object:
    """Return the limits of an integer type."""
    kind = _type_of(type)
    if not kind.is_integer:
        raise TypeError(f"iinfo of {kind}: integer types only")
    return iinfo_object(kind.bits, int(kind.greatest), int(kind.least), kind)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Return whether a type is another one, is of a kind such as "integral", or any of several of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return dtype is _type_of(kind)
    if kind not in KINDS:
        raise ValueError(f"there is no kind of data types {kind!r}; there are {', '.join(KINDS)}")
    return dtype in KINDS[kind] or (dtype in NARROW and kind in ("real floating", "numeric"))


def result_type(*arrays_and_dtypes: Tensor | DType | bool | complex) -> DType:
    """Return the type that promotion makes of arrays, types and at most some Python numbers."""
    found, numbers = None, []
    for one in arrays_and_dtypes:
        if isinstance(one, (bool, int, float, complex)):
            numbers.append(one)
            continue
        kind = _type_of(one)
        found = kind if found is None else dtypes.promote(found, kind)
    if found is None:
        raise ValueError("result_type of numbers alone: one array or data type at least")
    for number in numbers:
        found = dtypes.promote(found, dtypes.of_scalar(number, found))
    return found
