"""Extremes and order with places, as PyTorch gives them, and alone, as NumPy does."""

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, gradient

NUMBERS = np.array([[3.0, 1.0, 3.0, 2.0], [0.0, -1.0, 5.0, 5.0], [2.0, 2.0, 1.0, 1.0]], np.float32)
X = Tensor(NUMBERS)

# PyTorch 2.14: values and indices along axis 1
RANKED = {
    "max": (lambda: X.max(1), [3, 5, 2], [0, 2, 0]),
    "max by dim": (lambda: X.max(dim=1), [3, 5, 2], [0, 2, 0]),
    "min": (lambda: X.min(-1), [1, -1, 1], [1, 1, 2]),
    "keepdim": (lambda: X.max(1, True), [[3], [5], [2]], [[0], [2], [0]]),
    "cummax": (lambda: X.cummax(1), [[3, 3, 3, 3], [0, 0, 5, 5], [2, 2, 2, 2]], [[0, 0, 2, 2], [0, 0, 2, 3], [0, 1, 1, 1]]),
    "cummin": (lambda: X.cummin(dim=1), [[3, 1, 1, 1], [0, -1, -1, -1], [2, 2, 1, 1]], [[0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 2, 3]]),
    "sort": (lambda: X.sort(dim=1, descending=True), [[3, 3, 2, 1], [5, 5, 0, -1], [2, 2, 1, 1]], [[0, 2, 3, 1], [2, 3, 0, 1], [0, 1, 2, 3]]),
    "topk": (lambda: X.topk(2, dim=1), [[3, 3], [5, 5], [2, 2]], [[0, 2], [2, 3], [0, 1]]),
    "kthvalue": (lambda: X[:2].kthvalue(2, dim=1), [2, 0], [3, 0]),
    "kthvalue kept": (lambda: X[:2].kthvalue(1, 1, True), [[1], [-1]], [[1], [1]]),
    "median": (lambda: X[1:].median(1), [0, 1], [0, 3]),
    "median kept": (lambda: X[:2].median(dim=1, keepdim=True), [[2], [0]], [[3], [0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", RANKED)
def test_values_and_places(name):
    call, values, indices = RANKED[name]
    found = call()
    assert found.values.tolist() == values
    assert found.indices.tolist() == indices
    first, second = found
    assert (first.tolist(), second.tolist()) == (values, indices)


def test_values_alone_along_an_axis():
    for name in ("max", "min"):
        for keepdims in (False, True):
            found = getattr(X, name)(axis=1, keepdims=keepdims)
            np.testing.assert_array_equal(found.numpy(), getattr(NUMBERS, name)(axis=1, keepdims=keepdims))
        assert getattr(X, name)().item() == getattr(NUMBERS, name)()
        assert getattr(X, name)(axis=(0, 1)).item() == getattr(X, name)((0, 1)).item() == getattr(NUMBERS, name)()
        assert getattr(X, name)(keepdims=True).shape == (1, 1)
        assert getattr(X, name)(1, keepdims=True).shape == (3, 1)
    np.testing.assert_array_equal(X.cummax(axis=1).numpy(), np.maximum.accumulate(NUMBERS, 1))
    np.testing.assert_array_equal(X.cummin(axis=0).numpy(), np.minimum.accumulate(NUMBERS, 0))
    np.testing.assert_array_equal(X.median(axis=1).numpy(), np.median(NUMBERS, 1))
    np.testing.assert_array_equal(X.ptp(dim=1).numpy(), np.ptp(NUMBERS, 1))
    low, high = X.aminmax(dim=1)
    assert (low.tolist(), high.tolist()) == ([1, -1, 1], [3, 5, 2])


def test_the_median_of_all_is_the_lower_of_two():
    # PyTorch 2.14
    assert Tensor([3, 1, 2, 9]).median().item() == 2
    assert Tensor([3, 1, 2, 9]).median().dtype == "int32"
    assert Tensor([3, 1, 2, 9]).median(axis=0).item() == 2.5
    assert np.isnan(Tensor([1.0, np.nan, 3.0]).median().item())
    assert Tensor([[1.0, np.nan, 3.0]]).median(1).indices.item() == 1


def test_the_greater_of_two_tensors():
    assert X[0].max(Tensor([2, 2, 2, 2])).tolist() == [3, 2, 3, 2]
    assert X[0].min(np.array([2, 2, 2, 2])).tolist() == [2, 1, 2, 2]


def test_nan_is_greatest_and_stays():
    # PyTorch 2.14
    x = Tensor([[1.0, np.nan, 3.0, 4.0]])
    assert np.isnan(x.max(1).values.item())
    assert x.max(1).indices.item() == 1
    found = x.cummax(1)
    assert np.isnan(found.values.numpy()).tolist() == [[False, True, True, True]]
    assert found.indices.tolist() == [[0, 1, 1, 1]]


def test_the_gradient_of_values_goes_to_their_place_alone():
    # PyTorch 2.14; amax shares among equals
    assert gradient(X.max(1).values.sum(), [X])[0].tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert gradient(X.min(dim=0).values.sum(), [X])[0].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]]
    assert gradient(X.amax(1).sum(), [X])[0].tolist()[0] == [0.5, 0, 0.5, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: X.max(0, axis=1), "dim and axis mean the same; give one"),
        (lambda: X.median(0, axis=1), "dim and axis mean the same; give one"),
        (lambda: X.cummax(0, axis=1), "dim and axis mean the same; give one"),
        (lambda: X.max(dim=0, keepdimm=True), r"Tensor\.max takes no 'keepdimm' \(did you mean 'keepdim'\?\)"),
        (lambda: X.kthvalue(5, 1), r"kthvalue 5 along axis 1 of \[3, 4\]: 1 to 4"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
