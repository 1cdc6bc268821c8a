"""Exponentials, products, least squares and triangular equations give what NumPy's functions give."""

import numpy as np
import pytest

from ringup import Tensor, array_api, gradient, linalg
from ringup.compiler.graph.nodes import ordered

RNG = np.random.default_rng(21)


def close(ours, theirs, tolerance=1e-11):
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("upper", [False, True])
def test_triangular_equations_read_one_half(upper):
    a, b = RNG.normal(size=(2, 4, 4)) + 3 * np.eye(4), RNG.normal(size=(2, 4, 3))
    half = np.triu(a) if upper else np.tril(a)
    given = half + (np.tril(a, -1) if upper else np.triu(a, 1)) * 100
    close(linalg.solve_triangular(Tensor(given), Tensor(b), upper=upper), np.linalg.solve(half, b))
    turned = linalg.solve_triangular(Tensor(given), Tensor(b.swapaxes(1, 2)), upper=upper, left=False)
    close(turned, np.linalg.solve(half.swapaxes(1, 2), b).swapaxes(1, 2))
    unit = half * (1 - np.eye(4)) + np.eye(4)
    close(linalg.solve_triangular(Tensor(given), Tensor(b), upper=upper, unitriangular=True), np.linalg.solve(unit, b))
    close(linalg.solve_triangular(Tensor(given[0]), Tensor(b), upper=upper), np.linalg.solve(half[0], b))
    assert linalg.solve_triangular(Tensor.zeros(0, 0), Tensor.zeros(0, 2), upper=upper).shape == (0, 2)


def test_least_squares_of_any_rank():
    low = RNG.normal(size=(5, 2)) @ RNG.normal(size=(2, 4))
    for a in (low, low.T, RNG.normal(size=(5, 3)), RNG.normal(size=(3, 5)), np.zeros((3, 2))):
        b = RNG.normal(size=(len(a), 2))
        found, theirs = linalg.lstsq(Tensor(a), Tensor(b)), np.linalg.lstsq(a, b)
        close(found.solution, theirs[0])
        assert found.rank.item() == theirs[2]
        close(found.singular_values, theirs[3])
        close(found.residuals, ((a @ theirs[0] - b) ** 2).sum(0))
        close(linalg.lstsq(Tensor(a), Tensor(b[:, 0])).solution, theirs[0][:, 0])
    scaled = np.diag([1.0, 1e-3, 1e-6])
    assert linalg.lstsq(Tensor(scaled), Tensor([1.0, 1.0, 1.0]), 1e-5).rank.item() == 2


def test_exponentials():
    """The exponential of a symmetric matrix is that of its eigenvalues; of a generator of turns, a turn."""
    a = RNG.normal(size=(2, 4, 4))
    a = a + a.swapaxes(-1, -2)
    w, v = np.linalg.eigh(a)
    close(linalg.matrix_exp(Tensor(a)), (v * np.exp(w)[..., None, :]) @ v.swapaxes(-1, -2), 1e-9)
    turn = np.array([[0.0, -20.0], [20.0, 0.0]])
    close(linalg.matrix_exp(Tensor(turn)), [[np.cos(20), -np.sin(20)], [np.sin(20), np.cos(20)]], 1e-9)
    close(linalg.matrix_exp(Tensor.zeros(3, 3)), np.eye(3))
    close(linalg.matrix_exp(Tensor([[1.0]])), [[np.e]], 1e-5)


def test_products():
    a, b, c, d = (RNG.normal(size=shape) for shape in ((3, 4), (4, 5), (5, 2), (2, 6)))
    one, two, three, four = map(Tensor, (a, b, c, d))
    close(linalg.multi_dot([one, two, three, four]), a @ b @ c @ d)
    close(linalg.multi_dot([one[0], two, three[:, 0]]), a[0] @ b @ c[:, 0])
    close(linalg.multi_dot([one, two]), a @ b)
    close(linalg.kron(one, three), np.kron(a, c))
    x, y = RNG.normal(size=(2, 4, 3))
    close(linalg.cross(Tensor(x), Tensor(y)), np.cross(x, y))
    close(linalg.cross(Tensor(x.T), Tensor(y.T), axis=0), np.cross(x, y).T)


def test_many_matrices_are_multiplied_in_the_cheapest_order():
    """Of (2, 100), (100, 2) and (2, 100) the left product costs 400 and 400 more, the right one 20,000 and 20,000."""
    made = linalg.multi_dot([Tensor.ones(2, 100), Tensor.ones(100, 2), Tensor.ones(2, 100)])
    shapes = {one.shape for one in ordered([made.node])}
    assert (2, 2) in shapes
    assert (100, 100) not in shapes


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: linalg.multi_dot([Tensor([1.0, 2.0])]), r"multi_dot of \[\[2\]\]: two matrices or more"),
        (lambda: linalg.cross(Tensor([1.0, 2.0]), Tensor([1.0, 2.0])), "three elements each"),
        (lambda: linalg.lstsq(Tensor.ones(2, 2), Tensor.ones(3)), r"lstsq of \[2, 2\] and \[3\]: as many rows"),
        (lambda: linalg.solve_triangular(Tensor.ones(2, 2), Tensor.ones(3, 1), upper=True), "matrices with as many rows"),
        (lambda: linalg.matrix_exp(Tensor.ones(2, 3)), "square matrices"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_right_sides_of_the_matrices_shape_are_vectors_but_in_the_standard():
    a, b = RNG.normal(size=(3, 3, 3)) + 3 * np.eye(3), RNG.normal(size=(3, 3))
    close(linalg.solve(Tensor(a), Tensor(b)), np.linalg.solve(a, b[..., None])[..., 0])
    # NumPy 2 has the standard's meaning
    close(array_api.linalg.solve(Tensor(a), Tensor(b)), np.linalg.solve(a, b))


def test_the_logarithm_of_a_determinant():
    a = np.array([[[2.0, 1.0], [1.0, 3.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]])
    close(linalg.logdet(Tensor(a)), [np.log(5), np.nan, -np.inf])


def test_the_gradient_by_a_symmetric_matrix_counts_both_triangles():
    x = Tensor(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]]))
    weights = Tensor(np.arange(9.0).reshape(3, 3))
    whole, symmetric = (
        gradient((linalg.pinv(x, hermitian=hermitian) * weights).sum(), [x])[0].numpy() for hermitian in (False, True)
    )
    np.testing.assert_allclose(symmetric, whole, rtol=1e-10)
