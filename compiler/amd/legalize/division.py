"""Integer division by multiplication: RDNA has no instruction for it.

By a constant: multiplication with a reciprocal that is exact for every dividend up to its known bound. By a variable:
the f32 unit gives a reciprocal, Newton steps in integers refine it, and the quotient is at most two too small and is
corrected. Source of the methods: Granlund and Montgomery, "Division by invariant integers using multiplication" (1994);
Warren, "Hacker's Delight", ch. 9 and 10.
"""

from __future__ import annotations

from ringup.compiler.amd.legalize.products import times
from ringup.compiler.amd.legalize.region_builder import Maker
from ringup.compiler.machine.ir import F32, I1, I32, I64, Type, Value


def unsigned(m: Maker, v: Value) -> Value | None:
    """Rewrite an unsigned quotient."""
    return _quotient(m, "div_u", v.type, *v.args)


def signed(m: Maker, v: Value) -> Value | None:
    """Rewrite a signed quotient, rounded toward zero."""
    return _quotient(m, "div_s", v.type, *v.args)


def remainder(m: Maker, v: Value) -> Value | None:
    """Rewrite a remainder: the dividend minus quotient times divisor. Its sign is the dividend's."""
    a, b = v.args
    if v.op == "rem_s" and _is_positive(m, a) and _is_positive(m, b):
        return remainder(m, Value("rem_u", v.type, v.args))
    if v.op == "rem_u" and b.op == "const" and _power(b) is not None:
        return m.op("and", v.type, a, m.const(int(b.imm) - 1, v.type))
    quotient = _quotient(m, "div_u" if v.op == "rem_u" else "div_s", v.type, a, b)
    return m.op("sub", v.type, a, times(m, quotient, b))


def _quotient(m: Maker, op: str, type_: Type, a: Value, b: Value) -> Value:
    if op == "div_s" and _is_positive(m, a) and _is_positive(m, b):
        op = "div_u"
    found = m.quotients.get((op, a, b))
    if found is None:
        made = (_unsigned if op == "div_u" else _signed)(m, type_, a, b)
        found = m.quotients[op, a, b] = made
    return found


def _is_positive(m: Maker, value: Value) -> bool:
    return m.top(value) < 1 << value.type.bits - 1


def _power(value: Value) -> int | None:
    number = value.imm
    return number.bit_length() - 1 if isinstance(number, int) and number.bit_count() == 1 else None


def _unsigned(m: Maker, type_: Type, a: Value, b: Value) -> Value:
    if b.op == "const" and isinstance(b.imm, int):
        if b.imm == 0:
            # Any value is allowed.
            return m.const(0, type_)
        return _by_constant(m, type_, a, b.imm)
    if type_ == I64 and m.top(a) < 1 << 32 and m.top(b) < 1 << 32:
        return m.op("zext", I64, _by_value_32(m, m.halves(a)[0], m.halves(b)[0]))
    return _by_value_32(m, a, b) if type_ == I32 else _by_value_64(m, a, b)


def _signed(m: Maker, type_: Type, a: Value, b: Value) -> Value:
    """Divide the magnitudes. The quotient is negative if exactly one of the two is."""
    last = m.const(type_.bits - 1)
    if b.op == "const" and isinstance(b.imm, int):
        divisor = b.imm - (1 << type_.bits) if b.imm >> type_.bits - 1 else b.imm
        if divisor == 0:
            return m.const(0, type_)
        power = _power(m.const(abs(divisor), type_))
        if power == 0:
            return a if divisor > 0 else m.op("sub", type_, m.const(0, type_), a)
        # For negative dividends, the divisor less one is added, so that the shift rounds toward zero.
        if power is not None:
            lift = m.op("shr_u", type_, m.op("shr_s", type_, a, last), m.const(type_.bits - power))
            quotient = m.op("shr_s", type_, m.op("add", type_, a, lift), m.const(power))
            return quotient if divisor > 0 else m.op("sub", type_, m.const(0, type_), quotient)
        if type_ == I32:
            return _by_signed_constant(m, a, divisor)
        sign = m.op("shr_s", type_, a, last)
        size = _by_constant(m, type_, _flip(m, a, sign), abs(divisor), bound=1 << type_.bits - 1)
        if divisor < 0:
            sign = m.op("not", type_, sign)
        return _flip(m, size, sign)
    sign_a, sign_b = m.op("shr_s", type_, a, last), m.op("shr_s", type_, b, last)
    size = _unsigned(m, type_, _flip(m, a, sign_a), _flip(m, b, sign_b))
    return _flip(m, size, m.op("xor", type_, sign_a, sign_b))


def _flip(m: Maker, value: Value, sign: Value) -> Value:
    """Return the value, or its negative where `sign` is all ones."""
    return m.op("sub", value.type, m.op("xor", value.type, value, sign), sign)


def reciprocal(divisor: int, bound: int, bits: int) -> tuple[int, int, bool]:
    """Return (multiplier, shift, too_wide) with x // divisor == x * multiplier >> bits + shift for every x up to
    `bound`.

    With multiplier = ceil(2**k / d) = (2**k + e) / d, x * multiplier / 2**k exceeds x / d by x * e / (d * 2**k). That
    is below 1 / d, the distance of x / d from the next integer, as long as x * e < 2**k. `too_wide`: the multiplier has
    one bit more than `bits`.
    """
    for shift in range(divisor.bit_length() + 1):
        k = bits + shift
        multiplier = -(-(1 << k) // divisor)
        if bound * (multiplier * divisor - (1 << k)) < 1 << k:
            return multiplier, shift, multiplier >> bits != 0
    # Not reached: with k = bits + bit_length, e < d <= 2**shift and bound < 2**bits.
    raise AssertionError(divisor)


def _by_constant(m: Maker, type_: Type, a: Value, divisor: int, *, bound: int | None = None) -> Value:
    if divisor.bit_count() == 1:
        return m.op("shr_u", type_, a, m.const(divisor.bit_length() - 1))
    most = min(m.top(a), bound) if bound is not None else m.top(a)
    if most < divisor:
        return m.const(0, type_)
    if type_ == I64 and most < 1 << 32:
        return m.op("zext", I64, _by_constant(m, I32, m.halves(a)[0], divisor, bound=most))
    multiplier, shift, too_wide = reciprocal(divisor, most, type_.bits)
    if not too_wide:
        return m.op("shr_u", type_, _high(m, type_, a, m.const(multiplier, type_)), m.const(shift))
    # An even divisor: halve both, which also halves the bound.
    if divisor % 2 == 0:
        half = m.op("shr_u", type_, a, m.const(1))
        return _by_constant(m, type_, half, divisor // 2, bound=most // 2)
    # x * (multiplier - 2**bits); then x is added without overflow.
    part = _high(m, type_, a, m.const(multiplier - (1 << type_.bits), type_))
    rest = m.op("shr_u", type_, m.op("sub", type_, a, part), m.const(1))
    return m.op("shr_u", type_, m.op("add", type_, rest, part), m.const(shift - 1))


def _by_signed_constant(m: Maker, a: Value, divisor: int) -> Value:
    """Multiply by floor(2**k / d) + 1, which is correct for all dividends of 31 bits and a sign. Negative quotients are
    increased by one.
    """
    size = abs(divisor)
    shift = next(s for s in range(32) if (((1 << 32 + s) // size) + 1) * size - (1 << 32 + s) <= 1 << s + 1)
    multiplier = (1 << 32 + shift) // size + 1
    high = m.op("mul_hi_s", I32, a, m.const(multiplier))
    # The instruction reads the multiplier as multiplier - 2**32.
    if multiplier >> 31:
        high = m.op("add", I32, high, a)
    quotient = m.op("shr_s", I32, high, m.const(shift))
    below = m.op("shr_u", I32, a, m.const(31))
    return (
        m.op("add", I32, quotient, below)
        if divisor > 0
        else m.op("sub", I32, m.op("sub", I32, m.const(0), quotient), below)
    )


def _high(m: Maker, type_: Type, a: Value, b: Value) -> Value:
    """Return the upper half of an unsigned product."""
    if type_ == I32:
        return m.op("mul_hi_u", I32, a, b)
    (a_low, a_high), (b_low, b_high) = m.halves(a), m.halves(b)
    lowest = m.op("mul_hi_u", I32, a_low, b_low)
    first = m.op("mad_wide_u", I64, a_high, b_low, m.op("zext", I64, lowest))
    first_low, first_high = m.halves(first)
    second = m.op("mad_wide_u", I64, a_low, b_high, m.op("zext", I64, first_low))
    carried = m.op("add", I64, m.op("zext", I64, first_high), m.op("zext", I64, m.halves(second)[1]))
    return m.op("mad_wide_u", I64, a_high, b_high, carried)


def _corrected(m: Maker, type_: Type, a: Value, b: Value, quotient: Value, tries: int) -> Value:
    """Increment a quotient that is too small, up to `tries` times, while the rest is at least the divisor."""
    one = m.const(1, type_)
    rest = m.op("sub", type_, a, times(m, quotient, b))
    for i in range(tries):
        more = m.op("le_u", I1, b, rest)
        quotient = m.op("select", type_, more, m.op("add", type_, quotient, one), quotient)
        if i + 1 < tries:
            rest = m.op("select", type_, more, m.op("sub", type_, rest, b), rest)
    return quotient


def _by_value_32(m: Maker, a: Value, b: Value) -> Value:
    """Divide with a reciprocal that is never too large: 2**32 less 512 (the error of two roundings and of v_rcp_f32),
    divided by the divisor.

    After one Newton step, z += high(z * (2**32 - b * z)), the quotient is at most two too small.
    """
    scale = m.const(float(2**32 - 512), F32)
    guess = m.op("to_int_u", I32, m.op("fmul", F32, m.op("rcp", F32, m.op("to_float_u", F32, b)), scale))
    missing = times(m, m.op("sub", I32, m.const(0), b), guess)
    better = m.op("add", I32, guess, m.op("mul_hi_u", I32, guess, missing))
    return _corrected(m, I32, a, b, m.op("mul_hi_u", I32, a, better), 2)


def _by_value_64(m: Maker, a: Value, b: Value) -> Value:
    """Do the same with 64 bits: the first reciprocal has 22 correct bits, and two Newton steps make it 2**64 / b less a
    few units.
    """
    low, high = m.halves(b)
    two32 = m.const(float(2**32), F32)
    near = m.op("fma", F32, m.op("to_float_u", F32, high), two32, m.op("to_float_u", F32, low))
    scaled = m.op("fmul", F32, m.op("rcp", F32, near), m.const(float(2**64 - 2**42), F32))
    upper = m.op("trunc", F32, m.op("fmul", F32, scaled, m.const(2.0**-32, F32)))
    lower = m.op("fma", F32, upper, m.const(-(2.0**32), F32), scaled)
    guess = m.joined(m.op("to_int_u", I32, lower), m.op("to_int_u", I32, upper), I64)
    negative = m.op("sub", I64, m.const(0, I64), b)
    for _ in range(2):
        guess = m.op("add", I64, guess, _high(m, I64, guess, times(m, negative, guess)))
    return _corrected(m, I64, a, b, _high(m, I64, a, guess), 2)
