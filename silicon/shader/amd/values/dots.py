"""Dot products of two pairs of 16-bit floats and an f32, as measured on cards: three terms in one integer sum.

The products are exact. Every term is truncated, toward zero, to multiples of one unit. The unit is 2**-24 of the larger
exponent of the products, taken from the exponent fields of their factors, or 2**-26 of the largest term's leading bit
if that is more. The sum has S2's sign as its direction. A term of the other sign is the complement of its bits, one
unit further from zero than its negation; this applies to zeros too. The sum is rounded once, to nearest even. MODE has
no effect: denormals of f16 are used, those of bf16 and of S2 are zero, and results below the normal numbers are +0. The
VOP3P, VOP2 and VOPD encodings (v_dot2, v_dot2acc) add alike. Source: github.com/ROCm/rocm-systems, issue 12056
(measured on gfx1151, 12 million sums) and rocjitsu's notes on gfx11's DOT2 (measured on gfx1100, with the NaNs). Source
for f32 denormals, which are flushed in any MODE: LLVM SIISelLowering.cpp, performFMACombine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.floats import F16, F32, Bits, Format, Mask, is_nan

I64 = np.int64
Integers = NDArray[np.int64]

FACTOR_NAN = 0xFFC0_0A3D  # a NaN among the factors
INVALID_NAN = 0xFFC0_0000  # infinity times zero, infinities of both signs
PRODUCT_BITS, SUM_BITS = 24, 26  # below the exponent of the products, below the leading bit of the largest term
NOWHERE = -2000  # the exponent of a zero


class Term(NamedTuple):
    """Lanes of size * 2**unit; `place` is the exponent in the bits of the number or of its factors."""

    size: Integers
    unit: Integers
    place: Integers
    is_negative: Mask


def _opened(form: Format, bits: Bits) -> Term:
    field = (bits & form.infinity).astype(I64) >> form.mantissa_bits
    fraction = (bits & (1 << form.mantissa_bits) - 1).astype(I64)
    size = np.where(field > 0, fraction | 1 << form.mantissa_bits, fraction if form is F16 else 0)
    place = np.maximum(field, 1) - form.bias
    return Term(size, place - form.mantissa_bits, place, (bits & form.sign) != 0)


def _product(a: Term, b: Term) -> Term:
    return Term(a.size * b.size, a.unit + b.unit, a.place + b.place, a.is_negative ^ b.is_negative)


def _leading(term: Term) -> Integers:
    """Return the exponent of a term's leading bit."""
    length = np.frexp(term.size.astype(np.float64))[1]
    return np.where(term.size > 0, term.unit + length - 1, NOWHERE)


def _cut(term: Term, unit: Integers) -> Integers:
    shift = term.unit - unit
    size: Integers = np.where(shift > 0, term.size << np.clip(shift, 0, 30), term.size >> np.clip(-shift, 0, 63))
    return size


def _finite(addend: Term, products: list[Term]) -> Bits:
    terms = (addend, *products)
    places = [np.where(one.size > 0, one.place, NOWHERE) - PRODUCT_BITS for one in products]
    unit = np.maximum.reduce([*places, *(_leading(one) - SUM_BITS for one in terms)])
    total = _cut(addend, unit)
    for one in products:
        total = total + np.where(one.is_negative ^ addend.is_negative, ~_cut(one, unit), _cut(one, unit))
    value = np.ldexp(total.astype(np.float32).astype(np.float64), unit)  # rounds to 24 bits
    value = np.where(addend.is_negative, -value, value)
    is_zero = (np.abs(value) < 2.0**-126) | (unit < NOWHERE + 2 * SUM_BITS)
    with np.errstate(over="ignore"):
        result: Bits = np.where(is_zero, 0.0, value).astype(np.float32).view(np.uint32)
    return result


def _is_special(form: Format, bits: Bits) -> Mask:
    return (bits & form.infinity) == form.infinity


def _is_infinite(form: Format, bits: Bits) -> Mask:
    return (bits & form.magnitude) == form.infinity


def add_pair(source: Format, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return a.lo * b.lo + a.hi * b.hi + c as f32; `source` is the format of the halves, `c` is f32."""
    halves = [(one & np.uint32(0xFFFF), one >> np.uint32(16)) for one in (a, b)]
    pairs = list(zip(*halves, strict=True))
    opened = [[_opened(source, one) for one in pair] for pair in pairs]
    products = [_product(*pair) for pair in opened]
    result = _finite(_opened(F32, c), products)
    if not any(
        _is_special(form, one).any() for form, one in [(F32, c), *((source, one) for pair in pairs for one in pair)]
    ):
        return result
    infinities = [[_is_infinite(source, one) for one in pair] for pair in pairs]
    is_bad = np.any([is_nan(source, one) for pair in pairs for one in pair], axis=0)
    is_invalid = np.zeros(is_bad.shape, np.bool_)
    above, below = np.zeros_like(is_invalid), np.zeros_like(is_invalid)
    for (left, right), infinite, product in zip(opened, infinities, products, strict=True):
        is_invalid |= (infinite[0] & (right.size == 0)) | (infinite[1] & (left.size == 0))
        above |= (infinite[0] | infinite[1]) & ~product.is_negative
        below |= (infinite[0] | infinite[1]) & product.is_negative
    is_invalid |= above & below
    above |= c == F32.infinity
    below |= c == F32.sign | F32.infinity
    chosen: Bits = np.select(
        [is_bad, is_invalid, is_nan(F32, c), above & below, above, below],
        [np.uint32(FACTOR_NAN), np.uint32(INVALID_NAN), c | np.uint32(F32.quiet), np.uint32(INVALID_NAN), np.uint32(F32.infinity),
         np.uint32(F32.sign | F32.infinity)],
        result,
    )  # fmt: skip
    return chosen.astype(np.uint32)


def dot2(source: Format) -> Vector:
    """Return v_dot2_f32_*."""
    return lambda ctx, a, b, c: add_pair(source, a, b, c)


def dot2_accumulate(source: Format) -> Vector:
    """Return v_dot2acc_f32_*, which adds to its destination."""

    def run(ctx: Ctx, d: Bits, a: Bits, b: Bits) -> Bits:
        return add_pair(source, a, b, d)

    return run
