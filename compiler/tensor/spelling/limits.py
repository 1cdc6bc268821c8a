"""The limits of element types as NumPy and PyTorch ask for them: `finfo("float16").max`."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType


class FloatLimits(NamedTuple):
    """The limits of a float type."""

    dtype: DType
    bits: int
    max: float
    min: float
    eps: float
    smallest_normal: float

    @property
    def tiny(self) -> float:
        """Return the least positive number with all of its mantissa."""
        return self.smallest_normal


class IntegerLimits(NamedTuple):
    """The limits of an integer type."""

    dtype: DType
    bits: int
    max: int
    min: int


def _type_of(given: Any) -> DType:
    """Return the type that something names, or that of a tensor."""
    found = dtypes.find(given)
    found = dtypes.find(getattr(given, "dtype", None)) if found is None else found
    if found is None:
        raise TypeError(f"{given!r:.80} is no element type and no tensor")
    return found


def finfo(kind: Any) -> FloatLimits:
    """Return the limits of a float type, given as a type, its name or a tensor of it; of a complex type those of its
    parts.
    """
    found = _type_of(kind).part
    if not found.is_float:
        raise TypeError(f"finfo of {found}: float types only")
    return FloatLimits(found, found.bits, float(found.max), float(found.min), found.eps, found.smallest_normal)


def iinfo(kind: Any) -> IntegerLimits:
    """Return the limits of an integer type, given as a type, its name or a tensor of it."""
    found = _type_of(kind)
    if not found.is_integer:
        raise TypeError(f"iinfo of {found}: integer types only")
    return IntegerLimits(found, found.bits, int(found.max), int(found.min))
