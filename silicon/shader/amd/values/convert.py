"""Vector conversions between floats, integers, normalised integers and packed pairs of them.

Float to integer truncates and saturates; NaN becomes 0. A float result is rounded by the mode of its own format.
Source: RDNA3 ISA reference, "V_CVT_I32_F64" ... "V_CVT_PK_I16_I32".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.floats import F16, F32, F64, Bits, Format, Wide
from ringup.silicon.shader.amd.values.integers import I64, U32, sign_extended, zero_extended


def _saturated(values: Wide, type_: str) -> Bits:
    """Return integral f64 lanes as u32 lanes of an integer type (i16, u32…)."""
    bits = int(type_[1:])
    low = -(1 << bits - 1) if type_[0] == "i" else 0
    kept = np.clip(np.where(np.isnan(values), 0.0, values), low, low + (1 << bits) - 1)
    return kept.astype(I64).astype(np.uint64).astype(U32) & U32((1 << bits) - 1)


def _to_integer(form: Format, type_: str, integral: Callable[[Wide], Wide] = np.trunc) -> Vector:
    return lambda ctx, a: _saturated(integral(floats.widened(form, ctx.taken(form, a))), type_)


def _half_up(values: Wide) -> Wide:
    return np.floor(values + 0.5)


def _normalised(form: Format, is_signed: bool) -> Vector:
    """Convert -1…1 (0…1 unsigned) to the range of a 16-bit integer, to nearest even."""
    type_, scale = ("i16", 32767.0) if is_signed else ("u16", 65535.0)

    def run(ctx: Ctx, a: Bits) -> Bits:
        values = floats.widened(form, ctx.taken(form, a))
        return _saturated(np.rint(np.clip(values, -1.0 if is_signed else 0.0, 1.0) * scale), type_)

    return run


def _to_float(form: Format, integers: Callable[[Bits], Bits]) -> Vector:
    """Convert integers to floats. Integers have no more than 32 bits, so f64 holds them exactly."""

    def run(ctx: Ctx, a: Bits) -> Bits:
        values = integers(a).astype(np.float64)
        return values.view(np.uint64) if form is F64 else floats.rounded(form, values, ctx.rounding(form))

    return run


def _nan_of(form: Format, source: Format, nan: Bits) -> Bits:
    """Return quiet NaNs of `source` in the format `form`; the payload's top bits are kept."""
    shift = form.mantissa_bits - source.mantissa_bits
    wide = nan.astype(np.uint64)
    sign = wide >> np.uint64(source.size_bits - 1) << np.uint64(form.size_bits - 1)
    payload = wide & np.uint64((1 << source.mantissa_bits) - 1)
    moved = payload << np.uint64(shift) if shift > 0 else payload >> np.uint64(-shift)
    return (sign | np.uint64(form.infinity | form.quiet) | moved).astype(form.lane)


def resized(ctx: Ctx, form: Format, source: Format, a: Bits, mode: int | None = None) -> Bits:
    """Return floats of another format; `mode` overrides the rounding mode."""
    a = ctx.taken(source, a)
    values = floats.widened(source, a)
    if form is F64:
        return np.where(np.isnan(values), _nan_of(form, source, a), values.view(np.uint64))
    bits = ctx.given(form, floats.rounded(form, values, ctx.rounding(form) if mode is None else mode))
    return np.where(np.isnan(values), _nan_of(form, source, a), bits)


def _resize(form: Format, source: Format) -> Vector:
    return lambda ctx, a: resized(ctx, form, source, a)


def _pack(low: Bits, high: Bits) -> Bits:
    return low | high << U32(16)


def _pair(convert: Vector) -> Vector:
    """Convert two sources into the halves of a dword."""
    return lambda ctx, a, b: _pack(convert(ctx, a), convert(ctx, b))


def _clipped(is_signed: bool) -> Vector:
    low, high = (-32768, 32767) if is_signed else (0, 65535)
    extended = sign_extended if is_signed else zero_extended
    return lambda _, a: np.clip(extended(a, 32), low, high).astype(np.uint64).astype(U32) & U32(0xFFFF)


def _packed_byte(ctx: Ctx, a: Bits, place: Bits, old: Bits) -> Bits:
    """Put a float, truncated to 0…255, into a byte of the third operand."""
    shift = (place & U32(3)) << U32(3)
    octet = _saturated(np.trunc(floats.widened(F32, ctx.taken(F32, a))), "u8")
    return old & ~(U32(0xFF) << shift) | octet << shift


def _saturate_pair(_: Ctx, a: Bits) -> Bits:
    low, high = (np.clip(sign_extended(a >> U32(shift), 16), 0, 255).astype(U32) for shift in (0, 16))
    return low | high << U32(8)


def _sixteenths(a: Bits) -> Bits:
    return sign_extended(a, 4) / 16


CONVERT: dict[str, Vector] = {
    "v_cvt_i32_f64": _to_integer(F64, "i32"),
    "v_cvt_u32_f64": _to_integer(F64, "u32"),
    "v_cvt_i32_f32": _to_integer(F32, "i32"),
    "v_cvt_u32_f32": _to_integer(F32, "u32"),
    "v_cvt_i16_f16": _to_integer(F16, "i16"),
    "v_cvt_u16_f16": _to_integer(F16, "u16"),
    "v_cvt_nearest_i32_f32": _to_integer(F32, "i32", _half_up),
    "v_cvt_floor_i32_f32": _to_integer(F32, "i32", np.floor),
    "v_cvt_norm_i16_f16": _normalised(F16, True),
    "v_cvt_norm_u16_f16": _normalised(F16, False),
    "v_cvt_pk_norm_i16_f16": _pair(_normalised(F16, True)),
    "v_cvt_pk_norm_u16_f16": _pair(_normalised(F16, False)),
    "v_cvt_pk_norm_i16_f32": _pair(_normalised(F32, True)),
    "v_cvt_pk_norm_u16_f32": _pair(_normalised(F32, False)),
    "v_cvt_pk_i16_f32": _pair(_to_integer(F32, "i16")),
    "v_cvt_pk_u16_f32": _pair(_to_integer(F32, "u16")),
    "v_cvt_pk_i16_i32": _pair(_clipped(True)),
    "v_cvt_pk_u16_u32": _pair(_clipped(False)),
    "v_cvt_pk_u8_f32": _packed_byte,
    "v_cvt_pk_rtz_f16_f32": _pair(lambda ctx, a: resized(ctx, F16, F32, a, floats.ZERO)),
    "v_cvt_f64_i32": _to_float(F64, lambda a: sign_extended(a, 32)),
    "v_cvt_f64_u32": _to_float(F64, lambda a: zero_extended(a, 32)),
    "v_cvt_f32_i32": _to_float(F32, lambda a: sign_extended(a, 32)),
    "v_cvt_f32_u32": _to_float(F32, lambda a: zero_extended(a, 32)),
    "v_cvt_f16_i16": _to_float(F16, lambda a: sign_extended(a, 16)),
    "v_cvt_f16_u16": _to_float(F16, lambda a: zero_extended(a, 16)),
    "v_cvt_off_f32_i4": _to_float(F32, _sixteenths),
    "v_cvt_f32_ubyte0": _to_float(F32, lambda a: a & U32(0xFF)),
    "v_cvt_f32_ubyte1": _to_float(F32, lambda a: a >> U32(8) & U32(0xFF)),
    "v_cvt_f32_ubyte2": _to_float(F32, lambda a: a >> U32(16) & U32(0xFF)),
    "v_cvt_f32_ubyte3": _to_float(F32, lambda a: a >> U32(24)),
    "v_cvt_f16_f32": _resize(F16, F32),
    "v_cvt_f32_f16": _resize(F32, F16),
    "v_cvt_f32_f64": _resize(F32, F64),
    "v_cvt_f64_f32": _resize(F64, F32),
    "v_cvt_i32_i16": lambda _, a: sign_extended(a, 16).astype(np.uint64).astype(U32),
    "v_cvt_u32_u16": lambda _, a: a & U32(0xFFFF),
    "v_sat_pk_u8_i16": _saturate_pair,
    "v_pack_b32_f16": lambda _, a, b: _pack(a, b),
}
