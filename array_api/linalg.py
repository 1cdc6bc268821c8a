"""The standard's extension for linear algebra."""

from __future__ import annotations

import ringup.linalg as linalg
from ringup.array_api.arguments import Axis
from ringup.array_api.linear import matmul as matmul
from ringup.array_api.linear import matrix_transpose as matrix_transpose
from ringup.array_api.linear import tensordot as tensordot
from ringup.array_api.linear import vecdot as vecdot
from ringup.array_api.statistical import sum
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import movement
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.elimination import SignAndLogarithm
from ringup.linalg.jacobi import Eigen, Singular
from ringup.linalg.orthogonal import Orthogonal


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the lower triangle L with x = L Lᵀ, or its transpose."""
    return linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of three elements along an axis."""
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross of {list(x1.shape)} and {list(x2.shape)} along axis {axis}: three elements each")
    a, b = (x.movedim(axis, -1) for x in x1._fit(x2))
    (a0, a1, a2), (b0, b1, b2) = ([x[..., i] for i in range(3)] for x in (a, b))
    parts = (a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)
    return movement.stack(*parts, axis=-1).movedim(-1, axis)


def det(x: Tensor, /) -> Tensor:
    """Return the determinant of square matrices."""
    return linalg.det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return a diagonal of the last two axes."""
    return x.diagonal(offset, -2, -1)


def eig(x: Tensor, /) -> Eigen:
    """Return the eigenvalues of square matrices, complex, and eigenvectors of length 1."""
    return linalg.eig(x)


def eigvals(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of square matrices, complex."""
    return linalg.eigvals(x)


def eigh(x: Tensor, /) -> Eigen:
    """Return the eigenvalues of symmetric matrices in rising order, and orthonormal eigenvectors."""
    return linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of symmetric matrices in rising order."""
    return linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """Return the inverse of square matrices; a ValueError where one is singular."""
    return linalg.inv(x)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """Return the norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    return linalg.matrix_norm(x, ord, keepdims=keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return square matrices multiplied with themselves n times; their inverses for a negative n."""
    return linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return how many singular values are greater than `rtol` of the greatest."""
    return linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the products of each element of a vector with each of another."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer of {list(x1.shape)} and {list(x2.shape)}: vectors")
    return x1.outer(x2)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the pseudo-inverse of Moore and Penrose."""
    return linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Orthogonal:
    """Return Q of orthonormal columns and an upper triangle R with x = Q R."""
    return linalg.qr(x, mode=mode)


def slogdet(x: Tensor, /) -> SignAndLogarithm:
    """Return the sign of the determinant, and the logarithm of its absolute value."""
    return linalg.slogdet(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return what the matrices have to be multiplied by to give x2, a vector or matrices."""
    if x2.ndim > 1 and x2.shape == x1.shape[:-1]:
        # matrices here, where they would be vectors there
        x2 = x2.unsqueeze(0).expand((*x1.shape[:-2], *x2.shape[-2:]))
    return linalg.solve(x1, x2)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Singular:
    """Return U, S and Vh with x = U diag(S) Vh, S in falling order."""
    return linalg.svd(x, full_matrices=full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """Return the singular values in falling order."""
    return linalg.svdvals(x)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """Return the sum of a diagonal of the last two axes."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return the norm of that order along axes: 0 counts, inf is the greatest, -inf the least."""
    return x.norm(ord, axis, keepdims=keepdims)
