"""Norms, ranks, powers and pseudo-inverses of matrices."""

from __future__ import annotations

import math
from typing import Any

from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.elimination import inv
from ringup.linalg.gradients import by_pinv
from ringup.linalg.jacobi import EPSILON, svd, svdvals
from ringup.linalg.matrices import float_matrices, sizes

ORDERS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc", None)


def matrix_norm(x: Tensor, ord: float | str | None = "fro", *, keepdims: bool = False) -> Tensor:
    """Return the norm of matrices: "fro" (Frobenius, also None), "nuc" (the sum of the singular values), 2 and -2 (the
    greatest and the least), 1 and -1 (of the sums of columns), inf and -inf (of rows).
    """
    if ord not in ORDERS:
        raise ValueError(f"matrix_norm of order {ord!r}; there are {', '.join(map(str, ORDERS))}")
    x = float_matrices(x, "matrix_norm")
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        made = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        return made.unsqueeze(-1).unsqueeze(-1) if keepdims else made
    if ord in ("fro", None):
        return x.norm(2, (-2, -1), keepdims=keepdims)
    along = -2 if ord in (1, -1) else -1
    sums = x.abs().sum(along, keepdims=True)
    greatest = isinstance(ord, (int, float)) and ord > 0
    return (sums.amax if greatest else sums.amin)((-2, -1), keepdims=keepdims)


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


def _least(x: Tensor, values: Tensor, rtol: Any) -> Tensor:
    """Return the size up to which a singular value counts as 0."""
    wanted = max(sizes(x, "a matrix")) * EPSILON[x.dtype] if rtol is None else rtol
    greatest = values.amax(-1, keepdims=True)
    return greatest * (wanted.unsqueeze(-1) if isinstance(wanted, Tensor) and wanted.ndim else wanted)


def matrix_rank(x: Tensor, *, rtol: Any = None) -> Tensor:
    """Return how many singular values are greater than `rtol` (max(m, n) eps unless given) of the greatest."""
    x = float_matrices(x, "matrix_rank")
    values = svdvals(x)
    return (values > _least(x, values, rtol)).sum(-1) if values.shape[-1] else values.sum(-1).int()


def pinv(x: Tensor, *, rtol: Any = None) -> Tensor:
    """Return the pseudo-inverse of Moore and Penrose; singular values up to `rtol` of the greatest count as 0."""
    x = float_matrices(x, "pinv")
    left, values, right = svd(x, full_matrices=False)
    if not values.shape[-1]:
        return x.mT
    fine = values > _least(x, values, rtol)
    inverse = fine.where(1 / fine.where(values, 1.0), 0.0)
    return ((right.mT * inverse.unsqueeze(-2)) @ left.mT)._with_rule(_pinv_rule, x)


def _pinv_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (by_pinv(gradient, result, x),)
