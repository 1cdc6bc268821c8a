"""The transcendental unit: reciprocals, roots, exponentials, logarithms, sine and cosine, all within 1 ulp.

Exponentials, logarithms, sine and cosine are polynomials in double precision, rounded once. Their errors, below 2**-40,
are invisible in the results. The coefficients are minimax fits of the functions named. Source: RDNA3 ISA reference,
"VOP1 Instructions", with their notes on denormals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.arithmetic import Float, as_bits, float_rule, powers
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import like

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.writer.arithmetic import Combine
    from ringup.silicon.shader.host.emitter import Value

# 2**x for x in -0.5..0.5, relative error 2**-46
EXP2 = (
    "0x1.0000000000039p+0", "0x1.62e42fefa3752p-1", "0x1.ebfbdff81570fp-3", "0x1.c6b08d70d2012p-5", "0x1.3b2ab72a108f2p-7",
    "0x1.5d87fd9012841p-10", "0x1.43088fca83a3fp-13", "0x1.ffce245c2b576p-17", "0x1.63edf1393bf27p-20", "0x1.b3f4279eaa21bp-24",
)  # fmt: skip
# log2((1 + s) / (1 - s)) / s as a polynomial of s**2, for quotients of sqrt(1/2) up to sqrt(2); relative error 2**-45
LOG2 = (
    "0x1.71547652b8251p+1", "0x1.ec709dc53c311p-1", "0x1.2776c293812fbp-1", "0x1.a61a2e9155e91p-2", "0x1.47955fd269790p-2",
    "0x1.21b0597d18dafp-2",
)  # fmt: skip
# sin(2 pi x) / x as a polynomial of x**2, for x in 0..0.25; relative error 2**-44
SINE = (
    "0x1.921fb54442b5fp+2", "-0x1.4abbce6247ec5p+5", "0x1.466bc66dc7dc3p+6", "-0x1.32d2c96c61e00p+6", "0x1.5076fe9f8e91bp+5",
    "-0x1.e297cfdca83b5p+3", "0x1.d4ec6a220eb8ep+1",
)  # fmt: skip
SQRT_HALF = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2) in double precision


def _double(f: Float, a: Value) -> Value:
    return f.code.cast("fpext", a, "double")


def _single(f: Float, a: Value) -> Value:
    return f.code.cast("fptrunc", a, "float")


def _reciprocal(f: Float, a: Value) -> Value:
    return f.op("fdiv", f.real(1.0), a)


def _root(f: Float, a: Value) -> Value:
    return f.code.intrinsic("sqrt", a)


def _inverse_root(f: Float, a: Value) -> Value:
    """Divide 1 by the root. In single precision one step of Newton's method corrects the second rounding."""
    code = f.code
    near = f.op("fdiv", f.real(1.0), _root(f, a))
    if f.fmt.kind != "float":
        return near
    root = f.op("fmul", a, near)
    # the rounding error of the product
    rest = f.fma(a, near, code.neg(root))
    error = f.fma(code.neg(rest), near, f.fma(code.neg(root), near, f.real(1.0)))
    better = f.fma(f.op("fmul", near, f.real(0.5)), error, near)
    # The step gives NaN at 0 and infinity, where `near` is exact.
    return code.select(code.fcmp("ord", better, better), better, near)


def _exp2(f: Float, a: Value) -> Value:
    code, wide = f.code, _double(f, a)
    # Beyond both formats, but within the exponents of double.
    wide = code.intrinsic("minnum", wide, code.real(1000.0, wide.type))
    wide = code.intrinsic("maxnum", wide, code.real(-1000.0, wide.type))
    whole = code.intrinsic("roundeven", wide)
    part = powers(code, code.op("fsub", wide, whole), EXP2)
    field = code.resize(code.cast("fptosi", whole, "i32"), "i64", signed=True)
    scale = code.op("shl", code.op("add", field, code.const(1023, field.type)), code.const(52, field.type))
    value = _single(f, code.op("fmul", part, code.bitcast(scale, part.type)))
    return code.select(code.fcmp("uno", a, a), a, value)


def _log2(f: Float, a: Value) -> Value:
    code = f.code
    raw = as_bits(code, _double(f, a))
    # Exponent and significand such that the significand is between sqrt(1/2) and sqrt(2).
    above = code.op("sub", raw, code.const(SQRT_HALF, raw.type))
    exponent = code.op("ashr", above, code.const(52, raw.type))
    mantissa = code.op("sub", raw, code.op("shl", exponent, code.const(52, raw.type)))
    m = code.bitcast(mantissa, like("double", mantissa))
    one = code.real(1.0, m.type)
    s = code.op("fdiv", code.op("fsub", m, one), code.op("fadd", m, one))
    series = code.op("fmul", s, powers(code, code.op("fmul", s, s), LOG2))
    whole = code.cast("sitofp", code.resize(exponent, "i32"), "double")
    value = _single(f, code.op("fadd", whole, series))
    zero, infinity = f.real(0.0), f.real(float("inf"))
    value = code.select(code.fcmp("oeq", a, infinity), infinity, value)
    value = code.select(code.fcmp("ult", a, zero), f.real(-float("nan")), value)
    value = code.select(code.fcmp("oeq", a, zero), f.real(float("-inf")), value)
    return code.select(code.fcmp("uno", a, a), a, value)


def _turn(f: Float, a: Value) -> Value:
    """Return the fraction of the angle (in turns), -0.5 to 0.5; NaN for infinity."""
    wide = _double(f, a)
    return f.code.op("fsub", wide, f.code.intrinsic("roundeven", wide))


def _odd_series(f: Float, turn: Value) -> Value:
    return _single(f, f.code.op("fmul", turn, powers(f.code, f.code.op("fmul", turn, turn), SINE)))


def _sin(f: Float, a: Value) -> Value:
    code, turn = f.code, _turn(f, a)
    half = code.intrinsic("copysign", code.real(0.5, turn.type), turn)
    outer = code.fcmp("ogt", code.intrinsic("fabs", turn), code.real(0.25, turn.type))
    value = _odd_series(f, code.select(outer, code.op("fsub", half, turn), turn))
    return code.select(code.fcmp("oeq", a, f.real(0.0)), a, value)  # keeps the sign of zero


def _cos(f: Float, a: Value) -> Value:
    code, turn = f.code, _turn(f, a)
    return _odd_series(f, code.op("fsub", code.real(0.25, turn.type), code.intrinsic("fabs", turn)))


FUNCTIONS: dict[str, Combine] = {"rcp": _reciprocal, "sqrt": _root, "rsq": _inverse_root}
CURVES: dict[str, Combine] = {"exp": _exp2, "log": _log2, "sin": _sin, "cos": _cos}
FLUSHING = ("rcp", "sqrt", "rsq", "exp", "log")  # of f32, in any MODE

for _type in ("f16", "f32", "f64"):
    for _name, _function in (FUNCTIONS | (CURVES if _type != "f64" else {})).items():
        _denormals = 0 if _type == "f32" and _name in FLUSHING else None
        rule(f"v_{_name}_{_type}")(float_rule(_type, _function, rounds=False, denormals=_denormals))
rule("v_rcp_iflag_f32")(float_rule("f32", _reciprocal, rounds=False, denormals=0))
