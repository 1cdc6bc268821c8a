"""Every operation of every type, varying and uniform, on edge values. Selected code on the virtual cores gives the same
as the evaluator of machine IR.
"""

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import BF16, F16, F32, F64, I1, I16, I32, I64, Param

DTYPES = {
    "i16": np.uint16, "i32": np.uint32, "i64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
         "f64": np.float64,
}  # fmt: skip

WHOLE = {
    16: [0, 1, 2, 3, 7, 15, 16, 0x7F, 0x80, 0xFF, 0x100, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFF0, 0xFFFE, 0xFFFF],
    32: [0, 1, 2, 3, 5, 7, 10, 64, 65, 0x7FFF, 0xFFFF, 0x10000, 0xFFFFFF, 0x1000000, 0x12345678, 0x3F800000, 0x7FFFFFFE,
         0x7FFFFFFF, 0x80000000,
         0x80000001, 0xDEADBEEF, 0xFFFFFF00, 0xFFFFFFFE, 0xFFFFFFFF],
    64: [0, 1, 3, 10, 64, 0xFFFFFFFF, 0x100000000, 0x100000001, 0x7FFFFFFF80000000, 0x123456789ABCDEF0, 0x7FFFFFFFFFFFFFFF,
         0x8000000000000000,
         0x8000000000000001, 0xFFFFFFFF00000000, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0x0020000000000001, 0x4000008000000001,
         0x8000000000000400],
}  # fmt: skip
FLOATS = {
    16: [0.0, -0.0, 1.0, -1.0, 1.5, 2.5, -3.5, 0.1, 3.0, 1 / 3, 65504.0, -65504.0, 2**-14, 2**-24, -(2**-24), 1e-5, 6e-6, 1000.5,
         float("inf"), float("-inf"), float("nan")],
    32: [0.0, -0.0, 1.0, -1.0, 1.5, 2.5, -3.5, 0.1, 3.0, 1 / 3, 3.4e38, -3.4e38, 1.2e-38, 1e-45, -1e-45, 5e-39, 65519.9, 65520.0,
         2147483647.0, 2147483648.0,
         -2147483649.0, 4294967295.0, 9.3e18, -9.3e18, 1.9e19, 16777217.0, 1e-20, float("inf"), float("-inf"), float("nan")],
    64: [0.0, -0.0, 1.0, -1.0, 1.5, 2.5, -3.5, 0.1, 3.0, 1 / 3, 1.7e308, -1.7e308, 2.3e-308, 5e-324, -5e-324, 1e-310, 2147483647.5,
         4294967295.9, -2147483648.5,
         9.223372036854775e18, 9.3e18, -9.3e18, 1.9e19, 1 + 2**-24, 1 + 2**-11 + 2**-40, 65519.99999, 1e-7, 2.0**-150,
         3.4028235677973366e38, float("inf"), float("-inf"), float("nan")],
}  # fmt: skip

# Operation to the type of its result; None if that is the type of the operands.
INTEGERS = {
    16: ["add", "sub", "mul", "and", "or", "xor", "not", "min_s", "max_s", "min_u", "max_u", "shl", "shr_u", "shr_s", "eq", "ne",
         "lt_s", "le_s", "lt_u", "le_u"],
    32: ["add", "sub", "mul", "mul_hi_u", "mul_hi_s", "mad", "and", "or", "xor", "not", "min_s", "max_s", "min_u", "max_u", "shl",
         "shr_u", "shr_s",
         "div_u", "div_s", "rem_u", "rem_s", "bit_count", "leading_zeros", "eq", "ne", "lt_s", "le_s", "lt_u", "le_u", "select",
         "mad_wide_u", "dot4_s", "dot4_u"],
    64: ["add", "sub", "mul", "and", "or", "xor", "not", "min_s", "max_s", "min_u", "max_u", "shl", "shr_u", "shr_s", "div_u",
         "div_s", "rem_u", "rem_s",
         "eq", "ne", "lt_s", "le_s", "lt_u", "le_u", "select"],
}  # fmt: skip
FLOATING = ["fadd", "fsub", "fmul", "fma", "fmin", "fmax", "fneg", "fabs", "floor", "ceil", "trunc", "round", "ldexp",
         "frexp_mantissa", "frexp_exponent",
            "div", "fsqrt", "feq", "fne", "flt", "fle", "select"]  # fmt: skip
APPROXIMATE = {"rcp": 2, "rsq": 2, "sqrt": 2, "exp2": 2, "log2": 2}
CONVERSIONS = [
    *[("to_float_s", a, b) for a in (I32, I64) for b in (F32, F64)], *[("to_float_u", a, b) for a in (I32, I64) for b in (F32, F64)],
    *[(f"to_float_{s}", a, F16) for s in "su" for a in (I16, I32, I64)],
    *[(f"to_int_{s}", a, b) for s in "su" for a in (F16, F32, F64) for b in (I32, I64)],
    *[("fconvert", a, b) for a in (F16, BF16, F32, F64) for b in (F16, BF16, F32, F64) if a != b],
    *[(op, a, b) for op in ("zext", "sext") for a, b in ((I16, I32), (I16, I64), (I32, I64))],
    *[("truncate", a, b) for a, b in ((I32, I16), (I64, I32), (I64, I16))],
    ("bitcast", F32, I32), ("bitcast", I64, F64), ("bitcast", F16, I16),
]  # fmt: skip
COMPARES = ("eq", "ne", "lt_s", "le_s", "lt_u", "le_u", "feq", "fne", "flt", "fle")


def operation(b, op, x, y, z):
    """Build one operation. Conditions become numbers, and shift amounts are below the width."""
    type_ = x.type
    if op in COMPARES:
        return b.op("zext", I32, b.op(op, I1, x, y))
    if op in ("shl", "shr_u", "shr_s"):
        amount = y if y.type == I32 else b.op("truncate" if y.type == I64 else "zext", I32, y)
        return b.op(op, type_, x, b.op("and", I32, amount, b.const(type_.bits - 1)))
    if op == "select":
        return b.op(op, type_, b.op("flt" if type_.is_float else "lt_u", I1, y, z), x, z)
    if op == "mad_wide_u":
        return b.op(op, I64, x, y, b.op("bitcast", I64, b.vector([z, x])))
    if op == "ldexp":
        near = b.op("to_int_s", I32, b.op("fconvert", F32, y) if type_ == F16 else y)
        return b.op(op, type_, x, b.op("shr_s", I32, near, b.const(22)))
    if op == "frexp_exponent":
        return b.op(op, I32, x)
    return b.op(
        op, type_, *(x, y, z)[: {"fma": 3, "mad": 3, "dot4_s": 3, "dot4_u": 3}.get(op, len(ARITY.get(op, "12")))]
    )


ARITY = dict.fromkeys(
    (
        "not",
        "fneg",
        "fabs",
        "floor",
        "ceil",
        "trunc",
        "round",
        "frexp_mantissa",
        "fsqrt",
        "bit_count",
        "leading_zeros",
        *APPROXIMATE,
        "sin_turns",
    ),
    "1",
)


def program(makers, types, count, *, uniform, wave_size=32):
    """Return a kernel that makes one value of each maker from elements of its inputs and stores it. If uniform, each
    wave takes its own element.
    """
    params = [Param(f"in{i}", I64, True) for i in range(len(types))] + [Param("out", I64, True, True)]
    group = wave_size if uniform else 64
    b = Builder("test", params, group, wave_size=wave_size)
    out = b.param(len(types))
    at = b.op("group_id", I32, imm=0)
    if not uniform:
        at = b.add(b.mul(at, group), b.op("thread_id", I32))
    inputs = [b.load(one, b.param(i), b.mul(at, one.size_bytes)) for i, one in enumerate(types)]
    kinds = []
    for i, make in enumerate(makers):
        made = make(b, *inputs)
        kinds.append(made.type)
        assert made.uniform == uniform or not uniform
        b.store(out, b.mul(at, 8), made, constant=i * count * 8)
    return b.function, kinds


def differing(expected, got, type_, ulps=0):
    """Return where two arrays of a type differ. Two NaNs are equal, and so are both zeros."""
    dtype = DTYPES[type_.element]
    x, y = (
        np.ascontiguousarray(one.reshape(-1, 8)[:, : np.dtype(dtype).itemsize]).view(dtype)[:, 0]
        for one in (expected, got)
    )
    if not type_.is_float:
        return x != y, x, y
    same = (x == y) | ((x != x) & (y != y))
    if ulps:
        with np.errstate(all="ignore"):
            near = np.abs(x.astype(np.float64) - y.astype(np.float64)) <= ulps * np.spacing(np.abs(x)).astype(
                np.float64
            )
        same |= near
    return ~same, x, y


def check(beside, names, makers, types, inputs, *, uniform, engines=("interpreter",), ulps=0, wave_size=32, skip=()):
    count = len(inputs[0])
    function, kinds = program(makers, types, count, uniform=uniform, wave_size=wave_size)
    groups = count if uniform else count // 64
    out = np.zeros(len(makers) * count * 8, np.uint8)
    (*_, expected), found = beside(function, [*inputs, out], (groups, 1, 1), on=engines)
    for (*_, got), engine in zip(found, engines, strict=True):
        for i, (name, type_) in enumerate(zip(names, kinds, strict=True)):
            part = slice(i * count * 8, (i + 1) * count * 8)
            wrong, x, y = differing(expected[part], got[part], type_, ulps)
            wrong &= ~skip[i] if skip and skip[i] is not None else True
            at = np.flatnonzero(wrong)
            assert not len(at), (
                f"{engine}: {name}: {len(at)} of {count} wrong, first of {[one[at[0]] for one in inputs]}: {y[at[0]]!r}, not {x[at[0]]!r}"
            )


def operands(type_, values, uniform):
    """Return three arrays: two give all pairs, and the third has one element for each pair."""
    dtype = DTYPES[type_.element]
    pairs = list(product(values, values))
    rng = np.random.default_rng(7)
    if uniform:
        pairs = [pairs[i] for i in rng.permutation(len(pairs))[:48]]
    pairs += pairs[: -len(pairs) % 64]
    third = [values[i] for i in rng.integers(0, len(values), len(pairs))]
    with np.errstate(over="ignore"):
        return [np.array(one, dtype) for one in ([p for p, _ in pairs], [q for _, q in pairs], third)]


def makers_of(names):
    return [lambda b, x, y, z, op=op: operation(b, op, x, y, z) for op in names]


@pytest.mark.parametrize("uniform", [False, True], ids=["varying", "uniform"])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integers(beside, bits, uniform):
    type_ = {16: I16, 32: I32, 64: I64}[bits]
    inputs = operands(type_, WHOLE[bits], uniform)
    names = INTEGERS[bits]
    # Any value is right here.
    by_zero = inputs[1] == 0
    skip = [by_zero if op[:3] in ("div", "rem") else None for op in names]
    check(beside, names, makers_of(names), [type_] * 3, inputs, uniform=uniform, skip=skip)


@pytest.mark.parametrize("uniform", [False, True], ids=["varying", "uniform"])
@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.sweep(3)
def test_floats(beside, bits, uniform):
    type_ = {16: F16, 32: F32, 64: F64}[bits]
    check(beside, FLOATING, makers_of(FLOATING), [type_] * 3, operands(type_, FLOATS[bits], uniform), uniform=uniform)


@pytest.mark.parametrize("uniform", [False, True], ids=["varying", "uniform"])
def test_conversions(beside, uniform):
    for source in {one for _, one, _ in CONVERSIONS}:
        made = [(op, to) for op, of, to in CONVERSIONS if of == source]
        values = WHOLE[source.bits] if not source.is_float else FLOATS[32 if source == BF16 else source.bits]
        (first, *_) = operands(source, values, uniform)
        makers = [lambda b, x, op=op, to=to: b.op(op, to, x) for op, to in made]
        check(beside, [f"{op} {source} {to}" for op, to in made], makers, [source], [first], uniform=uniform)


@pytest.mark.parametrize("type_", [F16, F32, F64], ids=str)
def test_approximations_are_within_two_ulp(beside, type_):
    names = [one for one in APPROXIMATE if type_ != F64 or one not in ("exp2", "log2", "rcp", "rsq", "sqrt")]
    if not names:
        return
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.uniform(0.01, 10, 60), [1.0, 2.0, 0.25, 4.0]]).astype(DTYPES[type_.element])
    check(beside, names, makers_of(names), [type_] * 3, [values] * 3, uniform=False, ulps=2)
