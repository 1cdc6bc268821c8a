"""Element types of tensors: their values, the type of an operation on two of them, and NumPy's name of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["bool", "int", "uint", "float", "complex"]
Scalar = bool | int | float
# what an element of any type may be given as
Number = Scalar | complex


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. `exponent_bits` and `mantissa_bits` (the stored ones) are those of a float, or of each part of
    a complex number. `numpy` is a dtype name that NumPy or ml_dtypes knows.
    """

    name: str
    kind: Kind
    bits: int
    numpy: str
    exponent_bits: int = 0
    mantissa_bits: int = 0

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same type, also for a name, a type of NumPy or PyTorch and Python's types."""
        return self is other or (not isinstance(other, DType) and find(other) is self)

    # types are keys of many tables; a type and its name are equal, but not one key
    __hash__ = object.__hash__

    @property
    def size_bytes(self) -> int:
        """Return the bytes of one element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Return whether elements are floating point."""
        return self.kind == "float"

    # PyTorch's words
    @property
    def is_floating_point(self) -> bool:
        """Return whether elements are floating point."""
        return self.is_float

    @property
    def itemsize(self) -> int:
        """Return the bytes of one element in memory."""
        return self.size_bytes

    @property
    def is_complex(self) -> bool:
        """Return whether elements are complex numbers: two floats, the real part first."""
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        """Return whether elements are floats or complex numbers, which have gradients."""
        return self.kind in ("float", "complex")

    @property
    def part(self) -> DType:
        """Return the type of the real and the imaginary part: the type itself unless it is complex."""
        return PARTS.get(self, self)

    @property
    def is_integer(self) -> bool:
        """Return whether elements are integers. A bool is not an integer."""
        return self.kind in ("int", "uint")

    @property
    def least(self) -> Scalar:
        """Return the identity element of max: minus infinity for floats (for e4m3, which has none, the least finite
        value), the least value of others.
        """
        if self.kind == "float":
            return -448.0 if self is float8_e4m3 else float("-inf")
        return -(1 << self.bits - 1) if self.kind == "int" else self.kind != "bool" and 0

    @property
    def greatest(self) -> Scalar:
        """Return the identity element of min."""
        if self.kind == "float":
            return 448.0 if self is float8_e4m3 else float("inf")
        return self.kind == "bool" or (1 << self.bits - (self.kind == "int")) - 1

    @property
    def max(self) -> Scalar:
        """Return the greatest finite value."""
        return _largest(self) if self.is_inexact else self.greatest

    @property
    def min(self) -> Scalar:
        """Return the least finite value."""
        return -self.max if self.is_inexact else self.least

    @property
    def eps(self) -> float:
        """Return how far the next number after 1 is away."""
        return 2.0 ** -self._float("eps").mantissa_bits

    @property
    def smallest_normal(self) -> float:
        """Return the least positive number with all of its mantissa."""
        return 2.0 ** (2 - (1 << self._float("smallest_normal").exponent_bits - 1))

    def _float(self, what: str) -> DType:
        if not self.is_inexact:
            raise AttributeError(f"{self.name} has no {what}: it is no float type")
        return self


bool_ = DType("bool", "bool", 8, "bool")
int8 = DType("int8", "int", 8, "int8")
int16 = DType("int16", "int", 16, "int16")
int32 = DType("int32", "int", 32, "int32")
int64 = DType("int64", "int", 64, "int64")
uint8 = DType("uint8", "uint", 8, "uint8")
uint16 = DType("uint16", "uint", 16, "uint16")
uint32 = DType("uint32", "uint", 32, "uint32")
uint64 = DType("uint64", "uint", 64, "uint64")
# OCP 8-bit floating point, E4M3: no infinity.
float8_e4m3 = DType("float8_e4m3", "float", 8, "float8_e4m3fn", 4, 3)
float8_e5m2 = DType("float8_e5m2", "float", 8, "float8_e5m2", 5, 2)
float16 = DType("float16", "float", 16, "float16", 5, 10)
bfloat16 = DType("bfloat16", "float", 16, "bfloat16", 8, 7)
float32 = DType("float32", "float", 32, "float32", 8, 23)
float64 = DType("float64", "float", 64, "float64", 11, 52)

# the real part, then the imaginary part
complex64 = DType("complex64", "complex", 64, "complex64", 8, 23)
complex128 = DType("complex128", "complex", 128, "complex128", 11, 52)
PARTS = {complex64: float32, complex128: float64}
# the type of complex numbers with parts of a float type, and of those beside integers
WITH_PARTS = {float32: complex64, float64: complex128}

# the types that kernels compute with: complex numbers are taken apart before
ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
       float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64)  # fmt: skip
EVERY = (*ALL, complex64, complex128)
BY_NAME = {one.name: one for one in EVERY}
# other names: those that mean one type in NumPy and in PyTorch; int and float are PyTorch's, as the methods' names are
OTHER_NAMES = {
    **{one.numpy: one for one in EVERY},
    "bool_": bool_,
    "int": int32,
    "float": float32,
    "half": float16,
    "double": float64,
    "cfloat": complex64,
    "cdouble": complex128,
    "complex": complex128,
    "short": int16,
    "long": int64,
}
# Python's types as NumPy and PyTorch take them
_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}


def find(kind: object) -> DType | None:
    """Return the element type that something names, None if it names none: a type itself, a name, a NumPy dtype or
    scalar type, a PyTorch dtype, Python's bool, int (int64), float (float64) and complex (complex128).
    """
    if isinstance(kind, DType):
        return kind
    if isinstance(kind, type):
        found = _PYTHON.get(kind)
        return found if found is not None else _named(kind.__name__)
    if isinstance(kind, str):
        return _named(kind.removeprefix("torch."))
    # NumPy's dtypes have a name, PyTorch's are written torch.float32
    name = getattr(kind, "name", None)
    return _named(name if isinstance(name, str) else str(kind).removeprefix("torch.")) if _is_dtype(kind) else None


def _named(name: str) -> DType | None:
    return BY_NAME.get(name) or OTHER_NAMES.get(name)


def _is_dtype(kind: object) -> bool:
    """Return whether it is an object of a class called dtype, as in NumPy and PyTorch."""
    return any("dtype" in one.__name__.lower() for one in type(kind).__mro__)


# The promotion lattice: the next larger types of each type. Bool is below unsigned and signed integers, and these are
# below floats, as in JAX's lattice. Floats are below complex numbers with parts as wide.
_UP: dict[DType, tuple[DType, ...]] = {
    bool_: (uint8, int8),
    uint8: (int16, uint16),
    uint16: (int32, uint32),
    uint32: (int64, uint64),
    uint64: (float8_e4m3, float8_e5m2, float16, bfloat16, float32),
    int8: (int16,),
    int16: (int32,),
    int32: (int64,),
    int64: (float8_e4m3, float8_e5m2, float16, bfloat16, float32),
    float8_e4m3: (float16, bfloat16),
    float8_e5m2: (float16, bfloat16),
    float16: (float32,),
    bfloat16: (float32,),
    float32: (float64, complex64),
    float64: (complex128,),
    complex64: (complex128,),
    complex128: (),
}


def _above(one: DType) -> set[DType]:
    found, todo = {one}, [one]
    while todo:
        for up in _UP[todo.pop()]:
            if up not in found:
                found.add(up)
                todo.append(up)
    return found


def _join(a: DType, b: DType) -> DType:
    common = _above(a) & _above(b)
    wide = float64 if a.is_integer and b.is_integer else float32
    return next((one for one in EVERY if one in common and common <= _above(one)), wide)


_JOINED = {(a, b): _join(a, b) for a in EVERY for b in EVERY}


def promote(a: DType, b: DType) -> DType:
    """Return the smallest type that both convert to: int32 and float16 give float16, float16 and bfloat16 give float32,
    int8 and uint8 give int16.

    Where there is no smallest one, it is float64 for integers (int64 with uint64) and float32 for the two float8.
    """
    return _JOINED[a, b]


def of_scalar(value: Number, beside: DType | None = None) -> DType:
    """Return the type of a Python number in an operation with a tensor of `beside`. The number takes the tensor's type,
    except that a float with integers gives float32, an int with bools an integer, and a complex number with real ones
    complex64, or complex128 with float64.

    An integer alone is int32, or the one of int64 and uint64 that it fits. Raises ValueError if it fits neither.
    """
    if isinstance(value, bool):
        return beside or bool_
    if isinstance(value, int):
        return beside if beside is not None and beside is not bool_ else of_range(value)
    if isinstance(value, complex):
        return complex64 if beside is None else beside if beside.is_complex else WITH_PARTS.get(beside, complex64)
    return beside if beside is not None and beside.is_inexact else float32


def of_range(*values: Scalar) -> DType:
    """Return the first of int32, int64 and uint64 that all of some integers fit; a ValueError where there is none."""
    low, high = (int(one) for one in (min(values, default=0), max(values, default=0)))
    found = next((one for one in (int32, int64, uint64) if one.least <= low and high <= one.greatest), None)
    if found is None:
        what = f"{low} does" if low == high else f"{low} to {high} do"
        raise ValueError(f"{what} not fit 64 bits; give floats")
    return found


def fits(value: Number, dtype: DType) -> bool:
    """Return whether a number becomes an element of `dtype`: integers cut off the fraction, floats round. An integer
    type holds no NaN, and a finite number does not fit a float type that it overflows. Real types hold no complex
    number.
    """
    if dtype.kind == "bool":
        return True
    if isinstance(value, complex):
        return dtype.is_complex and fits(value.real, dtype.part) and fits(value.imag, dtype.part)
    if dtype.is_complex:
        return fits(value, dtype.part)
    if not dtype.is_float:
        return math.isfinite(value) and dtype.least <= math.trunc(value) <= dtype.greatest
    if not isinstance(value, int) and not math.isfinite(value):
        return math.isnan(value) or dtype is not float8_e4m3
    # half-way to the next number, a tie: to 448, which is even, in e4m3, else to infinity
    if dtype is float8_e4m3:
        return abs(value) <= 464
    top = 1 << (1 << dtype.exponent_bits - 1)
    return abs(value) < top - (top >> dtype.mantissa_bits + 2)


def fitting(value: Number, dtype: DType) -> Number:
    """Return a number that becomes an element of `dtype`; a ValueError where it does not fit, a TypeError for a complex
    number in a real type.
    """
    if fits(value, dtype):
        return value
    if isinstance(value, complex) and not dtype.is_complex:
        raise TypeError(f"{value} is complex and does not fit {dtype}: use complex64, or its .real or .imag")
    if dtype.is_inexact:
        raise ValueError(f"{value} does not fit {dtype} (up to {_largest(dtype):g})")
    raise ValueError(f"{value} does not fit {dtype} ({dtype.least} to {dtype.greatest})")


def _largest(dtype: DType) -> float:
    """Return the greatest finite number of a float type."""
    if dtype is float8_e4m3:
        return 448.0
    top = 1 << (1 << dtype.exponent_bits - 1)
    return float(top - (top >> dtype.mantissa_bits + 1))
