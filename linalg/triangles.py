"""The LU decomposition with the greatest pivot of each column, and equations solved with decompositions."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.elimination import pivoted
from ringup.linalg.matrices import float_matrices, places, sizes, steps, without_gradient
from ringup.linalg.triangular import solve_triangular


class Factors(NamedTuple):
    """Both triangles in one matrix, and the row that each row was exchanged with, from 1."""

    LU: Tensor
    pivots: Tensor


class Parts(NamedTuple):
    """A permutation, a lower triangle with ones on its diagonal, and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


def _step(number: Tensor, x: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices with one more column below the diagonal divided by its pivot, and the rows exchanged."""
    rows, columns = places(x, -2), places(x, -1)
    x, best, row, column, pivot = pivoted(number, x)
    # nothing is below a pivot of 0
    share = (rows > number).where(column / pivot.eq(0).where(1.0, pivot), 0.0)
    rest = x - share * (columns > number).where(row, 0.0)
    made = (columns.eq(number) & (rows > number)).where(share, rest)
    taken = best.squeeze((-2, -1)).unsqueeze(-1).cast(dtypes.int32) + 1
    return made, places(pivots, -1).eq(number).where(taken, pivots)


def lu_factor(x: Tensor, *, pivot: bool = True) -> Factors:
    """Return the triangles of matrices (…, m, n), the lower one without its diagonal of ones, and the exchanges of
    rows. A matrix that is singular has a 0 on the diagonal of U.
    """
    if not pivot:
        raise ValueError("lu_factor takes pivot as True only: without exchanges a 0 may have to be divided by")
    a = float_matrices(x, "lu_factor")
    count = min(sizes(a, "lu_factor"))
    pivots = Tensor.zeros(*a.shape[:-2], count, dtype=dtypes.int32)
    made, pivots = steps((a.detach(), pivots), count, _step)
    return Factors(without_gradient(made, a, "lu_factor"), pivots)


def _order(pivots: Tensor, rows: int) -> Tensor:
    """Return which row of the matrix each row of L U is, (…, rows)."""
    order = Tensor.arange(rows).expand((*pivots.shape[:-1], rows))
    at = places(order, -1)
    for i in range(number_of(pivots.shape[-1], "pivots")):
        other = pivots[..., i : i + 1] - 1
        here, there = order[..., i : i + 1], order.take_along_axis(other, -1)
        order = at.eq(i).where(there, at.eq(other).where(here, order))
    return order


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor) -> Parts:  # noqa: N803
    """Return the permutation and the triangles that `lu_factor` put together."""
    rows, columns = sizes(LU_data, "lu_unpack")
    count = min(rows, columns)
    lower = LU_data[..., :count].tril(-1) + Tensor.eye(rows, count, dtype=LU_data.dtype)
    # column j of P has its one in the row of the matrix that row j of L U is
    order = _order(LU_pivots, rows)
    permutation = places(lower, -2).eq(order.unsqueeze(-2)).cast(LU_data.dtype)
    return Parts(permutation, lower, LU_data[..., :count, :].triu())


def lu(x: Tensor, *, pivot: bool = True) -> Parts:
    """Return P, L and U with x = P L U, for matrices (…, m, n)."""
    return lu_unpack(*lu_factor(x, pivot=pivot))


def lu_solve(LU: Tensor, pivots: Tensor, right: Any, *, left: bool = True, adjoint: bool = False) -> Tensor:  # noqa: N803
    """Return y with x @ y = right for a matrix x that `lu_factor` took apart; y @ x = right for `left=False`; its
    transpose, conjugate, in its place for `adjoint`.
    """
    b = LU._lift(right)
    if not left:
        return lu_solve(LU, pivots, b.mH, adjoint=not adjoint).mH
    n = sizes(LU, "lu_solve")[0]
    order = _order(pivots, n)
    if b.ndim < 2 or b.shape[-2] != n:
        raise ValueError(f"lu_solve of {list(LU.shape)} and {list(b.shape)}: matrices with as many rows")
    if adjoint:
        made = solve_triangular(LU.mH, b, upper=False)
        made = solve_triangular(LU.mH, made, upper=True, unitriangular=True)
        back = order.argsort(-1)
        return made.take_along_axis(back.unsqueeze(-1).expand(made.shape), -2)
    moved = b.expand((*LU.shape[:-2], *b.shape[-2:])) if b.ndim < LU.ndim else b
    moved = moved.take_along_axis(order.unsqueeze(-1).expand(moved.shape), -2)
    made = solve_triangular(LU, moved, upper=False, unitriangular=True)
    return solve_triangular(LU, made, upper=True)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803
    """Return y with x @ y = B for a matrix whose triangle `cholesky` returned."""
    lower = L.mH if upper else L
    return solve_triangular(lower.mH, solve_triangular(lower, B, upper=False), upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803
    """Return the inverse of a matrix whose triangle `cholesky` returned."""
    n = sizes(L, "cholesky_inverse")[0]
    return cholesky_solve(Tensor.eye(n, dtype=L.dtype), L, upper)
