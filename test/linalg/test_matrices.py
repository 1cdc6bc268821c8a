"""Decompositions, solutions and norms of matrices: NumPy's values, and what defines each decomposition."""

import math

import numpy as np
import pytest

import ringup
from ringup import Tensor, gradient, linalg
from ringup.silicon.shader.amd.interpreter.engine import Interpreter

LAST = {"float32": 2.0**-23, "float64": 2.0**-52}
SQUARE = [(1, 1), (2, 2), (3, 3), (2, 4, 4), (5, 5), (2, 0, 0)]
TALL_AND_WIDE = [(3, 3), (5, 2), (2, 5), (2, 4, 3), (1, 4), (4, 1), (0, 2)]
NORMS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc")


def normal(shape, kind, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(kind)


def near(found, expected, kind, ulp=64, scale=None):
    """Compare within some units of the last place of the greatest value."""
    found = found.numpy() if isinstance(found, Tensor) else found
    assert (found.dtype, found.shape) == (np.dtype(kind), np.shape(expected))
    size = scale if scale is not None else np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(found, expected, 0, ulp * LAST[kind] * size)


def unit(shape):
    """Return unit matrices of the size of the last axis."""
    return np.broadcast_to(np.eye(shape[-1]), (*shape[:-1], shape[-1]))


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("shape", SQUARE)
def test_determinants_inverses_and_solutions_are_numpys(shape, kind):
    # the least singular value is 1 and more: no rounding is magnified
    x = normal(shape, kind) + (6 * np.eye(shape[-1])).astype(kind)
    y = normal((*shape[:-1], 3), kind, 1)
    near(linalg.det(Tensor(x)), np.linalg.det(x), kind)
    near(linalg.inv(Tensor(x)), np.linalg.inv(x), kind)
    near(linalg.solve(Tensor(x), Tensor(y)), np.linalg.solve(x, y), kind)
    sign, logarithm = np.linalg.slogdet(x)
    found = linalg.slogdet(Tensor(-x if shape[-1] % 2 else x))
    near(found.sign, -sign if shape[-1] % 2 else sign, kind)
    near(found.logabsdet, logarithm, kind, scale=10)


def test_a_vector_is_solved_for_and_batches_broadcast():
    x, y = normal((2, 3, 3), "float64"), normal((3,), "float64", 1)
    near(linalg.solve(Tensor(x), Tensor(y)), np.linalg.solve(x, y), "float64", 1e4)
    y = normal((4, 1, 3, 2), "float64", 1)
    near(linalg.solve(Tensor(x), Tensor(y)), np.linalg.solve(x, y), "float64", 1e4)


def test_a_pivot_of_zero_changes_rows():
    x = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0], [3.0, 0.0, 1.0]])
    near(linalg.det(Tensor(x)), np.linalg.det(x), "float64")
    near(linalg.inv(Tensor(x)) @ Tensor(x), np.eye(3), "float64")


def test_singular_matrices_have_a_determinant_and_no_inverse():
    x = Tensor([[1.0, 2.0], [2.0, 4.0]])
    assert linalg.det(x).item() == 0
    assert [one.item() for one in linalg.slogdet(x)] == [0, -math.inf]
    with pytest.raises(ValueError, match=r"inv of \[2, 2\]: a matrix is singular"):
        linalg.inv(x)
    with pytest.raises(ValueError, match=r"solve of \[2, 2\]: a matrix is singular"):
        linalg.solve(x, Tensor([1.0, 1.0]))


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("shape", SQUARE)
def test_cholesky_gives_the_triangle(shape, kind):
    x = normal(shape, kind)
    x = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1], dtype=kind)
    near(linalg.cholesky(Tensor(x)), np.linalg.cholesky(x), kind)
    # what lies above the diagonal is not read
    upper = linalg.cholesky(Tensor(np.tril(x)), upper=True)
    near(upper, np.swapaxes(np.linalg.cholesky(x), -1, -2), kind)


def test_cholesky_refuses_a_matrix_that_is_not_positive_definite():
    with pytest.raises(ValueError, match=r"cholesky of \[2, 2\]: a matrix is not positive definite"):
        linalg.cholesky(Tensor([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", TALL_AND_WIDE)
def test_qr_gives_orthonormal_columns_and_a_triangle(shape, mode, kind):
    x = normal(shape, kind)
    q, r = linalg.qr(Tensor(x), mode=mode)
    assert [one.shape for one in (q, r)] == [one.shape for one in np.linalg.qr(x, mode=mode)]
    near(q @ r, x, kind)
    near(q.mT @ q, unit((*shape[:-2], q.shape[-1], q.shape[-1])), kind)
    np.testing.assert_array_equal(r.numpy(), np.triu(r.numpy()))


def hard(name, kind):
    """Return a matrix at which decompositions fail easily."""
    rows, columns = np.mgrid[:6, :6]
    made = {
        "zeros": np.zeros((4, 4)),
        "ones": np.ones((5, 5)),
        "unit": np.eye(4),
        "hilbert": 1 / (rows + columns + 1.0),
        "graded": np.diag(10.0 ** -np.arange(6)) + 1e-8,
        "large": (rows + columns) * 1e30,
        "small": (rows * columns) * 1e-30,
        "equal pairs": np.kron(np.eye(3), [[0.0, 1.0], [1.0, 0.0]]),
        "nearly equal": np.eye(5) + 1e-6 * (np.arange(5)[:, None] - np.arange(5)) ** 2,
    }[name]
    return made.astype(kind)


HARD = ("zeros", "ones", "unit", "hilbert", "graded", "large", "small", "equal pairs", "nearly equal")


def check_eigh(x, kind):
    values, vectors = linalg.eigh(Tensor(x))
    near(values, np.linalg.eigvalsh(x.astype(np.float64)), kind)
    near(vectors.mT @ vectors, unit(x.shape), kind)
    near((vectors * values.unsqueeze(-2)) @ vectors.mT, x, kind)


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("shape", SQUARE)
def test_eigh_gives_eigenvalues_and_orthonormal_vectors(shape, kind):
    x = normal(shape, kind)
    check_eigh(x + np.swapaxes(x, -1, -2), kind)


def check_svd(x, kind):
    u, s, vh = linalg.svd(Tensor(x))
    near(s, np.linalg.svd(x.astype(np.float64), compute_uv=False), kind)
    near(u.mT @ u, unit((*x.shape[:-2], x.shape[-2], x.shape[-2])), kind)
    near(vh @ vh.mT, unit((*x.shape[:-2], x.shape[-1], x.shape[-1])), kind)
    count = s.shape[-1]
    near((u[..., :count] * s.unsqueeze(-2)) @ vh[..., :count, :], x, kind)


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("shape", TALL_AND_WIDE)
def test_svd_gives_singular_values_and_orthonormal_vectors(shape, kind):
    x = normal(shape, kind)
    check_svd(x, kind)
    made, expected = linalg.svd(Tensor(x), full_matrices=False), np.linalg.svd(x, full_matrices=False)
    assert [one.shape for one in made] == [one.shape for one in expected]


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("name", HARD)
def test_hard_matrices_are_decomposed_too(name, kind):
    x = hard(name, kind)
    check_eigh(x, kind)
    check_svd(x, kind)


@pytest.mark.seeds(3)
def test_random_matrices_are_decomposed(seed):
    draw = np.random.default_rng(seed)
    kind = draw.choice(["float32", "float64"])
    rows, columns = draw.integers(1, 10, 2)
    x = draw.normal(size=(rows, columns)) * 10.0 ** draw.integers(-4, 4, (rows, 1))
    # columns that repeat others, and zeros
    x[:, draw.integers(0, columns, 2)] = x[:, draw.integers(0, columns, 2)] * draw.integers(0, 2)
    x = x.astype(kind)
    check_svd(x, kind)
    check_eigh(x @ x.T, kind)
    q, r = linalg.qr(Tensor(x))
    near(q @ r, x, kind)


def test_a_column_that_repeats_another_lowers_the_rank():
    x = normal((5, 3), "float64")
    x[:, 2] = x[:, 0]
    check_svd(x, "float64")
    assert linalg.matrix_rank(Tensor(x)).item() == 2
    assert linalg.matrix_rank(Tensor(x), rtol=0.9).item() == 1
    near(linalg.pinv(Tensor(x)), np.linalg.pinv(x), "float64", 1e4)


@pytest.mark.parametrize("order", NORMS)
def test_norms_of_matrices_are_numpys(order):
    x = normal((2, 3, 4), "float64")
    expected = np.linalg.norm(x, order, (-2, -1), keepdims=True)
    near(linalg.matrix_norm(Tensor(x), order, keepdims=True), expected, "float64")
    near(linalg.matrix_norm(Tensor(x), order), expected[:, 0, 0], "float64")


@pytest.mark.parametrize("power", [0, 1, 2, 5, -1, -3])
def test_powers_of_matrices_are_numpys(power):
    x = normal((2, 3, 3), "float64") + 4 * np.eye(3)
    near(linalg.matrix_power(Tensor(x), power), np.linalg.matrix_power(x, power), "float64", 1e3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: linalg.det(x), r"det of \[2, 3\]: square matrices"),
        (lambda x: linalg.qr(x[0]), r"qr of \[3\]: matrices, over the last two axes"),
        (lambda x: linalg.qr(x, mode="r"), "qr has no mode 'r'; there are reduced, complete"),
        (lambda x: linalg.matrix_norm(x, 3), "matrix_norm of order 3; there are 1, -1"),
        (lambda x: linalg.matrix_power(x, 2), r"matrix_power of \[2, 3\]: square matrices"),
        (lambda x: linalg.solve(x[:, :2], Tensor.ones(3)), r"solve of \[2, 2\] and \[3\]: as many rows"),
    ],
)
def test_matrices_that_do_not_fit_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(Tensor.ones(2, 3))


def test_lists_are_no_matrices():
    with pytest.raises(TypeError, match="det of list: a tensor"):
        linalg.det([[1.0]])


def difference(function, x, step=1e-6):
    """Return the gradient of a function of NumPy by differences."""
    made = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        more, less = x.copy(), x.copy()
        more[place] += step
        less[place] -= step
        made[place] = (function(more) - function(less)) / (2 * step)
    return made


X, Y, W = normal((3, 3), "float64", 2), normal((3, 2), "float64", 3), normal((3, 3), "float64", 4)
GRADIENTS = {
    "det": (lambda x: linalg.det(x * 2), lambda x: np.linalg.det(x * 2)),
    "slogdet": (lambda x: linalg.slogdet(x).logabsdet, lambda x: np.linalg.slogdet(x)[1]),
    "inv": (lambda x: (linalg.inv(x) * W).sum(), lambda x: (np.linalg.inv(x) * W).sum()),
    "solve, by the matrix": (lambda x: (linalg.solve(x, Y) ** 2).sum(), lambda x: (np.linalg.solve(x, Y) ** 2).sum()),
    "solve, by the right": (
        lambda x: (linalg.solve(Tensor(W), x) ** 2).sum(),
        lambda x: (np.linalg.solve(W, x) ** 2).sum(),
    ),
    "matrix_power": (
        lambda x: (linalg.matrix_power(x, -2) * W).sum(),
        lambda x: (np.linalg.matrix_power(x, -2) * W).sum(),
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_differences(name):
    ours, theirs = GRADIENTS[name]
    x = Tensor(X)
    (found,) = gradient(ours(x), [x])
    np.testing.assert_allclose(found.numpy(), difference(theirs, X), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("qr of a wide matrix, or of all columns of Q,", lambda x: linalg.qr(x[:2]).R.sum()),
        ("vectors of svd with full_matrices=True", lambda x: linalg.svd(x[:2]).Vh.sum()),
    ],
)
def test_a_gradient_that_is_not_known_is_an_error(name, call):
    x = Tensor(X)
    with pytest.raises(TypeError, match=f"the gradient of {name} is not known"):
        gradient(call(x), [x])


def test_a_card_solves_and_decomposes():
    x, y = normal((3, 3), "float32"), normal((3,), "float32", 1)
    with ringup.open("virtual:navi31", transport={"engine": Interpreter()}) as card, ringup.device(card):
        near(linalg.solve(Tensor(x), Tensor(y)), np.linalg.solve(x, y), "float32", 1e3)
        check_svd(x, "float32")
