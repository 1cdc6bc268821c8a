"""Integer products, in terms of the multiplications that RDNA has: 32 by 32 bits, and 32 by 32 plus 64."""

from __future__ import annotations

from ringup.compiler.amd.legalize.region_builder import Maker
from ringup.compiler.machine.ir import I32, I64, Value


def times(m: Maker, a: Value, b: Value) -> Value:
    """Return a product of 16, 32 or 64 bits."""
    made = m.op("mul", a.type, a, b)
    return (product(m, made) or made) if made.op == "mul" else made


def product(m: Maker, v: Value) -> Value | None:
    """Rewrite a product by a power of two as a shift, and a product of 64 bits in halves. Return None for one that an
    instruction computes.
    """
    a, b = v.args
    if a.op == "const":
        a, b = b, a
    if b.op == "const" and isinstance(b.imm, int) and b.imm.bit_count() == 1 and v.type.count == 1:
        return m.op("shl", v.type, a, m.const(b.imm.bit_length() - 1))
    if v.type != I64:
        return None
    (a_low, a_high), (b_low, b_high) = m.halves(a), m.halves(b)
    lowest = m.op("mad_wide_u", I64, a_low, b_low, m.const(0, I64))
    crossed = [
        m.op("mul", I32, x, y) for x, y in ((a_low, b_high), (a_high, b_low)) if not (_is_zero(x) or _is_zero(y))
    ]
    if not crossed:
        return lowest
    low, high = m.halves(lowest)
    for one in crossed:
        high = m.op("add", I32, high, one)
    return m.joined(low, high, I64)


def product_and_sum(m: Maker, v: Value) -> Value | None:
    """Keep a multiply-add that one instruction computes (24 bits), else split it."""
    a, b, c = v.args
    if not v.uniform and a.op != "const" and b.op != "const" and m.top(a) < 1 << 24 and m.top(b) < 1 << 24:
        return None
    return m.op("add", I32, times(m, a, b), c)


def _is_zero(value: Value) -> bool:
    return value.op == "const" and value.imm == 0
