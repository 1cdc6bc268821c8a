"""The most frequent, medians without NaN, histograms, areas, grids and blocks, as PyTorch 2.14 has them."""

import numpy as np
import pytest

import ringup
from ringup.compiler.tensor import Tensor, gradient

NAN = float("nan")
ROWS = Tensor([[3.0, 1, 1, 3, 2], [0, 2, 2, 2, 1]])
GAPS = Tensor([[1, NAN, 3, 2], [NAN] * 4, [4, 5, NAN, 1]])


def near(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


def test_the_most_frequent_is_the_least_of_several_at_its_last_place():
    # PyTorch 2.14
    assert [one.tolist() for one in ROWS.mode(1)] == [[1, 2], [2, 3]]
    assert [one.tolist() for one in ROWS.mode(dim=0)] == [[0, 1, 1, 2, 1], [1, 0, 0, 1, 1]]
    assert ROWS.mode(1, True).values.shape == (2, 1)
    assert Tensor([[7]]).mode().values.tolist() == [7]
    with pytest.raises(ValueError, match=r"mode of \[0\] along axis 0: nothing is there"):
        Tensor(np.zeros(0, np.int32)).mode()


def test_medians_and_quantiles_without_nan():
    # PyTorch 2.14
    values, places = GAPS.nanmedian(1)
    near(values, [2, NAN, 4])
    assert [places[0].item(), places[2].item()] == [3, 0]
    assert GAPS.nanmedian().item() == 2
    near(GAPS.nanquantile(0.3, 1), [1.6, NAN, 2.8])
    near(GAPS.nanquantile([0.0, 0.7]), [1, 3.5])


def test_histograms():
    z = Tensor([0.0, 0.5, 1, 1, 2, 3])
    # PyTorch 2.14
    assert [one.tolist() for one in z.histogram(3)] == [[2, 2, 2], [0, 1, 2, 3]]
    found = z.histogram(Tensor([0, 1, 2.5]), weight=Tensor([1.0, 2, 3, 4, 5, 6]))
    assert [one.tolist() for one in found] == [[3, 12], [0, 1, 2.5]]
    near(z.histogram(2, range=(0.0, 2.0), density=True)[0], [0.4, 0.6])


def test_areas():
    y = Tensor([[1.0, 3, 2], [0, 1, 5]])
    # PyTorch 2.14
    assert y.trapezoid(Tensor([0.0, 1, 3])).tolist() == [7, 6.5]
    assert y.trapezoid(dx=0.5, dim=0).tolist() == [0.25, 1, 1.75]
    assert y[:, :1].trapezoid().tolist() == [0, 0]


def test_grids():
    # PyTorch 2.14
    near(Tensor.logspace(-1, 2, steps=4), [0.1, 1, 10, 100])
    near(Tensor.logspace(0, 3, 4, base=2.0, dtype="float64"), [1, 2, 4, 8])
    assert Tensor.tril_indices(2, 3, 1).tolist() == [[0, 0, 1, 1, 1], [0, 1, 0, 1, 2]]
    assert Tensor.triu_indices(row=3, col=2).tolist() == [[0, 0, 1], [0, 1, 1]]
    assert Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3, 4])).tolist() == [[1, 3], [1, 4], [2, 3], [2, 4]]


def test_blocks_and_axes_at_least():
    matrix, row = Tensor([[1, 2], [3, 4]]), Tensor([5, 6])
    # PyTorch 2.14
    wanted = [[1, 2, 0, 0, 0], [3, 4, 0, 0, 0], [0, 0, 5, 6, 0], [0, 0, 0, 0, 7]]
    assert Tensor.block_diag(matrix, row, Tensor(7)).tolist() == wanted
    assert Tensor.block_diag([matrix, row, Tensor(7)]).tolist() == wanted
    shapes = [(Tensor.zeros(s).atleast_1d().shape, Tensor.zeros(s).atleast_2d().shape, Tensor.zeros(s).atleast_3d().shape)
              for s in ((), (4,), (2, 3))]  # fmt: skip
    assert shapes == [((1,), (1, 1), (1, 1, 1)), ((4,), (1, 4), (1, 4, 1)), ((2, 3), (2, 3), (2, 3, 1))]


def test_scatter_adds_and_multiplies_at_places_of_a_part():
    x, places = Tensor([[1.0, 2, 3], [4, 5, 6]]), Tensor([[1, 0], [1, 1]])
    values = Tensor([[10.0, 20, 0], [30, 40, 0]])
    # PyTorch 2.14
    assert x.scatter(0, places, values, reduce="add").tolist() == [[1, 22, 3], [44, 45, 6]]
    assert x.scatter(0, places, values, reduce="multiply").tolist() == [[1, 40, 3], [1200, 200, 6]]
    assert x.scatter(0, places, 2.0, reduce="multiply").tolist() == [[1, 4, 3], [16, 10, 6]]
    with pytest.raises(ValueError, match="scatter has no reduce 'mean'; there are None, add and multiply"):
        x.scatter(0, places, values, reduce="mean")


def test_places_and_elements_of_a_stated_size_are_filled_up():
    empty = Tensor(np.zeros(0, np.int32))
    assert Tensor([1, 0, 3]).nonzero(size=4, fill_value=-1).tolist() == [[0], [2], [-1], [-1]]
    assert empty.nonzero(size=2, fill_value=-1).tolist() == [[-1], [-1]]
    assert Tensor(5).nonzero(size=4).shape == (4, 0)
    assert empty.masked_select(Tensor(np.zeros(0, bool)), size=2, fill_value=-1).tolist() == [-1, -1]
    assert empty.unique(size=2, fill_value=9).tolist() == [9, 9]


def test_windows_of_nothing():
    # PyTorch 2.14
    x = Tensor([[1.0, 2]])
    windows = x.unfold(1, 0, 1)
    assert windows.shape == (1, 3, 0)
    assert Tensor.arange(8).unfold(0, 0, 3).shape == (3, 0)
    assert gradient(windows.sum(), [x])[0].tolist() == [[0, 0]]


def test_padding_of_a_convolution_as_pad_has_it_cuts_off_where_it_is_negative():
    x, weight = Tensor.arange(12).float().reshape(1, 1, 3, 4), Tensor([[[[1.0, 2], [3, 4]]]])
    found = x.conv2d(weight, padding=(0, 1, 1, 0))
    # PyTorch 2.14, of F.pad before F.conv2d
    assert found[0, 0].tolist() == [[4, 11, 18, 9], [34, 44, 54, 24], [74, 84, 94, 40]]
    assert x.conv2d(weight, padding=(-1, 1, 0, -1)).tolist() == [[[[44, 54, 24]]]]
    # by hand: of the elements that are left, only
    [found] = gradient(x.conv2d(weight, padding=(0, -2, 0, -1)).sum(), [x])
    assert found[0, 0].tolist() == [[1, 2, 0, 0], [3, 4, 0, 0], [0] * 4]
    with pytest.raises(ValueError, match="padding of -1: none negative"):
        x.max_pool2d(2, padding=-1)


def test_tensors_made_by_the_function_of_that_name():
    made = ringup.tensor([1, 2, 3], dtype="double", requires_grad=True)
    assert (str(made.dtype), made.requires_grad, made.is_cuda) == ("float64", True, False)
    copied = made.copy()
    copied[0] = 9.0
    assert (made.tolist(), copied.tolist()) == ([1, 2, 3], [9, 2, 3])
