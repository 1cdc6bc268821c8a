"""Values of CDNA4's vector ALU that CDNA3 does not have. Source: CDNA4 ISA reference, "VOP1", "VOP3A", "VOP3P"."""

from __future__ import annotations

import numpy as np

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.gcn import truth_table
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.float_arithmetic import FLOAT
from ringup.silicon.shader.amd.values.floats import Bits
from ringup.silicon.shader.amd.values.integers import U32
from ringup.silicon.shader.amd.values.packed import PACKED
from ringup.silicon.shader.amd.values.small_floats import SMALL_FLOATS, random_after, scaled_conversion

ROW = 16


def _by_table(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return each bit of the truth table that the bits of three sources select."""
    table, found = truth_table(ctx.ins.fields), np.zeros_like(a)
    for at in range(8):
        if table >> at & 1:
            parts = (one if at >> place & 1 else ~one for place, one in ((2, a), (1, b), (0, c)))
            found |= np.bitwise_and.reduce(list(parts))
    return found


def _by_table_of_halves(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
    return _by_table(ctx, a, b, c) & U32(0xFFFF)


def _shifted_bytes(low: int, high: int) -> Vector:
    """Return two shifted integers, saturated to bytes, in the half of the destination that op_sel selects.

    GUESS: the other half is kept, as the document writes 16 bits.
    """

    def run(ctx: Ctx, a: Bits, b: Bits, by: Bits) -> Bits:
        first, second = (
            np.clip(one.view(np.int32) >> (by & U32(31)).astype(np.int32), low, high).astype(np.int64) & 0xFF
            for one in (a, b)
        )
        place = U32(16 * (ctx.ins.fields["opsel"] >> 3))
        pair = (first | second << 8).astype(U32) << place
        old: Bits = ctx.vgprs[ctx.ins.defs[0].index] & ~(U32(0xFFFF) << place)
        return old | pair

    return run


def _swapped_rows(rows: int) -> Vector:
    """Return the exchange of the upper rows of vdst with the lower rows of src0, of each `2 * rows` rows.

    GUESS: the partner of a lane that is not active gets its value with FI, 0 with BOUND_CTRL, and else keeps its own.
    """

    def run(ctx: Ctx, first: Bits, second: Bits) -> tuple[Bits, Bits]:
        lanes = np.arange(ctx.lanes)
        is_upper = lanes // (ROW * rows) % 2 == 1
        partner = lanes ^ ROW * rows
        flags = ctx.ins.fields.get("opsel", 0)
        may_read = ctx.exec_mask[partner] | bool(flags & 1)

        def taken(own: Bits, other: Bits, moves: Bits) -> Bits:
            instead = np.zeros_like(own) if flags & 2 else own
            found: Bits = np.where(moves, np.where(may_read, other[partner], instead), own)
            return found

        return taken(first, second, is_upper), taken(second, first, ~is_upper)

    return run


def _of_halves(function: Vector) -> Vector:
    def run(ctx: Ctx, *sources: Bits) -> Bits:
        low, high = (function(ctx, *(one >> U32(place) & U32(0xFFFF) for one in sources)) for place in (0, 16))
        found: Bits = low | high << U32(16)
        return found

    return run


CDNA4: dict[str, Vector] = {
    **SMALL_FLOATS,
    "v_prng_b32": lambda _, a: random_after(a),
    "v_permlane16_swap_b32": _swapped_rows(1),
    "v_permlane32_swap_b32": _swapped_rows(2),
    "v_cvt_f32_bf16": lambda _, a: a << U32(16),
    "v_bitop3_b32": _by_table,
    "v_bitop3_b16": _by_table_of_halves,
    "v_ashr_pk_i8_i32": _shifted_bytes(-128, 127),
    "v_ashr_pk_u8_i32": _shifted_bytes(0, 255),
    "v_minimum3_f32": FLOAT["v_minimum3_f32"],
    "v_maximum3_f32": FLOAT["v_maximum3_f32"],
    "v_pk_minimum3_f16": _of_halves(FLOAT["v_minimum3_f16"]),
    "v_pk_maximum3_f16": _of_halves(FLOAT["v_maximum3_f16"]),
    "v_dot2_f32_bf16": PACKED["v_dot2_f32_bf16"],
    "v_dot2acc_f32_bf16": PACKED["v_dot2acc_f32_bf16"],
}
for _row in isa.target("gfx950").instructions:
    _function = scaled_conversion(_row.mnemonic)
    if _function is not None:
        CDNA4[_row.mnemonic] = _function
