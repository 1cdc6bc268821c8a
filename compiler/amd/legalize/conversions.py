"""Conversions without an RDNA instruction: of 64-bit integers, of bf16, and from f64 to 16 bits. Two roundings do not
give the same result as one, so the last goes through rounding to odd.
"""

from __future__ import annotations

from ringup.compiler.amd.legalize.region_builder import Maker
from ringup.compiler.machine.ir import BF16, F16, F32, F64, I1, I16, I32, I64, Value


def to_float(m: Maker, v: Value) -> Value | None:
    """Rewrite a conversion from an integer. Conversions of i32 to f32 and f64, and of i16 to f16, are instructions."""
    (a,) = v.args
    signed = v.op == "to_float_s"
    if a.type == I64:
        if v.type == F64:
            return _long_to_double(m, a, signed)
        wide = _long_to_float(m, a, signed)
        return wide if v.type == F32 else between(m, wide, v)
    # Below 2**24, the number is exact in f32. From 65520 on, f16 is infinity in one step or in two.
    if a.type == I32 and v.type not in (F32, F64):
        return between(m, m.op(v.op, F32, a), v)
    if (a.type == I16 and v.type != F16) or a.type.bits == 8:
        wide = m.op("sext" if signed else "zext", I32, a)
        made = Value(v.op, v.type, (wide,), uniform=v.uniform)
        return to_float(m, made) or m.op(v.op, v.type, wide)
    return None


def _long_to_double(m: Maker, a: Value, signed: bool) -> Value:
    """Convert both halves, which are exact in f64; their sum rounds once."""
    low, high = m.halves(a)
    upper = m.op("ldexp", F64, m.op("to_float_s" if signed else "to_float_u", F64, high), m.const(32))
    return m.op("fadd", F64, upper, m.op("to_float_u", F64, low))


def _long_to_float(m: Maker, a: Value, signed: bool) -> Value:
    """Shift the leading one to bit 63. Below the upper half, it matters only whether any bit is set; the last bit
    records that.
    """
    sign = None
    if signed:
        sign = m.op("shr_s", I64, a, m.const(63))
        a = m.op("sub", I64, m.op("xor", I64, a, sign), sign)
    low, high = m.halves(a)
    in_high = m.op("leading_zeros", I32, high)
    below = m.op("add", I32, m.op("leading_zeros", I32, low), m.const(32))
    zeros = m.op("select", I32, m.op("eq", I1, high, m.const(0)), below, in_high)
    moved_low, moved_high = m.halves(m.op("shl", I64, a, m.op("min_u", I32, zeros, m.const(63))))
    sticky = m.op("or", I32, moved_high, m.op("min_u", I32, moved_low, m.const(1)))
    size = m.op("ldexp", F32, m.op("to_float_u", F32, sticky), m.op("sub", I32, m.const(32), zeros))
    if sign is None:
        return size
    return m.op("select", F32, m.op("ne", I1, m.halves(sign)[1], m.const(0)), m.op("fneg", F32, size), size)


def to_int(m: Maker, v: Value) -> Value | None:
    """Rewrite a saturating conversion to an integer; NaN becomes 0. Conversions of f32 and f64 to
    i32 are instructions.
    """
    (a,) = v.args
    if a.type.bits == 16:
        wide = m.op("fconvert", F32, a) if a.type == F16 else _from_bf16(m, a)
        made = Value(v.op, v.type, (wide,), uniform=v.uniform)
        return to_int(m, made) or m.op(v.op, v.type, wide)
    # Saturate at the bounds of the narrow type.
    if v.type.bits < 32:
        signed, bits = v.op == "to_int_s", v.type.bits
        whole = m.op(v.op, I32, a)
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if signed:
            whole = m.op("max_s", I32, whole, m.const(least))
        return m.op("truncate", v.type, m.op("min_s" if signed else "min_u", I32, whole, m.const(most)))
    if v.type != I64:
        return None
    if v.op == "to_int_u":
        return _to_unsigned_long(m, a)
    return _float_to_long(m, a) if a.type == F32 else _double_to_long(m, a)


def _to_unsigned_long(m: Maker, a: Value) -> Value:
    kind = a.type
    # NaN becomes 0.
    whole = m.op("trunc", kind, m.op("fmax", kind, a, m.const(0.0, kind)))
    high = m.op("trunc", kind, m.op("fmul", kind, whole, m.const(2.0**-32, kind)))
    low = m.op("fma", kind, high, m.const(-(2.0**32), kind), whole)
    number = m.joined(m.op("to_int_u", I32, low), m.op("to_int_u", I32, high), I64)
    return m.op("select", I64, m.op("fle", I1, m.const(2.0**64, kind), a), m.const(-1, I64), number)


def _float_to_long(m: Maker, a: Value) -> Value:
    """Convert the magnitude, whose halves are exact in f32, and apply the sign."""
    least = m.op("fmax", F32, a, m.const(-(2.0**63), F32))
    whole = m.op("trunc", F32, m.op("fabs", F32, least))
    high = m.op("trunc", F32, m.op("fmul", F32, whole, m.const(2.0**-32, F32)))
    low = m.op("fma", F32, high, m.const(-(2.0**32), F32), whole)
    size = m.joined(m.op("to_int_u", I32, low), m.op("to_int_u", I32, high), I64)
    half = m.op("shr_s", I32, m.op("bitcast", I32, least), m.const(31))
    sign = m.joined(half, half, I64)
    return _saturated(m, a, m.op("sub", I64, m.op("xor", I64, size, sign), sign))


def _double_to_long(m: Maker, a: Value) -> Value:
    """Convert both halves. The upper one is rounded down, so the lower one is not negative; it has 32 bits and is
    exact.
    """
    whole = m.op("trunc", F64, m.op("fmax", F64, a, m.const(-(2.0**63), F64)))
    high = m.op("floor", F64, m.op("fmul", F64, whole, m.const(2.0**-32, F64)))
    low = m.op("fma", F64, high, m.const(-(2.0**32), F64), whole)
    return _saturated(m, a, m.joined(m.op("to_int_u", I32, low), m.op("to_int_s", I32, high), I64))


def _saturated(m: Maker, a: Value, number: Value) -> Value:
    above = m.op("fle", I1, m.const(2.0**63, a.type), a)
    number = m.op("select", I64, above, m.const((1 << 63) - 1, I64), number)
    return m.op("select", I64, m.op("feq", I1, a, a), number, m.const(0, I64))


def between_floats(m: Maker, v: Value) -> Value | None:
    """Rewrite a conversion between float types. Conversions of f32 from and to f16 and f64 are instructions."""
    (a,) = v.args
    if a.type.count > 1:
        return None
    pair = a.type.element, v.type.element
    if pair in (("f32", "f16"), ("f16", "f32"), ("f32", "f64"), ("f64", "f32")):
        return None
    return between(m, a, v)


def between(m: Maker, a: Value, v: Value) -> Value:
    """Convert `a` to the type of `v`, through f32 where f32 is exact, or after rounding to odd."""
    if a.type == v.type:
        return a
    if a.type == F16:
        wide = m.op("fconvert", F32, a)
    elif a.type == BF16:
        wide = _from_bf16(m, a)
    elif a.type == F64:
        wide = _to_odd(m, a)
    else:
        wide = a
    if v.type == F32:
        return wide
    return _to_bf16(m, wide) if v.type == BF16 else m.op("fconvert", v.type, wide)


def _from_bf16(m: Maker, a: Value) -> Value:
    if a.op == "extract" and isinstance(a.imm, int) and a.imm % 2 and a.args[0].type.count % 2 == 0:
        dwords = a.args[0].type.count // 2
        whole = m.op("bitcast", I32.of(dwords), a.args[0])
        upper = m.op("extract", I32, whole, imm=a.imm // 2) if dwords > 1 else whole
        return m.op("bitcast", F32, m.op("and", I32, upper, m.const(0xFFFF0000)))
    number = m.op("zext", I32, m.op("bitcast", I16, a))
    return m.op("bitcast", F32, m.op("shl", I32, number, m.const(16)))


def _to_bf16(m: Maker, a: Value) -> Value:
    """Add half a unit in the last place, less one if that place is even, and truncate. A NaN becomes quiet."""
    bits = m.op("bitcast", I32, a)
    cut = m.op("shr_u", I32, bits, m.const(16))
    odd = m.op("and", I32, cut, m.const(1))
    near = m.op("shr_u", I32, m.op("add", I32, m.op("add", I32, bits, odd), m.const(0x7FFF)), m.const(16))
    quiet = m.op("or", I32, cut, m.const(0x40))
    chosen = m.op("select", I32, m.op("fne", I1, a, a), quiet, near)
    return m.op("bitcast", BF16, m.op("truncate", I16, chosen))


def _to_odd(m: Maker, a: Value) -> Value:
    """Round f64 to f32 to odd: toward zero, with the last bit set if anything was lost. Another rounding to fewer bits
    then gives the same result as a single rounding of `a`.
    """
    near = m.op("fconvert", F32, a)
    back = m.op("fconvert", F64, near)
    bits = m.op("bitcast", I32, near)
    above = m.op("flt", I1, m.op("fabs", F64, a), m.op("fabs", F64, back))
    toward_zero = m.op("sub", I32, bits, m.op("zext", I32, above))
    odd = m.op("or", I32, toward_zero, m.op("zext", I32, m.op("fne", I1, a, back)))
    return m.op("bitcast", F32, odd)
