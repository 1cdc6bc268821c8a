"""Counting, distinct elements, places in what is sorted, drawing by weights."""

import numpy as np
import pytest

from ringup.compiler.tensor import Source, Tensor

WHOLE = np.array([3, 1, 3, 0, 7, 1, 3], np.int32)
T = Tensor(WHOLE)


def test_how_often_numbers_are_there(evaluator):
    lazy = T.bincount(size=4)
    assert evaluator.calls == []
    assert lazy.tolist() == np.bincount(WHOLE)[:4].tolist()
    assert T.bincount().tolist() == np.bincount(WHOLE).tolist()
    # PyTorch 2.14
    weighted = Tensor([1, 3, 1, 0]).bincount(weights=Tensor([0.5, 1, 2, 3]), minlength=6)
    assert weighted.tolist() == [3, 2.5, 0, 1, 0, 0]
    assert Tensor([], "int32").bincount(minlength=2).tolist() == [0, 0]
    with pytest.raises(ValueError, match="numbers from -1 on: none below 0"):
        Tensor([1, -1]).bincount()
    with pytest.raises(ValueError, match="integers along one axis"):
        Tensor([1.5]).bincount()


def test_distinct_elements():
    values, inverse, counts = T.unique(return_inverse=True, return_counts=True)
    for found, wanted in zip(
        (values, inverse, counts), np.unique(WHOLE, return_inverse=True, return_counts=True), strict=True
    ):
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert T.unique(sorted=True).tolist() == [0, 1, 3, 7]
    rows = np.array([[1, 2], [0, 5], [1, 2]], np.int32)
    np.testing.assert_array_equal(Tensor(rows).unique(dim=0).numpy(), np.unique(rows, axis=0))
    assert Tensor(rows).unique(return_inverse=True)[1].shape == (3, 2)
    # PyTorch 2.14: NaN differs from NaN
    assert Tensor([np.nan, 1.0, np.nan]).unique().shape == (3,)


def test_distinct_elements_of_a_stated_number(evaluator):
    found = [T.unique(size=n, fill_value=-1, return_inverse=True, return_counts=True) for n in (2, 4, 6)]
    assert evaluator.calls == []
    assert [one.tolist() for one in found[0]] == [[0, 1], [2, 1, 2, 0, 3, 1, 2], [1, 2]]
    assert [one.tolist() for one in found[1]] == [[0, 1, 3, 7], [2, 1, 2, 0, 3, 1, 2], [1, 2, 3, 1]]
    assert [one.tolist() for one in found[2]] == [[0, 1, 3, 7, -1, -1], [2, 1, 2, 0, 3, 1, 2], [1, 2, 3, 1, 0, 0]]
    with pytest.raises(ValueError, match="not of parts along an axis"):
        T.unique(size=2, axis=0)


def test_elements_among_others():
    assert T.isin([3, 9]).tolist() == np.isin(WHOLE, [3, 9]).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100])
def test_places_in_a_sorted_row(size):
    random = np.random.default_rng(size)
    row = np.sort(random.integers(0, 20, size)).astype(np.float32)
    asked = random.integers(-2, 23, (4, 5)).astype(np.float32)
    asked[0, 0] = np.nan
    for side in ("left", "right"):
        found = Tensor(row).searchsorted(Tensor(asked), side=side)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(row, asked, side))


def test_places_in_sorted_rows_and_buckets():
    # PyTorch 2.14
    b = Tensor([1.0, 3, 3, 5])
    asked = Tensor([0.0, 1, 3, 6, np.nan])
    assert Tensor.searchsorted(b, asked).tolist() == [0, 0, 1, 4, 4]
    assert Tensor.searchsorted(b, asked, right=True).tolist() == [0, 1, 3, 4, 4]
    rows = Tensor([[1, 3, 5], [2, 4, 6]])
    assert rows.searchsorted(Tensor([[3, 6], [3, 6]])).tolist() == [[1, 3], [1, 2]]
    assert Tensor([3.0, 4]).bucketize([1.0, 3, 3, 5], right=True).tolist() == [3, 3]
    assert (
        Tensor([1.0, np.nan]).searchsorted([np.nan, 5]).tolist() == np.searchsorted([1.0, np.nan], [np.nan, 5]).tolist()
    )
    assert Tensor([], "float32").searchsorted([1.0]).tolist() == [0]
    with pytest.raises(ValueError, match="one row, or as many rows as values have"):
        rows.searchsorted([3])


def test_drawing_by_weights():
    weights = np.array([0.0, 1, 2, 5], np.float32)
    drawn = Tensor(weights).multinomial(20000, replacement=True, source=Source(3)).numpy()
    share = np.bincount(drawn, minlength=4) / 20000
    # five standard deviations
    np.testing.assert_allclose(share, weights / 8, atol=5 * np.sqrt(0.25 / 20000))
    assert share[0] == 0
    rows = np.tile(weights, (4000, 1))
    once = Tensor(rows).multinomial(num_samples=3, source=Source(4)).numpy()
    assert np.sort(once, 1).tolist() == [[1, 2, 3]] * 4000
    # the first drawn is one by weight
    np.testing.assert_allclose(np.bincount(once[:, 0], minlength=4) / 4000, weights / 8, atol=5 * np.sqrt(0.25 / 4000))
    for wrong in (0, 5):
        with pytest.raises(ValueError, match="1 to 4, or more with replacement"):
            Tensor(weights).multinomial(wrong)
