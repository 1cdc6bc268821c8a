"""The steps of a division: scaling of the operands, the last multiply-add, the special cases.

A quotient is computed with v_div_scale (both operands), v_rcp, multiply-adds, v_div_fmas, v_div_fixup. Source: RDNA3
ISA reference, "V_DIV_SCALE_F32", "V_DIV_FMAS_F32", "V_DIV_FIXUP_F32".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.arithmetic import FORMATS, Float, float_rule, flushed, is_nan, reads
from ringup.silicon.shader.amd.writer.wave import rule

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Value

# By format: power of two by which operands are scaled, exponent difference that requires it, exponent of a tiny
# numerator.
SCALES = {"f32": (64, 96, 23), "f64": (128, 768, 53)}


def _is_denormal(f: Float, value: Value) -> Value:
    """Return whether numbers are denormal and not zero."""
    code = f.code
    size = code.intrinsic("fabs", value)
    least = f.code.bitcast(f.const(1 << f.fmt.mantissa), f.work)
    return code.op("and", code.fcmp("ogt", size, f.real(0.0)), code.fcmp("olt", size, least))


def _is_far_below(f: Float, top: Value, bottom: Value) -> Value:
    """Return whether the quotient is below the smallest normal number.

    Compares the top with that number times the bottom, both scaled up. If the scaled bottom is denormal and so rounded,
    the quotient is large.
    """
    code = f.code
    lift = 600 if f.fmt.kind == "double" else 80
    first = f.op("fmul", code.intrinsic("fabs", top), f.real(2.0**lift))
    second = f.op("fmul", code.intrinsic("fabs", bottom), f.real(2.0 ** (lift + 1 - f.fmt.bias)))
    finite = code.fcmp("one", second, f.real(float("inf")))
    return code.op("and", finite, code.fcmp("olt", first, second))


def _div_scale(type_: str) -> Rule:
    """Scale one operand. The mask is set where v_div_fmas must undo that.

    UNKNOWN: if reciprocal and quotient are both denormal, the document scales the denominator up. It is above 2**126
    then and becomes infinite; the quotient is right only if it is scaled down. The document's test `1.0 / 64'F(S1)` of
    single precision must mean that the reciprocal is denormal in single precision, or v_rcp_f32's flush would lose
    quotients of large denominators.
    """
    power, apart, tiny = SCALES[type_]

    def emit(wave: Wave, ins: Instruction) -> None:
        # A scaled operand may overflow.
        if wave.mode.round(FORMATS[type_].kind):
            wave.bail(ins)
            return
        f, code = Float(wave, type_), wave.code
        raws = [f.raw(one, ins) for one in ins.uses]
        value, bottom, top = (f.opened(one) for one in raws)
        low, high = f.exponent(raws[1]), f.exponent(raws[2])
        scaled = [f.scaled(raws[0], wave.const(one, "i32")) for one in (power, -power)]
        up, down = (f.opened(one if f.denormals & 2 else flushed(code, one, f.fmt)) for one in scaled)
        size, low_size, high_size = (code.intrinsic("fabs", one) for one in (value, bottom, top))
        is_bottom, is_top = code.fcmp("oeq", size, low_size), code.fcmp("oeq", size, high_size)
        largest = code.intrinsic("maximum", low_size, high_size)  # NaN if one is NaN
        quotient = _is_far_below(f, top, bottom)
        inverse = _is_denormal(f, f.op("fdiv", f.real(1.0), bottom))
        zero = code.op("or", code.fcmp("oeq", top, f.real(0.0)), code.fcmp("oeq", bottom, f.real(0.0)))
        far = code.icmp("sge", code.op("sub", high, low), wave.const(apart, "i32"))
        small = code.icmp("sle", high, wave.const(tiny, "i32"))
        yes, no = code.const(-1, wave.bools), code.const(0, wave.bools)
        # Condition, result, flag: the first row whose condition holds is used.
        rows = (
            (zero, f.real(float("nan")), no),
            # v_div_fixup gives the result.
            (code.fcmp("ueq", largest, f.real(float("inf"))), value, no),
            (far, code.select(is_bottom, up, value), yes),
            (_is_denormal(f, bottom), up, no),
            (code.op("and", inverse, quotient), code.select(is_bottom, down, value), yes),
            (inverse, down, no),
            (quotient, code.select(is_top, up, value), yes),
            (small, up, no),
        )
        result, flag = value, no
        for condition, chosen, mark in reversed(rows):
            result, flag = code.select(condition, chosen, result), code.select(condition, mark, flag)
        target, carry = ins.defs
        wave.put(target, f.result_bits(f.closed(result), ins), ins)
        wave.put_mask(carry, flag)

    return emit


def _fused_single(f: Float, a: Value, b: Value, c: Value, shift: Value) -> Value:
    """Return 2**shift * (a * b + c) with one rounding.

    In double precision the product is exact, and the sum is rounded to odd.
    """
    code = f.code
    x, y, z = (code.cast("fpext", one, "double") for one in (a, b, c))
    total = f.odd_sum(code.op("fmul", x, y), z)
    field = code.resize(code.op("add", shift, f.wave.const(1023, "i32")), "i64")
    scale = code.bitcast(code.op("shl", field, code.const(52, field.type)), total.type)
    return code.cast("fptrunc", code.op("fmul", total, scale), "float")


def _fused_double(f: Float, a: Value, b: Value, c: Value, shift: Value) -> Value:
    """Return 2**shift * (a * b + c) with one rounding.

    Only a denormal result would be rounded twice. It is rounded before it is scaled, by adding a number whose last bit
    has the weight of the denormals' last bit at that scale. Product and sum enter exactly, as pairs of numbers; the
    last of them is rounded to odd.
    """
    code = f.code
    plain, power = f.fma(a, b, c), SCALES["f64"][0]
    down = code.icmp("slt", shift, f.wave.const(0, "i32"))
    twice = f.opened(f.scaled(f.closed(plain), shift))
    product = f.op("fmul", a, b)
    rest = f.fma(a, b, code.neg(product))
    low, lost = f.two_sum(c, rest)
    high, more = f.two_sum(product, low)
    grid = code.intrinsic("copysign", f.real(2.0 ** (power - 1074 + 52)), plain)
    rounded, part = f.two_sum(grid, high)
    whole = f.op("fsub", f.op("fadd", rounded, f.odd_sum(part, f.odd_sum(lost, more))), grid)
    once = f.op("fmul", code.intrinsic("copysign", whole, plain), f.real(2.0**-power))
    denormal = code.fcmp("olt", code.intrinsic("fabs", plain), f.real(2.0 ** (power - 1022)))
    # A sum beyond the largest number comes back into range.
    first_is_larger = code.fcmp("ogt", code.intrinsic("fabs", a), code.intrinsic("fabs", b))
    large, small = code.select(first_is_larger, a, b), code.select(first_is_larger, b, a)
    lowered = [f.op("fmul", one, f.real(2.0**-power)) for one in (large, c)]
    above = code.fcmp("oeq", code.intrinsic("fabs", plain), f.real(float("inf")))
    shrunk = code.select(above, f.fma(lowered[0], small, lowered[1]), twice)
    return code.select(down, code.select(denormal, once, shrunk), twice)


def _div_fmas(type_: str) -> Rule:
    """Multiply, add, and undo the scaling where VCC is set, rounding once. Denormal inputs are kept.

    UNKNOWN: the document gives 2**32 (f64: 2**64) as the factor. v_div_scale scales one operand by 2**64 (2**128), up
    or down, so the quotient is right only if that is undone: up for quotients above 1, else down.
    """
    power = SCALES[type_][0]
    fused = _fused_single if type_ == "f32" else _fused_double

    def emit(wave: Wave, ins: Instruction) -> None:
        if wave.mode.round(FORMATS[type_].kind):
            wave.bail(ins)
            return
        f = Float(wave, type_, denormals=wave.mode.denorm(FORMATS[type_].kind) | 1)
        code = wave.code
        *sources, flags = reads(ins)
        raws = [f.raw(one, ins) for one in sources]
        large = code.icmp("sgt", f.exponent(raws[2]), wave.const(f.fmt.bias, "i32"))
        shift = code.select(large, wave.const(power, "i32"), wave.const(-power, "i32"))
        shift = code.select(wave.mask(flags), shift, wave.const(0, "i32"))
        a, b, c = (f.opened(one) for one in raws)
        wave.put(ins.defs[0], f.result(fused(f, a, b, c, shift), ins), ins)

    return emit


def _div_fixup(f: Float, quotient: Value, bottom: Value, top: Value) -> Value:
    """Return the quotient, or the result of division for zeroes, infinities and NaNs."""
    code = f.code
    closed = [f.closed(one) for one in (quotient, bottom, top)]
    sign = code.op("and", code.op("xor", closed[1], closed[2]), f.const(f.fmt.sign))
    infinity, zero = f.real(float("inf")), f.real(0.0)
    low, high = code.intrinsic("fabs", bottom), code.intrinsic("fabs", top)
    no_bottom, no_top = code.fcmp("oeq", low, zero), code.fcmp("oeq", high, zero)
    all_bottom, all_top = code.fcmp("oeq", low, infinity), code.fcmp("oeq", high, infinity)

    def signed(magnitude: Value) -> Value:
        return code.op("or", magnitude, sign)

    result = signed(code.op("and", closed[0], f.const(f.fmt.sign - 1)))
    if f.fmt.kind != "half":
        # UNKNOWN: the document tests the denominator's exponent, which cannot be that of infinity here. It must mean a
        # quotient that overflowed.
        over = code.fcmp("ueq", code.intrinsic("fabs", quotient), infinity)
        result = code.select(over, signed(f.const(f.fmt.infinity)), result)
        # The quotient is below half the smallest denormal.
        apart = code.op("sub", f.exponent(closed[2]), f.exponent(closed[1]))
        least = -(f.fmt.bias + f.fmt.mantissa)
        result = code.select(code.icmp("slt", apart, f.wave.const(least, "i32")), signed(f.const(0)), result)
    invalid = code.op("or", code.op("and", no_bottom, no_top), code.op("and", all_bottom, all_top))
    # The first row whose condition holds is used.
    rows = (
        (is_nan(code, closed[2], f.fmt), code.op("or", closed[2], f.const(f.fmt.quiet))),
        (is_nan(code, closed[1], f.fmt), code.op("or", closed[1], f.const(f.fmt.quiet))),
        (invalid, f.const(f.fmt.sign | f.fmt.infinity | f.fmt.quiet)),
        (code.op("or", no_bottom, all_top), signed(f.const(f.fmt.infinity))),
        (code.op("or", all_bottom, no_top), signed(f.const(0))),
    )
    for condition, special in reversed(rows):
        result = code.select(condition, special, result)
    return f.opened(result)


for _type in SCALES:
    rule(f"v_div_scale_{_type}")(_div_scale(_type))
    rule(f"v_div_fmas_{_type}")(_div_fmas(_type))
for _type in ("f16", *SCALES):
    rule(f"v_div_fixup_{_type}")(float_rule(_type, _div_fixup))
# Of CDNA: it clears the other half of its register.
rule("v_div_fixup_legacy_f16")(float_rule("f16", _div_fixup))
