"""Values of CDNA3's vector and scalar ALUs that RDNA does not have, or has differently.

Source: CDNA3 ISA reference, "VOP2", "VOP3A", "VOP3P" and "SOP1 Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ringup.silicon.shader.amd.values.context import Ctx, Scalar, Vector, clamped
from ringup.silicon.shader.amd.values.convert import CONVERT
from ringup.silicon.shader.amd.values.divide import DIVIDE
from ringup.silicon.shader.amd.values.float_arithmetic import FLOAT, add, fuse, multiply
from ringup.silicon.shader.amd.values.floats import F16, F32, F64, Bits, Mask
from ringup.silicon.shader.amd.values.fnuz import FNUZ
from ringup.silicon.shader.amd.values.integers import I64, INT, U32, U64, given, sign_extended
from ringup.silicon.shader.amd.values.packed import elements


def _mad(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return a * b + c of f16, rounded after each step. GUESS: the document does not say that it rounds twice."""
    return add(ctx, F16, multiply(ctx, F16, a, b), c)


def _copied(_: Ctx, a: Bits) -> Bits:
    return np.copy(a)


def _whole(result: bool) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits) -> Mask:
        return np.full(ctx.lanes, result)

    return run


# ---- pairs of f32


def _words(a: Bits) -> tuple[Bits, Bits]:
    return (a & U64(0xFFFF_FFFF)).astype(U32), (a >> U64(32)).astype(U32)


def _pair_of(low: Bits, high: Bits) -> Bits:
    return low.astype(U64) | high.astype(U64) << U64(32)


def _selected(ctx: Ctx, *sources: Bits) -> list[list[Bits]]:
    """Return for the low and the high result the dwords of each source that op_sel selects, with their signs."""
    operands = [one for one in ctx.ins.uses if one.field in ("src0", "src1", "src2")]
    found: list[list[Bits]] = []
    for half in (0, 1):
        taken = []
        for operand, bits in zip(operands, sources, strict=True):
            word = _words(bits)[operand.sel[half]]
            is_negated = operand.neg_halves[half] and operand.type == "f32"
            taken.append(word ^ U32(F32.sign) if is_negated else word)
        found.append(taken)
    return found


def _packed_f32(compute: Callable[..., Bits]) -> Vector:
    def run(ctx: Ctx, *sources: Bits) -> Bits:
        halves = [compute(ctx, F32, *taken) for taken in _selected(ctx, *sources)]
        if ctx.ins.clamp:
            halves = [clamped(ctx, F32, one) for one in halves]
        return _pair_of(*halves)

    return run


def _packed_move(ctx: Ctx, a: Bits, b: Bits) -> Bits:
    """Return the dword of src0 that op_sel[0] selects, and above it that of src1 that op_sel[1] selects."""
    first, second = (one for one in ctx.ins.uses if one.field in ("src0", "src1"))
    return _pair_of(_words(a)[first.sel[0]], _words(b)[second.sel[0]])


# ---- integers


def _dot(bits: int, type_: str) -> Vector:
    """Return src2 plus products of integers of `bits` bits; the sum saturates if the instruction clamps."""
    is_signed = type_ == "i32"

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        total = (elements(a, bits, is_signed) * elements(b, bits, is_signed)).sum(axis=-1)
        return given(ctx, total + (sign_extended(c, 32) if is_signed else c.astype(I64)), type_)

    return run


def _accumulating(compute: Vector) -> Vector:
    """Return an instruction whose destination is its last source."""
    return lambda ctx, d, a, b: compute(ctx, a, b, d)


def _shift_add(_: Ctx, a: Bits, by: Bits, c: Bits) -> Bits:
    return (a << (by & U32(7)).astype(U64)) + c


def _byte_accumulated(ctx: Ctx, a: Bits, place: Bits) -> Bits:
    """Put a float, truncated to 0…255, into a byte of the destination."""
    return CONVERT["v_cvt_pk_u8_f32"](ctx, a, place, np.copy(ctx.vgprs[ctx.ins.defs[0].index]))


def _first_zero(bits: int) -> Scalar:
    """Return the number of the lowest bit that is zero, -1 if all are set."""

    def run(_: Ctx, a: int) -> tuple[int, None]:
        lowest = ~a & a + 1
        return (lowest.bit_length() - 1 if lowest < 1 << bits else 0xFFFF_FFFF), None

    return run


CDNA: dict[str, Vector | Scalar] = {
    **FNUZ,
    "v_mov_b64": _copied,
    "v_accvgpr_read_b32": _copied,
    "v_accvgpr_write_b32": _copied,
    "v_accvgpr_mov_b32": _copied,
    "v_fmac_f64": lambda ctx, d, a, b: fuse(ctx, F64, a, b, d),
    "v_mac_f16": lambda ctx, d, a, b: _mad(ctx, a, b, d),
    "v_madmk_f16": lambda ctx, a, literal, b: _mad(ctx, a, literal, b),
    "v_madak_f16": lambda ctx, a, b, literal: _mad(ctx, a, b, literal),
    "v_mad_f16": _mad,
    "v_mad_legacy_f16": _mad,
    "v_fma_legacy_f16": FLOAT["v_fma_f16"],
    "v_mad_legacy_u16": INT["v_mad_u16"],
    "v_mad_legacy_i16": INT["v_mad_i16"],
    "v_div_fixup_legacy_f16": DIVIDE["v_div_fixup_f16"],
    "v_subrev_nc_u16": lambda ctx, a, b: INT["v_sub_nc_u16"](ctx, b, a),
    "v_cvt_pkaccum_u8_f32": _byte_accumulated,
    "v_lshl_add_u64": _shift_add,
    "v_pk_fma_f32": _packed_f32(fuse),
    "v_pk_mul_f32": _packed_f32(multiply),
    "v_pk_add_f32": _packed_f32(add),
    "v_pk_mov_b32": _packed_move,
    "v_dot2_i32_i16": _dot(16, "i32"),
    "v_dot2_u32_u16": _dot(16, "u32"),
    "v_dot4_i32_i8": _dot(8, "i32"),
    "v_dot8_i32_i4": _dot(4, "i32"),
    "v_dot2c_i32_i16": _accumulating(_dot(16, "i32")),
    "v_dot4c_i32_i8": _accumulating(_dot(8, "i32")),
    "v_dot8c_i32_i4": _accumulating(_dot(4, "i32")),
    "s_ff0_i32_b32": _first_zero(32),
    "s_ff0_i32_b64": _first_zero(64),
}
CDNA |= {
    f"{compare}_{name}_{type_}": _whole(name == "t")
    for compare in ("v_cmp", "v_cmpx")
    for name in ("f", "t")
    for type_ in ("i16", "u16")
}
