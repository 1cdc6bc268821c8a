"""Eigenvalues and eigenvectors of general matrices, by the QR algorithm with Wilkinson's shifts.

A matrix becomes complex. Each step takes a QR decomposition of its active block, shifted, and looks at what is left
beside the diagonal in the block's last row; where that is nothing, the block loses the row. Matrices take their steps
one after the other, and all steps are the same graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import number_of, total
from ringup.compiler.tensor.tensor import Tensor
from ringup.errors import CompileError
from ringup.linalg.jacobi import EPSILON, Eigen
from ringup.linalg.matrices import computed, float_matrices, sizes, without_gradient
from ringup.linalg.orthogonal import reflected

# steps for each eigenvalue; two or three are usual
MAX_STEPS = 60
# of so many steps without an eigenvalue, one has another shift
STALLED = 10


def eig(x: Tensor) -> Eigen:
    """Return the eigenvalues of square matrices in no order, complex, and eigenvectors of length 1, one in each column.
    They have no gradient.
    """
    x = float_matrices(x, "eig", square=True)
    count = sizes(x, "eig")[0]
    kind = x.dtype if x.dtype.is_complex else dtypes.WITH_PARTS[x.dtype]
    given = x.detach().cast(kind)
    if not given.numel():
        return Eigen(given.sum(-1), given)
    matrices = number_of(total(x.shape[:-2]), "eig")
    given = given.reshape((matrices, count, count))
    found = [_of_one(given[i], count) for i in range(matrices)]
    values, vectors = (one[0].stack(*one[1:]) for one in zip(*found, strict=True))
    made = Eigen(values.reshape(x.shape[:-1]), vectors.reshape(x.shape))
    return Eigen(*(without_gradient(one, x, "eig") for one in made))


def eigvals(x: Tensor) -> Tensor:
    """Return the eigenvalues of square matrices in no order, complex; see `eig`."""
    return eig(x).eigenvalues


def _of_one(a: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and eigenvectors of one complex matrix."""
    unit = a.eye(count, dtype=a.dtype)
    q = unit
    size = float(a.norm().item())
    active, steps = count, 0
    while active > 1:
        part = a.numpy()
        if not np.isfinite(part).all():
            break
        row = np.abs(part[active - 1, : active - 1]).max()
        if row <= EPSILON[a.dtype.part] * size:
            active, steps = active - 1, 0
            continue
        if steps == MAX_STEPS:
            raise CompileError(f"eig of {list(a.shape)} has not converged after {MAX_STEPS} steps for one eigenvalue")
        steps += 1
        shift = _shift(part[active - 2 : active, active - 2 : active])
        a, q = _step(a, q, active, shift if steps % STALLED else shift + row)
    return a.diagonal(), _vectors(a, q, count, size)


def _shift(block: Any) -> complex:
    """Return the eigenvalue of a matrix of two rows that is nearer to its last element."""
    (p, q), (r, s) = block.astype(np.complex128)
    half = (p + s) / 2
    root = np.sqrt((p - s) ** 2 / 4 + q * r)
    return complex(min(half + root, half - root, key=lambda one: abs(one - s)))


def _step(a: Tensor, q: Tensor, active: int, shift: complex) -> tuple[Tensor, Tensor]:
    """Return the matrix after a step of its first `active` rows and columns, and the product of what turned it."""
    count = sizes(a, "eig")[0]
    # what is data and not a constant changes no kernel
    inside = Tensor(np.arange(count) < active)
    both = inside.unsqueeze(0) & inside.unsqueeze(1)
    unit = a.eye(count, dtype=a.dtype)
    shifted = both.where(a - unit * Tensor(np.array(shift).astype(a.dtype.numpy)), unit)
    turn, _ = reflected(shifted.contiguous(), active)
    a, q = (turn.mH @ a @ turn).contiguous(), (q @ turn).contiguous()
    computed((a, q))
    return a, q


def _vectors(a: Tensor, q: Tensor, count: int, size: float) -> Tensor:
    """Return the eigenvectors of an upper triangle, turned back: row by row from the last one."""
    values = a.diagonal()
    least = max(EPSILON[a.dtype.part] * size, float(a.dtype.smallest_normal))
    rows = [a.eye(count, dtype=a.dtype)[count - 1 :]]
    for j in reversed(range(count - 1)):
        below = rows[0] if len(rows) == 1 else rows[0].cat(*rows[1:], axis=0)
        apart = values[j] - values
        apart = (apart.abs() < least).where(least, apart)
        row = -(a[j : j + 1, j + 1 :] @ below) / apart
        place = Tensor.arange(count)
        row = (place > j).where(row, place.eq(j).cast(a.dtype))
        rows.insert(0, row)
        row.realize()
    triangle = rows[0].cat(*rows[1:], axis=0) if len(rows) > 1 else rows[0]
    found: Tensor = q @ (triangle / triangle.norm(2, 0, keepdims=True))
    return found / found.norm(2, 0, keepdims=True)
