"""Special functions and their slopes, as PyTorch 2.14 has them in f64; and divisors, as Python's."""

import math

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, gradient

AT = [-2.5, -0.3, 0.1, 0.9, 1.3, 2.2, 7.5, 30.0]
DIGAMMA = [
    1.103156641, 2.11330978, -10.42375494, -0.7549269499, -0.1691908889, 0.5442934367, 1.946757484, 3.384438133,
]  # fmt: skip
# function: places, values, slopes
FUNCTIONS = {  # PyTorch 2.14
    "lgamma": (
        AT,
        [
            -0.0562437165, 1.464840051, 2.252712652, 0.06637623973, -0.1081748095, 0.09694746679, 7.534364237,
            71.25703897,
        ],
        DIGAMMA,
    ),
    "digamma": (
        AT,
        DIGAMMA,
        [
            9.539246645, 13.94516027, 101.4332991, 1.92253996, 1.134253436, 0.5729327612, 0.1426158967,
            0.03389506036,
        ],
    ),
    "erfinv": (
        [-0.9999999999, -0.5, 0.0, 0.3, 0.95],
        [-4.572824959, -0.4769362762, 0.0, 0.2724627147, 1.385903824],
        [1068953387.0, 1.112584819, 0.8862269255, 0.9545203588, 6.049327886],
    ),
    "i0": (
        [-3.0, 0.0, 0.5, 12.0, 50.0],
        [4.880792586, 1.0, 1.063483371, 18948.92535, 2.932553784e20],
        [-3.953370217, 0.0, 0.2578943054, 18141.34878, 2.90307859e20],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes(name):
    at, values, slopes = FUNCTIONS[name]
    x = Tensor(at, "float64")
    found = getattr(x, name)()
    np.testing.assert_allclose(found.numpy(), values, rtol=1e-8)
    np.testing.assert_allclose(gradient(found.sum(), [x])[0].numpy(), slopes, rtol=1e-6)
    # and in f32, where the place itself is rounded
    narrow = Tensor(np.array(at, np.float32))
    wide = getattr(narrow.double(), name)().numpy()
    np.testing.assert_allclose(getattr(narrow, name)().numpy(), wide, rtol=4e-6, atol=1e-6)


def test_poles_and_ends():
    inf, nan = math.inf, math.nan
    # PyTorch 2.14; the Bessel function of infinity is the limit
    for name, at, wanted in (
        ("lgamma", [0, -1, 1, 2, inf, -inf, nan], [inf, inf, 0, 0, inf, inf, nan]),
        ("digamma", [0, -1, inf, nan], [-inf, nan, inf, nan]),
        ("erfinv", [1, -1, 2, nan], [inf, -inf, nan, nan]),
        ("i0", [inf, -inf, nan], [inf, inf, nan]),
    ):
        np.testing.assert_array_equal(getattr(Tensor([float(one) for one in at]), name)().numpy(), wanted, err_msg=name)


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8"])
def test_divisors_and_multiples(kind):
    first, second = [0, 12, 7, 100, 89, 6], [5, 18, 0, 60, 55, 6]
    x, y = Tensor(first, kind), Tensor(second, kind)
    found = x.gcd(y)
    assert found.tolist() == [math.gcd(a, b) for a, b in zip(first, second, strict=True)]
    assert str(found.dtype) == kind
    small = Tensor([4, 6, 0, 9], kind)
    assert small.lcm(Tensor([6, 6, 3, 12], kind)).tolist() == [12, 6, 0, 36]


def test_divisors_of_negative_numbers_and_of_neighbours_in_fibonaccis_sequence():
    assert Tensor([-12, 12]).gcd(Tensor([18, -18])).tolist() == [6, 6]
    assert Tensor([-4]).lcm(6).tolist() == [12]
    # the most steps there are in 31 bits
    assert Tensor([1836311903]).gcd(1134903170).tolist() == [1]
    with pytest.raises(TypeError, match="gcd of float32: integers only"):
        Tensor([1.0]).gcd(2)
