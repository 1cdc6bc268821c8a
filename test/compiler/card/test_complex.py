"""Complex numbers on the virtual card. The card must compute what NumPy does."""

import numpy as np
import pytest

from ringup import Tensor, gradient

DRAW = np.random.default_rng(21)


def numbers(*shape, kind="complex64"):
    return (DRAW.normal(size=shape) + 1j * DRAW.normal(size=shape)).astype(kind)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_arithmetic_is_numpys(small, kind):
    a, b = numbers(5, 3, kind=kind), numbers(3, kind=kind)
    found = (Tensor(a) * Tensor(b) / (Tensor(a) + 2j) - 1.5).numpy()
    np.testing.assert_allclose(found, a * b / (a + 2j) - 1.5, rtol=1e-5)
    np.testing.assert_allclose(abs(Tensor(a)).numpy(), abs(a), rtol=1e-6)
    np.testing.assert_allclose(Tensor(a).cumsum(0).numpy(), a.cumsum(0), rtol=1e-5)
    np.testing.assert_array_equal((Tensor(a) == Tensor(a).flip(0)).numpy(), a == a[::-1])


def test_products_of_matrices_are_numpys(small):
    a, b = numbers(20, 33), numbers(33, 17)
    np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((Tensor(a.real.copy()) @ Tensor(b)).numpy(), a.real @ b, rtol=1e-4, atol=1e-5)


def test_functions_are_numpys(small):
    z = numbers(16)
    for name, wanted in (("exp", np.exp(z)), ("log", np.log(z)), ("sqrt", np.sqrt(z)), ("tanh", np.tanh(z))):
        np.testing.assert_allclose(getattr(Tensor(z), name)().numpy(), wanted, rtol=3e-6)


def test_memory_is_written_in_place(small):
    z = Tensor(numbers(4, 3))
    wanted = z.numpy()
    z[1:3, 0] = 2j
    z.imag = 1.5
    z *= z
    z[[0, 3]] = 1 - 1j
    wanted[1:3, 0] = 2j
    wanted.imag = 1.5
    wanted *= wanted
    wanted[[0, 3]] = 1 - 1j
    np.testing.assert_allclose(z.numpy(), wanted, rtol=1e-6)


def test_gradients_are_there(small):
    z = Tensor(np.array([0.5 + 1.25j, -1.5 + 0.75j], np.complex64))
    (found,) = gradient((z * z).abs().sum(), [z])
    # |z^2| = |z|^2, whose gradient is 2 z
    np.testing.assert_allclose(found.numpy(), 2 * z.numpy(), rtol=1e-5)
