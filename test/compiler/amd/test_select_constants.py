"""Operations on constants that no instruction can hold directly: they would need two literals, or allow none."""

import numpy as np
import pytest

from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F32, F64, I32, I64, Param

LARGE = 0x123456789ABCDEF0


@pytest.mark.parametrize(("type_", "value"), [(F32, 1 / 64), (F32, -0.0), (F64, 3.3)])
def test_a_sign_of_a_constant_is_a_constant(type_, value):
    b = Builder("sign", [Param("out", I64, True, True)], 32)
    for op, expected in (("fneg", -value), ("fabs", abs(value))):
        made = b.op(op, type_, b.const(value, type_))
        assert made.op == "const"
        assert (made.imm, np.signbit(made.imm)) == (expected, np.signbit(expected))


@pytest.mark.parametrize("relation", ["lt_s", "le_s", "lt_u", "le_u", "eq", "ne"])
@pytest.mark.parametrize("constant", [LARGE, LARGE | 1 << 63, 5, (1 << 64) - 5, 1 << 63, (1 << 31) | 7])
def test_a_uniform_number_of_64_bits_beside_a_constant(same, relation, constant):
    others = [0, 4, 5, 6, constant - 1, constant, constant + 1, constant ^ 1 << 63, (1 << 64) - 1]
    data = np.array([one % (1 << 64) for one in others], np.uint64)
    b = Builder("compare", [Param("in", I64, True), Param("out", I64, True, True)], 32)
    for i in range(len(data)):
        x, y = b.load(I64, b.param(0), b.const(8 * i)), b.const(constant, I64)
        for j, pair in enumerate(((x, y), (y, x))):
            found = b.op("select", I32, b.compare(relation, *pair), b.const(1), b.const(2))
            b.store(b.param(1), b.const(4 * (2 * i + j)), found)
    same(b.function, [data, np.zeros(2 * len(data), np.uint32)])
