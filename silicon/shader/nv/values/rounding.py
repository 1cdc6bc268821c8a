"""Sums and products of floats with one rounding, in any mode.

A result is first computed in f64 and rounded to odd: inexact results get an odd last bit. Rounding that to f32 or f16
in any mode is the same as rounding the exact result, since f64 has more than twice their bits and two.
Source: Boldo and Melquiond, "Emulation of a FMA and correctly-rounded sums" (2008).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

NEAREST, DOWN, UP, ZERO = "", "RM", "RP", "RZ"
F32_NAN = np.uint32(0x7FFF_FFFF)
F16_NAN = np.uint16(0x7FFF)
# GUESS: as CUDA's constant CUDART_NAN. Which NaN an f64 instruction makes of another one is not documented.
F64_NAN = np.uint64(0xFFF8_0000_0000_0000)


def odd_sum(a: Doubles, b: Doubles) -> Doubles:
    """Return a + b rounded to odd."""
    with np.errstate(all="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
    return _to_odd(total, error)


def _to_odd(total: Doubles, error: Doubles) -> Doubles:
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0)
    bits = total.view(np.int64)
    even = inexact & (bits & 1 == 0)
    # The exact value lies between `total` and its neighbour on the error's side; one of the two is odd.
    away = (error > 0) == (total > 0)
    step = np.where(away, 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)


def odd_fma(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """Return a * b + c rounded to odd, for factors of at most 24 bits, so that their product is exact."""
    with np.errstate(all="ignore"):
        product = a * b
    return odd_sum(product, c)


def single(value: Doubles, mode: str, *, flush: bool = False, saturate: bool = False) -> NDArray[np.uint32]:
    """Round to f32 and return its bits. NaN is 0x7fffffff; `flush` makes denormals zero; `saturate`: 0 to 1."""
    with np.errstate(all="ignore"):
        result = _directed(value, np.float32, mode)
        if saturate:
            # A NaN becomes 0.
            result = np.where(result > 0, np.minimum(result, 1.0), 0.0)
        bits = result.astype(np.float32).view(np.uint32)
    bits = np.where(np.isnan(result), F32_NAN, bits)
    return flushed(bits) if flush else bits


def half(value: Doubles, mode: str, *, flush: bool = False, saturate: bool = False) -> NDArray[np.uint16]:
    """Round to f16 and return its bits. NaN is 0x7fff."""
    with np.errstate(all="ignore"):
        result = _directed(value, np.float16, mode)
        if saturate:
            result = np.where(result > 0, np.minimum(result, 1.0), 0.0)
        bits = np.where(np.isnan(result), F16_NAN, result.astype(np.float16).view(np.uint16))
    if flush:
        bits = np.where(bits & 0x7C00 == 0, bits & 0x8000, bits)
    return bits.astype(np.uint16)


def _directed(value: Doubles, kind: type[np.float32 | np.float16], mode: str) -> Doubles:
    """Return `value` rounded to a narrow type, as f64, which holds it exactly."""
    near = value.astype(kind)
    wide = near.astype(np.float64)
    if mode == NEAREST:
        return wide
    if mode == DOWN:
        return np.where(wide > value, np.nextafter(near, kind(-np.inf)), near).astype(np.float64)
    if mode == UP:
        return np.where(wide < value, np.nextafter(near, kind(np.inf)), near).astype(np.float64)
    return np.where(np.abs(wide) > np.abs(value), np.nextafter(near, kind(0)), near).astype(np.float64)


def flushed(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the bits of f32 with denormals made zeroes of their sign."""
    return np.where(bits & np.uint32(0x7F80_0000) == 0, bits & np.uint32(0x8000_0000), bits).astype(np.uint32)


def bfloat(value: Doubles, *, flush: bool = False, saturate: bool = False) -> NDArray[np.uint16]:
    """Round to bf16, to nearest, and return its bits. NaN is 0x7fff. `value` is exact or rounded to odd."""
    with np.errstate(all="ignore"):
        if saturate:
            value = np.where(value > 0, np.minimum(value, 1.0), 0.0)
        bits = odd_single(value)
    whole = bits.astype(np.uint64)
    rounded = (whole + np.uint64(0x7FFF) + (whole >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    found = np.where(np.isnan(value), F16_NAN, rounded.astype(np.uint16))
    return (np.where(found & 0x7F80 == 0, found & 0x8000, found) if flush else found).astype(np.uint16)


def odd_single(value: Doubles) -> NDArray[np.uint32]:
    """Round to f32, to odd, and return its bits."""
    with np.errstate(all="ignore"):
        near = value.astype(np.float32)
        towards = np.where(np.abs(near.astype(np.float64)) > np.abs(value), np.nextafter(near, np.float32(0)), near)
    bits = towards.astype(np.float32).view(np.uint32)
    inexact = (near.astype(np.float64) != value) & ~np.isnan(value)
    return np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32)


def double(value: Doubles) -> NDArray[np.uint64]:
    """Return the bits of f64 results; there is one NaN."""
    return np.where(np.isnan(value), F64_NAN, value.view(np.uint64))


def directed(value: Doubles, a: Doubles, b: Doubles, c: Doubles, mode: str) -> Doubles:
    """Return a * b + c rounded by `mode`; `value` is the same, rounded to nearest."""
    if mode == NEAREST:
        return value
    found = [_directed64(*each, mode) for each in zip(value.tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True)]
    return np.array(found, np.float64)


def _directed64(near: float, a: float, b: float, c: float, mode: str) -> float:
    if not all(math.isfinite(one) for one in (a, b, c)):
        return near
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        # Of zeroes with both signs the sum is -0 only when rounding down.
        return -abs(near) if mode == DOWN and c and a * b else near
    if math.isinf(near):
        largest = math.copysign(float(np.finfo(np.float64).max), near)
        return largest if mode == ZERO or (mode == DOWN) == (near > 0) else near
    rest = exact - Fraction(near)
    if rest < 0 and (mode == DOWN or (mode == ZERO and near > 0)):
        return math.nextafter(near, -math.inf)
    if rest > 0 and (mode == UP or (mode == ZERO and near < 0)):
        return math.nextafter(near, math.inf)
    return near


def double_fma(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """Return a * b + c with one rounding to nearest, in f64, by exact fractions."""
    with np.errstate(all="ignore"):
        plain = a * b + c
    found = [
        _fused(*each) if np.isfinite(each[:3]).all() else each[3]
        for each in zip(a.tolist(), b.tolist(), c.tolist(), plain.tolist(), strict=True)
    ]
    return np.array(found, np.float64)


def _fused(a: float, b: float, c: float, plain: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else plain
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
