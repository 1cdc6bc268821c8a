"""Gradients of functions of small matrices are the differences of NumPy's functions. What is differentiated does not
change with the signs of singular and eigenvectors.
"""

import numpy as np
import pytest

from ringup import linalg
from ringup.compiler.tensor import Tensor, gradient

RNG = np.random.default_rng(3)
A = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
P = A @ A.swapaxes(-1, -2) + np.diag([1.0, 2.0, 4.0])
TALL, WIDE = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(3, 4))
B = RNG.normal(size=(2, 3, 2))
RIGHT = RNG.normal(size=(4, 2))
D = np.array([1.0, -2.0, 0.5])
STEP = 1e-5


def symmetric(a):
    return (a + a.swapaxes(-1, -2)) / 2


def numpys_vectors(a):
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return (u * D) @ vh


def our_vectors(a):
    u, _, vh = linalg.svd(a, full_matrices=False)
    return (u * Tensor(D)) @ vh


def numpys_eigenvectors(a):
    v = np.linalg.eigh(symmetric(a)).eigenvectors
    return (v * D) @ v.swapaxes(-1, -2)


def exponential(a):
    w, v = np.linalg.eig(a)
    return ((v * np.exp(w)) @ np.linalg.inv(v)).real


def our_eigenvectors(a):
    v = linalg.eigh((a + a.mT) / 2).eigenvectors
    return (v * Tensor(D)) @ v.mT


CASES = {
    "lower triangle": (lambda a: linalg.solve_triangular(a, Tensor(B), upper=False), lambda a: np.linalg.solve(np.tril(a), B), A),
    "upper triangle": (lambda a: linalg.solve_triangular(a, Tensor(B), upper=True), lambda a: np.linalg.solve(np.triu(a), B), A),
    "unit triangle": (lambda a: linalg.solve_triangular(a, Tensor(B), upper=True, unitriangular=True),
                      lambda a: np.linalg.solve(np.triu(a, 1) + np.eye(3), B), A),
    "cholesky": (lambda a: linalg.cholesky((a + a.mT) / 2), lambda a: np.linalg.cholesky((a + a.swapaxes(-1, -2)) / 2), P),
    "q": (lambda a: linalg.qr(a).Q, lambda a: np.linalg.qr(a).Q, TALL),
    "r": (lambda a: linalg.qr(a).R, lambda a: np.linalg.qr(a).R, TALL),
        "eigenvalues": (lambda a: linalg.eigvalsh((a + a.mT) / 2), lambda a: np.linalg.eigvalsh(symmetric(a)), P),
    "eigenvectors": (our_eigenvectors, numpys_eigenvectors, P),
    "singular values": (linalg.svdvals, np.linalg.svdvals, TALL),
    "singular values with all vectors": (lambda a: linalg.svd(a).S, np.linalg.svdvals, WIDE),
    "exponential": (linalg.matrix_exp, exponential, A[0] / 3),
    "singular vectors, tall": (our_vectors, numpys_vectors, TALL),
    "singular vectors, wide": (our_vectors, numpys_vectors, WIDE),
    "pinv, tall": (linalg.pinv, np.linalg.pinv, TALL),
    "pinv, wide": (linalg.pinv, np.linalg.pinv, WIDE),
    "lstsq": (lambda a: linalg.lstsq(a, Tensor(RIGHT)).solution, lambda a: np.linalg.lstsq(a, RIGHT)[0], TALL[0]),
    "cross": (lambda a: linalg.cross(a, Tensor(A)), lambda a: np.cross(a, A), A + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_the_difference_of_numpys_values(name):
    ours, theirs, at = CASES[name]
    weight = np.random.default_rng(9).normal(size=np.shape(theirs(at)))
    x = Tensor(at)
    (found,) = gradient((ours(x) * Tensor(weight)).sum(), [x])
    wanted = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = [at.copy() for _ in range(2)]
        moved[0][place] += STEP
        moved[1][place] -= STEP
        up, down = ((theirs(one) * weight).sum() for one in moved)
        wanted[place] = (up - down) / (2 * STEP)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6 * max(1, np.abs(wanted).max()))


def test_a_gradient_of_a_gradient_goes_through():
    """The eigenvalues of [[0, x], [x, 2]] are 1 ± sqrt(1 + x²), whose second derivative is ± (1 + x²) ** -1.5."""
    x = Tensor(0.5, "float64")
    matrix = Tensor([[0.0, 1.0], [1.0, 0.0]], "float64") * x + Tensor([[0.0, 0.0], [0.0, 2.0]], "float64")
    (first,) = gradient(linalg.eigvalsh(matrix)[1], [x])
    (second,) = gradient(first, [x])
    np.testing.assert_allclose((first.item(), second.item()), (0.5 * 1.25**-0.5, 1.25**-1.5), rtol=1e-9)
