"""Products of matrices and vectors, in the type that the operands promote to."""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.tensor import Tensor


def _kind(x1: Tensor, x2: Tensor) -> DType:
    return dtypes.promote(x1.dtype, x2.dtype)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product (…, M, K) @ (…, K, N), vectors as one row or one column."""
    return x1.matmul(x2).cast(_kind(x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return an array with its last two axes swapped."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose of {list(x.shape)}: two axes at least")
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum over pairs of axes: the last of x1 with the first of x2 for a number, or those listed."""
    return x1.tensordot(x2, axes).cast(_kind(x1, x2))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the sum of products along an axis, counted from the end; the other axes broadcast."""
    if axis >= 0 or axis < -min(x1.ndim, x2.ndim):
        raise ValueError(
            f"vecdot along axis {axis} of {list(x1.shape)} and {list(x2.shape)}: -1 down to the fewer axes"
        )
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot along axis {axis} of {list(x1.shape)} and {list(x2.shape)}: sizes differ")
    left, right = x1.conj().movedim(axis, -1).unsqueeze(-2), x2.movedim(axis, -1).unsqueeze(-1)
    return left.matmul(right).squeeze((-2, -1)).cast(_kind(x1, x2))
