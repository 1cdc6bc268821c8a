"""Functions that the hardware lacks or has only approximately, in f32 and f64: powers of two, logarithms, sines,
remainders, powers.

The errors given here are those of the method, in units in the last place (ulp), over the whole range. The errors of the
hardware (1 ulp of exp2 and log2 in f32) add to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F32, F64, I1, I32, I64, Type, Value

# e**x for |x| <= ln(2)/2: the next term is below 2**-54.
_EXP_TERMS = [1 / math.factorial(n) for n in range(15)]
# atanh(s)/s in s**2, |s| <= 3 - 2 sqrt(2): the next term is below 2**-60.
_ATANH_TERMS = [1 / (2 * n + 1) for n in range(12)]
# The parts of 1/3 and of 2 / ln 2 that an f64 of them lacks.
_THIRD_LOW = 1 / 3 * 2.0**-54
_SCALE_LOW = 4.0710547481862066e-17
# Terms of Taylor's series on [-pi/4, pi/4].
_SIN_TERMS = {F32: 5, F64: 9}
# pi/2 in parts. The products of the parts with a quadrant number of 20 bits (f64: 30 bits) are exact.
_HALF_PI = {
    F32: (1.5703125, 4.8351287841796875e-4, 3.13855707645416259765625e-7, 6.077100628276710381e-11),
    F64: (1.5707963109016418, 1.5893254767807008e-08, 5.721188709663575e-18, 1.6446256936324258e-26),
}
_CODY_WAITE_UP_TO = {F32: 2.0**17, F64: 2.0**28}
# Enough for the largest f64: 1024 + 53 + guard bits.
_TWO_OVER_PI_BITS = 1216


def _two_over_pi() -> list[int]:
    """Return 2/pi as 32-bit words after the binary point, most significant first. Machin's formula in integers gives
    pi.
    """
    scale = 1 << _TWO_OVER_PI_BITS + 64

    def arctan_of_inverse(x: int) -> int:
        total = term = scale // x
        n, sign = 1, -1
        while term:
            term //= x * x
            n += 2
            total += sign * (term // n)
            sign = -sign
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    bits = (2 * scale << _TWO_OVER_PI_BITS) // pi
    words = _TWO_OVER_PI_BITS // 32
    return [bits >> 32 * (words - 1 - i) & 0xFFFF_FFFF for i in range(words)]


TWO_OVER_PI = _two_over_pi()
_TABLE = [0, *TWO_OVER_PI]


def _horner(build: Builder, type_: Type, x: Value, terms: Sequence[float]) -> Value:
    total = build.const(terms[-1], type_)
    for term in reversed(terms[:-1]):
        total = build.op("fma", type_, total, x, build.const(term, type_))
    return total


def _select(build: Builder, condition: Value, a: Value, b: Value) -> Value:
    return build.op("select", a.type, condition, a, b)


def inverse_root(build: Builder, x: Value) -> Value:
    """Return 1 / sqrt(x): infinity with the sign of x for 0, NaN for negative numbers. f32: the hardware's. f64: within
    1 ulp.
    """
    # The hardware treats denormals as 0, so they are scaled up first.
    if x.type == F32:
        low = build.compare("flt", x, build.const(2.0**-126, F32))
        scaled = build.op("fmul", F32, x, _select(build, low, build.const(2.0**24, F32), build.const(1.0, F32)))
        value = build.op("rsq", F32, scaled)
        return build.op("fmul", F32, value, _select(build, low, build.const(2.0**12, F32), build.const(1.0, F32)))
    return build.op("div", F64, build.const(1.0, F64), build.op("fsqrt", F64, x))


def exp2(build: Builder, x: Value) -> Value:
    """Return 2**x. f32: the hardware's, with denormal results. f64: within 1 ulp."""
    # The hardware flushes denormal results, so small arguments are raised and the result is scaled down.
    if x.type == F32:
        low = build.compare("flt", x, build.const(-126.0, F32))
        raised = build.op("fadd", F32, x, build.const(64.0, F32))
        value = build.op("exp2", F32, _select(build, low, raised, x))
        return build.op("fmul", F32, value, _select(build, low, build.const(2.0**-64, F32), build.const(1.0, F32)))
    whole = build.op("round", F64, x)
    part = build.op("fmul", F64, build.op("fsub", F64, x, whole), build.const(math.log(2), F64))
    mantissa = _horner(build, F64, part, _EXP_TERMS)
    inside = build.op("fmax", F64, build.op("fmin", F64, whole, build.const(2000.0, F64)), build.const(-2000.0, F64))
    value = build.op("ldexp", F64, mantissa, build.op("to_int_s", I32, inside))
    value = _select(build, build.compare("fle", build.const(1100.0, F64), x), build.const(math.inf, F64), value)
    return _select(build, build.compare("fle", x, build.const(-1100.0, F64)), build.const(0.0, F64), value)


def log2(build: Builder, x: Value) -> Value:
    """Return the binary logarithm: minus infinity for 0, NaN for negative numbers. f32: the hardware's. f64: within 1
    ulp.
    """
    # The hardware treats denormals as 0, so they are scaled up first.
    if x.type == F32:
        low = build.compare("flt", x, build.const(2.0**-126, F32))
        scaled = build.op("fmul", F32, x, _select(build, low, build.const(2.0**32, F32), build.const(1.0, F32)))
        value = build.op("log2", F32, scaled)
        return build.op("fsub", F32, value, _select(build, low, build.const(32.0, F32), build.const(0.0, F32)))
    value = build.op("fadd", F64, *_log2_parts(build, x))
    zero = build.const(0.0, F64)
    value = _select(build, build.compare("feq", x, zero), build.const(-math.inf, F64), value)
    value = _select(build, build.compare("flt", x, zero), build.const(math.nan, F64), value)
    # False for infinity and NaN, which are their own results.
    plain = build.compare("flt", x, build.const(math.inf, F64))
    return _select(build, plain, value, x)


def log_add_exp(build: Builder, a: Value, b: Value) -> Value:
    """Return log(e**a + e**b), NaN if either is NaN. The error is below 2 units in the last place of the greatest of
    |a|, |b| and 1.
    """
    # The difference of two equal infinities is NaN.
    same = build.compare("feq", a, b)
    apart = build.op("fabs", a.type, build.op("fsub", a.type, a, b))
    power = build.op("fmul", a.type, apart, build.const(-1 / math.log(2), a.type))
    power, one = _select(build, same, build.const(0.0, a.type), power), build.const(1.0, a.type)
    # The hardware's functions suffice: a denormal added to 1 changes nothing.
    if a.type == F32:
        more = build.op("log2", F32, build.op("fadd", F32, one, build.op("exp2", F32, power)))
    else:
        more = log2(build, build.op("fadd", F64, one, exp2(build, power)))
    return build.op("fma", a.type, more, build.const(math.log(2), a.type), build.op("fmax", a.type, a, b))


def _log2_parts(build: Builder, x: Value) -> tuple[Value, Value]:
    """Return the binary logarithm of a finite f64 above 0 as a sum (high, low). `low` is below half an ulp of `high`;
    the relative error is below 2**-62.

    x = mantissa * 2**exponent, with the mantissa around 1; log2(mantissa) = 2 / ln 2 * atanh(s) with s = (mantissa - 1)
    / (mantissa + 1), and atanh(s) = s + s**3 * (1/3 + s**2 / 5 + …). All terms except those after 1/3 are kept in two
    parts.
    """
    mantissa = build.op("frexp_mantissa", F64, x)
    exponent = build.op("to_float_s", F64, build.op("frexp_exponent", I32, x))
    small = build.compare("flt", mantissa, build.const(math.sqrt(0.5), F64))
    mantissa = _select(build, small, build.op("fadd", F64, mantissa, mantissa), mantissa)
    exponent = _select(build, small, build.op("fsub", F64, exponent, build.const(1.0, F64)), exponent)
    one = build.const(1.0, F64)
    above, below = build.op("fsub", F64, mantissa, one), build.op("fadd", F64, mantissa, one)
    # The rounding error of the sum.
    below_low = build.op("fsub", F64, mantissa, build.op("fsub", F64, below, one))
    s = build.op("div", F64, above, below)
    lost = build.op("fma", F64, build.op("fneg", F64, s), below, above)
    lost = build.op("fma", F64, build.op("fneg", F64, s), below_low, lost)
    s_low = build.op("div", F64, lost, below)
    square, square_low = _product(build, s, s)
    square_low = build.op("fma", F64, build.op("fadd", F64, s, s), s_low, square_low)
    third = build.const(_ATANH_TERMS[1], F64)
    later = build.op("fmul", F64, square, _horner(build, F64, square, _ATANH_TERMS[2:]))
    factor, factor_low = _sum(build, third, later)
    factor_low = build.op("fadd", F64, factor_low, build.const(_THIRD_LOW, F64))
    cubic, cubic_low = _product(build, square, factor)
    cubic_low = build.op("fma", F64, square, factor_low, build.op("fma", F64, square_low, factor, cubic_low))
    rest, rest_low = _product(build, s, cubic)
    rest_low = build.op("fma", F64, s, cubic_low, build.op("fma", F64, s_low, cubic, rest_low))
    series, series_low = _sum(build, s, rest)
    series_low = build.op("fadd", F64, series_low, build.op("fadd", F64, s_low, rest_low))
    scale = build.const(2 / math.log(2), F64)
    head, tail = _product(build, series, scale)
    tail = build.op("fma", F64, series, build.const(_SCALE_LOW, F64), tail)
    tail = build.op("fma", F64, series_low, scale, tail)
    high, low = _sum(build, exponent, head)
    return _sum(build, high, build.op("fadd", F64, low, tail))


def _product(build: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """Return a product and its rounding error."""
    product = build.op("fmul", F64, a, b)
    return product, build.op("fma", F64, a, b, build.op("fneg", F64, product))


def _sum(build: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """Return a sum and its rounding error. `a` must be 0 or at least as large as `b`."""
    total = build.op("fadd", F64, a, b)
    return total, build.op("fsub", F64, b, build.op("fsub", F64, total, a))


def sin(build: Builder, x: Value) -> Value:
    """Return the sine, within 2 ulp for every finite argument (f32 and f64), NaN for infinities.

    For small arguments, multiples of pi/2 are subtracted in three exact steps (Cody and Waite). Large ones are
    multiplied in integers by those bits of 2/pi that affect the result (Payne and Hanek).
    """
    type_ = x.type
    magnitude = build.op("fabs", type_, x)
    turns = build.op("round", type_, build.op("fmul", type_, x, build.const(2 / math.pi, type_)))
    rest = x
    for part in _HALF_PI[type_]:
        rest = build.op("fma", type_, build.op("fneg", type_, turns), build.const(part, type_), rest)
    large = build.compare("fle", build.const(_CODY_WAITE_UP_TO[type_], type_), magnitude)
    quadrant = build.op("to_int_s", I32, turns)
    far_quadrant, far_rest = _far_quadrant(build, x)
    quadrant = _select(build, large, far_quadrant, quadrant)
    rest = _select(build, large, far_rest, rest)
    square = build.op("fmul", type_, rest, rest)
    count = _SIN_TERMS[type_]
    sines = [(-1) ** n / math.factorial(2 * n + 1) for n in range(1, count)]
    cosines = [(-1) ** n / math.factorial(2 * n) for n in range(count + 1)]
    cubic = build.op("fmul", type_, build.op("fmul", type_, rest, square), _horner(build, type_, square, sines))
    sine = build.op("fadd", type_, rest, cubic)
    cosine = _horner(build, type_, square, cosines)
    odd = build.compare("ne", build.op("and", I32, quadrant, build.const(1)), build.const(0))
    value = _select(build, odd, cosine, sine)
    lower = build.compare("ne", build.op("and", I32, quadrant, build.const(2)), build.const(0))
    value = _select(build, lower, build.op("fneg", type_, value), value)
    finite = build.compare("flt", magnitude, build.const(math.inf, type_))
    value = _select(build, finite, value, build.const(math.nan, type_))
    # The sine of minus zero is minus zero.
    return _select(build, build.compare("feq", x, build.const(0.0, type_)), x, value)


def _far_quadrant(build: Builder, x: Value) -> tuple[Value, Value]:
    """Return (quadrant, rest in radians) of a large number: its mantissa times those bits of 2/pi whose product is less
    than four turns.
    """
    if x.type == F32:
        bits = build.op("bitcast", I32, x)
        exponent = build.op("and", I32, build.op("shr_u", I32, bits, build.const(23)), build.const(0xFF))
        low = build.op("or", I32, build.op("and", I32, bits, build.const(0x7F_FFFF)), build.const(0x80_0000))
        mantissa = build.op("zext", I64, low)
        bias, precision, highest, count = 127, 24, 127, 3
    else:
        whole = build.op("bitcast", I64, x)
        upper = build.op("truncate", I32, build.op("shr_u", I64, whole, build.const(52)))
        exponent = build.op("and", I32, upper, build.const(0x7FF))
        mantissa = build.op(
            "or", I64, build.op("and", I64, whole, build.const((1 << 52) - 1, I64)), build.const(1 << 52, I64)
        )
        # An f64 may be within 2**-61 of a multiple of pi/2.
        bias, precision, highest, count = 1023, 53, 1023, 6
    # x = mantissa * 2**e. Bits of 2/pi of weight 2**-(e-1) and above contribute multiples of four quadrants, so they
    # are skipped. For e < 2, bits before the first one are needed: a word of zeros before the point holds them (the
    # range of Cody and Waite ends above e = -30).
    e = build.op("sub", I32, exponent, build.const(bias + precision - 1))
    skipped = build.op("max_s", I32, build.add(e, 32 - 2), build.const(0))
    first = build.op("shr_u", I32, skipped, build.const(5))
    offset = build.op("and", I32, skipped, build.const(31))
    words = _words_from(build, first, count + 1, (highest - precision - 1 + 32) // 32 + 1)
    window = [_funnel(build, words[i], words[i + 1], offset) for i in range(count)]
    # Fixed point: mantissa * window * 4, with 32 * count bits after the point. The top of the product is whole turns;
    # it is dropped.
    digits = _times(build, mantissa, window)
    two = build.const(2)
    digits = [
        _funnel(build, digit, after, two) for digit, after in zip(digits, [*digits[1:], build.const(0)], strict=True)
    ]
    return _angle(build, x, digits)


def _words_from(build: Builder, first: Value, count: int, last: int) -> list[Value]:
    """Return `count` words of 2/pi from word `first` (0 … last; 0 is before the point) on. Selects choose each word,
    since kernels have no tables in memory.
    """
    found = []
    for i in range(count):
        value = build.const(_TABLE[i])
        for k in range(1, last + 1):
            value = _select(build, build.compare("eq", first, build.const(k)), build.const(_TABLE[k + i]), value)
        found.append(value)
    return found


def _funnel(build: Builder, high: Value, low: Value, amount: Value) -> Value:
    """Return the upper word of high:low shifted left by 0 … 31 bits."""
    pair = _pair(build, high, low)
    return build.op("truncate", I32, build.op("shr_u", I64, build.op("shl", I64, pair, amount), build.const(32)))


def _pair(build: Builder, high: Value, low: Value) -> Value:
    """Return two 32-bit words as one of 64 bits."""
    upper = build.op("shl", I64, build.op("zext", I64, high), build.const(32))
    return build.op("or", I64, upper, build.op("zext", I64, low))


def _times(build: Builder, mantissa: Value, window: Sequence[Value]) -> list[Value]:
    """Return mantissa * 0.window: the lowest word before the point first, then as many words after the point as the
    window has.
    """
    halves = (
        build.op("truncate", I32, mantissa),
        build.op("truncate", I32, build.op("shr_u", I64, mantissa, build.const(32))),
    )
    count = len(window)
    # By weight, least first: word k holds multiples of 2**(32 * (k - count)).
    sums = [build.const(0, I64)] * (count + 2)
    for j, half in enumerate(halves):
        if half.op == "const" and half.imm == 0:
            continue
        carry = build.const(0, I64)
        for i, word in enumerate(reversed(window)):
            product = build.op("mad_wide_u", I64, half, word, build.const(0, I64))
            low = build.op("and", I64, product, build.const(0xFFFF_FFFF, I64))
            total = build.add(build.add(sums[i + j], low), carry)
            sums[i + j] = build.op("and", I64, total, build.const(0xFFFF_FFFF, I64))
            carry = build.add(
                build.op("shr_u", I64, total, build.const(32)), build.op("shr_u", I64, product, build.const(32))
            )
        sums[count + j] = build.op("and", I64, build.add(sums[count + j], carry), build.const(0xFFFF_FFFF, I64))
    return [build.op("truncate", I32, sums[k]) for k in range(count, -1, -1)]


def _angle(build: Builder, x: Value, digits: Sequence[Value]) -> tuple[Value, Value]:
    """Return (quadrant, rest) of a fixed-point number of quadrants: the nearest integer modulo 4, and the rest, in
    [-1/2, 1/2], times pi/2.
    """
    type_ = x.type
    half = build.op("shr_u", I32, digits[1], build.const(31))
    quadrant = build.add(digits[0], half)
    top = _pair(build, digits[1], digits[2])
    if type_ == F32:
        part = build.op("fmul", F64, build.op("to_float_s", F64, top), build.const(2.0**-64, F64))
        rest = build.op("fconvert", F32, build.op("fmul", F64, part, build.const(math.pi / 2, F64)))
    else:
        more = build.op("to_float_u", F64, _pair(build, digits[3], digits[4]))
        part = build.op("fmul", F64, build.op("to_float_s", F64, top), build.const(2.0**-64, F64))
        left = build.op("sub", I64, top, build.op("to_int_s", I64, build.op("to_float_s", F64, top)))
        low = build.op("fma", F64, more, build.const(2.0**-64, F64), build.op("to_float_s", F64, left))
        low = build.op("fmul", F64, low, build.const(2.0**-64 * math.pi / 2, F64))
        # The part of pi/2 that an f64 of it lacks.
        low = build.op("fma", F64, part, build.const(6.123233995736766e-17, F64), low)
        rest = build.op("fma", F64, part, build.const(math.pi / 2, F64), low)
    negative = build.compare("flt", x, build.const(0.0, type_))
    quadrant = _select(build, negative, build.op("sub", I32, build.const(0), quadrant), quadrant)
    return quadrant, _select(build, negative, build.op("fneg", type_, rest), rest)


def modulo(build: Builder, a: Value, b: Value) -> Value:
    """Return the exact remainder with the divisor's sign. Each step subtracts a multiple of b * 2**k, for 20 bits of
    the quotient (f64: 40).
    """
    type_ = a.type
    # Exponents span 277 and 2,098.
    step, count = (20, 14) if type_ == F32 else (40, 53)
    size, by = build.op("fabs", type_, a), build.op("fabs", type_, b)
    with build.loop(0, count, 1, [size]) as loop:
        rest = loop.carried[0]
        distance = build.op("sub", I32, build.op("frexp_exponent", I32, rest), build.op("frexp_exponent", I32, by))
        raised = build.op("max_s", I32, build.op("sub", I32, distance, build.const(step - 1)), build.const(0))
        unit = build.op("ldexp", type_, by, raised)
        quotient = build.op("trunc", type_, build.op("div", type_, rest, unit))
        left = build.op("fma", type_, build.op("fneg", type_, quotient), unit, rest)
        zero = build.const(0.0, type_)
        left = _select(build, build.compare("flt", left, zero), build.op("fadd", type_, left, unit), left)
        larger = build.compare("fle", unit, rest)
        loop.following = [_select(build, larger, left, rest)]
    rest = loop.results[0]
    zero = build.const(0.0, type_)
    signed = _select(build, build.compare("flt", a, zero), build.op("fneg", type_, rest), rest)
    unlike = build.op("xor", I1, build.compare("flt", signed, zero), build.compare("flt", b, zero))
    moved = build.op("and", I1, unlike, build.compare("fne", rest, zero))
    value = _select(build, moved, build.op("fadd", type_, signed, b), signed)
    zero_of_b = _select(build, build.compare("flt", b, zero), build.const(-0.0, type_), zero)
    value = _select(build, build.compare("feq", rest, zero), zero_of_b, value)
    bad = build.op(
        "or",
        I1,
        build.compare("feq", b, zero),
        build.op("not", I1, build.compare("flt", size, build.const(math.inf, type_))),
    )
    bad = build.op("or", I1, bad, build.compare("fne", b, b))
    return _select(build, bad, build.const(math.nan, type_), value)


def power(build: Builder, x: Value, y: Value) -> Value:
    """Return x**y as C's pow defines it, including the special cases. f32: computed in f64, within 1 ulp. f64: the
    logarithm in two parts, within 4 ulp.
    """
    type_ = x.type
    wide_x, wide_y = (build.op("fconvert", F64, one) for one in (x, y))
    size = build.op("fabs", F64, wide_x)
    value = (
        exp2(build, build.op("fmul", F64, wide_y, log2(build, size)))
        if type_ == F32
        else _power_64(build, size, wide_y)
    )
    zero, one = build.const(0.0, F64), build.const(1.0, F64)
    half = build.op("fmul", F64, wide_y, build.const(0.5, F64))
    is_whole = build.compare("feq", build.op("trunc", F64, wide_y), wide_y)
    is_odd = build.op("and", I1, is_whole, build.compare("fne", build.op("trunc", F64, half), half))
    sign = build.op("bitcast", I64, wide_x)
    is_negative = build.compare("lt_s", sign, build.const(0, I64))
    flipped = build.op("and", I1, is_negative, is_odd)
    value = _select(build, flipped, build.op("fneg", F64, value), value)
    below = build.op("and", I1, build.compare("flt", wide_x, zero), build.op("not", I1, is_whole))
    finite = build.compare("flt", build.const(-math.inf, F64), wide_x)
    value = _select(build, build.op("and", I1, below, finite), build.const(math.nan, F64), value)
    nan = build.op("or", I1, build.compare("fne", wide_x, wide_x), build.compare("fne", wide_y, wide_y))
    value = _select(build, nan, build.const(math.nan, F64), value)
    is_infinite = build.compare("feq", build.op("fabs", F64, wide_y), build.const(math.inf, F64))
    minus_one = build.op("and", I1, build.compare("feq", size, one), is_infinite)
    value = _select(build, minus_one, one, value)
    plain = build.op("or", I1, build.compare("feq", wide_x, one), build.compare("feq", wide_y, zero))
    value = _select(build, plain, one, value)
    return build.op("fconvert", type_, value)


def _power_64(build: Builder, x: Value, y: Value) -> Value:
    """Return x**y for x >= 0: log2(x) = high + low, and the product with y is split again."""
    high, low = _log2_parts(build, x)
    one = build.const(1.0, F64)
    product, rest = _product(build, y, high)
    rest = build.op("fma", F64, y, low, rest)
    base = exp2(build, product)
    # False where the product is infinite or NaN.
    inside = build.compare("flt", build.op("fabs", F64, rest), one)
    rest = _select(build, inside, rest, build.const(0.0, F64))
    value = build.op("fma", F64, build.op("fmul", F64, base, rest), build.const(math.log(2), F64), base)
    value = _select(build, build.compare("feq", base, build.const(math.inf, F64)), base, value)
    zero, infinity = build.const(0.0, F64), build.const(math.inf, F64)
    up = build.compare("flt", zero, y)
    of_zero = _select(build, up, zero, infinity)
    of_infinity = _select(build, up, infinity, zero)
    value = _select(build, build.compare("feq", x, zero), of_zero, value)
    return _select(build, build.compare("feq", x, infinity), of_infinity, value)
