"""Corners of functions under PyTorch's and NumPy's names; their plain values are in `test_lines`."""

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, gradient

NAN, INF = np.nan, np.inf
X = np.array([1, NAN, 2, NAN, -INF, 0, -0.0], np.float32)
Y = np.array([NAN, 3, 1, NAN, 0, INF, 1], np.float32)
CUBE = np.arange(24).reshape(2, 3, 4)


def same(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore")
def test_nan_zeros_and_infinities():
    x, y = Tensor(X), Tensor(Y)
    same(x.fmax(y), np.fmax(X, Y))
    same(x.fmin(y), np.fmin(X, Y))
    same(x.heaviside(y), np.heaviside(X, Y))
    same(x.isposinf(), np.isposinf(X))
    same(y.isneginf(), np.isneginf(Y))
    same(Tensor([0.0, 0.0, 2.0, 0.0]).xlogy([0.0, NAN, 0.0, INF]), [0, NAN, -INF, 0])
    same(Tensor([0.0, 0.5, 1.0]).sinc(), np.sinc([0.0, 0.5, 1.0]))
    same(Tensor([0.0, 0.5, 1.0]).logit(), [-INF, 0, INF])


def test_turned_and_split():
    for count in (-1, 0, 1, 2, 3, 5):
        same(Tensor(CUBE).rot90(count, (1, 2)), np.rot90(CUBE, count, (1, 2)))
        same(Tensor(CUBE).rot90(k=count, dims=(2, 0)), np.rot90(CUBE, count, (2, 0)))
    for how in (1, 2, 3, 5, [1, 3], [2, 1], [-1]):
        found, wanted = Tensor(CUBE).tensor_split(how, dim=2), np.array_split(CUBE, how, 2)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    same(Tensor(CUBE).flip(), np.flip(CUBE))
    same(Tensor(CUBE).flip(0, -1), np.flip(CUBE, (0, 2)))
    same(Tensor(CUBE).diff(n=2, dim=1), np.diff(CUBE, 2, 1))
    assert Tensor(CUBE).stride() == (12, 4, 1)


def test_an_axis_that_is_not_1_stays_as_pytorch_has_it():
    t = Tensor(CUBE).unsqueeze(0)
    assert t.squeeze(1).shape == t.squeeze(dim=1).shape == (1, 2, 3, 4)
    assert t.squeeze((0, 1)).shape == t.squeeze(axis=0).shape == t.squeeze().shape == (2, 3, 4)
    with pytest.raises(ValueError, match=r"squeeze of axis 1 of .*: it is 2, not 1"):
        t.squeeze(axis=1)


def test_elements_repeated_by_counts_of_their_own():
    same(Tensor(CUBE).repeat_interleave([2, 0, 1], dim=1), np.repeat(CUBE, [2, 0, 1], 1))
    same(Tensor([5, 6]).repeat_interleave(Tensor([1, 3])), [5, 6, 6, 6])
    same(Tensor([5, 6]).repeat_interleave(Tensor(2)), [5, 5, 6, 6])
    with pytest.raises(ValueError, match="one for each, none negative"):
        Tensor([5, 6]).repeat_interleave([1, -1])


def test_histograms_and_correlations():
    x = np.array([-1.5, 0, 0.5, 2, 2, 3], np.float32)
    same(Tensor(x).histc(4, min=0, max=2), np.histogram(x, 4, (0, 2))[0])
    same(Tensor(x).histc(bins=3), np.histogram(x, 3)[0])
    same(Tensor(CUBE[0] ** 2).cov(), np.cov(CUBE[0] ** 2))
    same(Tensor(CUBE[0] ** 2).corrcoef(), np.corrcoef(CUBE[0] ** 2))
    assert Tensor([1.0, 2, 4]).cov().item() == pytest.approx(np.cov([1, 2, 4]))


def test_slopes_by_channel():
    x = np.array([[[-1.0], [2]], [[-3], [-4]]], np.float32)
    # PyTorch 2.14
    same(Tensor(x).prelu(Tensor([0.5, 0.25])), [[[-0.5], [2]], [[-1.5], [-1]]])


def test_a_diagonal_filled_in_place():
    t = Tensor(CUBE[0])
    t.fill_diagonal_(-1)
    wanted = CUBE[0].copy()
    np.fill_diagonal(wanted, -1)
    same(t, wanted)


def test_an_element_by_its_place():
    assert Tensor(CUBE).item(5) == CUBE.item(5)
    assert Tensor(CUBE).item(1, 2, 3) == CUBE.item(1, 2, 3)
    with pytest.raises(ValueError, match="it has to hold one element"):
        Tensor(CUBE).item()


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_extremes_of_what_is_not_nan():
    x = np.array([[1, NAN, 3], [NAN, NAN, NAN]], np.float32)
    same(Tensor(x).nanmax(1), np.nanmax(x, 1))
    same(Tensor(x).nanmin(axis=1), np.nanmin(x, 1))


def test_percentiles_and_vector_products():
    x = np.array([[1.0, 2, 4], [8, 0, 3]], np.float32)
    same(Tensor(x).percentile([25, 60], axis=1), np.percentile(x, [25, 60], 1))
    same(Tensor(x).cross(Tensor(x[::-1])), np.cross(x, x[::-1]))
    same(Tensor(x.T).cross(x[::-1].T, dim=0), np.cross(x, x[::-1]).T)
    with pytest.raises(ValueError, match="vectors of 3"):
        Tensor(x).cross(x, dim=0)


def test_the_slope_of_a_mantissa_is_that_of_the_division():
    x = Tensor([3.0, -0.3, 1.0])
    # PyTorch 2.14
    assert gradient(x.frexp().mantissa.sum(), [x])[0].tolist() == [0.25, 2.0, 0.5]


def test_a_sum_of_products_is_rounded_once():
    # float16 has no 2049
    first = Tensor.ones(2, 1, 2, dtype="float16")
    second = Tensor([[[2048.0], [1.0]], [[-2048.0], [0.0]]], dtype="float16")
    assert first.bmm(second).sum(0).tolist() == [[0.0]]
    assert Tensor.zeros(1, 1, dtype="float16").addbmm(first, second).tolist() == [[1.0]]


def test_a_power_in_f64_takes_what_the_type_does_not():
    x = np.array([1, 2, 200], np.uint8)
    made = Tensor(x).float_power(-1)
    assert made.dtype.name == "float64"
    np.testing.assert_array_equal(made.numpy(), np.float_power(x, -1))
