"""Sums of products in CDNA's matrix cores, bit for bit as they were measured on cards of CDNA3.

f32 and f64: one fused multiply-add after the other along K. f16, bf16 and xf32: eight products (four of xf32) at a time
are cut, towards zero, to multiples of 2**-24 of the largest one's exponent, the sum of its factors'. Then their sum and
the addend are cut, towards minus infinity: the sum to 2**-31 of the larger exponent, the addend to 2**-24 of it. The
result is rounded to nearest even. 8-bit floats: sixteen products, those of even and of odd places apart, and the two
sums are added as said. Denormals are used and given in any MODE. xf32 is an f32 without its lowest 13 bits.

Source: MMA-Sim (microsoft/MMA-Sim, mmasim/arithmetic/fdpa.py and amd/sim.py; arXiv 2511.10909), which was compared with
an MI300X. GUESS: CDNA4 adds alike, with 8-bit floats of OCP; the payload of NaNs; that sparse products add the kept
elements alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.amd.values.floats import BF16, F16, F32, Bits, Format
from ringup.silicon.shader.amd.values.fnuz import FORMS, Small
from ringup.silicon.shader.amd.values.fnuz import values as small_values
from ringup.silicon.shader.amd.values.integers import U32
from ringup.silicon.shader.amd.values.small_floats import BF8, FP8
from ringup.silicon.shader.amd.values.small_floats import Small as OcpSmall
from ringup.silicon.shader.amd.values.small_floats import values as ocp_values

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

CUT, SUM_CUT = 24, 31
NOWHERE = -126  # the exponent of a product that is zero
NAN = 0x7FC0_0000
XF32_DROPPED = 13
# By the name of the elements' type: products that are added at a time.
GROUPS = {"f16": 8, "bf16": 8, "xf32": 4, "fp8": 16, "bf8": 16, "ocp_fp8": 16, "ocp_bf8": 16}
_OCTETS: dict[str, Small | OcpSmall] = {**FORMS, "ocp_fp8": FP8, "ocp_bf8": BF8}


class Factor(NamedTuple):
    """Elements as size * 2**(exponent - place) with `place` fraction bits; `number` is their value, NaN and infinity
    too.
    """

    size: Integers
    exponent: Integers
    place: int
    number: Numbers


def _opened(form: Format, bits: Bits, dropped: int = 0) -> Factor:
    bits = bits >> form.lane(dropped) << form.lane(dropped)
    field = (bits & form.lane(form.infinity)).astype(np.int64) >> form.mantissa_bits
    fraction = (bits & form.lane((1 << form.mantissa_bits) - 1)).astype(np.int64)
    size = np.where(field > 0, fraction | 1 << form.mantissa_bits, fraction) >> dropped
    size = np.where((bits & form.lane(form.sign)) != 0, -size, size)
    if form is F32:
        number = bits.astype(np.uint32).view(np.float32).astype(np.float64)
    elif form is BF16:
        number = (bits.astype(np.uint32) << U32(16)).view(np.float32).astype(np.float64)
    else:
        number = bits.astype(np.uint16).view(np.float16).astype(np.float64)
    return Factor(size, np.maximum(field, 1) - form.bias, form.mantissa_bits - dropped, number)


def _opened_small(form: Small | OcpSmall, octets: Bits) -> Factor:
    number = ocp_values(form, octets) if isinstance(form, OcpSmall) else small_values(form, octets)
    field = (octets.astype(np.int64) & 0x7F) >> form.mantissa_bits
    exponent = np.maximum(field, 1) - form.bias
    finite = np.where(np.isfinite(number), number, 0.0)
    size = np.ldexp(finite, form.mantissa_bits - exponent).astype(np.int64)
    return Factor(size, exponent, form.mantissa_bits, number)


def opened(type_: str, bits: Bits) -> Factor:
    """Return elements of a type taken apart."""
    if type_ in _OCTETS:
        return _opened_small(_OCTETS[type_], bits)
    return _opened(F32, bits, XF32_DROPPED) if type_ == "xf32" else _opened({"f16": F16, "bf16": BF16}[type_], bits)


def _cut_sum(size: Integers, exponent: Integers, place: int) -> tuple[Integers, Integers]:
    """Return the sum of products along the last axis in multiples of 2**(exponent - CUT), and that exponent."""
    exponent = np.where(size == 0, NOWHERE, exponent)
    largest = exponent.max(axis=-1)
    left = (CUT - place) - (largest[..., None] - exponent)
    magnitude = np.abs(size)
    cut = np.where(left >= 0, magnitude << np.clip(left, 0, 40), magnitude >> np.clip(-left, 0, 62))
    return np.where(size < 0, -cut, cut).sum(axis=-1), largest


def _down(size: Integers, by: Integers) -> Integers:
    found: Integers = size >> np.clip(by, 0, 62)
    return found


def _step(type_: str, a: Factor, b: Factor, c: Bits) -> Bits:
    """Return one group of products along the last axis, plus `c` of f32."""
    size, exponent, place = a.size * b.size, a.exponent + b.exponent, a.place + b.place
    addend = _opened(F32, c)
    if type_ in _OCTETS:
        (even, first), (odd, second) = (_cut_sum(size[..., at::2], exponent[..., at::2], place) for at in (0, 1))
        largest = np.maximum(first, second)
        total = _down(even, largest - first) + _down(odd, largest - second)
    else:
        total, largest = _cut_sum(size, exponent, place)
    whole = np.maximum(largest, addend.exponent)
    total = _down(total << SUM_CUT - CUT, whole - largest)
    below = _down(addend.size << CUT - addend.place, whole - addend.exponent)
    if type_ in _OCTETS:
        below = np.where(addend.exponent < whole - CUT - 1, 0, below)
    total = total + (below << SUM_CUT - CUT)
    with np.errstate(over="ignore"):
        found = np.ldexp(total.astype(np.float64), whole - SUM_CUT).astype(np.float32)
    # Only zeros of one sign give that sign.
    is_negative = (np.signbit(a.number) ^ np.signbit(b.number)).all(axis=-1) & np.signbit(addend.number)
    found = np.where((total == 0) & is_negative, np.float32(-0.0), found)
    return _with_specials(found.view(np.uint32), a, b, addend)


def _with_specials(found: Bits, a: Factor, b: Factor, c: Factor) -> Bits:
    """Replace the sums that are infinite or NaN. A product too large for f32 is infinite."""
    with np.errstate(invalid="ignore"):
        products = a.number * b.number
        products = np.where(np.abs(products) >= 2.0**128, np.copysign(np.inf, products), products)
        total = np.where(np.isfinite(products), 0.0, products).sum(axis=-1) + np.where(
            np.isfinite(c.number), 0.0, c.number
        )
    special = np.where(np.isnan(total), U32(NAN), np.where(total > 0, U32(0x7F80_0000), U32(0xFF80_0000)))
    return np.where((total == 0) & ~np.isnan(total), found, special).astype(np.uint32)


def multiply_add(types: tuple[str, str], a: Bits, b: Bits, c: Bits) -> Bits:
    """Return A x B + C as f32 bits: A (…, M, K) and B (…, N, K) are elements' bits, C is (…, M, N)."""
    left, right = opened(types[0], a), opened(types[1], b)
    step, total = GROUPS[types[0]], c
    for first in range(0, a.shape[-1], step):
        part = slice(first, first + step)
        total = _step(types[0], _expanded(left, part, -2), _expanded(right, part, -3), total)
    return total


def multiply_add_pairs(types: tuple[str, str], a: Bits, b: Bits, c: Bits) -> Bits:
    """Return C plus the sums along K of products of elements in equal places: A and B are (…, M, N, K)."""
    left, right = opened(types[0], a), opened(types[1], b)
    step, total = GROUPS[types[0]], c
    for first in range(0, a.shape[-1], step):
        part = slice(first, first + step)
        total = _step(types[0], _expanded(left, part, None), _expanded(right, part, None), total)
    return total


def _expanded(factor: Factor, part: slice, axis: int | None) -> Factor:
    def shape(elements: Bits) -> Bits:
        taken = elements[..., part]
        return taken if axis is None else np.expand_dims(taken, axis)

    return Factor(shape(factor.size), shape(factor.exponent), factor.place, shape(factor.number))
