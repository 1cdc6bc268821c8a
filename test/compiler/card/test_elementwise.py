"""Every elementwise operation on edge values of every dtype, bit for bit where it is exact. Operations are packed: a kernel has many of them."""

import edges
import numpy as np
import pytest

from ringup.compiler import dtypes
from ringup.compiler.graph import Op, cast, elementwise, node


def packed(parts):
    """Return vectors of one dtype and length as the rows of one node."""
    (count,) = parts[0].shape
    return node(Op.CAT, parts[0].dtype, (len(parts) * count,), tuple(parts), 0)


def assert_like(names, allowed, operands, found, wanted, free=()):
    """Hold the rows that `packed` made against the judge's; `operands` are shown for what differs."""
    found, wanted = found.reshape(len(names), -1), wanted.reshape(len(names), -1)
    wrong = []
    for i, name in enumerate(names):
        for at in edges.unlike(found[i], wanted[i], allowed[i], sign_of_zero=name not in free)[:3]:
            given = ", ".join(str(one[at]) for one in operands)
            wrong.append(f"{name}({given}) is {found[i][at]}, not {wanted[i][at]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_operations_of_one_operand(bench, dtype):
    values = edges.values(dtype)
    operand = bench.buffer(values, dtype)
    ops = edges.UNARY[dtype.kind]
    ((found, wanted),) = bench.both([packed([elementwise(op, operand) for op in ops])])
    assert_like(ops, [edges.ulps(op, dtype) for op in ops], (values,), found, wanted)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_operations_of_two_operands(bench, dtype):
    x, y = edges.pairs(dtype)
    operands = bench.buffer(x, dtype), bench.buffer(y, dtype)
    ops = edges.BINARY[dtype.kind]
    compared = packed([elementwise(op, *operands) for op in edges.COMPARISONS])
    made = bench.both([packed([elementwise(op, *operands) for op in ops]), compared])
    allowed = [edges.ulps(op, dtype) for op in ops]
    assert_like(ops, allowed, (x, y), *made[0], free=edges.SIGN_OF_ZERO_FREE)
    assert_like(edges.COMPARISONS, [0] * 4, (x, y), *made[1])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_casts_from_every_dtype(bench, dtype):
    longest = max(len(edges.values(one)) for one in dtypes.ALL)
    values = [np.resize(edges.values(one), longest) for one in dtypes.ALL]
    parts = [cast(bench.buffer(one, source), dtype) for one, source in zip(values, dtypes.ALL, strict=True)]
    ((found, wanted),) = bench.both([packed(parts)])
    for i, source in enumerate(dtypes.ALL):
        part = slice(i * longest, (i + 1) * longest)
        assert_like([f"{source} to {dtype}"], [0], (values[i],), found[part], wanted[part])


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_the_same_bits_as_other_dtypes(bench, bits):
    alike = [one for one in dtypes.ALL if one.bits == bits and one.kind != "bool"]
    base = next(one for one in alike if one.kind == "uint")
    values = np.unique(np.concatenate([edges.values(one).view(f"uint{bits}") for one in alike]))
    operand = bench.buffer(values, base)
    there = [node(Op.BITCAST, one, operand.shape, (operand,)) for one in alike]
    back = [node(Op.BITCAST, base, operand.shape, (one,)) for one in there]
    ((found, _),) = bench.both([packed(back)])
    found = found.reshape(len(alike), -1)
    for one, row in zip(alike, found, strict=True):
        held = values.view(bench.judge.numpy_dtype(one))
        kept = ~np.isnan(held.astype(np.float64)) if one.is_float else np.ones(len(values), bool)
        np.testing.assert_array_equal(row[kept], values[kept], err_msg=str(one))  # a NaN may lose its payload


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_choice_takes_values_as_they_are(bench, dtype):
    x, y = edges.pairs(dtype)
    chosen = np.arange(len(x)) % 3 == 0
    where = elementwise(Op.WHERE, bench.buffer(chosen, dtypes.bool_), bench.buffer(x, dtype), bench.buffer(y, dtype))
    ((found, wanted),) = bench.both([where])
    assert not len(edges.unlike(found, wanted))
