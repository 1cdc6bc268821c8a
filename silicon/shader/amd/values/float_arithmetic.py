"""Vector float arithmetic in f16, f32 and f64.

Sums, products, fused multiply-adds, minima and maxima, integral parts, exponents, cube maps. Every result is rounded
once. Source: RDNA3 ISA reference, "VOP1", "VOP2" and "VOP3 Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import Ctx, Vector, with_nans
from ringup.silicon.shader.amd.values.floats import DOWN, F16, F32, F64, NEAREST, Bits, Format, Mask, Wide

FORMS = (F16, F32, F64)


def _exactly(ctx: Ctx, compute: Callable[..., tuple[int, int, int]], shaped: Wide, *sources: Bits) -> Bits:
    """Return f64 lanes of `compute` on (sign, mantissa, exponent) triples, rounded once.

    `shaped` has the results of lanes that are not finite.
    """
    values = shaped.view(np.uint64).copy()
    is_finite = np.isfinite(np.stack([one.view(np.float64) for one in sources])).all(axis=0)
    for lane in np.flatnonzero(is_finite):
        triples = [floats.unpacked(F64, int(one[lane])) for one in sources]
        values[lane] = floats.packed(F64, *compute(*triples), ctx.round_f16_f64)
    return with_nans(F64, ctx.given(F64, values), np.isnan(shaped), sources)


_Triple = tuple[int, int, int]


def _exact_sum(a: _Triple, b: _Triple, is_down: bool) -> _Triple:
    low = min(a[2], b[2])
    left, right = ((-one[1] if one[0] else one[1]) << one[2] - low for one in (a, b))
    total = left + right
    if total == 0:
        # Opposites give +0, or -0 when rounding down.
        return (a[0] if a[0] == b[0] else int(is_down)), 0, low
    return int(total < 0), abs(total), low


def _exact_product(a: _Triple, b: _Triple) -> _Triple:
    return a[0] ^ b[0], a[1] * b[1], a[2] + b[2]


# Formats that the host computes, rounding to nearest even.
_NATIVE: dict[Format, Any] = {F32: np.float32, F64: np.float64}


def _native(ctx: Ctx, form: Format, values: Any, *sources: Bits) -> Bits:
    return with_nans(form, ctx.given(form, values.view(form.lane)), np.isnan(values), sources)


def add(ctx: Ctx, form: Format, a: Bits, b: Bits) -> Bits:
    """Return a + b."""
    a, b = ctx.taken(form, a), ctx.taken(form, b)
    mode = ctx.rounding(form)
    if form in _NATIVE and mode == NEAREST:
        return _native(ctx, form, a.view(_NATIVE[form]) + b.view(_NATIVE[form]), a, b)
    left, right = floats.widened(form, a), floats.widened(form, b)
    if form is not F64:
        return ctx.result(form, floats.odd_sum(left, right, mode), a, b)
    return _exactly(ctx, lambda x, y: _exact_sum(x, y, mode == DOWN), left + right, a, b)


def multiply(ctx: Ctx, form: Format, a: Bits, b: Bits) -> Bits:
    """Return a * b."""
    a, b = ctx.taken(form, a), ctx.taken(form, b)
    if form in _NATIVE and ctx.rounding(form) == NEAREST:
        return _native(ctx, form, a.view(_NATIVE[form]) * b.view(_NATIVE[form]), a, b)
    product = floats.widened(form, a) * floats.widened(form, b)
    if form is not F64:
        return ctx.result(form, product, a, b)
    return _exactly(ctx, _exact_product, product, a, b)


def fuse(ctx: Ctx, form: Format, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return a * b + c, rounded once."""
    return fused_unflushed(ctx, form, ctx.taken(form, a), ctx.taken(form, b), ctx.taken(form, c))


def fused_unflushed(ctx: Ctx, form: Format, a: Bits, b: Bits, c: Bits, power: int = 0) -> Bits:
    """Return 2**power * (a * b + c), rounded once; denormal inputs are kept in any mode."""
    product, addend = floats.widened(form, a) * floats.widened(form, b), floats.widened(form, c)
    if form is not F64:
        total = floats.odd_sum(product, addend, ctx.rounding(form))
        return ctx.result(form, np.ldexp(total, power) if power else total, a, b, c)
    is_down = ctx.round_f16_f64 == DOWN

    def exact(x: _Triple, y: _Triple, z: _Triple) -> _Triple:
        sign, mantissa, exponent = _exact_sum(_exact_product(x, y), z, is_down)
        return sign, mantissa, exponent + power

    # Lanes that are not all finite. A product that overflows although its factors are finite must not be added to an
    # infinite addend.
    shaped = np.where(
        np.isfinite(floats.widened(F64, a)) & np.isfinite(floats.widened(F64, b)), addend, product + addend
    )
    return _exactly(ctx, exact, shaped, a, b, c)


def negated(form: Format, a: Bits) -> Bits:
    """Return -a."""
    return a ^ form.lane(form.sign)


def is_zero(form: Format, a: Bits) -> Mask:
    """Return which lanes are +0 or -0."""
    return (a & form.lane(form.magnitude)) == 0


def _subtract(ctx: Ctx, form: Format, a: Bits, b: Bits) -> Bits:
    """Return a - b. NaN operands keep their sign: only numbers are negated."""
    return add(ctx, form, a, np.where(floats.is_nan(form, b), b, negated(form, b)))


def _select(ctx: Ctx, form: Format, a: Bits, b: Bits, wants_less: bool) -> Bits:
    """Return the smaller or larger of two.

    -0 is less than +0. A quiet NaN loses; a signalling one loses too unless MODE.ieee quiets it.
    """
    a, b = ctx.taken(form, a), ctx.taken(form, b)
    left, right = floats.widened(form, a), floats.widened(form, b)
    first, second = (left, right) if wants_less else (right, left)
    is_taken = (first < second) | (
        (left == 0) & (right == 0) & (np.signbit(left) == wants_less) & (np.signbit(right) != wants_less)
    )
    chosen: Bits = np.where(is_taken, a, b)
    chosen = np.where(floats.is_nan(form, a), b, chosen)
    chosen = np.where(floats.is_nan(form, b), a, chosen)
    if ctx.ieee:
        for one in (b, a):
            chosen = np.where(floats.is_signalling(form, one), one | form.lane(form.quiet), chosen)
    return chosen


def _select_number(ctx: Ctx, form: Format, a: Bits, b: Bits, wants_less: bool) -> Bits:
    """Return IEEE's minimumNumber or maximumNumber: any NaN loses; the first of two becomes quiet."""
    chosen = _select(replace(ctx, ieee=False), form, a, b, wants_less)
    return np.where(floats.is_nan(form, a) & floats.is_nan(form, b), floats.quieted(form, a), chosen)


def _select_any(ctx: Ctx, form: Format, a: Bits, b: Bits, wants_less: bool) -> Bits:
    """Return IEEE's minimum or maximum: a NaN wins, a signalling one before a quiet one, and becomes quiet."""
    chosen = _select(replace(ctx, ieee=False), form, a, b, wants_less)
    for one in (b, a):
        chosen = np.where(floats.is_nan(form, one), one | form.lane(form.quiet), chosen)
    for one in (b, a):
        chosen = np.where(floats.is_signalling(form, one), one | form.lane(form.quiet), chosen)
    return chosen


def _lowest(select: Callable[..., Bits]) -> Callable[..., Bits]:
    return lambda ctx, form, a, b: select(ctx, form, a, b, True)


def _highest(select: Callable[..., Bits]) -> Callable[..., Bits]:
    return lambda ctx, form, a, b: select(ctx, form, a, b, False)


def minimum(ctx: Ctx, form: Format, a: Bits, b: Bits) -> Bits:
    """Return v_min."""
    return _select(ctx, form, a, b, True)


def maximum(ctx: Ctx, form: Format, a: Bits, b: Bits) -> Bits:
    """Return v_max."""
    return _select(ctx, form, a, b, False)


def _median(low: Callable[..., Bits], high: Callable[..., Bits]) -> Callable[..., Bits]:
    def run(ctx: Ctx, form: Format, a: Bits, b: Bits, c: Bits) -> Bits:
        largest = floats.widened(form, high(ctx, form, high(ctx, form, a, b), c))
        is_first = largest == floats.widened(form, ctx.taken(form, a))
        is_second = largest == floats.widened(form, ctx.taken(form, b))
        middle: Bits = np.where(is_second, high(ctx, form, a, c), high(ctx, form, a, b))
        middle = np.where(is_first, high(ctx, form, b, c), middle)
        has_nan = floats.is_nan(form, a) | floats.is_nan(form, b) | floats.is_nan(form, c)
        return np.where(has_nan, low(ctx, form, low(ctx, form, a, b), c), middle)

    return run


def _selections(low: str, high: str, suffix: str, select: Callable[..., Bits]) -> dict[str, Callable[..., Bits]]:
    """Return the minima and maxima of one rule for NaNs, by the names that v_min_f32 and its like make of it.

    `low` and `high` are the stems of the names, `suffix` follows all of them.
    """
    less, more = _lowest(select), _highest(select)
    return {
        f"{low}{suffix}": less,
        f"{high}{suffix}": more,
        f"{low}3{suffix}": lambda ctx, form, a, b, c: less(ctx, form, less(ctx, form, a, b), c),
        f"{high}3{suffix}": lambda ctx, form, a, b, c: more(ctx, form, more(ctx, form, a, b), c),
        f"{low}{high}{suffix}": lambda ctx, form, a, b, c: more(ctx, form, less(ctx, form, a, b), c),
        f"{high}{low}{suffix}": lambda ctx, form, a, b, c: less(ctx, form, more(ctx, form, a, b), c),
    }


def _dx9(form: Format, a: Bits, b: Bits, zero: Bits, other: Bits) -> Bits:
    """Apply the DX9 rule: zero times anything is zero."""
    return np.where(is_zero(form, a) | is_zero(form, b), zero, other)


def _multiply_dx9(ctx: Ctx, form: Format, a: Bits, b: Bits) -> Bits:
    product = multiply(ctx, form, a, b)
    return _dx9(form, ctx.taken(form, a), ctx.taken(form, b), np.zeros_like(product), product)


def _fuse_dx9(ctx: Ctx, form: Format, a: Bits, b: Bits, c: Bits) -> Bits:
    addend = floats.quieted(form, ctx.given(form, ctx.taken(form, c)))
    return _dx9(form, ctx.taken(form, a), ctx.taken(form, b), addend, fuse(ctx, form, a, b, c))


def _integral(function: Callable[[Wide], Wide]) -> Callable[..., Bits]:
    def run(ctx: Ctx, form: Format, a: Bits) -> Bits:
        a = ctx.taken(form, a)
        values = function(floats.widened(form, a))
        if form is F64:
            return with_nans(F64, values.view(np.uint64), np.isnan(values), (a,))
        return with_nans(form, floats.rounded(form, values), np.isnan(values), (a,))

    return run


def _fraction(ctx: Ctx, form: Format, a: Bits) -> Bits:
    """Return a - floor(a), at most the largest number below 1."""
    a = ctx.taken(form, a)
    values = floats.widened(form, a)
    below = np.floor(values)
    floor = below.view(np.uint64) if form is F64 else floats.rounded(form, below)
    result = add(ctx, form, a, np.where(floats.is_nan(form, floor), floor, negated(form, floor)))
    below_one = form.lane((form.bias << form.mantissa_bits) - 1)
    return np.where(
        floats.is_nan(form, result),
        result,
        np.minimum(result & form.lane(form.magnitude), below_one) | result & form.lane(form.sign),
    )


def _exponent(ctx: Ctx, form: Format, a: Bits) -> Bits:
    """Return the exponent of a significand in [0.5, 1), 0 for zeros, infinities and NaN."""
    _, exponents = np.frexp(floats.widened(form, ctx.taken(form, a)))
    finite = np.where((a & form.lane(form.infinity)) == form.lane(form.infinity), 0, exponents)
    return finite.astype(np.int32).view(np.uint32) & np.uint32(0xFFFF if form is F16 else 0xFFFF_FFFF)


def _significand(ctx: Ctx, form: Format, a: Bits) -> Bits:
    a = ctx.taken(form, a)
    values, _ = np.frexp(floats.widened(form, a))
    bits = values.view(np.uint64) if form is F64 else floats.rounded(form, values)
    return np.where((a & form.lane(form.infinity)) == form.lane(form.infinity), floats.quieted(form, a), bits)


def _scale(ctx: Ctx, form: Format, a: Bits, power: Bits) -> Bits:
    """Return a * 2 ** power; the power is an i32, for f16 an i16."""
    a = ctx.taken(form, a)
    powers = (power.astype(np.uint16).view(np.int16) if form is F16 else power.view(np.int32)).astype(np.int64)
    return scaled(ctx, form, a, powers)


def scaled(ctx: Ctx, form: Format, a: Bits, powers: NDArray[np.int64]) -> Bits:
    """Return a * 2 ** powers, rounded once; denormal inputs are kept."""
    values = floats.widened(form, a)
    if form is not F64:
        return ctx.result(form, np.ldexp(values, np.clip(powers, -600, 600).astype(np.int32)), a)
    bits = a.copy()
    for lane in np.flatnonzero(np.isfinite(values)):
        sign, mantissa, exponent = floats.unpacked(F64, int(a[lane]))
        bits[lane] = floats.packed(
            F64, sign, mantissa, exponent + int(np.clip(powers[lane], -5000, 5000)), ctx.round_f16_f64
        )
    return with_nans(F64, ctx.given(F64, bits), np.isnan(values), (a,))


def _faces(a: Bits, b: Bits, c: Bits) -> tuple[Mask, Mask, tuple[Mask, Mask, Mask]]:
    """Return where z and where y is the major axis of a cube map direction, and which of x, y, z are negative."""
    x, y, z = (one.view(np.float32) for one in (a, b, c))
    is_z = (np.abs(z) >= np.abs(x)) & (np.abs(z) >= np.abs(y))
    return is_z, ~is_z & (np.abs(y) >= np.abs(x)), (x < 0, y < 0, z < 0)


def _cube(pick: Callable[..., tuple[Bits, Bits, Bits]]) -> Vector:
    """Return a cube map function; `pick` gives its results on the faces of z, of y and of x."""

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        a, b, c = (ctx.taken(F32, one) for one in (a, b, c))
        is_z, is_y, negative = _faces(a, b, c)
        on_z, on_y, on_x = pick(ctx, a, b, c, *negative)
        return np.where(is_z, on_z, np.where(is_y, on_y, on_x))

    return run


def _cube_id(_: Ctx, a: Bits, b: Bits, c: Bits, x: Mask, y: Mask, z: Mask) -> tuple[Bits, Bits, Bits]:
    names = [
        np.where(one, np.float32(base + 1), np.float32(base)).view(np.uint32) for one, base in ((z, 4), (y, 2), (x, 0))
    ]
    return names[0], names[1], names[2]


def _cube_s(_: Ctx, a: Bits, b: Bits, c: Bits, x: Mask, y: Mask, z: Mask) -> tuple[Bits, Bits, Bits]:
    return np.where(z, negated(F32, a), a), a, np.where(x, c, negated(F32, c))


def _cube_t(_: Ctx, a: Bits, b: Bits, c: Bits, x: Mask, y: Mask, z: Mask) -> tuple[Bits, Bits, Bits]:
    return negated(F32, b), np.where(y, negated(F32, c), c), negated(F32, b)


def _cube_major(ctx: Ctx, a: Bits, b: Bits, c: Bits, x: Mask, y: Mask, z: Mask) -> tuple[Bits, Bits, Bits]:
    doubled = [scaled(ctx, F32, one, np.ones(len(one), np.int64)) for one in (c, b, a)]
    return doubled[0], doubled[1], doubled[2]


_LARGEST = 0x7F7F_FFFF


def _multiply_lit(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return a * b with DX9 zeros, or -MAX_FLOAT where b is -MAX_FLOAT, -inf, NaN, or c is not positive."""
    second, third = ctx.taken(F32, b), ctx.taken(F32, c)
    is_dark = (second.view(np.float32) <= -np.finfo(np.float32).max) | floats.is_nan(F32, second)
    is_dark |= ~(third.view(np.float32) > 0)
    return np.where(is_dark, np.uint32(F32.sign | _LARGEST), _multiply_dx9(ctx, F32, a, b))


_FORMED: dict[str, Callable[..., Bits]] = {
    "add": add,
    "sub": _subtract,
    "subrev": lambda ctx, form, a, b: _subtract(ctx, form, b, a),
    "mul": multiply,
    "fma": fuse,
    "fmac": lambda ctx, form, d, a, b: fuse(ctx, form, a, b, d),
    "fmamk": lambda ctx, form, a, k, b: fuse(ctx, form, a, k, b),
    "fmaak": fuse,
    "med3": _median(minimum, maximum),
    "med3_num": _median(_lowest(_select_number), _highest(_select_number)),
    "trunc": _integral(np.trunc),
    "ceil": _integral(np.ceil),
    "floor": _integral(np.floor),
    "rndne": _integral(np.rint),
    "fract": _fraction,
    "frexp_mant": _significand,
    "ldexp": _scale,
}
_FORMED |= _selections("min", "max", "", _select)
_FORMED |= _selections("min", "max", "_num", _select_number)
_FORMED |= _selections("minimum", "maximum", "", _select_any)


def _of(form: Format, function: Callable[..., Bits]) -> Vector:
    return lambda ctx, *sources: function(ctx, form, *sources)


_OF_F64 = (
    "add", "mul", "min", "max", "min_num", "max_num", "minimum", "maximum", "fma", "trunc", "ceil", "floor", "rndne", "fract",
    "frexp_mant", "ldexp",
)  # fmt: skip

FLOAT: dict[str, Vector] = {
    f"v_{name}_{form.name}": _of(form, function)
    for name, function in _FORMED.items()
    for form in FORMS
    if form is not F64 or name in _OF_F64
}
FLOAT |= {f"v_frexp_exp_i{min(32, max(16, form.size_bits))}_{form.name}": _of(form, _exponent) for form in FORMS}
FLOAT |= {
    "v_mul_dx9_zero_f32": _of(F32, _multiply_dx9),
    "v_fma_dx9_zero_f32": _of(F32, _fuse_dx9),
    "v_fmac_dx9_zero_f32": lambda ctx, d, a, b: _fuse_dx9(ctx, F32, a, b, d),
    "v_cubeid_f32": _cube(_cube_id),
    "v_cubesc_f32": _cube(_cube_s),
    "v_cubetc_f32": _cube(_cube_t),
    "v_cubema_f32": _cube(_cube_major),
    "v_mullit_f32": _multiply_lit,
}
