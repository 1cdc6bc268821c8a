"""WMMA: D = A x B + C of 16 x 16 matrices spread over the lanes of a wave; EXEC is ignored.

Lane n (0…15) holds row n of A and column n of B, packed along K through its registers. Lanes from 16 up hold copies,
which are not read. Lane n of C and D is column n % 16. Row r is in register r // groups, in the lanes from 16 * (r %
groups) up; a wave32 has two groups of lanes, a wave64 four. 16-bit elements of C and D take half a dword each, selected
by OPSEL[2]; D's other half is kept.

Float sums run along K by pairs: both products are added, then the sum so far, and each step rounds to nearest even.
QUIRK: cards add each pair as v_dot2_f32_* does (`values/dots.py`), measured on gfx1151 and gfx1100, so sums of both
signs differ from these in their last bits. Source of that: github.com/ROCm/rocm-systems, issue 12056. UNKNOWN: the
16-bit sums. Source: RDNA3 ISA reference, "Wave Matrix Multiply Accumulate".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ringup.silicon.shader.rdna.values.context import Ctx, Vector
from ringup.silicon.shader.rdna.values.floats import BF16, F16, F32, NEAREST, Bits, Format
from ringup.silicon.shader.rdna.values.integers import U32, given, sign_extended
from ringup.silicon.shader.rdna.values.packed import dot2, elements, own_mode, signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.rdna.interpreter.step import Lanes

Element = TypeVar("Element", bound=np.generic)
SIZE = 16  # M, N and K


def _rows(ctx: Ctx, matrix: Bits) -> Bits:
    """Return (lane, register) of C as (16, 16), row first."""
    groups = ctx.lanes // SIZE
    registers = SIZE // groups
    return matrix[:, :registers].reshape(groups, SIZE, registers).transpose(2, 0, 1).reshape(SIZE, SIZE)


def _registers(groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
    """Return (16, 16), row first, as (lane, register) of D, for a wave with `groups` groups of 16 lanes."""
    return matrix.reshape(SIZE // groups, groups, SIZE).transpose(1, 2, 0).reshape(groups * SIZE, SIZE // groups)


def _float(form: Format, source: Format) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        nearest = replace(own_mode(ctx), round_f32=NEAREST)
        shift = U32(16 if form is not F32 and ctx.ins.fields["opsel"] >> 2 & 1 else 0)
        total = _rows(ctx, c)
        if form is not F32:
            total = total >> shift & U32(0xFFFF)
        total = total.ravel()
        for pair in range(a.shape[1]):
            left = np.repeat(a[:SIZE, pair], SIZE)
            right = np.tile(b[:SIZE, pair], SIZE)
            total = dot2(nearest, form, source, left, right, total)
        result = _registers(ctx.lanes // SIZE, total)
        if form is F32:
            return result
        first = ctx.ins.defs[0].index
        old = ctx.vgprs[first : first + result.shape[1]].T
        return old & ~(U32(0xFFFF) << shift) | result << shift

    return run


def undefined_elements(a: Lanes, b: Lanes) -> Lanes:
    """Return which elements of D are undefined, by (lane, register), from the undefined lanes of A and B.

    They are whole rows and columns. The copies in the upper lanes count too, since the document requires them.
    """
    groups = a.size // SIZE
    rows, columns = (np.asarray(one.reshape(groups, SIZE).any(axis=0), np.bool_) for one in (a, b))
    return _registers(groups, rows[:, None] | columns)


def _integers(matrix: Bits, bits: int, is_signed: bool) -> Bits:
    """Return A or B as (16, 16) i64; two registers come as one u64 a lane."""
    dwords = matrix[:SIZE].astype(f"<u{matrix.itemsize}").view("<u4")
    return elements(dwords, bits, is_signed).reshape(SIZE, SIZE)


def _integer(bits: int) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        first, second = signs(ctx)
        left = _integers(a, bits, first)
        right = _integers(b, bits, second)
        total = left @ right.T + sign_extended(_rows(ctx, c), 32)
        return _registers(ctx.lanes // SIZE, given(ctx, total, "i32"))

    return run


MATRIX: dict[str, Vector] = {
    "v_wmma_f32_16x16x16_f16": _float(F32, F16),
    "v_wmma_f32_16x16x16_bf16": _float(F32, BF16),
    "v_wmma_f16_16x16x16_f16": _float(F16, F16),
    "v_wmma_bf16_16x16x16_bf16": _float(BF16, BF16),
    "v_wmma_i32_16x16x16_iu8": _integer(8),
    "v_wmma_i32_16x16x16_iu4": _integer(4),
}
