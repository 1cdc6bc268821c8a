"""MFMA and SMFMAC of CDNA3 and CDNA4: D = A x B + C of blocks of matrices, spread over the 64 lanes; EXEC is ignored.

A lane has consecutive elements of a row of A, or of a column of B, along K. Lane numbers go through the rows of a
block, then through the blocks, then through the parts of K. Four rows of C and D follow each other in the registers of
a lane. The next four are in the next group of lanes, and a lane's number in its group is that of the column. Blocks
are in registers of their own. f64 and the products of 4x4 differ: see `Shape.places`. SMFMAC adds to D, and its A has
two of every four elements; src2 gives their places.

CDNA4's deeper products have twice as many elements in a lane. Those of its sparse ones are two halves along K.

Source: CDNA3 ISA reference, "Matrix Arithmetic Instructions"; AMD matrix instruction calculator (layouts). GUESS: the
direction of BLGP's rotation; that A of CDNA4's deeper sparse products is in halves, as B is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.amd.decoding.products import BITS, CDNA4_NAMES, LANES, NAMES, Shape, shape_of
from ringup.silicon.shader.amd.values.context import KEEP_INPUTS, KEEP_RESULTS, Ctx, Vector
from ringup.silicon.shader.amd.values.float_arithmetic import fuse
from ringup.silicon.shader.amd.values.floats import F32, F64, NEAREST, Bits
from ringup.silicon.shader.amd.values.integers import U32, U64, sign_extended
from ringup.silicon.shader.amd.values.matrix_sums import multiply_add, multiply_add_pairs

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.interpreter.step import Lanes


def _elements(registers: Bits, bits: int) -> Bits:
    """Return a lane's elements as (lane, element) u32, u64 for f64."""
    dwords = np.ascontiguousarray(registers).view("<u4").reshape(LANES, -1)
    kind = {64: "<u8", 32: "<u4", 16: "<u2", 8: "u1"}[bits]
    found = np.ascontiguousarray(dwords).view(kind)
    return found if bits == 64 else found.astype(U32)


def rows_of(shape: Shape, elements: Bits) -> Bits:
    """Return (lane, element) of A or B as (block, row or column, along K)."""
    held = elements.reshape(-1, shape.blocks, shape.size, elements.shape[1])
    return held.transpose(1, 2, 0, 3).reshape(shape.blocks, shape.size, -1)


def _sparse_rows(shape: Shape, elements: Bits) -> Bits:
    """Return (lane, element) of a sparse product as (row or column, along K). A lane's elements are of `shape.parts`
    parts of K.
    """
    return np.concatenate([rows_of(shape, one)[0] for one in np.split(elements, shape.parts, axis=1)], axis=1)


def broadcast_lanes(pattern: int) -> NDArray[np.int64]:
    """Return by lane of B the lane whose elements it takes: BLGP."""
    lanes = np.arange(LANES)
    if pattern in (1, 2):
        return lanes % 32 + 32 * (pattern - 1)
    if pattern == 3:
        return (lanes + 16) % LANES
    return lanes if pattern == 0 else lanes % 16 + 16 * (pattern - 4)


def _broadcast_blocks(ctx: Ctx, shape: Shape, a: Bits) -> Bits:
    """Apply CBSZ and ABID: of each group of 2**CBSZ blocks of A, all are the one that ABID selects."""
    group = 1 << ctx.ins.fields["cbsz"]
    if shape.blocks == 1 or group == 1:
        return a
    group = min(group, shape.blocks)
    chosen = np.arange(shape.blocks) // group * group + ctx.ins.fields["abid"] % group
    return a[chosen]


def _nearest(ctx: Ctx) -> Ctx:
    keeps = KEEP_INPUTS | KEEP_RESULTS
    return replace(ctx, round_f32=NEAREST, round_f16_f64=NEAREST, denorm_f32=keeps, denorm_f16_f64=keeps)


def _chain(ctx: Ctx, shape: Shape, a: Bits, b: Bits, c: Bits) -> Bits:
    """Add products one after the other along K, each fused."""
    form, total = F64 if shape.result == "f64" else F32, c.ravel()
    for k in range(shape.depth):
        left = np.broadcast_to(a[:, :, None, k], c.shape).ravel()
        right = np.broadcast_to(b[:, None, :, k], c.shape).ravel()
        total = fuse(_nearest(ctx), form, left, right, total)
    return total.reshape(c.shape)


def _integers(a: Bits, b: Bits, c: Bits) -> Bits:
    left, right = sign_extended(a, 8), sign_extended(b, 8)
    total = np.einsum("bik,bjk->bij", left, right) + c.astype(np.int64)
    return (total & 0xFFFF_FFFF).astype(U32)


def gathered(shape: Shape, registers: Bits) -> Bits:
    """Return C by block, row and column."""
    lane, register = shape.places
    if shape.result == "f64":
        found = np.ascontiguousarray(registers).view("<u8").reshape(LANES, -1)
    else:
        found = np.ascontiguousarray(registers).view("<u4").reshape(LANES, -1)
    return found[lane, register]


def scattered(shape: Shape, matrix: Bits) -> Bits:
    """Return D by lane and register; two registers as one u64 a lane."""
    lane, register = shape.places
    count = shape.blocks * shape.size * shape.size // LANES
    found = np.zeros((LANES, count), matrix.dtype)
    found[lane, register] = matrix
    dwords = found.view("<u4")
    return dwords.view("<u8")[:, 0] if dwords.shape[1] == 2 else dwords


def _dense(shape: Shape, types: tuple[str, str]) -> Vector:
    bits = BITS[shape.types[0]]

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        first, second, pattern = _elements(a, bits), _elements(b, bits), ctx.ins.fields["blgp"]
        addend = gathered(shape, c)
        # Signs instead of a pattern.
        if shape.result == "f64":
            sign = U64(1 << 63)
            first, second, addend = (
                one ^ sign if pattern >> at & 1 else one for at, one in enumerate((first, second, addend))
            )
        else:
            second = second[broadcast_lanes(pattern)]
        left, right = _broadcast_blocks(ctx, shape, rows_of(shape, first)), rows_of(shape, second)
        if shape.types[0] in ("f32", "f64"):
            total = _chain(ctx, shape, left, right, addend)
        elif shape.types[0] == "i8":
            total = _integers(left, right, addend)
        else:
            total = multiply_add(types, left, right, addend)
        return scattered(shape, total)

    return run


def _index_bits(ctx: Ctx, shape: Shape, index: Bits) -> Bits:
    """Return the two bits for each element of A that a lane has.

    A register holds several sets of them, which ABID selects if CBSZ is zero.
    """
    held = shape.depth * shape.size // 2 // LANES
    sets = 32 // (2 * held)
    chosen = ctx.ins.fields["abid"] % sets if ctx.ins.fields["cbsz"] == 0 else 0
    places = np.arange(held, dtype=U32) * U32(2) + U32(chosen * 2 * held)
    return index.reshape(LANES, 1) >> places & U32(3)


def _sparse(shape: Shape, types: tuple[str, str]) -> Vector:
    bits = BITS[shape.types[0]]

    def run(ctx: Ctx, d: Bits, a: Bits, b: Bits, index: Bits) -> Bits:
        kept, right = _sparse_rows(shape, _elements(a, bits)), _sparse_rows(shape, _elements(b, bits))
        within = _sparse_rows(shape, _index_bits(ctx, shape, index)).astype(np.int64)
        places = within + np.arange(kept.shape[1]) // 2 * 4
        # By row, column and kept element: what of B it is multiplied with.
        partners = right[np.arange(shape.size)[None, :, None], places[:, None, :]]
        factors = np.broadcast_to(kept[:, None, :], partners.shape)
        addend = gathered(shape, d)
        if shape.types[0] == "i8":
            products = sign_extended(factors, 8) * sign_extended(partners, 8)
            total = (products.sum(axis=-1)[None] + addend.astype(np.int64) & 0xFFFF_FFFF).astype(U32)
        else:
            total = multiply_add_pairs(types, factors[None], partners[None], addend)
        return scattered(shape, total)

    return run


def undefined_registers(shape: Shape, a: Lanes, b: Lanes, added: Lanes) -> Lanes:
    """Return by lane and register what is undefined of D.

    `a` and `b` are the undefined lanes of A (for a sparse product of its indices too) and B, `added` those of C by lane
    and register (pair of registers for f64).
    """
    rows, columns = (rows_of(shape, one[:, None]).any(axis=2) for one in (a, b))
    lane, register = shape.places
    found = np.zeros_like(added)
    found[lane, register] = rows[:, :, None] | columns[:, None, :]
    return np.asarray(found | added, np.bool_)


def _named(mnemonic: str, octets: str = "") -> Vector:
    """Return the function of a product. `octets` is what 8-bit floats are of: OCP on CDNA4."""
    shape = shape_of(mnemonic)
    assert shape is not None
    first, second = (f"{octets}{one}" if one in ("fp8", "bf8") else one for one in shape.types)
    return (_sparse if shape.is_sparse else _dense)(shape, (first, second))


MFMA: dict[str, Vector] = {name: _named(name) for name in NAMES}
CDNA4_MFMA: dict[str, Vector] = {name: _named(name, "ocp_") for name in CDNA4_NAMES}
