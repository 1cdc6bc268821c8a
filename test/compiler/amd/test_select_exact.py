"""Operations that promise exact results, on many operands: roots, quotients, conversions, and the multipliers of
divisions by constants.
"""

import random

import numpy as np
import pytest

from ringup.compiler.amd.legalize.division import reciprocal
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F16, F32, F64, I1, I32, I64, Param

GROUP, COUNT = 256, 8192
RAW = {F16: np.uint16, F32: np.uint32, F64: np.uint64, I32: np.uint32, I64: np.uint64}


def kernel(type_, result, make):
    b = Builder("exact", [Param("x", I64, True), Param("y", I64, True), Param("out", I64, True, True)], GROUP)
    at = b.add(b.mul(b.op("group_id", I32, imm=0), GROUP), b.op("thread_id", I32))
    x, y = (b.load(type_, b.param(i), b.mul(at, type_.size_bytes)) for i in range(2))
    value = make(b, x, y)
    # Every NaN counts as the same.
    if result.is_float:
        value = b.op("select", result, b.op("feq", I1, value, value), value, b.const(12345.0, result))
    b.store(b.param(2), b.mul(at, result.size_bytes), value)
    return b.function


def operands(type_, count=COUNT):
    """Return raw operands: random bits, close pairs, and products whose quotient or root lies near a tie."""
    rng = np.random.default_rng(type_.bits)
    raw = RAW[type_]
    x, y = (rng.integers(0, 1 << type_.bits, count, raw, endpoint=False) for _ in range(2))
    near = rng.integers(-3, 4, count).astype(np.int64).astype(raw)
    y[: count // 4] = x[: count // 4] + near[: count // 4]
    if not type_.is_float:
        y[count // 2 :] >>= rng.integers(0, type_.bits, count - count // 2, raw)
        return x, y | raw(1)
    with np.errstate(all="ignore"):
        kind = x.view(f"f{type_.bits // 8}")
        square = (kind[count // 4 : count // 2] ** 2).astype(kind.dtype)
        x[count // 4 : count // 2] = square.view(raw) + near[count // 4 : count // 2]
    return x, y


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
@pytest.mark.parametrize("op", ["div", "fsqrt"])
def test_quotients_and_roots_are_rounded_correctly(same, type_, op):
    x, y = operands(type_)
    function = kernel(type_, type_, lambda b, x, y: b.op(op, type_, *(x, y)[: 2 if op == "div" else 1]))
    same(function, [x, y, np.zeros(COUNT, RAW[type_])], (COUNT // GROUP, 1, 1), on=("translator",))


def test_every_root_of_f16(same):
    x = np.arange(1 << 16, dtype=np.uint16)
    function = kernel(F16, F16, lambda b, x, y: b.op("fsqrt", F16, x))
    same(function, [x, x, np.zeros(1 << 16, np.uint16)], ((1 << 16) // GROUP, 1, 1), on=("translator",))


def test_quotients_of_f16(same):
    x, y = operands(F16, 1 << 15)
    function = kernel(F16, F16, lambda b, x, y: b.op("div", F16, x, y))
    same(function, [x, y, np.zeros(1 << 15, np.uint16)], ((1 << 15) // GROUP, 1, 1), on=("translator",))


@pytest.mark.parametrize("type_", [I32, I64], ids=str)
@pytest.mark.parametrize("op", ["div_u", "div_s", "rem_u", "rem_s"])
def test_whole_quotients(same, type_, op):
    x, y = operands(type_, 4096)
    function = kernel(type_, type_, lambda b, x, y: b.op(op, type_, x, y))
    same(function, [x, y, np.zeros(4096, RAW[type_])], (16, 1, 1), on=("translator",))


@pytest.mark.parametrize("signed", ["s", "u"])
def test_long_integers_round_once_to_floats(same, signed):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 1 << 64, 4096, np.uint64, endpoint=False) >> rng.integers(0, 64, 4096, np.uint64)
    # Ties of f32 and their neighbours.
    top = np.uint64(1) << rng.integers(25, 64, 2048, np.uint64)
    x[:2048] = (
        top
        + (top >> np.uint64(24)) * rng.integers(0, 8, 2048, np.uint64)
        + rng.integers(0, 3, 2048, np.uint64)
        - np.uint64(1)
    )
    function = kernel(I64, F32, lambda b, x, y: b.op(f"to_float_{signed}", F32, x))
    same(function, [x, x, np.zeros(4096, np.uint32)], (16, 1, 1), on=("translator",))


def test_doubles_round_once_to_halves(same):
    rng = np.random.default_rng(8)
    x = rng.integers(0, 1 << 16, 4096, np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):
        # Ties.
        x = (x + np.nextafter(x.astype(np.float16), np.float16(np.inf)).astype(np.float64)) / 2
        x *= 1 + rng.integers(-2, 3, 4096) * 2.0**-45
    function = kernel(F64, F16, lambda b, x, y: b.op("fconvert", F16, x))
    same(function, [x, x, np.zeros(4096, np.uint16)], (16, 1, 1), on=("translator",))


def test_reciprocals_are_exact_up_to_their_bound():
    r = random.Random(3)
    for bits in (32, 64):
        for _ in range(3000):
            divisor = r.randrange(3, 1 << r.randrange(2, bits + 1))
            bound = r.randrange(1, 1 << r.randrange(1, bits + 1))
            multiplier, shift, too_wide = reciprocal(divisor, bound, bits)
            assert too_wide == (multiplier >> bits > 0)
            assert multiplier < 1 << bits + 1
            last = bound // divisor * divisor
            for x in {0, 1, divisor - 1, divisor, last - 1, last, bound, bound - 1, r.randrange(bound + 1)}:
                if 0 <= x <= bound:
                    assert x * multiplier >> bits + shift == x // divisor, (x, divisor, bound)


def test_division_by_every_kind_of_constant(same):
    """One kernel has divisors of all kinds, dividends of all sizes, signed and unsigned."""
    r = random.Random(9)
    divisors = [
        1,
        2,
        3,
        5,
        6,
        7,
        9,
        10,
        11,
        12,
        14,
        25,
        28,
        641,
        1 << 16,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFFFFFF,
        0xFFFFFFFE,
        0xFFFFFFF9,
    ]
    divisors += [r.randrange(3, 1 << r.randrange(3, 33)) for _ in range(10)]
    x, _ = operands(I32, 1024)
    x[:16] = [
        0,
        1,
        2,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFFFFFF,
        0xFFFFFFFE,
        6,
        7,
        8,
        0xFFFFFFF9,
        0xFFFFFFF8,
        641,
        640,
        642,
    ]
    b = Builder("constants", [Param("x", I64, True), Param("out", I64, True, True)], GROUP)
    at = b.mul(b.add(b.mul(b.op("group_id", I32, imm=0), GROUP), b.op("thread_id", I32)), 4)
    dividend = b.load(I32, b.param(0), at)
    known = [dividend, b.op("and", I32, dividend, b.const(0xFFFFF)), b.op("shr_u", I32, dividend, b.const(1))]
    count = 0
    for divisor in divisors:
        for value in known:
            for op in ("div_u", "div_s", "rem_u"):
                b.store(b.param(1), at, b.op(op, I32, value, b.const(divisor)), constant=count * 4096)
                count += 1
    same(b.function, [x, np.zeros(1024 * count, np.uint32)], (4, 1, 1), on=("interpreter",))
