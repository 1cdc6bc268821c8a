"""Exponentials and products of matrices, and least squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ringup.compiler.tensor.conversions import narrowed
from ringup.compiler.tensor.core import number_of, total
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.elimination import inv, solve
from ringup.linalg.jacobi import svdvals
from ringup.linalg.matrices import float_matrices, sizes
from ringup.linalg.norms import matrix_rank, pinv

# LAPACK's, as PyTorch names them
DRIVERS = (None, "gels", "gelsy", "gelsd", "gelss")
# the halvings of a matrix and, by its bits, the terms of its series: a norm of up to 64 comes to a quarter
HALVINGS, TERMS = 8, {32: 7, 64: 12}


class LeastSquares(NamedTuple):
    """What `lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def lstsq(x: Tensor, right: Any, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """Return the y of least norm for which the sum of squares of x @ y - right is least, with residuals, rank and
    singular values. `right` is a vector where it has one axis.

    Singular values up to `rcond` of the greatest count as 0. There is one way, whatever PyTorch's `driver` says.
    """
    if driver not in DRIVERS:
        raise ValueError(f"lstsq by {driver!r}; there are {', '.join(map(str, DRIVERS))}")
    a, b = float_matrices(x, "lstsq"), x._lift(right)
    columns = b.unsqueeze(-1) if b.ndim == 1 else b
    if not b.ndim or columns.shape[-2] != a.shape[-2]:
        raise ValueError(f"lstsq of {list(a.shape)} and {list(b.shape)}: as many rows as the matrix has")
    solution = pinv(a, rtol=rcond) @ columns
    residuals = (a @ solution - columns).abs().square().sum(-2)
    if b.ndim == 1:
        solution, residuals = solution.squeeze(-1), residuals.squeeze(-1)
    return LeastSquares(solution, residuals, matrix_rank(a, rtol=rcond), svdvals(a))


def matrix_exp(x: Tensor) -> Tensor:
    """Return the exponentials of square matrices whose norm is at most 64: a series of the matrix halved eight times,
    squared as often.
    """
    given, x = x, float_matrices(x, "matrix_exp", square=True)
    small, unit = x * 0.5**HALVINGS, x.eye(sizes(x, "matrix_exp")[0], dtype=x.dtype)
    terms = TERMS[x.dtype.part.bits]
    made = unit + small / terms
    for place in range(terms - 1, 0, -1):
        made = unit + (small @ made) / place
    for _ in range(HALVINGS):
        made = made @ made
    return narrowed(made, given)


def cross(x: Tensor, y: Any, *, axis: int = -1, dim: int | None = None) -> Tensor:
    """Return the cross products of vectors of three elements along an axis (`dim`)."""
    axis, y = axis if dim is None else dim, x._lift(y, weak=False)
    if not x.ndim or x.ndim != y.ndim or x.shape[x._axis(axis)] != 3 or y.shape[y._axis(axis)] != 3:
        raise ValueError(f"cross of {list(x.shape)} and {list(y.shape)} along axis {axis}: three elements each")
    a, b = x._fit(y)
    made: Tensor = a.roll(-1, axis) * b.roll(-2, axis) - a.roll(-2, axis) * b.roll(-1, axis)
    return made


def vecdot(x: Tensor, y: Any, *, dim: int = -1) -> Tensor:
    """Return the sums of products along an axis; the elements of x are conjugated."""
    made: Tensor = (x.conj() * y).sum(dim)
    return made


def diagonal(x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return the elements (i, i + offset) of two axes, those of matrices unless given, as a new last axis."""
    return x.diagonal(offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:  # noqa: N803
    """Return the powers 0, 1, … of each element along a new last axis: as many as elements, or `N`."""
    x = x if x.shape else x.reshape((1,))
    count = number_of(x.shape[-1], "vander") if N is None else N
    first = x.unsqueeze(-1)
    made: Tensor = first.expand((*x.shape, count)) ** x.arange(count).cast(x.dtype)
    return made


def tensorsolve(x: Tensor, right: Any, dims: Sequence[int] | None = None) -> Tensor:
    """Return y with tensordot(x, y, y.ndim) = right; axes `dims` of x count as its last ones."""
    b = x._lift(right, weak=False)
    x = x if dims is None else x.movedim(tuple(dims), tuple(range(x.ndim - len(dims), x.ndim)))
    found = x.shape[b.ndim :]
    made: Tensor = solve(x.reshape((b.numel(), total(found))), b.flatten()).reshape(found)
    return made


def tensorinv(x: Tensor, ind: int = 2) -> Tensor:
    """Return y with tensordot(y, x, ind) as the unit; the first `ind` axes of x have as many elements as the others."""
    if ind <= 0:
        raise ValueError(f"tensorinv with {ind} first axes: 1 or more")
    first, rest = x.shape[:ind], x.shape[ind:]
    made: Tensor = inv(x.reshape((total(first), total(rest)))).reshape((*rest, *first))
    return made


def kron(x: Tensor, y: Any) -> Tensor:
    """Return the Kronecker product: each element of one times the whole of the other."""
    return x.kron(y)


def multi_dot(matrices: Sequence[Tensor]) -> Tensor:
    """Return the product of matrices one after another, in the order that takes the fewest multiplications. The first
    and the last may be vectors.
    """
    if len(matrices) < 2 or any(one.ndim != 2 for one in matrices[1:-1]):
        raise ValueError(f"multi_dot of {[list(one.shape) for one in matrices]}: two matrices or more")
    # the rows of each, and the columns of the last
    counts = [_size(matrices[0], 0), *(_size(one, -1) for one in matrices[:-1]), _size(matrices[-1], 1)]
    return _product(matrices, _splits(counts), 0, len(matrices))


def _size(x: Tensor, axis: int) -> int:
    """Return the rows or columns of a matrix; a vector has one row as the first and one column as the last."""
    return number_of(x.shape[axis], "multi_dot") if x.ndim == 2 or axis < 0 else 1


def _splits(counts: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return where the product of the matrices from i to before j is split, for all i and j."""
    count = len(counts) - 1
    cost, splits = {(i, i + 1): 0 for i in range(count)}, {}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            cost[i, j], splits[i, j] = min(
                (cost[i, k] + cost[k, j] + counts[i] * counts[k] * counts[j], k) for k in range(i + 1, j)
            )
    return splits


def _product(matrices: Sequence[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if j == i + 1:
        return matrices[i]
    return _product(matrices, splits, i, splits[i, j]) @ _product(matrices, splits, splits[i, j], j)
