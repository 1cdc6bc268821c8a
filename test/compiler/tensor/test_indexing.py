"""t[...] gives what NumPy's x[...] gives, and the named methods do what they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ringup.compiler.tensor import Tensor

X = np.arange(120, dtype=np.int32).reshape(2, 3, 4, 5)
T = Tensor(X)
FIXED = [
    0, -1, (1, 2), (0, -1, 2, -5), slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1),
    (slice(None), slice(2, None, -1)),
    (..., 0), (..., slice(1, 4, 2)), (None, 0), (0, None, ..., None), (slice(5, 9),), (slice(None), slice(2, 1)),
    (..., slice(None, None, -2)),
    (..., slice(-2, -9, -3)), [1, 0, 1], [[0, 1], [1, 0]], ([0, 1], [2, -1]), (slice(None), [0, 2]),
    (slice(None), [0, 2], slice(None), [1, 3]),
    ([0, 1], slice(None), [1, 3]), (0, slice(None), [1, 3]), (0, [1, 2], slice(1, 3)), ([[0], [1]], [0, 2, 1]), (..., [0, 4]),
    (None, [0, 1], None),
    (slice(None), [0, 1], None, [2, 3]), (np.array([True, False]),), (slice(None), np.array([True, False, True])), X > 60,
    (X[..., 0] % 2 == 0),
    (np.array([[True, False, True], [False, False, True]]), slice(1, 3)), (1, [0, 2], 1, [3, 4]), ([], slice(None)), (slice(None), [], 0),
    (np.int64(1), np.uint8(2)), ([1, 0], ..., 2), (0, ..., [1, 2], 3),
]  # fmt: skip


@pytest.mark.parametrize("key", FIXED, ids=lambda key: str(key)[:40])
def test_every_kind_of_index(key):
    expected = X[tuple(key) if isinstance(key, tuple) else key]
    found = T[key].numpy()
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("key", FIXED, ids=lambda key: str(key)[:40])
def test_every_kind_of_assignment(key):
    x, t = X.copy(), Tensor(X)
    values = np.arange(x[key].size, dtype=np.int32).reshape(x[key].shape) - 500
    x[key] = values
    t[key] = Tensor(values)
    np.testing.assert_array_equal(t.numpy(), x)
    x[key] += 7
    t[key] += 7
    np.testing.assert_array_equal(t.numpy(), x)
    x[key], t[key] = 3, 3
    np.testing.assert_array_equal(t.numpy(), x)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_basic_and_advanced_indices(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))
    x = np.arange(np.prod(shape)).reshape(shape)
    if data.draw(st.booleans()):
        key = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    else:
        index = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)))
        key = tuple(data.draw(st.sampled_from([one, slice(None), 0])) for one in index)
        if not any(isinstance(one, np.ndarray) for one in key):
            key = (*key[:-1], index[-1])
    expected = x[key]
    np.testing.assert_array_equal(Tensor(x)[key].numpy(), expected)
    changed, t = x.copy(), Tensor(x)
    changed[key] = -1
    t[key] = -1
    np.testing.assert_array_equal(t.numpy(), changed)


def test_index_tensors_wrap_once_and_read_zero_outside():
    t = Tensor([10, 20, 30])
    assert t[Tensor([0, -1, 2, 3, -4])].tolist() == [10, 30, 30, 0, 0]
    assert T[Tensor([0, 5]), Tensor([1, 1])].numpy()[1].any() == 0
    np.testing.assert_array_equal(T[Tensor([1, 0]), :, Tensor([-1, 0])].numpy(), X[[1, 0], :, [-1, 0]])
    np.testing.assert_array_equal(T[:, Tensor([2, 0], "uint8")].numpy(), X[:, [2, 0]])
    u = Tensor([1, 2, 3])
    # Elements outside are dropped.
    u[Tensor([0, 7])] = 9
    assert u.tolist() == [9, 2, 3]


@pytest.mark.parametrize(
    ("key", "match"),
    [
        (2, r"index 2 of axis 0 of a tensor of shape \[2, 3, 4, 5\]"),
        (-3, "index -3 of axis 0"),
        ((0, [0, 3]), "index 3 of axis 1"),
        ([-4], "index -4"),
        ((0, 0, 0, 0, 0), "5 indices for a tensor"),
        ((..., 0, ...), "one ... at most"),
        (np.array([True]), "a mask of shape"),
        (1.5, "is no index"),
        (slice(None, None, 0), "a step of 0"),
        (True, "lone True"),
        ("x", "is no index"),
    ],
)
def test_bad_indices_are_index_errors(key, match):
    with pytest.raises(IndexError, match=match):
        T[key]


def test_float_tensors_are_no_indices():
    with pytest.raises(IndexError, match="integers only"):
        T[Tensor([0.5])]


def test_gathering():
    x = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    t = Tensor(x)
    for axis in range(3):
        places = np.random.default_rng(axis).integers(0, x.shape[axis], (3, 5, 4)) % x.shape[axis]
        np.testing.assert_array_equal(t.gather(axis, Tensor(places)).numpy(), np.take_along_axis(x, places, axis))
        np.testing.assert_array_equal(t.take_along_axis(places, axis).numpy(), np.take_along_axis(x, places, axis))
        order = np.argsort(x, axis)
        np.testing.assert_array_equal(t.take_along_axis(Tensor(order), axis).numpy(), np.sort(x, axis))
        np.testing.assert_array_equal(t.take([[0, 1], [2, -1]], axis).numpy(), np.take(x, [[0, 1], [2, -1]], axis))
        np.testing.assert_array_equal(t.index_select(axis, Tensor([2, 0, 0])).numpy(), np.take(x, [2, 0, 0], axis))
    np.testing.assert_array_equal(t.take([5, 7]).numpy(), np.take(x, [5, 7]))
    small = np.array([[[1], [0]]])
    np.testing.assert_array_equal(t.gather(1, small).numpy(), x[:1, [1, 0], :1])
    np.testing.assert_array_equal(Tensor([1.0, 2.0]).gather(0, Tensor([-1, 2, 1, -3])).numpy(), [2, 0, 2, 0])
    with pytest.raises(ValueError, match="no larger other axes"):
        t.gather(0, np.zeros((1, 9, 1), int))
    with pytest.raises(IndexError, match="index 5 of axis 2"):
        t.gather(2, np.full((1, 1, 1), 5))
    with pytest.raises(TypeError, match="integers only"):
        t.take(Tensor([0.0]))


def test_scattering():
    x = np.zeros((3, 4), np.float32)
    places = np.array([[0, 1, 2, 0], [1, 1, 1, 3]])
    values = np.arange(8, dtype=np.float32).reshape(2, 4) + 1
    for name, function in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        for axis in (0, 1):
            start = x + 2
            p = places % x.shape[axis]
            grid = list(np.indices(p.shape))
            grid[axis] = p
            expected = start.copy()
            function.at(expected, tuple(grid), values)
            np.testing.assert_array_equal(Tensor(start).scatter_reduce(axis, p, Tensor(values), name).numpy(), expected)
    found = Tensor(x).scatter(1, Tensor([[1, 1, 9, 0]]), Tensor([[5.0, 6.0, 7.0, 8.0]])).numpy()
    # The last value stays; elements outside are dropped.
    np.testing.assert_array_equal(found[0], [8, 6, 0, 0])
    np.testing.assert_array_equal(Tensor(x).scatter_add(0, [[0, 0, 0, 0]], 1.5).numpy()[0], [1.5] * 4)
    with pytest.raises(ValueError, match="scatter_reduce by 'no'"):
        Tensor(x).scatter_reduce(0, [[0]], 1.0, "no")


def test_one_hot_and_embedding():
    assert Tensor([2, 0, 5]).one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    table = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_array_equal(Tensor(table).embedding(Tensor([[1, 6], [0, 1]])).numpy(), table[[[1, 6], [0, 1]]])
    assert not Tensor(table).embedding(Tensor([7, -8])).numpy().any()
    np.testing.assert_array_equal(Tensor(table).embedding(Tensor([-1])).numpy(), table[[-1]])
