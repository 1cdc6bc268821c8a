"""Masks as indices and in assignment, places of elements, parts along an axis, values put at places."""

import numpy as np
import pytest

from ringup.compiler.tensor import Size, Tensor

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)
X = Tensor(NUMBERS)
ODD = NUMBERS % 2 == 1
ROWS = np.array([True, False, True])


def test_a_mask_as_an_index():
    np.testing.assert_array_equal(X[X % 2 == 1].numpy(), NUMBERS[ODD])
    np.testing.assert_array_equal(X[Tensor(ROWS)].numpy(), NUMBERS[ROWS])
    np.testing.assert_array_equal(X[Tensor(ROWS), 1].numpy(), NUMBERS[ROWS, 1])
    assert X[X > 99].shape == (0,)
    with pytest.raises(IndexError, match=r"a mask of shape \[4\] at axis 0"):
        X[X[0] > 1]


ASSIGNED = {
    "a number": (ODD, -1),
    "a tensor of this shape": (ODD, 7.0),
    "rows": (ROWS, 5),
    "a row for all": (ROWS, [10, 20, 30, 40]),
    "a row for each": (ROWS, np.arange(8).reshape(2, 4) * 10),
    "an element for each": (ODD, np.arange(6) * 100),
    "one element": (ODD, np.array([9])),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_a_mask_in_an_assignment_is_not_computed_first(name, evaluator):
    mask, value = ASSIGNED[name]
    wanted, tensor = NUMBERS.copy(), Tensor(NUMBERS)
    wanted[mask] = value
    tensor[Tensor(mask)] = value if np.isscalar(value) else Tensor(np.asarray(value, np.float32))
    assert evaluator.calls == []
    np.testing.assert_array_equal(tensor.numpy(), wanted)


def test_assignments_by_masks_write_what_is_viewed():
    tensor = Tensor(NUMBERS)
    row = tensor[1]
    row[row > 5] = 0
    tensor[tensor > 9] += 100
    assert tensor.tolist() == [[0, 1, 2, 3], [4, 5, 0, 0], [8, 9, 110, 111]]
    with pytest.raises(ValueError, match="300 does not fit uint8"):
        Tensor([1, 2], "uint8")[Tensor([True, False])] = 300
    with pytest.raises(IndexError, match=r"a mask of shape \[4\] for a tensor of shape \[3, 4\]"):
        tensor[tensor[0] > 1] = 0


def test_places_of_nonzero_elements():
    t = Tensor(ODD)
    np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(ODD))
    np.testing.assert_array_equal(X.argwhere().numpy(), np.argwhere(NUMBERS))
    for found, wanted in zip(t.nonzero(as_tuple=True), np.nonzero(ODD), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert Tensor([0, 0]).nonzero().shape == (0, 1)
    assert Tensor(5).nonzero().shape == (1, 0)


def test_places_of_a_stated_number_of_elements(evaluator):
    t = Tensor(ODD)
    found, few, many = t.nonzero(size=6), t.nonzero(size=2), t.nonzero(size=8, fill_value=-1)
    assert evaluator.calls == []
    np.testing.assert_array_equal(found.numpy(), np.argwhere(ODD))
    np.testing.assert_array_equal(few.numpy(), np.argwhere(ODD)[:2])
    np.testing.assert_array_equal(many.numpy(), [*np.argwhere(ODD), [-1, -1], [-1, -1]])


def test_elements_that_a_mask_selects(evaluator):
    few = X.masked_select(X > 7, size=6, fill_value=-1)
    assert evaluator.calls == []
    assert few.tolist() == [8, 9, 10, 11, -1, -1]
    np.testing.assert_array_equal(X.masked_select(X > 7).numpy(), NUMBERS[NUMBERS > 7])
    row = Tensor([True, False, False, True])
    np.testing.assert_array_equal(X.masked_select(row).numpy(), NUMBERS[:, [0, 3]].reshape(-1))
    assert X.masked_select(row, size=3).tolist() == [0, 3, 4]


def test_parts_along_an_axis():
    assert [one.tolist() for one in X.unbind(1)] == NUMBERS.T.tolist()
    assert [one.tolist() for one in X.unbind()] == NUMBERS.tolist()
    assert X.select(1, -1).tolist() == X.select(dim=1, index=3).tolist() == NUMBERS[:, 3].tolist()
    assert X.narrow(1, 1, 2).tolist() == NUMBERS[:, 1:3].tolist()
    assert X.narrow(dim=1, start=-2, length=2).tolist() == NUMBERS[:, 2:].tolist()
    for start, length in ((3, 2), (-5, 1), (0, 5)):
        with pytest.raises(IndexError, match="outside of it"):
            X.narrow(1, start, length)
    n = Size("n", 1, 4)
    assert X.narrow(1, 0, n).sum(0).numpy(n=2).tolist() == NUMBERS[:, :2].sum(0).tolist()


def test_values_put_at_places():
    # PyTorch 2.14
    source = Tensor(np.arange(9, dtype=np.float32).reshape(3, 3))
    for places in (Tensor([2, 0, 2]), [2, 0, 2]):
        found = Tensor.zeros(3, 3).index_add(0, places, source, alpha=2)
        assert found.tolist() == [[6, 8, 10], [0, 0, 0], [12, 16, 20]]
    assert X.index_copy(dim=1, index=Tensor([3, 0]), source=X[:, :2]).tolist() == [
        [1, 1, 2, 0],
        [5, 5, 6, 4],
        [9, 9, 10, 8],
    ]
    assert X.index_fill(1, [3, 0], -1).tolist() == [[-1, 1, 2, -1], [-1, 5, 6, -1], [-1, 9, 10, -1]]
    key = (Tensor([0, 0, 2]), Tensor([1, 1, 3]))
    added = X.index_put(key, Tensor([10.0, 20.0, 30.0]), accumulate=True)
    assert added.tolist() == [[0, 31, 2, 3], [4, 5, 6, 7], [8, 9, 10, 41]]
    assert X.index_put(key, Tensor([10.0, 20.0, 30.0])).tolist()[2] == [8, 9, 10, 30]
    assert X.index_put((X > 9,), 0).tolist()[2] == [8, 9, 0, 0]
    tensor = Tensor(NUMBERS)
    tensor.index_add_(1, [0], Tensor([[1.0], [2.0], [3.0]])).index_fill_(0, [1], 0)
    assert tensor.tolist() == [[1, 1, 2, 3], [0, 0, 0, 0], [11, 9, 10, 11]]


# PyTorch 2.14: floats with and without the elements before, integers with and without
REDUCED = {
    "sum": ([14, 2, -3], [13, 2, -6]),
    "prod": ([32, 2, -18], [32, 2, -6]),
    "mean": ([3.5, 2, -1.5], [13 / 3, 2, -6]),
    "amax": ([8, 2, 3], [8, 2, -6]),
    "amin": ([1, 2, -6], [1, 2, -6]),
}


@pytest.mark.parametrize("reduce", REDUCED)
def test_values_combined_at_places(reduce):
    places, values = Tensor([0, 0, 2, 0]), [4.0, 8.0, -6.0, 1.0]
    whole = [np.floor(one).tolist() for one in REDUCED[reduce]]
    for kind, wanted in (("float32", REDUCED[reduce]), ("int32", whole)):
        x, y = Tensor([1.0, 2.0, 3.0]).cast(kind), Tensor(values).cast(kind)
        for include, one in zip((True, False), wanted, strict=True):
            found = x.scatter_reduce(0, places, y, reduce, include_self=include)
            np.testing.assert_allclose(found.numpy(), one, rtol=1e-6)
    with pytest.raises(ValueError, match="scatter_reduce by 'most'"):
        X.scatter_reduce(0, Tensor([[0]]), X, "most", include_self=False)


PUT = {
    "scatter": lambda x, y: x.scatter(0, PLACES, y),
    "scatter_add": lambda x, y: x.scatter_add(0, PLACES, y),
    "scatter_reduce": lambda x, y: x.scatter_reduce(0, PLACES, y, "sum"),
    "index_add": lambda x, y: x.index_add(0, PLACES, y),
    "index_copy": lambda x, y: x.index_copy(0, PLACES, y),
    "index_put": lambda x, y: x.index_put((PLACES,), y),
    "masked_scatter": lambda x, y: x.masked_scatter(Tensor([True, False, True]), y),
}
PLACES = Tensor([0, 2])


@pytest.mark.parametrize("name", PUT)
def test_values_of_another_kind_are_not_cut_to_the_type_silently(name):
    """PyTorch refuses every other type; here narrower and wider ones of a kind are taken."""
    with pytest.raises(TypeError, match=r"of values of float32 into int32: cast the tensor or the values"):
        PUT[name](Tensor([1, 2, 3]), Tensor([1.5, 2.5]))
    with pytest.raises(TypeError, match=r"of values of int32 into bool"):
        PUT[name](Tensor([True, False, True]), Tensor([2, 3]))
    assert PUT[name](Tensor([0, 2, 0], "int64"), Tensor([1, 3])).tolist() == [1, 2, 3]
    assert PUT[name](Tensor([0, 2, 0], "float16"), Tensor([1.0, 3.0])).tolist() == [1, 2, 3]
