"""Reductions of every dtype and layout: axes in any position, short and long rows, few and many rows, by lanes, by
waves and in two steps.
"""

import edges
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, permute, reduce, reshape
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.gradients import gradient

OPS = {
    "float": [Op.ADD, Op.MUL, Op.MAX, Op.MIN],
    "int": [Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR],
    "bool": [Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR],
}
OPS["uint"] = OPS["int"]


def rows_of(dtype, count, length, seed=0):
    """Return rows whose sums and products stay in range. Integers are exact in any order."""
    random = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return random.random((count, length)) < 0.9
    if dtype.is_integer:
        return random.choice(edges.values(dtype), (count, length))
    signs = random.choice([-1.0, 1.0], (count, length))
    return (signs * random.choice([0.5, 1.0, 2.0], (count, length), p=[0.25, 0.5, 0.25])).astype(np.float32)


def near(found, wanted, dtype, terms):
    """Compare sums with the reference's, which are more exact. Rounding in the running dtype grows with the root of the
    number of terms.
    """
    if not dtype.is_float:
        return np.testing.assert_array_equal(found, wanted)
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    running = 2.0 ** -(52 if dtype is dtypes.float64 else 23)
    own = 2.0**-dtype.mantissa_bits
    scale = np.abs(wanted) * (own + 4 * running) + running * np.sqrt(terms) * 4
    bad = ~((np.abs(found - wanted) <= scale) | (np.isnan(found) & np.isnan(wanted)) | (found == wanted))
    assert not bad.any(), (found[bad][:5], wanted[bad][:5])
    return None


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_operation_of_every_dtype(small, dtype):
    kind = small.judge.numpy_dtype(dtype)
    values = rows_of(dtype, 5, 40).astype(kind)
    operand = small.buffer(values, dtype)
    ops = OPS[dtype.kind]
    for op, (found, wanted) in zip(ops, small.both([reduce(op, operand, (1,)) for op in ops]), strict=True):
        if op in (Op.ADD, Op.MUL):
            near(found, wanted, dtype, 40)
        else:
            assert not len(edges.unlike(found, wanted, sign_of_zero=False)), op


@pytest.mark.parametrize("dtype", [one for one in dtypes.ALL if one.is_float], ids=str)
def test_infinities_and_nan(small, dtype):
    kind = small.judge.numpy_dtype(dtype)
    inf, nan = float("inf"), float("nan")
    values = np.array(
        [[1, nan, 2], [inf, 1, 2], [inf, -inf, 0], [-inf, -1, -2], [-0.0, -0.0, -0.0], [nan] * 3], np.float32
    )
    operand = small.buffer(values.astype(kind), dtype)
    for op, (found, wanted) in zip(
        OPS["float"], small.both([reduce(op, operand, (1,)) for op in OPS["float"]]), strict=True
    ):
        assert not len(edges.unlike(found, wanted, sign_of_zero=False)), (op, found, wanted)


LENGTHS = [1, 2, 31, 33, 256, 1000, 1025, 5000, 40001]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.sweep(4)
def test_rows_of_every_length(bench, length):
    for dtype in (dtypes.float32, dtypes.int64):
        count = 3
        values = rows_of(dtype, count, length, length).astype(bench.judge.numpy_dtype(dtype))
        operand = bench.buffer(values, dtype)
        across = permute(bench.buffer(np.ascontiguousarray(values.T), dtype), (1, 0))
        for found, wanted in bench.both([reduce(Op.ADD, operand, (1,)), reduce(Op.MAX, across, (1,))]):
            near(found, wanted, dtype, length)


@pytest.mark.parametrize("count", [1, 7, 300, 1000])
def test_many_rows(bench, count):
    values = rows_of(dtypes.float32, count, 70, count)
    operand = bench.buffer(values, dtypes.float32)
    across = permute(bench.buffer(np.ascontiguousarray(values.T), dtypes.float32), (1, 0))
    for found, wanted in bench.both(
        [reduce(Op.ADD, operand, (1,)), reduce(Op.ADD, across, (1,)), reduce(Op.MUL, operand, (0, 1))]
    ):
        near(found, wanted, dtypes.float32, 70)


@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 32, 40]), min_size=1, max_size=4),
    data=st.data(),
)
@settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_axes_in_any_place(small, sizes, data):
    order = data.draw(st.permutations(range(len(sizes))))
    axes = data.draw(st.sets(st.sampled_from(range(len(sizes))), min_size=1))
    values = np.arange(int(np.prod(sizes)), dtype=np.int32).reshape(sizes) * 7919
    moved = permute(small.buffer(values, dtypes.int32), order)
    ((found, wanted),) = small.both([reduce(Op.ADD, moved, tuple(sorted(axes)))])
    np.testing.assert_array_equal(found, wanted)


def test_rows_used_again_stay_as_they_were_computed(bench):
    """Softmax and norms: one kernel folds a row twice and writes it. The row stays in registers or is read again."""
    random = np.random.default_rng(0)
    for count, length in ((4, 10), (600, 40), (1, 3000), (1, 16000)):
        x = random.standard_normal((count, length)).astype(np.float32)
        t = Tensor(x)
        raised = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(t.softmax(1).numpy(), raised / raised.sum(1, keepdims=True), rtol=2e-5, atol=1e-12)
        wide = x.astype(np.float64)
        wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(t.layer_norm().numpy(), wanted, rtol=2e-4, atol=2e-5)


def test_parts_and_edges_of_what_is_reduced(small):
    """Padded, flipped, cut and joined operands. Elements outside take no part in the reduction."""
    random = np.random.default_rng(1)
    x = random.integers(-99, 99, (6, 37)).astype(np.int32)
    t = Tensor(x)
    np.testing.assert_array_equal(
        t.pad(((0, 2), (3, 30)), value=5).sum(1).numpy(), np.pad(x, ((0, 2), (3, 30)), constant_values=5).sum(1)
    )
    np.testing.assert_array_equal(t[1:5, 3:30].flip(1).amax(0).numpy(), x[1:5, 3:30][:, ::-1].max(0))
    np.testing.assert_array_equal(t.cat(t * 2, axis=1).sum(1).numpy(), np.concatenate([x, x * 2], 1).sum(1))
    np.testing.assert_array_equal(t.reshape(37, 6).sum(0).numpy(), x.reshape(37, 6).sum(0))
    np.testing.assert_array_equal(t.expand(3, 6, 37).sum((0, 2)).numpy(), 3 * x.sum(1))


def test_one_reduction_of_another(small):
    values = rows_of(dtypes.float32, 6 * 9, 20).reshape(6, 9, 20)
    operand = small.buffer(values, dtypes.float32)
    inner = reduce(Op.MAX, operand, (2,))
    outer = reduce(Op.ADD, reshape(inner, (6, 9)), (1,))
    ((found, wanted),) = small.both([outer])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.float64], ids=str)
@pytest.mark.parametrize(("length", "columns"), [(7, 13), (33, 5), (130, 67)])
@pytest.mark.sweep(4)
def test_rows_that_each_compute_a_norm_again(small, dtype, length, columns):
    kind = small.judge.numpy_dtype(dtype)
    random = np.random.default_rng(length)
    x, matrix = (Tensor(random.standard_normal(size).astype(kind)) for size in ((1, length), (length, columns)))
    made = x.layer_norm() @ matrix
    assert len(plan([made.node]).kernels) == 1
    ((found, wanted),) = small.both([made.node])
    tolerance = {dtypes.float16: 2e-2, dtypes.float32: 1e-4, dtypes.float64: 1e-10}[dtype]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * 2)


@pytest.mark.parametrize(("heads", "keys", "width"), [(1, 7, 9), (3, 33, 5), (2, 65, 17)])
def test_a_softmax_that_every_column_computes_again_and_its_gradients(small, heads, keys, width):
    random = np.random.default_rng(keys)
    scores = Tensor(random.standard_normal((heads, 1, keys)).astype(np.float32))
    values = Tensor(random.standard_normal((heads, keys, width)).astype(np.float32))
    made = scores.softmax(-1) @ values
    assert len(plan([made.node]).kernels) == 1
    slopes = gradient((made * made).sum(), [scores, values])
    for found, wanted in small.both([made.node, *(one.node for one in slopes)]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
