"""Storing and adding at places known at run time. The card sorts by place; the reference goes through the places one by
one.
"""

import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, node
from ringup.compiler.runtime.device import Device
from ringup.compiler.schedule import scatter
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Size, Tensor

OPS = [None, Op.ADD, Op.MUL, Op.MAX, Op.MIN]
BITS = [Op.AND, Op.OR, Op.XOR]
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "uint32", "int64", "bool"]
CLOSE = {"float32": 1e-5, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture(autouse=True)
def always_sorted(monkeypatch):
    """Always take the form for many elements, for few as well."""
    monkeypatch.setattr(scatter, "MAX_SEARCHED_PAIRS", 0)


def beside(bench, nodes, kind):
    for one, (found, wanted) in zip(nodes, bench.both(nodes), strict=True):
        assert any(kernel.line is not None for kernel in plan([one]).kernels)
        close = CLOSE.get(kind, 0)
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=close, atol=close, err_msg=str(one.arg)
        )


def values(kind, shape, seed, bench):
    random = np.random.default_rng(seed)
    made = random.uniform(0.5, 1.5, shape) if "float" in kind else random.integers(0, 2 if kind == "bool" else 6, shape)
    dtype = getattr(dtypes, "bool_" if kind == "bool" else kind)
    return bench.buffer(made.astype(bench.judge.numpy_dtype(dtype)), dtype)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.sweep(5)
def test_every_way_to_combine_every_type(small, kind):
    """Some places repeat, some lie outside on both sides, and some get nothing."""
    x, y = values(kind, (3, 25), 0, small), values(kind, (3, 41), 1, small)
    places = small.buffer(np.random.default_rng(2).integers(-3, 22, (3, 41)).astype(np.int32), dtypes.int32)
    ops = OPS if kind != "bool" else [None, Op.MAX, Op.MIN]
    ops = [*ops, *BITS] if "float" not in kind else ops
    beside(small, [node(Op.SCATTER, x.dtype, (3, 25), (x, places, y), (1, op)) for op in ops], kind)


@pytest.mark.parametrize("kind", ["int8", "uint8", "uint32", "int64", "uint64"])
def test_places_of_every_type(small, kind):
    limits = np.iinfo(kind)
    random = np.random.default_rng(3)
    places = random.integers(0, 90, 33).astype(kind)
    places[::7], places[::10] = limits.max, limits.min
    for size in (13, 300):
        x, y = values("int32", (size,), 0, small), values("int32", (33,), 1, small)
        where = small.buffer(places, getattr(dtypes, kind))
        beside(small, [node(Op.SCATTER, x.dtype, (size,), (x, where, y), (0, op)) for op in (None, Op.ADD)], "int32")


@pytest.mark.parametrize("shape", [(9, 30), (30, 9), (20, 2, 3), (2, 37, 3)])
@pytest.mark.sweep(2)
def test_any_axis_and_fewer_of_others(small, shape):
    random = np.random.default_rng(4)
    for axis in range(len(shape)):
        for cut in (0, 1):
            part = tuple(17 if i == axis else max(1, size - cut) for i, size in enumerate(shape))
            x, y = values("float32", shape, 5, small), values("float32", part, 6, small)
            where = small.buffer(random.integers(-1, shape[axis] + 1, part).astype(np.int32), dtypes.int32)
            beside(
                small, [node(Op.SCATTER, x.dtype, shape, (x, where, y), (axis, op)) for op in (None, Op.ADD)], "float32"
            )


def test_everything_at_one_place_and_at_none(small):
    """First all elements go to one place: one run over all waves, turns and stretches. Then they go to a place that is
    counted from the end, and then no place lies inside.
    """
    random = np.random.default_rng(7)
    for place, count in ((2, 1500), (-1, 100), (5, 100), (-6, 100)):
        y = random.integers(-3, 4, (count, 3)).astype(np.float32)
        where = Tensor(np.full((count, 3), place, np.int32))
        made = Tensor.zeros(5, 3).scatter_add(0, where, Tensor(y))
        wanted = np.zeros((5, 3), np.float32)
        if -5 <= place < 5:
            wanted[place] = y.sum(0)
        np.testing.assert_array_equal(made.numpy(), wanted)


def test_the_last_one_stays_also_of_many(bench):
    random = np.random.default_rng(8)
    places = random.integers(0, 500, 9500)
    y = random.standard_normal(9500).astype(np.float32)
    wanted = np.full(600, -1, np.float32)
    for place, value in zip(places, y, strict=True):
        wanted[place] = value
    found = Tensor(np.full(600, -1, np.float32)).scatter(0, Tensor(places.astype(np.int32)), Tensor(y))
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_edge_values(small):
    """NaN and infinities reach their own place only. A zero keeps its sign."""
    x = Tensor(np.array([1, -0.0, 2, 3, -0.0], np.float32))
    where = Tensor(np.array([0, 2, 2, 0, 3, 3, 3, 4, 4, 3, 2], np.int32))
    y = np.array([np.nan, np.inf, 1, 5, -np.inf, np.inf, 1, -0.0, -0.0, 2, 3], np.float32)
    found = x.scatter_add(0, where, Tensor(y)).numpy()
    np.testing.assert_array_equal(found, [np.nan, 0, np.inf, np.nan, 0])
    assert np.signbit(found[[1, 4]]).all()
    np.testing.assert_array_equal(x.scatter_reduce(0, where, Tensor(y), "max").numpy(), [np.nan, 0, np.inf, np.inf, 0])
    np.testing.assert_array_equal(x.scatter(0, where, Tensor(y)).numpy(), [5, 0, 3, 2, 0])


def embedded(table, words, weights):
    t = Tensor(table, requires_grad=True)
    (t[Tensor(words)] * Tensor(weights)).sum().backward()
    return t.grad


@pytest.mark.parametrize(("vocabulary", "deep", "shape"), [(50, 33, (7, 20)), (200, 8, (3, 700))])
@pytest.mark.sweep(1)
def test_gradient_of_a_table_of_words(small, vocabulary, deep, shape):
    random = np.random.default_rng(9)
    table = random.standard_normal((vocabulary, deep)).astype(np.float32)
    # Some places are frequent.
    words = (vocabulary * random.random(shape) ** 3).astype(np.int32)
    weights = random.standard_normal((*shape, deep)).astype(np.float32)
    wanted, most = np.zeros(table.shape), np.zeros(table.shape)
    np.add.at(wanted, words, weights.astype(np.float64))
    np.add.at(most, words, np.abs(weights.astype(np.float64)))
    made = embedded(table, words, weights)
    found = made.numpy()
    assert (np.abs(found - wanted) <= 24 * 2.0**-24 * most).all()
    again = embedded(table, words, weights).numpy()
    assert found.tobytes() == again.tobytes()


def test_both_engines_and_both_forms_give_the_same_whole_numbers(small, bench, monkeypatch):
    random = np.random.default_rng(10)
    x, y = (random.integers(-9, 9, shape).astype(np.int32) for shape in ((31, 6), (77, 6)))
    where = random.integers(0, 31, (77, 6)).astype(np.int32)

    def nodes(card):
        sources = tuple(card.buffer(one, dtypes.int32) for one in (x, where, y))
        return [node(Op.SCATTER, dtypes.int32, (31, 6), sources, (0, op)) for op in (None, Op.ADD, Op.MIN)]

    found = [small.computed(nodes(small)), bench.computed(nodes(bench))]
    monkeypatch.setattr(scatter, "MAX_SEARCHED_PAIRS", 1 << 24)
    fresh = nodes(small)
    assert not any(kernel.line is not None for kernel in plan(fresh).kernels)
    found.append(type(small)(Device(small.device.card)).computed(fresh))
    for one, *others, wanted in zip(*found, small.judge.evaluate(fresh), strict=True):
        for other in (*others, wanted.reshape(-1)):
            np.testing.assert_array_equal(one, other)


def test_assignment_at_places(small):
    random = np.random.default_rng(11)
    x = random.integers(-9, 9, (40, 6)).astype(np.float32)
    rows = random.permutation(40)[:15].astype(np.int32)
    t = Tensor(x).realize()
    t[Tensor(rows)] = t[Tensor(rows[::-1].copy())] * 2
    wanted = x.copy()
    wanted[rows] = x[rows[::-1]] * 2
    np.testing.assert_array_equal(t.numpy(), wanted)


def test_other_axes_may_be_known_when_it_runs(small):
    deep = Size("deep", 1, 40)
    random = np.random.default_rng(12)
    x, y = (random.integers(-9, 9, shape).astype(np.float32) for shape in ((30, 40), (50, 40)))
    words = random.integers(0, 30, 50)
    where = Tensor(words.astype(np.int32)).unsqueeze(1).expand((50, deep))
    made = Tensor(x)[:, :deep].scatter_add(0, where, Tensor(y)[:, :deep])
    for size in (1, 17, 40):
        wanted = x[:, :size].copy()
        np.add.at(wanted, words, y[:, :size])
        np.testing.assert_array_equal(made.numpy(deep=size), wanted)


def test_many_meet_in_time_that_grows_with_their_number(monkeypatch):
    """The number of elements read is never the product of both sizes once that is large."""
    monkeypatch.undo()

    def lines(count, size, deep):
        x, y = (Tensor(np.zeros(shape, np.float32)) for shape in ((size, deep), (count, deep)))
        where = Tensor(np.zeros(count, np.int32)).unsqueeze(1).expand((count, deep))
        return [kernel.line is not None for kernel in plan([x.scatter_add(0, where, y).node]).kernels]

    assert lines(16, 1000, 64) == [False]
    assert lines(8, 32000, 768) == [False]
    assert sum(lines(1000, 1000, 64)) == 3
    assert len(lines(8192, 32000, 768)) == 5
