"""Equations with triangular matrices, solved row by row: one graph, computed at once."""

from __future__ import annotations

from functools import partial
from typing import Any

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import broadcast_shapes
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.matrices import float_matrices, sizes


def substituted(a: Tensor, b: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """Return x with a @ x = b for a triangle (…, n, n) and right sides (…, n, k); `unit` takes a diagonal of ones."""
    n = sizes(a, "a triangle")[0]
    rows, rest, found = Tensor.arange(n), b, []
    for j in range(n)[:: -1 if upper else 1]:
        value = rest[..., j : j + 1, :]
        if not unit:
            value = value / a[..., j : j + 1, j : j + 1]
        found.append(value)
        left = (rows < j) if upper else (rows > j)
        rest = rest - left.where(a[..., :, j], 0.0).unsqueeze(-1) * value
    found = found[::-1] if upper else found
    return found[0].cat(*found[1:], axis=-2) if found else b


def solve_triangular(x: Tensor, right: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """Return y with x @ y = right for a triangle x, or with y @ x = right for `left=False`.

    The other half of x is not read; `unitriangular` takes a diagonal of ones. A 0 on the diagonal gives what is not
    finite.
    """
    a, b = float_matrices(x, "solve_triangular", square=True), x._lift(right)
    if b.ndim < 2 or b.shape[-2 if left else -1] != a.shape[-1]:
        raise ValueError(f"solve_triangular of {list(a.shape)} and {list(b.shape)}: matrices with as many rows")
    if not left:
        return solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    kind = dtypes.float64 if dtypes.float64 in (a.dtype.part, b.dtype.part) else dtypes.float32
    kind = dtypes.WITH_PARTS[kind] if a.dtype.is_complex or b.dtype.is_complex else kind
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (one.cast(kind).expand((*lead, *one.shape[-2:])) for one in (a, b))
    made = substituted(a, b, upper=upper, unit=unitriangular)
    return made._with_rule(partial(_rule, upper, unitriangular), a, b)


def _rule(upper: bool, unit: bool, gradient: Tensor, result: Tensor, a: Tensor, _b: Tensor) -> tuple[Tensor, Tensor]:
    by_right = solve_triangular(a.mH, gradient, upper=not upper, unitriangular=unit)
    whole = -(by_right @ result.mH)
    return whole.triu(int(unit)) if upper else whole.tril(-int(unit)), by_right
