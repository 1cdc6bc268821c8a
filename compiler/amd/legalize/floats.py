"""Correctly rounded square roots, and scaling of f16 by large exponents, from the hardware's approximations and fused
multiply-adds.
"""

from __future__ import annotations

from ringup.compiler.amd.legalize.region_builder import Maker
from ringup.compiler.machine.ir import F16, F32, F64, I1, I32, Value


def root(m: Maker, v: Value) -> Value:
    """Rewrite a correctly rounded square root of f16, f32 or f64."""
    (a,) = v.args
    # The root of an 11-bit number, correct in f32's 24 bits, is too far from a tie of f16 for a second rounding error.
    if v.type == F16:
        return m.op("fconvert", F16, _root_of_normal(m, m.op("fconvert", F32, a)))
    return _root(m, a) if v.type == F32 else _root_of_double(m, a)


def _root(m: Maker, a: Value) -> Value:
    """Scale small numbers up: v_sqrt_f32 flushes denormals, and the residuals would lose bits."""
    small = m.op("flt", I1, a, m.const(2.0**-96, F32))
    near = _root_of_normal(m, m.op("select", F32, small, m.op("fmul", F32, a, m.const(2.0**32, F32)), a))
    return m.op("select", F32, small, m.op("fmul", F32, near, m.const(2.0**-16, F32)), near)


def _root_of_normal(m: Maker, a: Value) -> Value:
    """Choose among the approximation and its two neighbours: s is right if a is above s * (s - ulp) and not above s *
    (s + ulp).

    This is Tuckerman's test. Fused multiply-adds give the exact sign of the products' errors. For 0, infinity and NaN,
    a neighbour is NaN or the comparison is false. Source of the test: Markstein, "Computation of elementary functions
    on the IBM RISC System/6000" (1990).
    """
    near = m.op("sqrt", F32, a)
    bits = m.op("bitcast", I32, near)
    below = m.op("bitcast", F32, m.op("add", I32, bits, m.const(-1)))
    above = m.op("bitcast", F32, m.op("add", I32, bits, m.const(1)))
    under = m.op("fma", F32, m.op("fneg", F32, below), near, a)
    over = m.op("fma", F32, m.op("fneg", F32, above), near, a)
    chosen = m.op("select", F32, m.op("fle", I1, under, m.const(0.0, F32)), below, near)
    return m.op("select", F32, m.op("flt", I1, m.const(0.0, F32), over), above, chosen)


def _root_of_double(m: Maker, a: Value) -> Value:
    """Run Goldschmidt's iteration from v_rsq_f64, then two corrections by the exact residual. Small numbers are scaled
    by 2**256.
    """
    half = m.const(0.5, F64)
    small = m.op("flt", I1, a, m.const(2.0**-767, F64))
    zero = m.const(0)
    x = m.op("ldexp", F64, a, m.op("select", I32, small, m.const(256), zero))
    inverse = m.op("rsq", F64, x)
    near = m.op("fmul", F64, x, inverse)
    slope = m.op("fmul", F64, inverse, half)
    error = m.op("fma", F64, m.op("fneg", F64, slope), near, half)
    near = m.op("fma", F64, near, error, near)
    slope = m.op("fma", F64, slope, error, slope)
    for _ in range(2):
        left = m.op("fma", F64, m.op("fneg", F64, near), near, x)
        near = m.op("fma", F64, left, slope, near)
    near = m.op("ldexp", F64, near, m.op("select", I32, small, m.const(-128), zero))
    special = m.op("or", I1, m.op("feq", I1, x, m.const(0.0, F64)), m.op("feq", I1, x, m.const(float("inf"), F64)))
    return m.op("select", F64, special, x, near)


def scaled(m: Maker, v: Value) -> Value | None:
    """Clamp the exponent of an f16's scaling, since the instruction reads only 16 bits of it."""
    if v.type != F16:
        return None
    value, exponent = v.args
    if exponent.op == "min_s" and exponent.args[1].op == "const" and exponent.args[1].imm == 64:
        return None
    held = m.op("min_s", I32, m.op("max_s", I32, exponent, m.const(-64)), m.const(64))
    made = Value("ldexp", F16, (value, held), uniform=v.uniform)
    m.items.append(made)
    return made
