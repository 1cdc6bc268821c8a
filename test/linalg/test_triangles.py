"""LU decompositions and what is solved with them, beside SciPy and the matrices themselves."""

import numpy as np
import pytest
import scipy.linalg

from ringup import linalg
from ringup.compiler.tensor import Tensor

RANDOM = np.random.default_rng(3)
SHAPES = [(1, 1), (4, 4), (5, 3), (3, 5), (2, 3, 4, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["float32", "float64", "complex128"])
def test_the_product_is_the_matrix(shape, kind):
    matrix = RANDOM.normal(size=shape)
    matrix = (matrix + 1j * RANDOM.normal(size=shape)).astype(kind) if kind == "complex128" else matrix.astype(kind)
    p, lower, upper = (one.numpy() for one in linalg.lu(Tensor(matrix)))
    np.testing.assert_allclose(p @ lower @ upper, matrix, atol=2e-6 if kind == "float32" else 1e-13)
    assert np.abs(lower).max() <= 1 + 1e-6
    np.testing.assert_array_equal(np.triu(lower, 1), 0)
    np.testing.assert_array_equal(np.tril(upper, -1), 0)
    np.testing.assert_array_equal(np.diagonal(lower, axis1=-2, axis2=-1), 1)
    # LAPACK compares complex numbers by the sum of their parts' sizes, which may choose another pivot
    for place in np.ndindex(shape[:-2]) if kind != "complex128" else ():
        wanted = scipy.linalg.lu(matrix[place])
        np.testing.assert_allclose(p[place], wanted[0])


def test_pivots_are_scipys_from_1():
    matrix = RANDOM.normal(size=(5, 5))
    found = linalg.lu_factor(Tensor(matrix))
    wanted, pivots = scipy.linalg.lu_factor(matrix)
    np.testing.assert_allclose(found.LU.numpy(), wanted, atol=1e-13)
    assert found.pivots.tolist() == (pivots + 1).tolist()
    assert found.pivots.dtype == "int32"


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_equations_are_solved(left, adjoint):
    matrix = RANDOM.normal(size=(2, 4, 4)) + 1j * RANDOM.normal(size=(2, 4, 4))
    right = RANDOM.normal(size=(2, 4, 3) if left else (2, 3, 4)) + 0j
    factors = linalg.lu_factor(Tensor(matrix))
    made = linalg.lu_solve(*factors, Tensor(right), left=left, adjoint=adjoint).numpy()
    whole = matrix.conj().swapaxes(-1, -2) if adjoint else matrix
    np.testing.assert_allclose(whole @ made if left else made @ whole, right, atol=1e-12)


def test_a_singular_matrix_has_a_zero_on_its_diagonal():
    found = linalg.lu(Tensor([[1.0, 2.0], [2.0, 4.0]]))
    assert found.U.tolist() == [[2, 4], [0, 0]]
    assert found.L.tolist() == [[1, 0], [0.5, 1]]
    assert linalg.lu(Tensor([[0.0, 0.0], [0.0, 1.0]])).U.tolist() == [[0, 0], [0, 1]]


def test_equations_are_solved_by_choleskys_triangle():
    root = RANDOM.normal(size=(3, 4, 4))
    matrix = root @ root.swapaxes(-1, -2) + np.eye(4)
    right = RANDOM.normal(size=(3, 4, 2))
    for upper in (False, True):
        triangle = linalg.cholesky(Tensor(matrix), upper=upper)
        np.testing.assert_allclose(
            linalg.cholesky_solve(Tensor(right), triangle, upper).numpy(), np.linalg.solve(matrix, right), atol=1e-12
        )
        np.testing.assert_allclose(linalg.cholesky_inverse(triangle, upper).numpy(), np.linalg.inv(matrix), atol=1e-12)


def test_what_cannot_be_is_refused():
    matrix = Tensor(RANDOM.normal(size=(3, 3)), requires_grad=True)
    with pytest.raises(TypeError, match="the gradient of lu_factor is not known"):
        linalg.lu(matrix).U.sum().backward()
    with pytest.raises(ValueError, match="pivot as True only"):
        linalg.lu_factor(matrix, pivot=False)
    with pytest.raises(ValueError, match=r"lu_solve of \[3, 3\] and \[2, 1\]"):
        linalg.lu_solve(*linalg.lu_factor(matrix), Tensor.zeros(2, 1))
