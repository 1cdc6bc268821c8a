"""Float arithmetic of the vector ALU: sums and products, order, rounding to integers, exponents, cube maps.

Source: RDNA3 ISA reference, "VOP2 Instructions", "VOP1 Instructions", "VOP3 & VOP3SD Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.arithmetic import Float, bits_rule, float_rule, is_nan, reads
from ringup.silicon.shader.amd.writer.wave import rule

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.arithmetic import Combine
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Value


def _or_zero(f: Float, a: Value, b: Value, product: Value, instead: Value) -> Value:
    """Return `instead` if a factor is zero, whatever the other one is, else `product`."""
    code, zero = f.code, f.real(0.0)
    either = code.op("or", code.fcmp("oeq", a, zero), code.fcmp("oeq", b, zero))
    return code.select(either, instead, product)


def _fract(f: Float, a: Value) -> Value:
    value = f.closed(f.op("fadd", a, f.code.neg(f.code.intrinsic("floor", a))))
    # The sum rounds up to 1.0 for tiny negative numbers.
    one = f.fmt.bias << f.fmt.mantissa
    return f.opened(f.code.select(f.code.icmp("eq", value, f.const(one)), f.const(one - 1), value))


def _ldexp(f: Float, ins: Instruction) -> Value:
    number, power = reads(ins)
    kind = "i16" if f.fmt.kind == "half" else "i32"
    exponent = f.code.resize(f.wave.src(power, kind, ins), "i32", signed=True)
    return f.scaled(f.raw(number, ins), exponent)


# S0, S1, S2 to the value before rounding.
ARITHMETIC: dict[str, Combine] = {
    "add": lambda f, a, b: f.op("fadd", a, b),
    "sub": lambda f, a, b: f.op("fsub", a, b),
    "subrev": lambda f, a, b: f.op("fsub", b, a),
    "mul": lambda f, a, b: f.op("fmul", a, b),
    "fma": lambda f, a, b, c: f.fma(a, b, c),
    "fmac": lambda f, a, b, c: f.fma(a, b, c),
    "fmaak": lambda f, a, b, c: f.fma(a, b, c),
    "fmamk": lambda f, a, b, c: f.fma(a, b, c),
    "mul_dx9_zero": lambda f, a, b: _or_zero(f, a, b, f.op("fmul", a, b), f.real(0.0)),
    "fma_dx9_zero": lambda f, a, b, c: _or_zero(f, a, b, f.fma(a, b, c), c),
    "fmac_dx9_zero": lambda f, a, b, c: _or_zero(f, a, b, f.fma(a, b, c), c),
    "fract": _fract,
}
# Exact, so MODE's rounding does not matter.
INTEGRAL: dict[str, Combine] = {
    "trunc": lambda f, a: f.code.intrinsic("trunc", a),
    "ceil": lambda f, a: f.code.intrinsic("ceil", a),
    "floor": lambda f, a: f.code.intrinsic("floor", a),
    "rndne": lambda f, a: f.code.intrinsic("roundeven", a),
}
_PLAIN = ("add", "mul", "fma")
_SHORT = (*_PLAIN, "sub", "subrev", "fmac", "fmaak", "fmamk", "fract")
FORMS = {"f16": _SHORT, "f32": (*_SHORT, "mul_dx9_zero", "fma_dx9_zero", "fmac_dx9_zero"), "f64": (*_PLAIN, "fract")}

for _type, _names in FORMS.items():
    for _name in _names:
        rule(f"v_{_name}_{_type}")(float_rule(_type, ARITHMETIC[_name]))
    for _name, _function in INTEGRAL.items():
        rule(f"v_{_name}_{_type}")(float_rule(_type, _function, rounds=False))


# order ----------------------------------------------------------------------------------------------------------------


def _median(low: Combine, high: Combine) -> Combine:
    def compute(f: Float, a: Value, b: Value, c: Value) -> Value:
        code = f.code
        top = f.opened(high(f, high(f, a, b), c))
        first, second = (code.fcmp("oeq", top, f.opened(one)) for one in (a, b))
        rest = code.select(second, high(f, a, c), high(f, a, b))
        middle = code.select(first, high(f, b, c), rest)
        odd = is_nan(code, a, f.fmt)
        for one in (b, c):
            odd = code.op("or", odd, is_nan(code, one, f.fmt))
        return code.select(odd, low(f, low(f, a, b), c), middle)

    return compute


def _selections(low: str, high: str, suffix: str, extreme: Combine) -> dict[str, Combine]:
    """Return the minima and maxima of one rule for NaNs, by name: `low` and `high` are stems, `suffix` follows all."""

    def less(f: Float, a: Value, b: Value) -> Value:
        return extreme(f, a, b, larger=False)

    def more(f: Float, a: Value, b: Value) -> Value:
        return extreme(f, a, b, larger=True)

    return {
        f"{low}{suffix}": less,
        f"{high}{suffix}": more,
        f"{low}3{suffix}": lambda f, a, b, c: less(f, less(f, a, b), c),
        f"{high}3{suffix}": lambda f, a, b, c: more(f, more(f, a, b), c),
        f"{low}{high}{suffix}": lambda f, a, b, c: more(f, less(f, a, b), c),
        f"{high}{low}{suffix}": lambda f, a, b, c: less(f, more(f, a, b), c),
        f"med3{suffix}": _median(less, more),
    }


# Bits to bits. IEEE's minimum and maximum have no median.
ORDER = (
    _selections("min", "max", "", Float.extreme)
    | _selections("min", "max", "_num", Float.number)
    | {name: one for name, one in _selections("minimum", "maximum", "", Float.any).items() if name != "med3"}
)
_OF_TWO = ("min", "max", "min_num", "max_num", "minimum", "maximum")

for _name, _function in ORDER.items():
    for _type in ("f16", "f32", "f64") if _name in _OF_TWO else ("f16", "f32"):
        rule(f"v_{_name}_{_type}")(bits_rule(_type, _function))


# exponents ------------------------------------------------------------------------------------------------------------


def _lacks_significand(f: Float, raw: Value) -> Value:
    """Return whether numbers have no significand: zeroes, infinities and NaNs."""
    code = f.code
    magnitude = code.op("and", raw, f.const(f.fmt.sign - 1))
    large = code.icmp("uge", magnitude, f.const(f.fmt.infinity))
    return code.op("or", code.icmp("eq", magnitude, f.const(0)), large)


def _frexp_mant(f: Float, raw: Value) -> Value:
    significand, _ = f.split(raw)
    half = f.code.op("sub", significand, f.const(1 << f.fmt.mantissa))  # 1..2 to 0.5..1
    return f.code.select(_lacks_significand(f, raw), raw, half)


def _frexp_exp(type_: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit, code = Float(wave, type_), wave.code
        raw = unit.raw(ins.uses[0], ins)
        _, exponent = unit.split(raw)
        value = code.op("add", exponent, wave.const(1, "i32"))
        value = code.select(_lacks_significand(unit, raw), wave.const(0, "i32"), value)
        wave.put(ins.defs[0], code.resize(value, "i16") if type_ == "f16" else value, ins)

    return emit


def _ldexp_rule(type_: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = Float(wave, type_)
        if wave.mode.round(unit.fmt.kind):
            wave.bail(ins)
            return
        wave.put(ins.defs[0], unit.result(unit.opened(_ldexp(unit, ins)), ins), ins)

    return emit


for _type in ("f16", "f32", "f64"):
    rule(f"v_frexp_mant_{_type}")(bits_rule(_type, _frexp_mant))
    rule(f"v_frexp_exp_{'i16' if _type == 'f16' else 'i32'}_{_type}")(_frexp_exp(_type))
    rule(f"v_ldexp_{_type}")(_ldexp_rule(_type))


# cube maps and lighting -----------------------------------------------------------------------------------------------


def _cube(along_x: Combine, along_y: Combine, along_z: Combine) -> Combine:
    """Select by the axis of the largest coordinate: z before y before x. Each function gets x, y, z."""

    def choose(f: Float, x: Value, y: Value, z: Value) -> Value:
        code = f.code
        size = [code.intrinsic("fabs", one) for one in (x, y, z)]
        is_z = code.op("and", code.fcmp("oge", size[2], size[0]), code.fcmp("oge", size[2], size[1]))
        is_y = code.fcmp("oge", size[1], size[0])
        rest = code.select(is_y, along_y(f, x, y, z), along_x(f, x, y, z))
        return code.select(is_z, along_z(f, x, y, z), rest)

    return choose


def _by_sign(f: Float, axis: Value, negative: Value, positive: Value) -> Value:
    return f.code.select(f.code.fcmp("olt", axis, f.real(0.0)), negative, positive)


CUBE: dict[str, Combine] = {
    "v_cubeid_f32": _cube(
        lambda f, x, y, z: _by_sign(f, x, f.real(1.0), f.real(0.0)),
        lambda f, x, y, z: _by_sign(f, y, f.real(3.0), f.real(2.0)),
        lambda f, x, y, z: _by_sign(f, z, f.real(5.0), f.real(4.0)),
    ),
    "v_cubesc_f32": _cube(
        lambda f, x, y, z: _by_sign(f, x, z, f.code.neg(z)),
        lambda f, x, y, z: x,
        lambda f, x, y, z: _by_sign(f, z, f.code.neg(x), x),
    ),
    "v_cubetc_f32": _cube(
        lambda f, x, y, z: f.code.neg(y),
        lambda f, x, y, z: _by_sign(f, y, f.code.neg(z), z),
        lambda f, x, y, z: f.code.neg(y),
    ),
    "v_cubema_f32": _cube(
        lambda f, x, y, z: f.op("fadd", x, x),
        lambda f, x, y, z: f.op("fadd", y, y),
        lambda f, x, y, z: f.op("fadd", z, z),
    ),
}
for _name, _function in CUBE.items():
    _doubles = _name == "v_cubema_f32"
    rule(_name)(float_rule("f32", _function, rounds=_doubles, selects=not _doubles))

LARGEST = float.fromhex("0x1.fffffep127")


def _mullit(f: Float, a: Value, b: Value, c: Value) -> Value:
    code = f.code
    low = code.fcmp("ule", b, f.real(-LARGEST))  # -inf and NaN too
    dark = code.fcmp("ule", c, f.real(0.0))
    product = _or_zero(f, a, b, f.op("fmul", a, b), f.real(0.0))
    return code.select(code.op("or", low, dark), f.real(-LARGEST), product)


rule("v_mullit_f32")(float_rule("f32", _mullit))
