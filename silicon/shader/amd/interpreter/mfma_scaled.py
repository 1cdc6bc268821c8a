"""Matrix products of CDNA4 whose factors are floats of eight, six or four bits, with a scale for each 32 along K.

CBSZ and BLGP give the formats of A and B. A lane has 32 consecutive elements along K. Its scales are a byte of its
lane in src_scale0 and src_scale1, which op_sel and op_sel_hi choose; a constant's exponent is the scale of all lanes.

GUESS: the products of 32 elements are added in f64 in the order of K (exactly, but for those of two BF8) and scaled;
their sums are added to C in the order of K, and each sum is rounded to nearest even. GUESS: 32 elements of eight bits
are consecutive, as the document shows for four bits; its tables of the others are pictures. Source: CDNA4 ISA
reference, "8-bit and Smaller Matrix Operations and Layouts", "Block Scaled Matrices".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.products import LANES, SCALED_NAMES, Shape, shape_of
from ringup.silicon.shader.amd.interpreter.mfma import gathered, rows_of, scattered
from ringup.silicon.shader.amd.values.integers import U32
from ringup.silicon.shader.amd.values.matrix_sums import NAN
from ringup.silicon.shader.amd.values.small_floats import BF6, BF8, FP4, FP6, FP8, unpacked, values

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.values.context import Ctx, Vector
    from ringup.silicon.shader.amd.values.floats import Bits, Wide

# By CBSZ or BLGP.
FORMS = (FP8, BF8, FP6, BF6, FP4)
BLOCK = 32
_NAN_SCALE, _SCALE_BIAS = 255, 127


def _numbers(ctx: Ctx, shape: Shape, field: str, registers: Bits) -> Wide:
    """Return A or B as (row or column, along K)."""
    number = ctx.ins.fields[field]
    if number >= len(FORMS):
        raise Unmodelled(f"{ctx.ins.spelling} with {field} {number}, which is no format")
    form = FORMS[number]
    codes = unpacked(np.ascontiguousarray(registers).view("<u4").reshape(LANES, -1), form.bits)
    return values(form, rows_of(shape, codes)[0])


def _scales(ctx: Ctx, shape: Shape, number: int, source: Bits) -> Wide:
    """Return the scales of A (0) or B (1) as (row or column, block along K)."""
    operand = next(one for one in ctx.ins.uses if one.field == f"src_scale{number}")
    place = (ctx.ins.fields["opsel"] >> number & 1) | (ctx.ins.fields["opsel_hi"] >> number & 1) << 1
    shift = 8 * place if operand.kind == "vgpr" else 23
    exponents = (source >> U32(shift) & U32(0xFF)).astype(np.int64)
    factors = np.where(exponents == _NAN_SCALE, np.nan, np.ldexp(1.0, exponents - _SCALE_BIAS))
    found: Wide = factors.reshape(-1, shape.size).T
    return found


def _named(mnemonic: str) -> Vector:
    shape = shape_of(mnemonic)
    assert shape is not None

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        left, right = _numbers(ctx, shape, "cbsz", a), _numbers(ctx, shape, "blgp", b)
        total = gathered(shape, c)[0].view(np.float32)
        factors = [_scales(ctx, shape, at, one) for at, one in enumerate(scales)]
        for block in range(shape.depth // BLOCK):
            part = slice(block * BLOCK, block * BLOCK + BLOCK)
            found = np.zeros(total.shape)
            for a_column, b_column in zip(left[:, part].T, right[:, part].T, strict=True):
                found += a_column[:, None] * b_column
            if factors:
                found = found * (factors[0][:, None, block] * factors[1][None, :, block])
            total = (total.astype(np.float64) + found).astype(np.float32)
        return scattered(shape, np.where(np.isnan(total), U32(NAN), total.view(np.uint32))[None])

    return run


SCALED: dict[str, Vector] = {name: _named(name) for name in SCALED_NAMES}
