"""Floats of eight bits as CDNA3 has them: exponents are biased by one more, 0x80 is the only NaN, none is infinite.

Source: CDNA3 ISA reference, "FP8 and BF8 Formats", "V_CVT_PK_FP8_F32", "V_CVT_SR_FP8_F32". The formats are FNUZ: arXiv
2206.02915.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ringup.silicon.shader.amd.decoding.decode import selected_byte
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.eight_bits import of_two_bytes
from ringup.silicon.shader.amd.values.floats import Bits, Wide
from ringup.silicon.shader.amd.values.integers import U32


class Small(NamedTuple):
    """A format by its widths."""

    name: str
    mantissa_bits: int
    bias: int


FP8, BF8 = Small("fp8", 3, 8), Small("bf8", 2, 16)
FORMS = {one.name: one for one in (FP8, BF8)}
_NAN, _SIGN, _LARGEST = 0x80, 0x80, 0x7F


def _magnitudes(form: Small) -> Wide:
    """Return the values of the 128 numbers without a sign."""
    bits = np.arange(128)
    field, fraction = bits >> form.mantissa_bits, bits & (1 << form.mantissa_bits) - 1
    size = np.where(field > 0, fraction | 1 << form.mantissa_bits, fraction)
    found: Wide = np.ldexp(size.astype(np.float64), np.maximum(field, 1) - form.bias - form.mantissa_bits)
    return found


_MAGNITUDES = {form.name: _magnitudes(form) for form in FORMS.values()}
_VALUES = {name: np.concatenate([found, [np.nan], -found[1:]]) for name, found in _MAGNITUDES.items()}


def values(form: Small, octets: Bits) -> Wide:
    """Return the values of bytes."""
    found: Wide = _VALUES[form.name][octets & U32(0xFF)]
    return found


def widened(form: Small, octets: Bits) -> Bits:
    """Return bytes as f32."""
    return values(form, octets).astype(np.float32).view(np.uint32)


def narrowed(form: Small, numbers: Wide, *, saturates: bool, truncates: bool = False) -> Bits:
    """Return f64 lanes as bytes, to nearest even or truncated. What is too large is NaN, or the largest number."""
    size, magnitudes = np.abs(numbers), _MAGNITUDES[form.name]
    finite = np.where(np.isfinite(size), size, 0.0)
    exponent = np.maximum(np.frexp(finite)[1] - 1, 1 - form.bias) - form.mantissa_bits
    scaled = np.ldexp(finite, -exponent)
    rounded = np.ldexp(np.floor(scaled) if truncates else np.rint(scaled), exponent)
    too_large = (rounded > magnitudes[-1]) | np.isinf(size)
    places = np.searchsorted(magnitudes, np.where(too_large, 0.0, rounded))
    found = np.where(too_large, _LARGEST if saturates else _NAN, places)
    signed = np.where(np.signbit(numbers) & (found != 0), found | _SIGN, found)
    result: Bits = np.where(np.isnan(numbers), _NAN, signed).astype(U32)
    return result


def _f64(a: Bits) -> Wide:
    found: Wide = a.view(np.float32).astype(np.float64)
    return found


def _convert_one(form: Small) -> Vector:
    return lambda _, a: widened(form, a)


def _pack(form: Small) -> Vector:
    """Put two bytes into the half of the destination that op_sel selects."""

    def run(ctx: Ctx, old: Bits, a: Bits, b: Bits) -> Bits:
        low, high = (narrowed(form, _f64(one), saturates=ctx.saturates) for one in (a, b))
        place = U32(16 if ctx.ins.fields["opsel"] >> 3 & 1 else 0)
        return old & ~(U32(0xFFFF) << place) | (low | high << U32(8)) << place

    return run


def _stochastic(form: Small) -> Vector:
    """Return a conversion that adds src1's top bits below the last place, and truncates.

    GUESS: for denormal results too; the document gives only that the random bits are added to the mantissa.
    """
    dropped = 23 - form.mantissa_bits
    shift = U32(32 - dropped)

    def run(ctx: Ctx, old: Bits, a: Bits, noise: Bits) -> Bits:
        is_finite = (a & U32(0x7F80_0000)) != U32(0x7F80_0000)
        moved = np.where(is_finite, a + (noise >> shift), a).astype(U32)
        place = U32(8 * selected_byte(ctx.ins))
        octets = narrowed(form, _f64(moved), saturates=ctx.saturates, truncates=True)
        return old & ~(U32(0xFF) << place) | octets << place

    return run


FNUZ: dict[str, Vector] = {}
for _name, _form in FORMS.items():
    FNUZ |= {
        f"v_cvt_f32_{_name}": _convert_one(_form), f"v_cvt_pk_f32_{_name}": of_two_bytes(partial(widened, _form)),
        f"v_cvt_pk_{_name}_f32": _pack(_form), f"v_cvt_sr_{_name}_f32": _stochastic(_form),
    }  # fmt: skip
