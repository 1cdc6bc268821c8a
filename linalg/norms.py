"""Norms, ranks, powers and pseudo-inverses of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from ringup.compiler.tensor.conversions import narrowed
from ringup.compiler.tensor.core import Axes, DTypeLike
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.complex_matrices import as_complex, as_real
from ringup.linalg.elimination import inv
from ringup.linalg.gradients import by_pinv
from ringup.linalg.jacobi import EPSILON, svd, svdvals
from ringup.linalg.matrices import float_matrices, sizes

ORDERS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc", None)


def matrix_norm(
    x: Tensor,
    ord: float | str | None = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Return the norm of matrices: "fro" (Frobenius, also None), "nuc" (the sum of the singular values), 2 and -2 (the
    greatest and the least), 1 and -1 (of the sums of columns), inf and -inf (of rows). `dim` are the axes of rows and
    columns.
    """
    if ord not in ORDERS:
        raise ValueError(f"matrix_norm of order {ord!r}; there are {', '.join(map(str, ORDERS))}")
    given = (x if dtype is None else x.cast(dtype)) if isinstance(x, Tensor) else x
    x = float_matrices(given, "matrix_norm")
    if len(dim) != 2 or x._axis(dim[0]) == x._axis(dim[1]):
        raise ValueError(f"matrix_norm of {list(x.shape)} over axes {list(dim)}: two axes")
    made = _norm_of_last(x.movedim(tuple(dim), (-2, -1)), ord)
    if keepdim if keepdims is None else keepdims:
        first, second = sorted((x._axis(dim[0]), x._axis(dim[1])))
        made = made.unsqueeze(first).unsqueeze(second)
    return narrowed(made, given)


def _norm_of_last(x: Tensor, ord: float | str | None) -> Tensor:
    """Return the norm of matrices over the last two axes."""
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        return values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    if ord in ("fro", None):
        return x.norm(2, (-2, -1))
    sums = x.abs().sum(-2 if ord in (1, -1) else -1)
    return sums.amax(-1) if isinstance(ord, (int, float)) and ord > 0 else sums.amin(-1)


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return the norm of that order along axes, of all elements for None: 0 counts, inf is the greatest, -inf the
    least.
    """
    return (x if dtype is None else x.cast(dtype)).norm(ord, dim, keepdims=keepdim)


def norm(
    x: Tensor,
    ord: float | str | None = None,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return the norm of vectors for one axis, that of matrices for two; the root of the sum of squares of all elements
    without both. An `ord` without axes needs a vector or a matrix.
    """
    if dim is None and ord is not None and x.ndim not in (1, 2):
        raise ValueError(f"norm of order {ord!r} of {list(x.shape)}: a vector, a matrix, or dim")
    axes = tuple(range(x.ndim)) if dim is None and ord is not None else dim
    if ord is not None and isinstance(axes, (tuple, list)) and len(axes) == 2:
        return matrix_norm(x, ord, axes, keepdim, dtype=dtype)
    # of a text it says what there is
    return vector_norm(x, cast("float", 2 if ord is None else ord), axes, keepdim, dtype=dtype)


def cond(x: Tensor, p: float | str | None = None) -> Tensor:
    """Return the condition number of matrices: the greatest singular value over the least for 2, -2 (the inverse) and
    None, else the product of the norms of that order of a matrix and of its inverse.
    """
    if p in (None, 2, -2):
        values = svdvals(float_matrices(x, "cond"))
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    return matrix_norm(x, p) * matrix_norm(inv(x), p)


def matrix_power(x: Tensor, n: int) -> Tensor:
    """Return square matrices multiplied with themselves n times; their inverses for a negative n."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrix_power of {list(x.shape)}: square matrices, over the last two axes")
    base, left = (inv(x), -n) if n < 0 else (x, n)
    made = x.eye(sizes(x, "matrix_power")[0], dtype=base.dtype).expand(x.shape)
    while left:
        made = made @ base if left % 2 else made
        base, left = base @ base if left > 1 else base, left // 2
    return made


def _least(x: Tensor, values: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Return the size up to which a singular value counts as 0."""
    if rtol is None:
        rtol = max(sizes(x, "a matrix")) * EPSILON[x.dtype.part] if atol is None else 0.0
    by_greatest: Tensor = values.amax(-1, keepdims=True) * _column(rtol)
    return by_greatest if atol is None else by_greatest.maximum(_column(atol))


def _column(value: Any) -> Any:
    """Return one tolerance for each matrix beside its singular values."""
    return value.unsqueeze(-1) if isinstance(value, Tensor) and value.ndim else value


def _whole_rule(gradient: Tensor, _result: Tensor, _x: Tensor) -> tuple[Tensor]:
    # both triangles have one, as in PyTorch
    return (gradient,)


def _below(x: Tensor, hermitian: bool) -> Tensor:
    """Return matrices, or the symmetric ones that have their lower triangles."""
    return (x.tril() + x.tril(-1).mH)._with_rule(_whole_rule, x) if hermitian else x


def matrix_rank(x: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """Return how many singular values are greater than `rtol` (max(m, n) eps unless given) of the greatest, and than
    `atol` (also `tol`). Of symmetric matrices, `hermitian`, only the lower triangle is read.
    """
    x = _below(float_matrices(x, "matrix_rank", square=hermitian), hermitian)
    values = svdvals(x)
    least = tol if atol is None else atol
    return (values > _least(x, values, least, rtol)).sum(-1) if values.shape[-1] else values.sum(-1).int()


def pinv(x: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """Return the pseudo-inverse of Moore and Penrose; singular values up to `rtol` (also `rcond`) of the greatest, or
    up to `atol`, count as 0. Of symmetric matrices, `hermitian`, only the lower triangle is read.
    """
    x = _below(float_matrices(x, "pinv", square=hermitian), hermitian)
    if x.dtype.is_complex:
        if rcond is None and atol is None and rtol is None:
            rtol = max(sizes(x, "pinv")) * EPSILON[x.dtype.part]
        return as_complex(pinv(as_real(x), rcond, atol=atol, rtol=rtol))
    left, values, right = svd(x, full_matrices=False)
    if not values.shape[-1]:
        return x.mT
    fine = values > _least(x, values, atol, rcond if rtol is None else rtol)
    inverse = fine.where(1 / fine.where(values, 1.0), 0.0)
    return ((right.mT * inverse.unsqueeze(-2)) @ left.mT)._with_rule(_pinv_rule, x)


def _pinv_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (by_pinv(gradient, result, x),)
