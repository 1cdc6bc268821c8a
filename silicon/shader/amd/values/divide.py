"""The steps of division and argument reduction: div_scale, div_fmas, div_fixup and trig_preop.

Source: RDNA3 ISA reference, "V_DIV_SCALE_F32" ... "V_TRIG_PREOP_F64". The document's constants contradict each other
and do not divide right. They are interpreted so that the division a compiler emits (scale, reciprocal, two Newton
steps, fmas, fixup) is IEEE's: see `_fused_scaled` and `_scale`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.float_arithmetic import fused_unflushed, is_zero, scaled
from ringup.silicon.shader.amd.values.floats import F16, F32, F64, Bits, Format, Mask


class _Limits(NamedTuple):
    """Constants of the pseudo-code; exponents are biased fields."""

    far: int  # exponent difference at which numerator over denominator is near the largest number
    power: int  # of two, by which operands are scaled
    tiny: int  # largest exponent of a tiny numerator
    underflow: int  # exponent difference below which the quotient is zero


LIMITS = {F32: _Limits(96, 64, 23, -150), F64: _Limits(768, 128, 53, -1075)}


def _field(form: Format, bits: int) -> int:
    return (bits & form.infinity) >> form.mantissa_bits


def _is_denormal(form: Format, bits: int) -> bool:
    return 0 < bits & form.magnitude < 1 << form.mantissa_bits


def _below_normal(form: Format, numerator: tuple[int, int, int], denominator: tuple[int, int, int]) -> bool:
    """Return whether |numerator / denominator| is less than the smallest normal number."""
    least = form.lowest + form.mantissa_bits
    shift = numerator[2] - denominator[2] - least
    left, right = numerator[1], denominator[1]
    return left << max(shift, 0) < right << max(-shift, 0)


def _scale_one(form: Format, value: int, denominator: int, numerator: int) -> tuple[int | None, bool]:
    """Return the power of two for `value` (None: the result is NaN), and whether the quotient needs scaling back.

    QUIRK: if only the reciprocal would be denormal, the denominator is huge and is scaled down, although the document
    says up in one place.
    """
    limits, mask = LIMITS[form], form.magnitude
    if not denominator & mask or not numerator & mask:
        return None, False
    is_denominator = value & mask == denominator & mask
    is_numerator = value & mask == numerator & mask
    if form.infinity in (
        _field(form, denominator) << form.mantissa_bits,
        _field(form, numerator) << form.mantissa_bits,
    ):
        return 0, False  # div_fixup gives the result
    bottom, top = floats.unpacked(form, denominator), floats.unpacked(form, numerator)
    if _field(form, numerator) - _field(form, denominator) >= limits.far:
        return (limits.power if is_denominator else 0), True
    if _is_denormal(form, denominator):
        return limits.power, False
    is_reciprocal_small = _below_normal(form, (0, 1, 0), bottom)
    is_quotient_small = _below_normal(form, top, bottom)
    if is_reciprocal_small and is_quotient_small:
        return (-limits.power if is_denominator else 0), True
    if is_reciprocal_small:
        return -limits.power, False
    if is_quotient_small:
        return (limits.power if is_numerator else 0), True
    return (limits.power if _field(form, numerator) <= limits.tiny else 0), False


def _scale(form: Format) -> Vector:
    def run(ctx: Ctx, value: Bits, denominator: Bits, numerator: Bits) -> tuple[Bits, Mask]:
        value, denominator, numerator = (ctx.taken(form, one) for one in (value, denominator, numerator))
        rows = [
            _scale_one(form, int(one), int(bottom), int(top))
            for one, bottom, top in zip(value, denominator, numerator, strict=True)
        ]
        powers = np.array([power or 0 for power, _ in rows], np.int64)
        is_bad = np.array([power is None for power, _ in rows])
        result = np.where(powers == 0, value, scaled(ctx, form, value, powers))
        return np.where(is_bad, form.lane(form.invalid), result), np.array([flag for _, flag in rows])

    return run


def _fused_scaled(form: Format) -> Vector:
    """Return a fused multiply-add that undoes the scaling of div_scale where VCC is set.

    QUIRK: the document gives 2**32 (f64: 2**64), up. div_scale scales by the square of that: the denominator up if the
    quotient is large, the numerator up if it is small. So the direction depends on the size of the quotient, which is
    the third source.
    """

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits, needs_scale: Mask) -> Bits:
        plain = fused_unflushed(ctx, form, a, b, c)
        if not needs_scale.any():
            return plain
        is_large = (c & form.lane(form.magnitude)) >= form.lane(form.bias + 1 << form.mantissa_bits)
        up, down = (fused_unflushed(ctx, form, a, b, c, power) for power in (LIMITS[form].power, -LIMITS[form].power))
        return np.where(needs_scale, np.where(is_large, up, down), plain)

    return run


def _fix_up(form: Format) -> Vector:
    """Replace the quotient for NaN, zero, infinity, overflow and underflow.

    QUIRK: the document reports overflow if the denominator's exponent is that of infinity, a case handled before; it
    must mean the quotient's.
    """

    def run(ctx: Ctx, quotient: Bits, denominator: Bits, numerator: Bits) -> Bits:
        quotient, denominator, numerator = (ctx.taken(form, one) for one in (quotient, denominator, numerator))
        lane, mask = form.lane, form.lane(form.magnitude)
        sign = (denominator ^ numerator) & lane(form.sign)
        infinite = lane(form.infinity)
        is_bottom_inf, is_top_inf = (denominator & mask) == infinite, (numerator & mask) == infinite
        is_bottom_zero, is_top_zero = is_zero(form, denominator), is_zero(form, numerator)
        fixed = quotient & mask | sign
        if form in LIMITS:
            fields = [(one & infinite) >> lane(form.mantissa_bits) for one in (numerator, denominator)]
            is_under = fields[0].astype(np.int64) - fields[1].astype(np.int64) < LIMITS[form].underflow
            is_over = (quotient & mask) >= infinite
            most = [floats.packed(form, one, 1, 4 * form.bias, ctx.rounding(form)) for one in (0, 1)]
            fixed = np.where(is_over, np.where(sign != 0, lane(most[1]), lane(most[0])), fixed)
            least = [floats.packed(form, one, 1, form.lowest - 2, ctx.rounding(form)) for one in (0, 1)]
            fixed = np.where(is_under, np.where(sign != 0, lane(least[1]), lane(least[0])), fixed)
        fixed = np.where(is_bottom_inf | is_top_zero, sign, fixed)
        fixed = np.where(is_bottom_zero | is_top_inf, sign | infinite, fixed)
        fixed = np.where((is_bottom_inf & is_top_inf) | (is_bottom_zero & is_top_zero), lane(form.invalid), fixed)
        for one in (denominator, numerator):
            fixed = np.where(floats.is_nan(form, one), one | lane(form.quiet), fixed)
        return np.where(floats.is_nan(form, fixed), fixed, ctx.given(form, fixed))

    return run


TWO_OVER_PI_BITS = 1201
_SEGMENT_BITS = 53


@cache
def two_over_pi() -> int:
    """Return the first 1201 bits after the point of 2 / pi, by Machin's formula."""
    one = 1 << TWO_OVER_PI_BITS + 64

    def arc_cotangent(x: int) -> int:
        total, term, sign, n = 0, one // x, 1, 1
        while term:
            total += sign * (term // n)
            term //= x * x
            sign, n = -sign, n + 2
        return total

    pi = 4 * (4 * arc_cotangent(5) - arc_cotangent(239))
    return (2 * one << TWO_OVER_PI_BITS) // pi


def _segment(ctx: Ctx, a: Bits, select: Bits) -> Bits:
    """Return the 53 bits of 2 / pi in segment `select` that matter for a number of the size of `a`."""
    found = np.empty(len(a), np.uint64)
    for lane, (bits, number) in enumerate(zip(a, select, strict=True)):
        field = _field(F64, int(bits))
        shift = (int(number) & 31) * _SEGMENT_BITS + max(field - 1077, 0)
        window = two_over_pi() << shift & (1 << TWO_OVER_PI_BITS) - 1
        scale = -_SEGMENT_BITS - shift + (128 if field >= 1968 else 0)
        found[lane] = floats.packed(F64, 0, window >> TWO_OVER_PI_BITS - _SEGMENT_BITS, scale, floats.ZERO)
    return ctx.given(F64, found)


DIVIDE: dict[str, Vector] = {
    "v_div_scale_f32": _scale(F32),
    "v_div_scale_f64": _scale(F64),
    "v_div_fmas_f32": _fused_scaled(F32),
    "v_div_fmas_f64": _fused_scaled(F64),
    "v_div_fixup_f16": _fix_up(F16),
    "v_div_fixup_f32": _fix_up(F32),
    "v_div_fixup_f64": _fix_up(F64),
    "v_trig_preop_f64": _segment,
}
