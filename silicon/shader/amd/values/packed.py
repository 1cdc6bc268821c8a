"""Packed 16-bit arithmetic, dot products, and multiply-adds of mixed precision.

Float dot products with 16-bit results follow the document: every product and every sum is rounded to the accumulator's
type. UNKNOWN: whether the hardware rounds as often. Dot products with f32 results, which were measured, are in
`values/dots.py`. Source: RDNA3 ISA reference, "VOP3P Instructions", "Denormalized and Rounding Modes".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ringup.silicon.shader.amd.values import dots, floats
from ringup.silicon.shader.amd.values.context import KEEP_INPUTS, KEEP_RESULTS, Ctx, Vector, clamped
from ringup.silicon.shader.amd.values.convert import resized
from ringup.silicon.shader.amd.values.float_arithmetic import FLOAT, add, fuse, multiply
from ringup.silicon.shader.amd.values.floats import BF16, F16, F32, Bits, Format
from ringup.silicon.shader.amd.values.integers import I64, INT, U32, given, sign_extended, zero_extended


def halves(a: Bits) -> tuple[Bits, Bits]:
    """Return the low and the high half of dwords."""
    return a & U32(0xFFFF), a >> U32(16)


def _packed(half: Vector) -> Vector:
    """Return an instruction that works on both halves."""

    def run(ctx: Ctx, *sources: Bits) -> Bits:
        low, high = (half(ctx, *pair) for pair in zip(*map(halves, sources), strict=True))
        return low | high << U32(16)

    return run


def own_mode(ctx: Ctx) -> Ctx:
    """Return the mode of 16-bit dot products: round to nearest even and keep denormals of f16, in any MODE."""
    return replace(ctx, round_f16_f64=floats.NEAREST, denorm_f16_f64=KEEP_INPUTS | KEEP_RESULTS)


def _factor(ctx: Ctx, form: Format, source: Format, a: Bits) -> Bits:
    """Return 16-bit floats in the accumulator's format.

    A bf16 is the high half of an f32; its denormals are zeros in any mode.
    """
    if source is form:
        return a
    return ctx.taken(BF16, a) << U32(16) if source is BF16 else resized(ctx, form, source, a)


def _inside(ctx: Ctx) -> Ctx:
    """Return the mode between the steps of an f32 dot product: only inputs and results are flushed."""
    return replace(ctx, denorm_f32=KEEP_INPUTS | KEEP_RESULTS)


def _products(ctx: Ctx, form: Format, source: Format, a: Bits, b: Bits) -> list[Bits]:
    """Return the product of the low halves and that of the high halves."""
    return [
        multiply(ctx, form, _factor(ctx, form, source, left), _factor(ctx, form, source, right))
        for left, right in zip(halves(a), halves(b), strict=True)
    ]


def dot2(ctx: Ctx, form: Format, source: Format, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return a.lo * b.lo + a.hi * b.hi, then + c, in `form`."""
    inside = _inside(ctx)
    low, high = _products(inside, form, source, a, b)
    return ctx.given(form, add(inside, form, add(inside, form, low, high), ctx.taken(form, c)))


def _dot2(form: Format, source: Format) -> Vector:
    return lambda ctx, a, b, c: dot2(own_mode(ctx), form, source, a, b, c)


def elements(a: Bits, bits: int, is_signed: bool) -> Bits:
    """Return the `bits`-wide integers in dwords as (…, element) i64, low first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (sign_extended if is_signed else zero_extended)(a[..., None] >> shifts, bits)


def signs(ctx: Ctx) -> tuple[bool, bool]:
    """Return whether src0 and src1 of an iu8 or iu4 instruction are signed: their NEG bits."""
    by_field = {one.field: one.neg_halves[0] for one in ctx.ins.operands}
    return by_field["src0"], by_field["src1"]


def _dot_integers(bits: int, type_: str) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        first, second = signs(ctx) if type_ == "i32" else (False, False)
        total = (elements(a, bits, first) * elements(b, bits, second)).sum(axis=-1)
        addend = sign_extended(c, 32) if type_ == "i32" else c.astype(I64)
        return given(ctx, total + addend, type_)

    return run


def _mixed(ctx: Ctx, *sources: Bits) -> Bits:
    """Return the f32 fused multiply-add of sources that are each an f32 or half a dword.

    Source: RDNA3 ISA reference, "OPSEL for MIX instructions": op_sel_hi selects f16, op_sel the half; NEG_HI is the
    absolute value.
    """
    taken = []
    operands = [one for one in ctx.ins.uses if one.field in ("src0", "src1", "src2")]
    for operand, bits in zip(operands, sources, strict=True):
        is_high, is_half = operand.sel
        value = resized(ctx, F32, F16, halves(bits)[is_high]) if is_half else bits
        value = value & U32(F32.magnitude) if operand.abs else value
        taken.append(value ^ U32(F32.sign) if operand.neg else value)
    return fuse(ctx, F32, *taken)


def _mixed_half(place: int) -> Vector:
    """Put the result, rounded again to f16, into a half of the destination."""

    def run(ctx: Ctx, old: Bits, *sources: Bits) -> Bits:
        half = resized(ctx, F16, F32, _mixed(ctx, *sources))
        if ctx.ins.clamp:
            half = clamped(ctx, F16, half)
        low, high = halves(old)
        return half | high << U32(16) if place == 0 else low | half << U32(16)

    return run


_INTEGER: dict[str, str] = {
    "v_pk_mad_i16": "v_mad_i16", "v_pk_mad_u16": "v_mad_u16", "v_pk_mul_lo_u16": "v_mul_lo_u16", "v_pk_add_i16": "v_add_nc_i16",
    "v_pk_sub_i16": "v_sub_nc_i16", "v_pk_add_u16": "v_add_nc_u16", "v_pk_sub_u16": "v_sub_nc_u16",
    "v_pk_lshlrev_b16": "v_lshlrev_b16", "v_pk_lshrrev_b16": "v_lshrrev_b16", "v_pk_ashrrev_i16": "v_ashrrev_i16",
    "v_pk_max_i16": "v_max_i16", "v_pk_min_i16": "v_min_i16", "v_pk_max_u16": "v_max_u16", "v_pk_min_u16": "v_min_u16",
}  # fmt: skip
_HALVED = ("fma", "add", "mul", "min", "max", "min_num", "max_num", "minimum", "maximum", "fmac")
_FLOAT: dict[str, Callable[..., Bits]] = {f"v_pk_{name}_f16": FLOAT[f"v_{name}_f16"] for name in _HALVED}

PACKED: dict[str, Vector] = {name: _packed(INT[half]) for name, half in _INTEGER.items()}
PACKED |= {name: _packed(half) for name, half in _FLOAT.items()}
PACKED |= {
    "v_dot2_f32_f16": dots.dot2(F16),
    "v_dot2_f32_bf16": dots.dot2(BF16),
    "v_dot2_f16_f16": _dot2(F16, F16),
    "v_dot2_bf16_bf16": _dot2(BF16, BF16),
    "v_dot2acc_f32_f16": dots.dot2_accumulate(F16),
    "v_dot2acc_f32_bf16": dots.dot2_accumulate(BF16),
    "v_dot4_i32_iu8": _dot_integers(8, "i32"),
    "v_dot4_u32_u8": _dot_integers(8, "u32"),
    "v_dot8_i32_iu4": _dot_integers(4, "i32"),
    "v_dot8_u32_u4": _dot_integers(4, "u32"),
    "v_fma_mix_f32": _mixed,
    "v_fma_mixlo_f16": _mixed_half(0),
    "v_fma_mixhi_f16": _mixed_half(1),
}
