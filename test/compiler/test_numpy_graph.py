"""The NumPy reference itself, compared with values written by hand from the comments of `compiler/graph/nodes.py`."""

import math

import numpy as np
import numpy_graph as judge
import pytest

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import (
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from ringup.compiler.graph.nodes import Op

INF, NAN = math.inf, math.nan


def leaf(values, dtype):
    array = np.array(values, judge.numpy_dtype(dtype))
    return nodes.buffer(dtype, array.shape, "", array.reshape(-1).view(np.uint8).tobytes())


def result(node, **sizes):
    (found,) = judge.evaluate([node], sizes)
    return found


def same(found, expected):
    """Compare values one by one: NaN equals NaN, -0.0 does not equal 0.0."""
    found = (
        found.astype(np.float64).reshape(-1).tolist() if found.dtype.kind not in "iub" else found.reshape(-1).tolist()
    )
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one != one and other != other) or (one == other and math.copysign(1, one) == math.copysign(1, other)), (
            found,
            expected,
        )


@pytest.mark.parametrize(
    ("op", "dtype", "x", "expected"),
    [
        (Op.NEG, int8, [-128, 127, 0], [-128, -127, 0]),
        (Op.NEG, uint8, [1, 0, 255], [255, 0, 1]),
        (Op.NEG, float32, [0.0, -0.0, INF], [-0.0, 0.0, -INF]),
        (Op.ABS, int8, [-128, -1], [-128, 1]),
        (Op.ABS, float16, [-0.0, -INF, NAN], [0.0, INF, NAN]),
        (Op.NOT, bool_, [True, False], [False, True]),
        (Op.NOT, uint8, [0, 0xF0], [255, 15]),
        (Op.SQRT, float32, [-0.0, 4, -1, INF], [-0.0, 2, NAN, INF]),
        (Op.RECIP, float32, [0.0, -0.0, 4, INF], [INF, -INF, 0.25, 0.0]),
        (Op.RSQRT, float32, [0.0, -0.0, 4, INF], [INF, -INF, 0.5, 0.0]),
        (Op.EXP2, float32, [0, 128, -149, -150, -INF, NAN], [1, INF, 2.0**-149, 0.0, 0.0, NAN]),
        (Op.LOG2, float32, [0.0, -1, 8, INF], [-INF, NAN, 3, INF]),
        (Op.SIN, float32, [0.0, -0.0, INF], [0.0, -0.0, NAN]),
        (Op.ROUND, float32, [0.5, 1.5, -0.5, 2.5], [0.0, 2, -0.0, 2]),
        (Op.FLOOR, float16, [-0.5, 0.5], [-1, 0.0]),
        (Op.CEIL, float16, [-0.5, 0.5], [-0.0, 1]),
        (Op.TRUNC, float32, [-1.5, 1.5], [-1, 1]),
    ],
)
def test_one_operand(op, dtype, x, expected):
    same(result(nodes.elementwise(op, leaf(x, dtype))), expected)


@pytest.mark.parametrize(
    ("op", "dtype", "x", "y", "expected"),
    [
        (Op.ADD, int8, [127, -128], [1, -1], [-128, 127]),
        (Op.SUB, uint8, [0], [1], [255]),
        (Op.MUL, int32, [1 << 30, -(1 << 31)], [4, -1], [0, -(1 << 31)]),
        (Op.MUL, uint64, [(1 << 64) - 1], [(1 << 64) - 1], [1]),
        (Op.ADD, float16, [65504, 2048, 2048], [32, 1, 3], [INF, 2048, 2052]),
        (Op.ADD, bfloat16, [256, 256], [1, 3], [256, 260]),
        (Op.MUL, float8_e4m3, [16, 1.125], [16, 1.125], [256, 1.25]),
        (Op.MUL, float8_e5m2, [256, 1.25], [256, 1.25], [INF, 1.5]),
        (Op.DIV, float32, [1, -1, 0.0, INF], [0.0, 0.0, 0.0, INF], [INF, -INF, NAN, NAN]),
        (Op.IDIV, int32, [7, -7, 7, -7, 5, -(1 << 31)], [2, 2, -2, -2, 0, -1], [3, -4, -4, 3, 0, -(1 << 31)]),
        (Op.MOD, int32, [7, -7, 7, -7, 5, -(1 << 31)], [2, 2, -2, -2, 0, -1], [1, 1, -1, -1, 0, 0]),
        (Op.IDIV, uint64, [(1 << 64) - 1, 3], [2, 0], [(1 << 63) - 1, 0]),
        (Op.MOD, float32, [5.5, -5.5, 5.5, 1, -1], [2, 2, -2, 0.0, INF], [1.5, 0.5, -0.5, NAN, INF]),
        (Op.MAX, float32, [NAN, 1, -INF], [1, NAN, 2], [NAN, NAN, 2]),
        (Op.MIN, float16, [NAN, 1, -INF], [1, NAN, 2], [NAN, NAN, -INF]),
        (Op.POW, float32, [0.0, -1, NAN, -8, 2], [0.0, INF, 0.0, 1 / 3, -1], [1, 1, 1, NAN, 0.5]),
        (Op.POW, int32, [3, 2, 1, -1, -1, 0, 0], [4, -1, -5, -2, -3, 0, -1], [81, 0, 1, 1, -1, 1, 0]),
        (Op.POW, uint64, [3], [40], [3**40]),
        (
            Op.LOGADDEXP,
            float32,
            [INF, INF, -INF, NAN, 5, -300],
            [INF, -INF, -INF, 1, -INF, 9],
            [INF, INF, -INF, NAN, 5, 9],
        ),
        (Op.AND, uint8, [0b1100], [0b1010], [0b1000]),
        (Op.OR, bool_, [True, False], [False, False], [True, False]),
        (Op.XOR, int8, [-1], [1], [-2]),
        (Op.SHL, int32, [1, 1, 1, 1], [31, 32, -1, 0], [-(1 << 31), 0, 0, 1]),
        (Op.SHR, int32, [-8, -8, 8, 8], [1, 40, 40, 3], [-4, -1, 0, 1]),
        (Op.SHR, uint32, [0x8000_0000, 7], [31, 32], [1, 0]),
        (Op.SHR, uint64, [1 << 63, 5], [63, 64], [1, 0]),
        (Op.LT, float32, [NAN, 1, -0.0], [1, NAN, 0.0], [False, False, False]),
        (Op.LE, float32, [NAN, -0.0], [1, 0.0], [False, True]),
        (Op.EQ, float16, [NAN, -0.0], [NAN, 0.0], [False, True]),
        (Op.NE, bfloat16, [NAN, -0.0], [NAN, 0.0], [True, False]),
        (Op.LT, uint64, [(1 << 63)], [(1 << 63) + 1], [True]),
    ],
)
def test_two_operands(op, dtype, x, y, expected):
    same(result(nodes.elementwise(op, leaf(x, dtype), leaf(y, dtype))), expected)


@pytest.mark.parametrize(
    ("source", "target", "x", "expected"),
    [
        (float32, int8, [1.9, -1.9, 300, -300, NAN, INF, -INF], [1, -1, 127, -128, 0, 127, -128]),
        (float32, uint8, [-0.9, -1, 256, NAN], [0, 0, 255, 0]),
        (float32, int64, [2.0**63, -(2.0**63), 1e30], [(1 << 63) - 1, -(1 << 63), (1 << 63) - 1]),
        (float64, uint64, [2.0**64, 2.0**63, -1], [(1 << 64) - 1, 1 << 63, 0]),
        (float32, bool_, [0.0, -0.0, NAN, 0.1], [False, False, True, True]),
        (int32, int8, [255, 128, -129], [-1, -128, 127]),
        (int8, uint64, [-1], [(1 << 64) - 1]),
        (int32, float32, [(1 << 24) + 1, (1 << 24) + 3], [1 << 24, (1 << 24) + 4]),
        (int64, float16, [2049, 65519, 65520], [2048, 65504, INF]),
        (int64, bfloat16, [(1 << 40) + (1 << 32), (1 << 40) + (1 << 32) + 1], [1 << 40, (1 << 40) + (1 << 33)]),
        (float64, float32, [1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50], [1, 1 + 2.0**-23]),
        (float64, float8_e4m3, [1.0625 + 1e-12, 1.0625, 2.0**-10], [1.125, 1, 0.0]),
        (float64, float16, [2.0**-25, 2.0**-25 + 1e-15], [0.0, 2.0**-24]),
        (bool_, float32, [True, False], [1, 0.0]),
        (float8_e5m2, int32, [3, -1.75], [3, -1]),
    ],
)
def test_casts(source, target, x, expected):
    same(result(nodes.cast(leaf(x, source), target)), expected)


def test_reductions():
    x = leaf([[1, 2, 3], [4, 5, 6]], int32)
    for op, axes, expected in (
        (Op.ADD, (0,), [5, 7, 9]), (Op.ADD, (0, 1), [21]), (Op.MUL, (1,), [6, 120]), (Op.MAX, (0,), [4, 5, 6]), (Op.MIN, (1,), [1, 4]),
        (Op.AND, (1,), [0, 4]), (Op.OR, (1,), [3, 7]), (Op.XOR, (1,), [0, 7]),
    ):  # fmt: skip
        same(result(nodes.reduce(op, x, axes)), expected)
    same(result(nodes.reduce(Op.ADD, leaf([127, 1], int8), (0,))), [-128])
    same(result(nodes.reduce(Op.ADD, leaf([2048] + [1] * 64, float16), (0,))), [2112])
    same(result(nodes.reduce(Op.MAX, leaf([1, NAN, 3], float32), (0,))), [NAN])
    same(result(nodes.reduce(Op.LOGADDEXP, leaf([[-INF, 7], [-300, -INF]], float32), (0, 1))), [7])
    same(result(nodes.reduce(Op.OR, leaf([False, True], bool_), (0,))), [True])
    for op, dtype, expected in ((Op.ADD, float32, 0.0), (Op.MUL, float32, 1), (Op.MAX, float32, -INF), (Op.MIN, int8, 127), (Op.MAX, uint8, 0),
                                (Op.AND, uint8, 255), (Op.MAX, float8_e4m3, -448)):  # fmt: skip
        same(result(nodes.reduce(op, leaf(np.zeros((0,)), dtype), (0,))), [expected])


def test_running_folds():
    x = leaf([[1, 2, 3, 4, 5], [5, 1, 4, 1, 9]], int32)
    keys = leaf([[7, 7, 2, 2, 2], [0, 1, 1, 1, 3]], int32)
    for made, expected in (
        (nodes.scan(Op.ADD, x, 1), [[1, 3, 6, 10, 15], [5, 6, 10, 11, 20]]),
        (nodes.scan(Op.MAX, x, 0), [[1, 2, 3, 4, 5], [5, 2, 4, 4, 9]]),
        (nodes.scan(Op.ADD, x, 1, stretch=2), [[1, 3, 3, 7, 5], [5, 6, 4, 5, 9]]),
        (nodes.scan(Op.MUL, x, 1, keys=keys), [[1, 2, 3, 12, 60], [5, 1, 4, 4, 9]]),
        (nodes.scan(Op.ADD, x, 1, keys=keys, stretch=2), [[1, 3, 3, 7, 5], [5, 1, 4, 5, 9]]),
    ):
        same(result(made), [one for row in expected for one in row])
    same(result(nodes.scan(Op.ADD, leaf([2048] + [1] * 64, float16), 0))[-3:], [2110, 2112, 2112])
    same(result(nodes.scan(Op.MAX, leaf([1, NAN, 3], float32), 0)), [1, NAN, NAN])


def test_sorted_stretches():
    x = leaf([[3, -1, 2, 2, -5], [0, 9, 8, 7, 1]], int32)
    same(result(nodes.sort(x, 1)), [-5, -1, 2, 2, 3, 0, 1, 7, 8, 9])
    same(result(nodes.sort(x, 1, stretch=3)), [-1, 2, 3, -5, 2, 0, 8, 9, 1, 7])
    same(result(nodes.sort(x, 0)), [0, -1, 2, 2, -5, 3, 9, 8, 7, 1])


def test_gather_and_scatter_outside_of_the_tensor():
    x, places = leaf([10, 20, 30], int32), leaf([2, -1, 3, 0], int64)
    same(result(nodes.node(Op.GATHER, int32, (4,), (x, places), 0)), [30, 0, 0, 10])
    same(result(nodes.node(Op.GATHER, int32, (1,), (x, leaf([(1 << 64) - 1], uint64)), 0)), [0])
    y = leaf([1, 2, 3, 4], int32)
    same(result(nodes.node(Op.SCATTER, int32, (3,), (x, places, y), (0, None))), [4, 20, 1])
    twice = leaf([1, 1, 5, 1], int32)
    same(result(nodes.node(Op.SCATTER, int32, (3,), (x, twice, y), (0, None))), [10, 4, 30])
    same(result(nodes.node(Op.SCATTER, int32, (3,), (x, twice, y), (0, Op.ADD))), [10, 27, 30])
    same(result(nodes.node(Op.SCATTER, int32, (3,), (x, twice, y), (0, Op.MIN))), [10, 1, 30])
    grid = leaf([[1, 2], [3, 4]], float32)
    same(result(nodes.node(Op.GATHER, float32, (1, 2), (grid, leaf([[1, 0]], int32)), 0)), [3, 2])


def test_movement_and_leaves():
    x = leaf([[1, 2, 3], [4, 5, 6]], float32)
    n = index.variable("n", 1, 3)
    same(
        result(nodes.node(Op.PAD, float32, (3, 4), (x,), (((1, 0), (0, 1)), -0.0))),
        [-0.0] * 4 + [1, 2, 3, -0.0, 4, 5, 6, -0.0],
    )
    same(result(nodes.node(Op.SHRINK, float32, (1, n), (x,), ((1, 2), (0, n))), n=2), [4, 5])
    same(result(nodes.node(Op.FLIP, float32, (2, 3), (x,), (0, 1))), [6, 5, 4, 3, 2, 1])
    same(result(nodes.node(Op.CAT, float32, (4, 3), (x, x), 0)), [1, 2, 3, 4, 5, 6] * 2)
    same(result(nodes.permute(x, (1, 0))), [1, 4, 2, 5, 3, 6])
    same(result(nodes.node(Op.IOTA, int64, (n,)), n=3), [0, 1, 2])
    same(result(nodes.node(Op.SIZE, int32, (), (), n * 4 + 1), n=3), [13])
    same(result(nodes.const(300, uint8)), [44])
    same(result(nodes.const(-0.0, float64, (2,))), [-0.0, -0.0])
    same(result(nodes.node(Op.BITCAST, uint32, (1,), (leaf([1.0], float32),))), [0x3F80_0000])
    same(
        result(
            nodes.node(Op.WHERE, int32, (2,), (leaf([True, False], bool_), leaf([1, 2], int32), leaf([3, 4], int32)))
        ),
        [1, 4],
    )


def test_stores_go_through_views_and_values_never_change():
    x = leaf([[1, 2, 3], [4, 5, 6]], float32)
    view = nodes.node(
        Op.SHRINK,
        float32,
        (2, 1),
        (nodes.permute(nodes.node(Op.FLIP, float32, (2, 3), (x,), (1,)), (1, 0)),),
        ((1, 3), (1, 2)),
    )
    store = nodes.node(Op.STORE, float32, (2, 1), (view, leaf([[8], [9]], float32)))
    after = nodes.node(Op.AFTER, float32, (2, 3), (x, store))
    changed, before = judge.evaluate([after, x])
    same(changed, [1, 2, 3, 9, 8, 6])
    same(before, [1, 2, 3, 4, 5, 6])
    with pytest.raises(AssertionError, match="a store through"):
        result(
            nodes.node(
                Op.AFTER, float32, (2, 3), (x, nodes.node(Op.STORE, float32, (2, 3), (nodes.elementwise(Op.NEG, x), x)))
            )
        )


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_type_goes_in_and_out(dtype):
    x = leaf([0, 1, 1], dtype)
    assert result(x).dtype == judge.numpy_dtype(dtype)
    same(result(nodes.cast(x, float64)), [0.0, 1, 1])
    same(result(nodes.cast(nodes.cast(leaf([0, 1], float64), dtype), float64)), [0.0, 1])
