"""Pooling with places, pooling into parts, resampling and pixels, as PyTorch 2.14 has them."""

import math

import numpy as np
import pytest

from ringup import nn
from ringup.compiler.tensor import Tensor, gradient

X = Tensor([[0.0, 5, 5, 1], [2, 5, 3, 1], [4, 4, 9, 0]]).reshape(1, 3, 4)


def test_the_places_of_the_greatest_are_those_of_the_plane():
    values, places = X.max_pool2d(2, 1, 1, return_indices=True)
    # PyTorch 2.14
    assert values[0, 2].tolist() == [4, 5, 9, 9, 1]
    assert places.tolist() == [[[0, 1, 1, 2, 3], [4, 1, 1, 2, 3], [8, 5, 10, 10, 7], [8, 8, 10, 10, 11]]]
    found = nn.functional.max_pool2d(X, 2, ceil_mode=True, return_indices=True)
    assert found.indices.tolist() == [[[1, 2], [8, 10]]]
    assert nn.MaxPool2d(2, return_indices=True, ceil_mode=True)(X)[1].tolist() == found.indices.tolist()


def test_the_place_of_a_window_of_nan_is_its_last_one_and_of_infinities_its_first_one():
    line = Tensor([[1.0, math.nan, 2, math.nan, -math.inf, -math.inf]])
    # PyTorch 2.14
    assert line.max_pool1d(2, return_indices=True)[1].tolist() == [[1, 3, 4]]


def test_what_was_pooled_goes_back_to_where_it_came_from():
    values, places = X.max_pool2d(2, ceil_mode=True, return_indices=True)
    # PyTorch 2.14
    assert values.max_unpool2d(places, 2, output_size=(3, 4)).tolist() == [[[0, 5, 5, 0], [0] * 4, [4, 0, 9, 0]]]
    line = Tensor([[3.0, 1, 4, 1, 5, 9]])
    assert nn.functional.max_unpool1d(*line.max_pool1d(2, return_indices=True), 2).tolist() == [[3, 0, 4, 0, 0, 9]]
    cube = Tensor.arange(16).float().reshape(1, 2, 2, 4)
    back = nn.functional.max_unpool3d(*cube.max_pool3d(2, return_indices=True), 2)
    assert back.flatten().tolist() == [0] * 13 + [13, 0, 15]
    found = nn.MaxUnpool3d(2)(*nn.MaxPool3d(2, return_indices=True)(cube))
    assert found.tolist() == back.tolist()
    assert repr(nn.MaxUnpool2d(2)) == "MaxUnpool2d(kernel_size=2, stride=2, padding=0)"
    with pytest.raises(ValueError, match=r"max_unpool to \[3, 7\]: less than \[2, 2\] from \[4, 4\]"):
        values.max_unpool2d(places, 2, output_size=(3, 7))


def test_pooling_into_a_number_of_parts():
    # PyTorch 2.14
    assert X.adaptive_avg_pool2d((2, 3)).tolist() == [[[3, 4.5, 2.5], [3.75, 5.25, 3.25]]]
    assert X.adaptive_max_pool1d(3).tolist() == [[[5, 5, 5], [5, 5, 3], [4, 9, 9]]]
    assert X.adaptive_max_pool2d((None, 1)).tolist() == [[[5], [5], [9]]]
    cube = X.reshape(1, 3, 2, 2)
    assert cube.adaptive_avg_pool3d(1).tolist() == cube.mean().reshape(1, 1, 1, 1).tolist()
    assert cube.adaptive_max_pool3d((1, 2, 2)).tolist() == cube.amax(1, keepdims=True).tolist()


@pytest.mark.parametrize("sizes", [(3, 4), (2, 7), (5, 3), (5, 7), (1, 1)])
def test_the_greatest_of_a_part_has_its_place_and_the_gradient(sizes):
    # with equal elements in most parts, of which the first is taken
    plane = np.arange(2 * 5 * 7).reshape(2, 5, 7) * 37 % 5
    x = Tensor(plane.astype(np.float32), requires_grad=True)
    values, places = nn.AdaptiveMaxPool2d(sizes, return_indices=True)(x)
    wanted = np.zeros((2, *sizes), np.int32)
    shares = np.zeros((2, 35))
    for n, i, j in np.ndindex(wanted.shape):
        rows, columns = (
            slice(at * size // count, -(-(at + 1) * size // count))
            for at, size, count in zip((i, j), (5, 7), sizes, strict=True)
        )
        window = plane[n, rows, columns]
        row, column = np.unravel_index(window.argmax(), window.shape)
        wanted[n, i, j] = (rows.start + row) * 7 + columns.start + column
        shares[n, wanted[n, i, j]] += 1 + i
    assert places.tolist() == wanted.tolist()
    assert (
        values.tolist()
        == np.take_along_axis(plane.reshape(2, 35), wanted.reshape(2, -1), 1).reshape(wanted.shape).tolist()
    )
    weights = Tensor.arange(1, sizes[0] + 1).reshape(-1, 1)
    (found,) = gradient((values * weights).sum(), [x])
    assert found.reshape(2, 35).tolist() == shares.tolist()


def test_a_part_without_an_element_is_refused():
    assert X.adaptive_max_pool1d(0).shape == X.adaptive_avg_pool1d(0).shape == (1, 3, 0)
    with pytest.raises(ValueError, match="an axis of 4 to -1 parts: each part has an element"):
        X.adaptive_avg_pool1d(-1)


LINE = Tensor.arange(6).float().reshape(1, 1, 6)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [  # PyTorch 2.14
        (
            {"scale_factor": 1.5, "mode": "linear"},
            [0, 0.5, 1.1666667, 1.8333333, 2.5, 3.1666667, 3.8333333, 4.5, 5],
        ),
        ({"size": 4, "mode": "area"}, [0.5, 1.5, 3.5, 4.5]),
        ({"scale_factor": 0.7, "mode": "nearest-exact"}, [0, 2, 3, 5]),
        ({"size": 4, "mode": "nearest-exact"}, [0, 2, 3, 5]),
        ({"size": 4, "mode": "nearest"}, [0, 1, 3, 4]),
    ],
)
def test_a_line_is_resampled(options, wanted):
    np.testing.assert_allclose(LINE.interpolate(**options).flatten().numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(nn.functional.interpolate(LINE, **options).flatten().numpy(), wanted, rtol=1e-6)


def test_a_plane_is_resampled_by_cubics():
    plane = Tensor([[0.0, 4, 1], [3, 3, 8]]).reshape(1, 1, 2, 3)
    centres = [
        [-0.57244885, 2.92616153, 3.23310757, 0.12718363],
        [1.35644531, 2.66943359, 4.08007812, 4.57177734],
        [3.28533912, 2.41270638, 4.92704964, 9.01637077],
    ]
    corners = [[0, 3.07407403, 3.5, 1], [1.5, 2.75925922, 4.03703594, 4.5], [3, 2.44444466, 4.57407236, 8]]
    # PyTorch 2.14
    for found, wanted in (
        (plane.interpolate((3, 4), "bicubic"), centres),
        (plane.interpolate((3, 4), "bicubic", align_corners=True), corners),
    ):
        np.testing.assert_allclose(found[0, 0].numpy(), wanted, rtol=2e-6, atol=1e-6)


def test_bytes_stay_bytes_and_are_rounded_after_each_axis():
    image = Tensor([[0, 40, 255], [33, 7, 80]], "uint8").reshape(1, 1, 2, 3)
    # PyTorch 2.14
    linear = [[0, 16, 40, 169, 255], [17, 20, 24, 110, 168], [33, 23, 7, 51, 80]]
    cubic = [[0, 0, 43, 185, 255], [18, 9, 24, 112, 171], [38, 20, 4, 39, 72]]
    for mode, wanted in (("bilinear", linear), ("bicubic", cubic)):
        found = image.interpolate((3, 5), mode)
        assert (str(found.dtype), found[0, 0].tolist()) == ("uint8", wanted)
    # by hand: 1.5 rounded up, and the largest int32 held
    assert Tensor([[[1, 2, 2**31 - 1]]]).interpolate(2, "area").tolist() == [[[2, 2**30 + 1]]]


def test_sizes_and_factors_that_resampling_does_not_take():
    with pytest.raises(ValueError, match="interpolate takes a size or a scale_factor"):
        LINE.interpolate()
    with pytest.raises(ValueError, match=r"interpolate of \[1, 1, 6\] to \[0\]: a size of 1 or more"):
        LINE.interpolate(scale_factor=0.1)


def test_pixels_of_channels():
    # PyTorch 2.14
    wanted = [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
    channels = Tensor.arange(8).reshape(1, 8, 1, 1)
    assert channels.pixel_shuffle(2).tolist() == wanted
    assert Tensor(wanted).pixel_unshuffle(downscale_factor=2).tolist() == channels.tolist()
