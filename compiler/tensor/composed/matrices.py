"""Products of matrices under PyTorch's names, and matrices of a diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringup.compiler.tensor.core import number_of, whole_number
from ringup.compiler.tensor.reductions import places_along

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def _product(tensor: Tensor, other: Any, ranks: tuple[int, int], what: str) -> Tensor:
    """Return the product of two tensors of those numbers of axes."""
    y = tensor._lift(other, weak=False)
    if (tensor.ndim, y.ndim) != ranks:
        raise ValueError(
            f"{what} of {list(tensor.shape)} and {list(y.shape)}: {ranks[0]} and {ranks[1]} axes; @ takes others"
        )
    return tensor.matmul(y)


def mm(tensor: Tensor, other: Any) -> Tensor:
    """Return the product of two matrices."""
    return _product(tensor, other, (2, 2), "mm")


def bmm(tensor: Tensor, other: Any) -> Tensor:
    """Return the products of two stacks of matrices, (B, M, K) and (B, K, N)."""
    return _product(tensor, other, (3, 3), "bmm")


def mv(tensor: Tensor, other: Any) -> Tensor:
    """Return the product of a matrix and a vector."""
    return _product(tensor, other, (2, 1), "mv")


def _sum(tensor: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """Return beta times a tensor plus alpha times a product; a beta of 0 leaves NaN of the tensor out."""
    made = product if alpha == 1 else product * alpha
    return made if beta == 0 else made + (tensor if beta == 1 else tensor * beta)


def addmm(tensor: Tensor, first: Tensor, second: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta times this plus alpha times the product of two matrices."""
    return _sum(tensor, mm(first, second), beta, alpha)


def addmv(tensor: Tensor, first: Tensor, second: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta times this plus alpha times the product of a matrix and a vector."""
    return _sum(tensor, mv(first, second), beta, alpha)


def baddbmm(tensor: Tensor, first: Tensor, second: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta times this plus alpha times the products of two stacks of matrices."""
    return _sum(tensor, bmm(first, second), beta, alpha)


def addcmul(tensor: Tensor, first: Tensor, second: Any, *, value: float = 1) -> Tensor:
    """Return this plus `value` times the product of two tensors, element by element."""
    return tensor + first.mul(second).mul(value)


def addcdiv(tensor: Tensor, first: Tensor, second: Any, *, value: float = 1) -> Tensor:
    """Return this plus `value` times the quotient of two tensors, element by element."""
    return tensor + first.div(second).mul(value)


def vdot(tensor: Tensor, other: Any) -> Tensor:
    """Return the sum of the products of two vectors, flattened; those of this tensor are conjugated."""
    return tensor.flatten().conj().dot(tensor._lift(other, weak=False).flatten())


def vecdot(tensor: Tensor, other: Any, axis: int = -1) -> Tensor:
    """Return the sums of products along an axis, with the elements of this tensor conjugated."""
    x, y = tensor._fit(other)
    at = x._axis(axis)
    made: Tensor = x.conj().movedim(at, -1).unsqueeze(-2) @ y.movedim(at, -1).unsqueeze(-1)
    return made.squeeze((-2, -1))


def kron(tensor: Tensor, other: Any) -> Tensor:
    """Return the Kronecker product: each element of this times the whole of the other."""
    y = tensor._lift(other, weak=False)
    ndim = max(tensor.ndim, y.ndim)
    a, b = ([*[1] * (ndim - one.ndim), *one.shape] for one in (tensor, y))
    left = tensor.reshape([size for one in a for size in (one, 1)])
    right = y.reshape([size for one in b for size in (1, one)])
    return (left * right).reshape([i * j for i, j in zip(a, b, strict=True)])


def diag_embed(tensor: Tensor, offset: int = 0, first: int = -2, second: int = -1) -> Tensor:
    """Return matrices, along two new axes, that have the last axis on a diagonal and zeros elsewhere."""
    offset = whole_number(offset, "an offset")
    count = number_of(tensor.shape[-1], "diag_embed")
    size = count + abs(offset)
    # the elements of column j stand in row j - offset
    edges = [*[(0, 0)] * (tensor.ndim - 1), (max(offset, 0), size - count - max(offset, 0))]
    wide = tensor.pad(edges).unsqueeze(-2).expand((*tensor.shape[:-1], size, size))
    rows, columns = places_along(wide, wide.ndim - 2), places_along(wide, wide.ndim - 1)
    made = rows.eq(columns - offset).where(wide, wide.full_like(0))
    return made.movedim((-2, -1), (first, second))


def diag(tensor: Tensor, offset: int = 0) -> Tensor:
    """Return the diagonal of a matrix, or the matrix that has a vector as its diagonal."""
    if tensor.ndim not in (1, 2):
        raise ValueError(f"diag of {list(tensor.shape)}: one axis or two; diagonal and diag_embed take more")
    return tensor.diagonal(offset) if tensor.ndim == 2 else diag_embed(tensor, offset)


def diagflat(tensor: Tensor, offset: int = 0) -> Tensor:
    """Return the matrix that has all elements as its diagonal."""
    return diag_embed(tensor.flatten(), offset)


def adjoint(tensor: Tensor) -> Tensor:
    """Return matrices with rows and columns exchanged, complex ones conjugated."""
    return tensor.mH
