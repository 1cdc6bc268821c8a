"""Gauss-Jordan elimination with the greatest pivot of each column, and Cholesky's decomposition."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringup.compiler.tensor.core import broadcast_shapes
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.gradients import by_cholesky
from ringup.linalg.matrices import float_matrices, line, places, sizes, steps


class SignAndLogarithm(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


def pivoted(number: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return matrices whose row `number` was exchanged with that of the greatest element of column `number` from there
    on; that row's place, and the row, the column and the element.
    """
    rows = places(x, -2)
    size = (rows >= number).where(line(x, number, -1).abs(), -1.0)
    best = size.argmax(-2, keepdims=True)
    order = rows.eq(number).where(best, rows.eq(best).where(number, rows))
    x = x.take_along_axis(order.expand(x.shape), -2)
    row = line(x, number, -2)
    return x, best, row, line(x, number, -1), line(row, number, -1)


def _eliminate(number: Tensor, x: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices (…, n, m) with column `number` that of the unit matrix, and with its pivot put among the pivots
    (…, n). A swap of rows changes the pivot's sign there.
    """
    rows = places(x, -2)
    x, best, row, column, pivot = pivoted(number, x)
    scaled = row / pivot.eq(0).where(1.0, pivot)
    x = rows.eq(number).where(scaled, x - column * scaled)
    signed = best.eq(number).where(pivot, -pivot).squeeze((-2, -1)).unsqueeze(-1)
    return x, places(pivots, -1).eq(number).where(signed, pivots)


def _eliminated(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return matrices whose first columns are those of the unit matrix, and the pivots, whose product is the
    determinant.
    """
    pivots = x.ones((*x.shape[:-2], count), dtype=x.dtype)
    made, pivots = steps((x, pivots), count, _eliminate)
    return made, pivots


def det(x: Tensor) -> Tensor:
    """Return the determinant of square matrices."""
    x = float_matrices(x, "det", square=True)
    made: Tensor = _eliminated(x.detach(), sizes(x, "det")[0])[1].prod(-1)
    return made._of(made.node)._with_rule(_det_rule, x)


def _det_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return ((gradient * result.conj()).unsqueeze(-1).unsqueeze(-1) * inv(x).mH,)


def slogdet(x: Tensor) -> SignAndLogarithm:
    """Return the sign of the determinant, and the logarithm of its absolute value: 0 and -inf of singular ones."""
    x = float_matrices(x, "slogdet", square=True)
    pivots = _eliminated(x.detach(), sizes(x, "slogdet")[0])[1]
    logarithm = pivots.abs().log().sum(-1)
    return SignAndLogarithm(pivots.sign().prod(-1), logarithm._of(logarithm.node)._with_rule(_logarithm_rule, x))


def _logarithm_rule(gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient.unsqueeze(-1).unsqueeze(-1) * inv(x).mH,)


def solve(x: Tensor, right: Any) -> Tensor:
    """Return what the matrices have to be multiplied by to give `right`: vectors where that has one axis, or the shape
    of the matrices without their last one, as PyTorch has it; else matrices. A ValueError where one is singular.
    """
    x, y = float_matrices(x, "solve", square=True), x._lift(right)
    vectors = y.ndim == 1 or (y.ndim > 0 and y.shape == x.shape[:-1])
    kind = x._fit(y.sum())[0].dtype if y.dtype.is_inexact else x.dtype
    x, y = x.cast(kind), y.cast(kind)
    columns = y.unsqueeze(-1) if vectors else y
    if columns.ndim < 2 or columns.shape[-2] != x.shape[-1]:
        raise ValueError(f"solve of {list(x.shape)} and {list(y.shape)}: as many rows as the matrix has columns")
    lead = broadcast_shapes(x.shape[:-2], columns.shape[:-2])
    a, b = x.expand((*lead, *x.shape[-2:])), columns.expand((*lead, *columns.shape[-2:]))
    made = _solved(a.detach(), b.detach(), "solve")
    made = made._of(made.node)._with_rule(_solve_rule, a, b)
    return made.squeeze(-1) if vectors else made


def _solved(a: Tensor, b: Tensor, what: str) -> Tensor:
    count = sizes(a, what)[0]
    made, pivots = _eliminated(a.cat(b, axis=-1), count)
    if pivots.eq(0).any().item():
        raise ValueError(f"{what} of {list(a.shape)}: a matrix is singular")
    return made[..., count:]


def logdet(x: Tensor) -> Tensor:
    """Return the logarithm of the determinant of square matrices, NaN where that is negative; of complex ones a complex
    one.
    """
    if x.dtype.is_complex:
        return det(x).log()
    sign, logarithm = slogdet(x)
    return (sign < 0).where(float("nan"), logarithm)


def _solve_rule(gradient: Tensor, result: Tensor, a: Tensor, _b: Tensor) -> tuple[Tensor, Tensor]:
    back = solve(a.mH, gradient)
    return -(back @ result.mH), back


def inv(x: Tensor) -> Tensor:
    """Return the inverse of square matrices; a ValueError where one is singular."""
    x = float_matrices(x, "inv", square=True)
    unit = x.eye(sizes(x, "inv")[0], dtype=x.dtype).expand(x.shape)
    made = _solved(x.detach(), unit, "inv")
    return made._of(made.node)._with_rule(_inverse_rule, x)


def _inverse_rule(gradient: Tensor, result: Tensor, _x: Tensor) -> tuple[Tensor]:
    return (-(result.mH @ gradient @ result.mH),)


def cholesky(x: Tensor, *, upper: bool = False) -> Tensor:
    """Return the lower triangle L with x = L Lᵀ, or its transpose; of complex matrices x = L Lᴴ. Only the lower
    triangle of x is read. A ValueError where a matrix is not positive definite.
    """
    x = float_matrices(x, "cholesky", square=True)
    below = x.detach().tril()
    whole = below + below.tril(-1).mH
    _, made = steps((whole, whole.full_like(0)), sizes(x, "cholesky")[0], _cholesky_column)
    if not (made.diagonal(0, -2, -1).real > 0).all().item():
        raise ValueError(f"cholesky of {list(x.shape)}: a matrix is not positive definite")
    made = made._of(made.node)._with_rule(_cholesky_rule, x)
    return made.mH if upper else made


def _cholesky_rule(gradient: Tensor, result: Tensor, _x: Tensor) -> tuple[Tensor]:
    return (by_cholesky(gradient, result),)


def _cholesky_column(number: Tensor, x: Tensor, made: Tensor) -> tuple[Tensor, Tensor]:
    column = line(x, number, -1)
    column = (places(x, -2) >= number).where(column / line(column, number, -2).sqrt(), 0.0)
    return x - column * column.mH, places(x, -1).eq(number).where(column, made)
