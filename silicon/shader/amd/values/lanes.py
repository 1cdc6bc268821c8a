"""Moves between lanes: single lanes, rows, halves of a wave, and counts of lower lanes.

Source: RDNA3 ISA reference, "V_READFIRSTLANE_B32", "V_READLANE_B32", "V_WRITELANE_B32", "V_PERMLANE16_B32" ...
"V_MBCNT_HI_U32_B32".
"""

from __future__ import annotations

import numpy as np

from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.floats import Bits
from ringup.silicon.shader.amd.values.integers import U32, U64, bit_count
from ringup.silicon.shader.amd.values.salu import trailing_zeros

ROW = 16
HALF = 32


def _first(ctx: Ctx, a: Bits) -> int:
    """Read the lowest active lane, lane 0 if there is none."""
    return int(a[max(trailing_zeros(ctx.exec_bits), 0)])


def _read(ctx: Ctx, a: Bits, lane: Bits) -> int:
    return int(a[int(lane[0]) & ctx.lanes - 1])


def _write(ctx: Ctx, old: Bits, value: Bits, lane: Bits) -> Bits:
    written = old.copy()
    written[int(lane[0]) & ctx.lanes - 1] = value[0]
    return written


def _permute_rows(other_row: int) -> Vector:
    """Return a permutation: four bits of the scalar selectors name the lane of the row (or of the other row) to read.

    op_sel[0] reads inactive lanes too; op_sel[1] writes 0 for lanes that may not be read. Without either nothing is
    written.
    """

    def run(ctx: Ctx, old: Bits, a: Bits, low: Bits, high: Bits) -> Bits:
        selectors = int(low[0]) | int(high[0]) << 32
        lanes = np.arange(ctx.lanes)
        row = lanes & ~(ROW - 1) ^ other_row
        sources = row | np.array([selectors >> 4 * (lane % ROW) & 0xF for lane in range(ctx.lanes)])
        fetch_inactive, bound = (bool(ctx.ins.fields["opsel"] >> bit & 1) for bit in (0, 1))
        is_valid = np.ones_like(ctx.exec_mask) if fetch_inactive else ctx.exec_mask[sources]
        moved = np.where(is_valid, a[sources], U32(0) if bound else old)
        return np.where(ctx.exec_mask, moved, old)

    return run


def _permute_rows_by_lane(other_row: int) -> Vector:
    """Return a permutation: each lane's selector names the lane of the row (or of the other row) to read.

    op_sel has the flags of `_permute_rows`. UNKNOWN: whether they mean the same here; the document only shows the
    selection.
    """

    def run(ctx: Ctx, old: Bits, a: Bits, selectors: Bits) -> Bits:
        row = np.arange(ctx.lanes) & ~(ROW - 1) ^ other_row
        sources = row | (selectors & U32(ROW - 1)).astype(np.int64)
        fetch_inactive, bound = (bool(ctx.ins.fields["opsel"] >> bit & 1) for bit in (0, 1))
        is_valid = np.ones_like(ctx.exec_mask) if fetch_inactive else ctx.exec_mask[sources]
        moved = np.where(is_valid, a[sources], U32(0) if bound else old)
        return np.where(ctx.exec_mask, moved, old)

    return run


def _swap_halves(ctx: Ctx, a: Bits) -> Bits:
    """Let lane n read lane n ^ 32, active or not; do nothing in a wave32."""
    if ctx.lanes == HALF:
        return ctx.vgprs[ctx.ins.defs[0].index].copy()
    return a[np.arange(ctx.lanes) ^ HALF]


def _count_below(first: int) -> Vector:
    """Count the mask's bits of lanes `first`…`first` + 31 that are below the lane itself, and add."""

    def run(ctx: Ctx, mask: Bits, addend: Bits) -> Bits:
        below = np.clip(np.arange(ctx.lanes) - first, 0, HALF).astype(U64)
        return bit_count(mask & ((U64(1) << below) - U64(1)).astype(U32)) + addend

    return run


LANES: dict[str, Vector] = {
    "v_readfirstlane_b32": _first,
    "v_readlane_b32": _read,
    "v_writelane_b32": _write,
    "v_permlane16_b32": _permute_rows(0),
    "v_permlanex16_b32": _permute_rows(ROW),
    "v_permlane16_var_b32": _permute_rows_by_lane(0),
    "v_permlanex16_var_b32": _permute_rows_by_lane(ROW),
    "v_permlane64_b32": _swap_halves,
    "v_mbcnt_lo_u32_b32": _count_below(0),
    "v_mbcnt_hi_u32_b32": _count_below(HALF),
}
