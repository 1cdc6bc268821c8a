"""WMMA and SWMMAC: D = A x B + C of matrices spread over the lanes of a wave; EXEC is ignored.

RDNA3: lane n (0…15) holds row n of A and column n of B, packed along K through its registers. Lanes from 16 up hold
copies, which are not read. Lane n of C and D is column n % 16. Row r is in register r // groups, in the lanes from 16 *
(r % groups) up; a wave32 has two groups of lanes, a wave64 four. 16-bit elements of C and D take half a dword each,
selected by OPSEL[2]; D's other half is kept.

RDNA4: nothing is held twice. Each group of 16 lanes holds another part of K, and rows of C and D follow each other
through the registers of a group, 16-bit ones two to a register. SWMMAC adds to D, and its A has two of every four
elements; src2 gives their places. GUESS: a group of lanes holds those parts of B that belong to its part of A, as the
index's layout suggests.

Float sums run along K by pairs: both products are added, then the sum so far, and each step rounds to nearest even.
QUIRK: cards add each pair as v_dot2_f32_* does (`values/dots.py`), measured on gfx1151 and gfx1100, so sums of both
signs differ from these in their last bits. Source of that: github.com/ROCm/rocm-systems, issue 12056. UNKNOWN: the
16-bit sums, and the sums of RDNA4. Source: RDNA3 and RDNA4 ISA references, "Wave Matrix Multiply Accumulate".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ringup.silicon.shader.amd.decoding.decode import SHORT_SPARSE
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.eight_bits import BF8, FP8, as_halves
from ringup.silicon.shader.amd.values.floats import BF16, F16, F32, NEAREST, Bits, Format
from ringup.silicon.shader.amd.values.integers import U32, given, sign_extended
from ringup.silicon.shader.amd.values.packed import dot2, elements, own_mode, signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.interpreter.step import Lanes

Element = TypeVar("Element", bound=np.generic)
SIZE = 16  # M and N
HALF = 32  # lanes of a wave64 that hold all of a short matrix
# By number: the groups of 16 lanes in the order of the rows, or of the parts of K, that they hold on RDNA4.
ORDER = {2: [0, 1], 4: [0, 2, 1, 3]}


class Layout(Protocol):
    """Where a generation has the elements of its matrices, for a wave with `groups` groups of 16 lanes."""

    def along_k(self, dwords: NDArray[Element]) -> NDArray[Element]:
        """Return (lane, dword) of A or B as (16, dwords along K)."""
        ...

    def rows(self, groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
        """Return (lane, element) of C as (16, 16), row first."""
        ...

    def registers(self, groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
        """Return (16, 16), row first, as (lane, element) of D."""
        ...


class _Copied:
    """RDNA3."""

    def along_k(self, dwords: NDArray[Element]) -> NDArray[Element]:
        return dwords[:SIZE]

    def rows(self, groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
        registers = SIZE // groups
        return matrix[:, :registers].reshape(groups, SIZE, registers).transpose(2, 0, 1).reshape(SIZE, SIZE)

    def registers(self, groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
        return matrix.reshape(SIZE // groups, groups, SIZE).transpose(1, 2, 0).reshape(groups * SIZE, SIZE // groups)


class _Spread:
    """RDNA4."""

    def along_k(self, dwords: NDArray[Element]) -> NDArray[Element]:
        groups = len(dwords) // SIZE
        held = dwords.reshape(groups, SIZE, -1)[ORDER[groups]]
        return held.transpose(1, 0, 2).reshape(SIZE, -1)

    def rows(self, groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
        held = matrix.reshape(groups, SIZE, SIZE // groups)[ORDER[groups]]
        return held.transpose(0, 2, 1).reshape(SIZE, SIZE)

    def registers(self, groups: int, matrix: NDArray[Element]) -> NDArray[Element]:
        held = matrix.reshape(groups, SIZE // groups, SIZE).transpose(0, 2, 1)
        # The order is its own inverse.
        return held[ORDER[groups]].reshape(groups * SIZE, SIZE // groups)


def layout(ins: Instruction) -> Layout:
    """Return the layout of an instruction's matrices."""
    return _Copied() if ins.generation.copies_matrices else _Spread()


# Their A, or their A and B, have 16 elements of four bits along K, which the low half of a wave64 holds.
_SHORT_A = ("v_wmma_i32_16x16x16_iu4", SHORT_SPARSE)
_SHORT_B = ("v_wmma_i32_16x16x16_iu4",)


def _left(ctx: Ctx, a: Bits) -> Bits:
    """Return A as (16, dwords along K)."""
    return _factor(ctx, a, _SHORT_A)


def _right(ctx: Ctx, b: Bits) -> Bits:
    """Return B as (16, dwords along K), column first."""
    return _factor(ctx, b, _SHORT_B)


def _factor(ctx: Ctx, matrix: Bits, short: tuple[str, ...]) -> Bits:
    lanes = HALF if ctx.ins.mnemonic in short else ctx.lanes
    return layout(ctx.ins).along_k(_dwords(matrix)[:lanes])


def _dwords(matrix: Bits) -> Bits:
    """Return a matrix as (lane, dword); two registers come as one u64 a lane, one as one u32."""
    return np.ascontiguousarray(matrix).view("<u4").reshape(len(matrix), -1)


def _addend(ctx: Ctx, form: Format, c: Bits) -> Bits:
    """Return the elements of C as (16, 16), row first."""
    of, groups, dwords = layout(ctx.ins), ctx.lanes // SIZE, _dwords(c)
    if form is F32:
        return of.rows(groups, dwords)
    if ctx.ins.generation.copies_matrices:
        return of.rows(groups, dwords) >> _half(ctx) & U32(0xFFFF)
    return of.rows(groups, dwords.view("<u2").astype(U32)[:, : SIZE // groups])


def _half(ctx: Ctx) -> np.uint32:
    """Return the place of a 16-bit element in its dword on RDNA3."""
    return U32(16 if ctx.ins.fields["opsel"] >> 2 & 1 else 0)


def _result(ctx: Ctx, form: Format, total: Bits) -> Bits:
    """Return D by (lane, register)."""
    found = layout(ctx.ins).registers(ctx.lanes // SIZE, total)
    if form is F32:
        return found
    if ctx.ins.generation.copies_matrices:
        first, shift = ctx.ins.defs[0].index, _half(ctx)
        old = ctx.vgprs[first : first + found.shape[1]].T
        return old & ~(U32(0xFFFF) << shift) | found << shift
    return _registers_of(np.ascontiguousarray(found.astype("<u2")).view("<u4"))


def _registers_of(dwords: Bits) -> Bits:
    """Return (lane, register) as the writer wants it: two registers as one u64 a lane."""
    return dwords.view("<u8")[:, 0] if dwords.shape[1] == 2 else dwords


def _multiply(ctx: Ctx, form: Format, source: Format, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return A x B + C as (16, 16) from (16, dwords along K) of A and B; a dword has two 16-bit floats."""
    nearest = replace(own_mode(ctx), round_f32=NEAREST)
    total = c.ravel()
    for pair in range(a.shape[1]):
        total = dot2(nearest, form, source, np.repeat(a[:, pair], SIZE), np.tile(b[:, pair], SIZE), total)
    return total.reshape(SIZE, SIZE)


def _float(form: Format, source: Format) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        return _result(ctx, form, _multiply(ctx, form, source, _left(ctx, a), _right(ctx, b), _addend(ctx, form, c)))

    return run


def _small_float(first: Format, second: Format) -> Vector:
    """Return a product of 8-bit floats, which f16 holds exactly."""

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        left, right = as_halves(first, _left(ctx, a)), as_halves(second, _right(ctx, b))
        return _result(ctx, F32, _multiply(ctx, F32, F16, left, right, _addend(ctx, F32, c)))

    return run


def _integer(bits: int) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        first, second = signs(ctx)
        left = elements(_left(ctx, a), bits, first).reshape(SIZE, -1)
        right = elements(_right(ctx, b), bits, second).reshape(SIZE, -1)
        total = left @ right.T + sign_extended(_addend(ctx, F32, c), 32)
        return _result(ctx, F32, given(ctx, total, "i32"))

    return run


# ---- sparse matrices


def _places(ctx: Ctx, index: Bits, count: int) -> NDArray[np.int64]:
    """Return for `count` kept elements of each row their places among the elements along K.

    A lane has two bits for each of its elements. A register of src2 may hold several sets, which op_sel selects.
    """
    lanes = HALF if ctx.ins.mnemonic in _SHORT_A else ctx.lanes
    held = count * SIZE // lanes
    chosen = ctx.ins.fields["opsel"] * 2 * held
    bits = index[:, None] >> (np.arange(held, dtype=U32) * U32(2) + U32(chosen)) & U32(3)
    within: NDArray[np.int64] = layout(ctx.ins).along_k(bits[:lanes]).astype(np.int64)
    return within + np.arange(count) // 2 * 4


def _expanded(places: NDArray[np.int64], kept: NDArray[Element]) -> NDArray[Element]:
    """Return the whole matrix A; elements between the kept ones are zero."""
    found = np.zeros((SIZE, 2 * kept.shape[1]), kept.dtype)
    np.put_along_axis(found, places, kept, axis=1)
    return found


def _sparse_float(form: Format, source: Format, first: Format | None = None, second: Format | None = None) -> Vector:
    """Return a sparse product; `first` and `second` are the formats of 8-bit elements, which `source` holds exactly."""

    def run(ctx: Ctx, d: Bits, a: Bits, b: Bits, index: Bits) -> Bits:
        left, right = _left(ctx, a), _right(ctx, b)
        if first is not None and second is not None:
            left, right = as_halves(first, left), as_halves(second, right)
        kept = np.ascontiguousarray(left).view("<u2")
        whole = _expanded(_places(ctx, index, kept.shape[1]), kept).view("<u4")
        return _result(ctx, form, _multiply(ctx, form, source, whole, right, _addend(ctx, form, d)))

    return run


def _sparse_integer(bits: int) -> Vector:
    def run(ctx: Ctx, d: Bits, a: Bits, b: Bits, index: Bits) -> Bits:
        first, second = signs(ctx)
        kept = elements(_left(ctx, a), bits, first).reshape(SIZE, -1)
        right = elements(_right(ctx, b), bits, second).reshape(SIZE, -1)
        whole = _expanded(_places(ctx, index, kept.shape[1]), kept)
        total = whole @ right.T + sign_extended(_addend(ctx, F32, d), 32)
        return _result(ctx, F32, given(ctx, total, "i32"))

    return run


def undefined_elements(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    """Return which elements of D are undefined, by (lane, element), from the undefined lanes of A and B.

    They are whole rows and columns. RDNA3's copies in the upper lanes count too, since the document requires them.
    """
    groups = a.size // SIZE
    rows, columns = (np.asarray(one.reshape(groups, SIZE).any(axis=0), np.bool_) for one in (a, b))
    return layout(ins).registers(groups, rows[:, None] | columns)


_EIGHTS = {"fp8": FP8, "bf8": BF8}
MATRIX: dict[str, Vector] = {
    "v_wmma_f32_16x16x16_f16": _float(F32, F16),
    "v_wmma_f32_16x16x16_bf16": _float(F32, BF16),
    "v_wmma_f16_16x16x16_f16": _float(F16, F16),
    "v_wmma_bf16_16x16x16_bf16": _float(BF16, BF16),
    "v_wmma_i32_16x16x16_iu8": _integer(8),
    "v_wmma_i32_16x16x16_iu4": _integer(4),
    "v_wmma_i32_16x16x32_iu4": _integer(4),
    "v_swmmac_f32_16x16x32_f16": _sparse_float(F32, F16),
    "v_swmmac_f32_16x16x32_bf16": _sparse_float(F32, BF16),
    "v_swmmac_f16_16x16x32_f16": _sparse_float(F16, F16),
    "v_swmmac_bf16_16x16x32_bf16": _sparse_float(BF16, BF16),
    "v_swmmac_i32_16x16x32_iu8": _sparse_integer(8),
    "v_swmmac_i32_16x16x32_iu4": _sparse_integer(4),
    "v_swmmac_i32_16x16x64_iu4": _sparse_integer(4),
}
MATRIX |= {
    f"v_wmma_f32_16x16x16_{first}_{second}": _small_float(_EIGHTS[first], _EIGHTS[second])
    for first in _EIGHTS
    for second in _EIGHTS
}
MATRIX |= {
    f"v_swmmac_f32_16x16x32_{first}_{second}": _sparse_float(F32, F16, _EIGHTS[first], _EIGHTS[second])
    for first in _EIGHTS
    for second in _EIGHTS
}
