"""Float formats of the vector ALU and exact arithmetic: rounding modes, denormals, NaNs, sums without double rounding.

Lanes of f16, bf16 and f32 are computed in f64. A product of two of them is exact there. A sum is "rounded to odd" (its
last bit is sticky). Any rounding of that to the narrow format is right, since f64 has more than two spare bits. The
host adds and multiplies f64 if the mode is nearest even; in other modes integers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.common.lanes import some

# Lanes; the lane type depends on the format, which NumPy's stubs cannot express.
Bits: TypeAlias = Any  # array of uint32, of uint64 for f64
Mask: TypeAlias = Any  # array of bool
Wide = NDArray[np.float64]

NEAREST, UP, DOWN, ZERO = range(4)  # MODE.fp_round


@dataclass(frozen=True, slots=True)
class Format:
    """One float format by its field widths."""

    name: str
    size_bits: int
    mantissa_bits: int

    @property
    def sign(self) -> int:
        return 1 << self.size_bits - 1

    @property
    def magnitude(self) -> int:
        return self.sign - 1

    @property
    def infinity(self) -> int:
        """Bits of +infinity, which are also the mask of the exponent."""
        return self.magnitude >> self.mantissa_bits << self.mantissa_bits

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return 1 << self.mantissa_bits - 1

    @property
    def invalid(self) -> int:
        """The NaN of an invalid operation.

        Source: RDNA3 ISA reference, V_SQRT_F32 and V_DIV_FIXUP_F64 give 0xffc00000, 0xfff8000000000000.
        """
        return self.sign | self.infinity | self.quiet

    @property
    def bias(self) -> int:
        return (1 << self.size_bits - self.mantissa_bits - 2) - 1

    @property
    def lowest(self) -> int:
        """Exponent of the last mantissa bit of denormals."""
        return 1 - self.bias - self.mantissa_bits

    @property
    def lane(self) -> Any:
        """The lane type that holds the bits."""
        return np.uint64 if self.size_bits == 64 else np.uint32


F16 = Format("f16", 16, 10)
BF16 = Format("bf16", 16, 7)
F32 = Format("f32", 32, 23)
F64 = Format("f64", 64, 52)
FORMATS = {one.name: one for one in (F16, BF16, F32, F64)}


def is_nan(form: Format, bits: Bits) -> Mask:
    """Return which lanes are NaN."""
    return (bits & form.lane(form.magnitude)) > form.lane(form.infinity)


def is_signalling(form: Format, bits: Bits) -> Mask:
    """Return which lanes are signalling NaNs."""
    return is_nan(form, bits) & ((bits & form.lane(form.quiet)) == 0)


def quieted(form: Format, bits: Bits) -> Bits:
    """Return NaN lanes made quiet; the others unchanged."""
    return np.where(is_nan(form, bits), bits | form.lane(form.quiet), bits)


def flushed(form: Format, bits: Bits) -> Bits:
    """Return zeros of the same sign for denormals."""
    is_small = (bits & form.lane(form.infinity)) == 0
    return np.where(is_small, bits & form.lane(form.sign), bits)


def widened(form: Format, bits: Bits) -> Wide:
    """Return the values of lanes, exactly."""
    if form is F64:
        values: Wide = bits.view(np.float64)
    elif form is F32:
        values = bits.view(np.float32).astype(np.float64)
    elif form is BF16:
        values = (bits << np.uint32(16)).view(np.float32).astype(np.float64)
    else:
        values = bits.astype(np.uint16).view(np.float16).astype(np.float64)
    return values


def _nearest(form: Format, values: Wide) -> Bits:
    if form is F32:
        return values.astype(np.float32).view(np.uint32)
    if form is F16:
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    # Exact or sticky in 24 bits, so rounding to 8 bits is right.
    bits = toward_odd(values).view(np.uint32)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    rounded = np.where(is_nan(F32, bits), bits | np.uint32(F32.quiet), bits + half)
    return rounded >> np.uint32(16)


def toward_odd(values: Wide) -> NDArray[np.float32]:
    """Return f64 lanes as f32, truncated, with the last bit set if the lane was inexact."""
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    back = near.astype(np.float64)
    cut = np.where(np.abs(back) > np.abs(values), bits - np.uint32(1), bits)
    is_inexact = (back != values) & ~np.isnan(values)
    return np.where(is_inexact, cut | np.uint32(1), cut).view(np.float32)


def rounded(form: Format, values: Wide, mode: int = NEAREST) -> Bits:
    """Return f64 lanes, exact or rounded to odd, in a narrower format. A NaN's payload has no meaning."""
    bits = _nearest(form, values)
    if mode == NEAREST:
        return bits
    back = widened(form, bits)
    lane = form.lane
    if mode == ZERO:
        return np.where(np.abs(back) > np.abs(values), bits - lane(1), bits)
    is_wrong = back < values if mode == UP else back > values
    # rounding to nearest went away from zero
    is_grown = np.signbit(values) if mode == UP else ~np.signbit(values)
    return np.where(is_wrong, np.where(is_grown, bits - lane(1), bits + lane(1)), bits)


def odd_sum(a: Wide, b: Wide, mode: int = NEAREST) -> Wide:
    """Return a + b with the sticky last bit; a zero sum of opposites is negative when rounding down."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    odd = total
    if some(is_inexact := error != 0):
        bits = total.view(np.int64)
        is_inexact = is_inexact & np.isfinite(error) & np.isfinite(total) & (bits & 1 == 0)
        # away from zero where the error has the sum's sign
        step = np.where((error > 0) == (total > 0), 1, -1)
        odd = np.where(is_inexact, bits + step, bits).view(np.float64)
    if mode == DOWN:
        odd = np.where((odd == 0) & (np.signbit(a) != np.signbit(b)), -0.0, odd)
    return odd


def unpacked(form: Format, bits: int) -> tuple[int, int, int]:
    """Return sign, mantissa and exponent of a finite number: (-1)**sign * mantissa * 2**exponent."""
    field = (bits & form.infinity) >> form.mantissa_bits
    mantissa = bits & (1 << form.mantissa_bits) - 1
    sign = bits >> form.size_bits - 1 & 1
    if field == 0:
        return sign, mantissa, form.lowest
    return sign, mantissa | 1 << form.mantissa_bits, field - 1 + form.lowest


def packed(form: Format, sign: int, mantissa: int, exponent: int, mode: int = NEAREST) -> int:
    """Return the bits of (-1)**sign * mantissa * 2**exponent, rounded once."""
    signed = form.sign if sign else 0
    if mantissa == 0:
        return signed
    drop = max(mantissa.bit_length() - form.mantissa_bits - 1, form.lowest - exponent)
    if drop <= 0:
        mantissa <<= -drop
    else:
        rest = mantissa & (1 << drop) - 1
        mantissa >>= drop
        half = 1 << drop - 1
        is_nearer = rest > half or (rest == half and mantissa & 1)
        mantissa += bool((is_nearer, rest and not sign, rest and sign, 0)[mode])
    # The hidden bit adds one to the exponent field; a carry out of the mantissa adds another.
    bits = (exponent + drop - form.lowest << form.mantissa_bits) + mantissa
    if bits < form.infinity:
        return signed | bits
    return signed | form.infinity - bool((False, sign, not sign, True)[mode])
