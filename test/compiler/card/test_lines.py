"""Kernels that work along a whole axis: running reductions and sorting, of every type, length and direction, in strict
mode.
"""

import numpy as np
import numpy_graph
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.nodes import Op
from ringup.compiler.kernel.axis.scan import Scan
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Size, Tensor, device, order

TYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e5m2",
    "int8",
    "uint8",
    "int16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
]
# One of each width and of each way to compute. `make fuzz` runs all.
FEW_TYPES, FUZZ = ("float32", "float64", "bfloat16", "int8", "int64", "bool"), pytest.mark.fuzz
OPS = [Op.ADD, Op.MUL, Op.MAX, Op.MIN]
BITS = [Op.AND, Op.OR, Op.XOR]
CLOSE = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2, "float8_e5m2": 0.3}


def values(kind, shape, seed=0):
    random = np.random.default_rng(seed)
    if kind.startswith("float") or kind == "bfloat16":
        return random.uniform(0.5, 1.5, shape)
    return random.integers(0, 2 if kind == "bool" else 7, shape)


def beside(bench, nodes, kind):
    for found, wanted in bench.both(nodes):
        close = CLOSE.get(kind, 0)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=close, atol=close)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in FEW_TYPES else FUZZ) for kind in TYPES])
def test_every_fold_of_every_type(small, kind):
    dtype = getattr(dtypes, "bool_" if kind == "bool" else kind)
    x = small.buffer(values(kind, (3, 70)).astype(small.judge.numpy_dtype(dtype)), dtype)
    ops = [*OPS, Op.LOGADDEXP] if dtype.is_float else [*OPS, *BITS]
    ops = [op for op in ops if dtype.kind != "bool" or op not in (Op.ADD, Op.MUL)]
    beside(small, [graph.scan(op, x, 1) for op in ops], kind)
    beside(small, [graph.scan(op, x, 0) for op in ops[:1]], kind)


@pytest.mark.parametrize(
    ("kind", "axis"), [("float32", 0), ("float32", 1), ("int8", 1), ("int64", 0), ("float16", 1), ("bool", 0)]
)
@pytest.mark.sweep(1)
def test_runs_of_equal_keys(small, kind, axis):
    """Runs of one element and of a whole row, and runs that cross lanes, waves, tiles and stretches."""
    dtype = getattr(dtypes, "bool_" if kind == "bool" else kind)
    random = np.random.default_rng(1)
    for shape, stretch in (((5, 40), None), ((3, 700), None), ((2, 1300), None), ((2, 700), 96), ((3, 29), 7)):
        for longest in (1, 9, 5000):
            turned = shape[::-1] if axis == 0 else shape
            marks = random.random(turned) < 1 / longest
            keys = np.cumsum(marks, axis).astype(np.int32) - 1
            x = small.buffer(values(kind, turned).astype(small.judge.numpy_dtype(dtype)), dtype)
            op = Op.MAX if kind == "bool" else Op.ADD
            made = graph.scan(op, x, axis, keys=small.buffer(keys, dtypes.int32), stretch=stretch)
            beside(small, [made], kind)


@pytest.mark.parametrize(("shape", "axis"), [((9000,), 0), ((2, 9001), 1), ((700, 33), 0), ((2, 600, 3), 1)])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.sweep(1)
def test_long_rows_go_in_stretches(small, shape, axis, keyed):
    x = np.random.default_rng(2).integers(-3, 4, shape).astype(np.float32)
    keys = np.cumsum(np.random.default_rng(3).random(shape) < 0.002, axis).astype(np.int32)
    made = graph.scan(
        Op.ADD, small.buffer(x, dtypes.float32), axis, keys=small.buffer(keys, dtypes.int32) if keyed else None
    )
    assert len(plan([made]).kernels) == 3
    ((found, wanted),) = small.both([made])
    np.testing.assert_array_equal(found, wanted)


def test_one_row_of_a_million(bench):
    x = np.random.default_rng(4).integers(-9, 9, 1 << 20).astype(np.int32)
    np.testing.assert_array_equal(Tensor(x).cumsum(0).numpy(), np.cumsum(x))


def test_sums_are_as_near_as_sums_of_that_length(small):
    x = np.random.default_rng(5).standard_normal((2, 5001)).astype(np.float32)
    wanted = np.cumsum(x.astype(np.float64), 1)
    magnitude = np.cumsum(np.abs(x.astype(np.float64)), 1)
    assert (np.abs(Tensor(x).cumsum(1).numpy() - wanted) <= 24 * 2.0**-24 * magnitude).all()


def test_values_at_the_edges(small):
    inf, nan = np.inf, np.nan
    x = np.array(
        [[-0.0, -0.0, 1, -1, 0], [1, inf, 2, -inf, 3], [2, 1, nan, 5, 0], [-inf, -inf, 4, inf, inf]], np.float32
    )
    t = Tensor(x)
    with np.errstate(all="ignore"):
        cases = {
            "cumsum": np.add.accumulate(x, 1), "cumprod": np.multiply.accumulate(x, 1),
            "cummax": np.maximum.accumulate(x, 1), "cummin": np.minimum.accumulate(x, 1),
        }  # fmt: skip
        for name, wanted in cases.items():
            np.testing.assert_array_equal(getattr(t, name)(axis=1).numpy(), wanted, err_msg=name)
    assert np.signbit(t.cumsum(1).numpy()[0]).tolist() == [True, True, False, False, False]


def test_running_sums_of_exponentials_reach_far(small):
    """A row's maximum says nothing about the elements before it. Infinities and NaN give what NumPy gives."""
    inf, nan = np.inf, np.nan
    x = np.random.default_rng(15).uniform(-400, 400, (5, 700)).astype(np.float32)
    x[0], x[1] = np.linspace(-3e4, 3e4, 700), np.linspace(3e4, -3e4, 700)
    x[2, :9], x[3, 100], x[4, 50:52] = -inf, inf, [nan, inf]
    with np.errstate(invalid="ignore"):
        wanted = np.logaddexp.accumulate(x.astype(np.float64), 1)
    found = Tensor(x).logcumsumexp(1).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert len(kernels(Tensor(x).logcumsumexp(1))) == 1
    long = np.random.default_rng(16).uniform(-90, 90, 9000).astype(np.float32)
    made = Tensor(long).logcumsumexp()
    assert len(kernels(made)) == 3
    np.testing.assert_allclose(made.numpy(), np.logaddexp.accumulate(long.astype(np.float64)), rtol=1e-5)


def test_their_gradients_reach_far_too(small):
    x = np.linspace(-3e2, 3e2, 90).astype(np.float32)
    x[:3], x[50:] = -np.inf, x[50]
    weights = np.random.default_rng(17).integers(-2, 3, 90).astype(np.float32)
    t = Tensor(x, requires_grad=True)
    (t.logcumsumexp() * Tensor(weights))[3:].sum().backward()
    result = np.logaddexp.accumulate(x.astype(np.float64))
    wanted = [sum(weights[i] * np.exp(x[j] - result[i]) for i in range(max(3, j), 90)) for j in range(90)]
    np.testing.assert_allclose(t.grad.numpy(), wanted, rtol=1e-3, atol=1e-4)


def kernels(tensor):
    return plan(order.prepared([tensor.node])).kernels


def test_what_stands_around_is_done_in_the_same_kernel(small):
    x = np.random.default_rng(6).integers(-5, 6, (2, 9, 70)).astype(np.float32)
    t = Tensor(x)
    back = lambda a, axis: np.flip(np.cumsum(np.flip(a, axis), axis), axis)  # noqa: E731
    cases = [
        ((t * 2 + 1).cumsum(2) * 3, np.cumsum(x * 2 + 1, 2) * 3),
        (t.flip(2).cumsum(2).flip(2) - t, back(x, 2) - x),
        (t.cumsum(1).permute(2, 0, 1) + 1, np.cumsum(x, 1).transpose(2, 0, 1) + 1),
        (t.flip(1).cumsum(1).flip(1).permute(0, 2, 1), back(x, 1).transpose(0, 2, 1)),
        (t.reshape(18, 70).cumsum(1).reshape(2, 9, 70), np.cumsum(x, 2)),
        (t.cumsum(2).pad(((0, 0), (0, 0), (0, 0)))[:, :, :], np.cumsum(x, 2)),
    ]
    for made, wanted in cases:
        assert len(kernels(made)) == 1
        np.testing.assert_array_equal(made.numpy(), wanted)
    apart = [
        (t.cumsum(2)[:, :, 5:9], np.cumsum(x, 2)[:, :, 5:9]),
        (t.cumsum(2).cumsum(1), np.cumsum(np.cumsum(x, 2), 1)),
        (t.cumsum(2).sum(1), np.cumsum(x, 2).sum(1)),
        ((t - t.max(2, keepdims=True)).cumsum(2), np.cumsum(x - x.max(2, keepdims=True), 2)),
        (t.cumsum(2) + t.cumsum(2).flip(2), np.cumsum(x, 2) + np.flip(np.cumsum(x, 2), 2)),
    ]
    for made, wanted in apart:
        assert len(kernels(made)) == 2
        np.testing.assert_array_equal(made.numpy(), wanted)


def test_a_row_assigned_its_own_running_sum(small):
    x = np.arange(300, dtype=np.float32).reshape(2, 150)
    t = Tensor(x).realize()
    t[:] = t.flip(1).cumsum(1)
    np.testing.assert_array_equal(t.numpy(), np.cumsum(np.flip(x, 1), 1))


def test_sizes_known_when_it_runs(small):
    rows, length = Size("rows", 1, 6), Size("length", 1, 900)
    x = np.random.default_rng(7).integers(-5, 6, (6, 900)).astype(np.int32)
    for axis in (0, 1):
        made = Tensor(x)[:rows, :length].cumsum(axis)
        for a, b in ((1, 1), (6, 900), (5, 257), (2, 513)):
            np.testing.assert_array_equal(made.numpy(rows=a, length=b), np.cumsum(x[:a, :b], axis))


def test_a_row_is_one_stretch_whatever_its_size_will_be():
    length = Size("length", 1, 900)
    (kernel,) = kernels(Tensor(np.zeros((6, 900), np.float32))[:, :length].cumsum(1))
    assert Scan(kernel, 32).stretches == 1


def test_gradients_of_running_reductions(small):
    x = np.random.default_rng(8).integers(-2, 3, (4, 45)).astype(np.float32)
    x[2] = np.linspace(0.9, 1.1, 45)
    weights = np.random.default_rng(9).standard_normal((4, 45)).astype(np.float32)

    def make(name):
        t = Tensor(x, requires_grad=True)
        (getattr(t, name)(axis=1) * Tensor(weights)).sum().backward()
        return t.grad

    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        found = make(name).numpy()
        with device(numpy_graph.NumpyEvaluator()):
            wanted = make(name).numpy()
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=name)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.sweep(4)
def test_sorted_rows_of_every_type(small, kind):
    dtype, limits = getattr(dtypes, kind), np.iinfo(kind)
    random = np.random.default_rng(10)
    for shape, axis, stretch in (
        ((3, 1), 1, None),
        ((3, 2), 1, None),
        ((70, 33), 1, None),
        ((5, 3, 2), 1, None),
        ((2, 130), 1, 32),
        ((90,), 0, 64),
    ):
        x = random.integers(limits.min, limits.max, shape, kind, endpoint=True)
        # Elements outside of the row have this value.
        x.reshape(-1)[::7] = limits.max
        x.reshape(-1)[::11] = limits.min
        ((found, wanted),) = small.both([graph.sort(small.buffer(x, dtype), axis, stretch=stretch)])
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("size", [255, 1024, 1500])
def test_rows_that_waves_share(bench, size):
    x = np.random.default_rng(size).integers(-900, 900, (3, size))
    ((found, wanted),) = bench.both([graph.sort(bench.buffer(x, dtypes.int64), 1)])
    np.testing.assert_array_equal(found, wanted)


def test_rows_longer_than_a_group_sorts_merge(bench):
    x = np.random.default_rng(11).standard_normal((2, 9000)).astype(np.float32)
    x[0, ::9], x[1, ::5] = 0.25, np.nan
    made = Tensor(x).argsort(1)
    assert len(kernels(made)) == 3
    np.testing.assert_array_equal(made.numpy(), np.argsort(x, 1, kind="stable"))


def in_order(x, axis, *, falling):
    """Return NumPy's stable order. Descending order keeps equal elements in place and puts NaN first."""
    if not falling:
        return np.argsort(x, axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "float16", "bfloat16", "int8", "uint32", "int64", "uint64", "bool"]
)
@pytest.mark.sweep(4)
def test_order_is_stable_with_nan_last(small, kind):
    random = np.random.default_rng(12)
    x = random.integers(0, 2 if kind == "bool" else 9, (3, 61))
    numbers = x.astype(small.judge.numpy_dtype(getattr(dtypes, "bool_" if kind == "bool" else kind)))
    if "float" in kind:
        numbers[0, ::5], numbers[1, ::7], numbers[2, ::4], numbers[2, 1::4] = np.nan, np.inf, 0.0, -0.0
        numbers[1, 1], numbers[1, 2] = -np.inf, -np.nan
    elif kind == "uint64":
        numbers[0, ::3] += np.uint64(1 << 63)
    elif kind == "int64":
        numbers[0, ::3] -= np.int64(1 << 40)
    wide = numbers.astype(np.float64) if "float" in kind else numbers
    for axis in (0, 1):
        for falling in (False, True):
            wanted = in_order(wide, axis, falling=falling)
            found, places = Tensor(numbers).sort(axis, descending=falling)
            np.testing.assert_array_equal(places.numpy(), wanted)
            np.testing.assert_array_equal(found.numpy().astype(wide.dtype), np.take_along_axis(wide, wanted, axis))
    np.testing.assert_array_equal(Tensor(numbers).topk(7, 1)[1].numpy(), in_order(wide, 1, falling=True)[:, :7])


def test_the_greatest_of_long_rows(bench):
    x = np.random.default_rng(13).integers(0, 4000, (2, 13000)).astype(np.float32)
    x[0, 12999], x[1, 5] = np.nan, np.inf
    for largest in (True, False):
        values_, places = Tensor(x).topk(20, 1, largest=largest)
        wanted = in_order(x, 1, falling=largest)[:, :20]
        np.testing.assert_array_equal(places.numpy(), wanted)
        np.testing.assert_array_equal(values_.numpy(), np.take_along_axis(x, wanted, 1))


def test_gradients_go_back_to_where_elements_came_from(small):
    x = np.random.default_rng(14).integers(0, 5, (3, 20)).astype(np.float32)
    t = Tensor(x, requires_grad=True)
    weights = np.arange(20, dtype=np.float32)
    (t.sort(1, descending=True)[0] * Tensor(weights)).sum().backward()
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, in_order(x, 1, falling=True), np.broadcast_to(weights, x.shape), 1)
    np.testing.assert_array_equal(t.grad.numpy(), wanted)
