"""Every elementwise operation on edge values of every dtype, bit for bit where the operation is exact. One kernel
computes many operations.
"""

import edges
import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, cast, elementwise, node


def packed(parts):
    """Return vectors of one dtype and length as the rows of one node."""
    (count,) = parts[0].shape
    return node(Op.CAT, parts[0].dtype, (len(parts) * count,), tuple(parts), 0)


def assert_like(names, allowed, operands, found, wanted, free=()):
    """Compare the rows of `packed` with the reference's. The message shows the `operands` of rows that differ."""
    found, wanted = found.reshape(len(names), -1), wanted.reshape(len(names), -1)
    wrong = []
    for i, name in enumerate(names):
        for at in edges.unlike(found[i], wanted[i], allowed[i], sign_of_zero=name not in free)[:3]:
            given = ", ".join(str(one[at]) for one in operands)
            wrong.append(f"{name}({given}) is {found[i][at]}, not {wanted[i][at]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.sweep(7)
def test_operations_of_one_operand(small, dtype):
    values = edges.values(dtype)
    operand = small.buffer(values, dtype)
    ops = edges.UNARY[dtype.kind]
    ((found, wanted),) = small.both([packed([elementwise(op, operand) for op in ops])])
    assert_like(ops, [edges.ulps(op, dtype) for op in ops], (values,), found, wanted)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.sweep(6)
def test_operations_of_two_operands(bench, dtype):
    x, y = edges.pairs(dtype)
    operands = bench.buffer(x, dtype), bench.buffer(y, dtype)
    ops = edges.BINARY[dtype.kind]
    compared = packed([elementwise(op, *operands) for op in edges.COMPARISONS])
    made = bench.both([packed([elementwise(op, *operands) for op in ops]), compared])
    allowed = [edges.ulps(op, dtype) for op in ops]
    assert_like(ops, allowed, (x, y), *made[0], free=edges.SIGN_OF_ZERO_FREE)
    assert_like(edges.COMPARISONS, [0] * 4, (x, y), *made[1])


@pytest.mark.parametrize("dtype", edges.FLOATS, ids=str)
@pytest.mark.sweep(2)
def test_sums_of_exponentials(small, dtype):
    """Cancellation leaves an error of the size of the cancelled terms. The bound is in last places of the greatest
    operand, not of the result.
    """
    x, y = edges.pairs(dtype)
    made = elementwise(Op.LOGADDEXP, small.buffer(x, dtype), small.buffer(y, dtype))
    ((found, wanted),) = small.both([made])
    exact = edges.unlike(found, wanted)
    found, wanted, x, y = (one[exact].astype(np.float64) for one in (found, wanted, x, y))
    assert np.isfinite(found).all()
    assert np.isfinite(wanted).all()
    size = np.maximum(np.maximum(np.abs(x), np.abs(y)), 1)
    places = 2.0**-dtype.mantissa_bits * (1 if dtype.bits < 32 else 2)
    assert (np.abs(found - wanted) <= places * size).all()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.sweep(6)
def test_casts_from_every_dtype(small, dtype):
    longest = max(len(edges.values(one)) for one in dtypes.ALL)
    values = [np.resize(edges.values(one), longest) for one in dtypes.ALL]
    parts = [cast(small.buffer(one, source), dtype) for one, source in zip(values, dtypes.ALL, strict=True)]
    ((found, wanted),) = small.both([packed(parts)])
    for i, source in enumerate(dtypes.ALL):
        part = slice(i * longest, (i + 1) * longest)
        assert_like([f"{source} to {dtype}"], [0], (values[i],), found[part], wanted[part])


@pytest.mark.parametrize("dtype", [one for one in dtypes.ALL if one.is_float and one is not dtypes.float64], ids=str)
@pytest.mark.sweep(3)
def test_conversions_round_once(small, dtype):
    """The operands are ties of the result's last place, and their neighbours by the source's own last bits."""
    random = np.random.default_rng(5)
    count, mantissa = 600, dtype.mantissa_bits
    ties = random.integers(1 << mantissa, 2 << mantissa, count) * 2 + 1
    values, sources = [], [dtypes.float64, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64]
    for source in sources:
        if source.is_float:
            bias = (1 << dtype.exponent_bits - 1) - 1
            near = 1 + random.choice([0, 1, -1], count) * 2.0 ** random.choice([-51, -40, -26, -12], count)
            made = np.ldexp(ties * near, random.integers(-bias - 2 * mantissa - 2, bias - mantissa + 1, count))
        else:
            shifts = random.integers(0, max(1, source.bits - mantissa - 3), count)
            given = zip(ties, shifts, random.choice([0, 1, -1], count), strict=True)
            wide = [(int(tie) << int(shift)) + int(step) & (1 << source.bits) - 1 for tie, shift, step in given]
            made = np.array(wide, f"uint{source.bits}").view(small.judge.numpy_dtype(source))
        values.append(made)
    parts = [cast(small.buffer(one, source), dtype) for one, source in zip(values, sources, strict=True)]
    ((found, wanted),) = small.both([packed(parts)])
    for i, source in enumerate(sources):
        part = slice(i * count, (i + 1) * count)
        assert_like([f"{source} to {dtype}"], [0], (values[i],), found[part], wanted[part])


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_the_same_bits_as_other_dtypes(small, bits):
    alike = [one for one in dtypes.ALL if one.bits == bits and one.kind != "bool"]
    base = next(one for one in alike if one.kind == "uint")
    values = np.unique(np.concatenate([edges.values(one).view(f"uint{bits}") for one in alike]))
    operand = small.buffer(values, base)
    there = [node(Op.BITCAST, one, operand.shape, (operand,)) for one in alike]
    back = [node(Op.BITCAST, base, operand.shape, (one,)) for one in there]
    ((found, _),) = small.both([packed(back)])
    found = found.reshape(len(alike), -1)
    for one, row in zip(alike, found, strict=True):
        held = values.view(small.judge.numpy_dtype(one))
        kept = ~np.isnan(held.astype(np.float64)) if one.is_float else np.ones(len(values), bool)
        # A NaN may lose its payload.
        np.testing.assert_array_equal(row[kept], values[kept], err_msg=str(one))
        # A NaN keeps its sign.
        np.testing.assert_array_equal(row >> bits - 1, values >> bits - 1, err_msg=str(one))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_choice_takes_values_as_they_are(small, dtype):
    x, y = edges.pairs(dtype)
    chosen = np.arange(len(x)) % 3 == 0
    where = elementwise(Op.WHERE, small.buffer(chosen, dtypes.bool_), small.buffer(x, dtype), small.buffer(y, dtype))
    ((found, wanted),) = small.both([where])
    assert not len(edges.unlike(found, wanted))
