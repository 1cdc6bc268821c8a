"""Gradients of decompositions, from their results."""

from __future__ import annotations

from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.matrices import sizes
from ringup.linalg.triangular import substituted


def by_cholesky(gradient: Tensor, lower: Tensor) -> Tensor:
    """Source: Murray, "Differentiation of the Cholesky decomposition" (2016), section 5."""
    inner = (lower.mH @ gradient).tril()
    halved = inner - inner.triu() * 0.5
    left = substituted(lower.mH, halved, upper=True)
    made = substituted(lower.mH, left.mH, upper=True).mH
    return (made + made.mH) * 0.5


def by_qr(by_q: Tensor, by_r: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """Source: Walter and Lehmann, "Algorithmic differentiation of linear algebra functions"."""
    inner = r @ by_r.mH - by_q.mH @ q
    below = inner.tril(-1)
    symmetric = below + below.mH + (inner - below).tril().real
    return substituted(r, (by_q + q @ symmetric).mH, upper=True).mH


def by_eigenvalues(gradient: Tensor, vectors: Tensor) -> Tensor:
    """Return the gradient by a symmetric matrix, which is symmetric too."""
    return (vectors * gradient.unsqueeze(-2)) @ vectors.mH


def by_eigenvectors(gradient: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """Return the gradient by a symmetric matrix; that of equal eigenvalues is not finite."""
    apart = values.unsqueeze(-2) - values.unsqueeze(-1)
    made = vectors @ ((vectors.mH @ gradient) * _reciprocal(apart)) @ vectors.mH
    return (made + made.mH) * 0.5


def by_left_vectors(gradient: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
    """Source: Townsend, "Differentiating the singular value decomposition". Values that are equal, or 0, give what is
    not finite.
    """
    inner, wide = u.mT @ gradient, s.unsqueeze(-2)
    outside = gradient / wide
    return u @ ((_between(s) * (inner - inner.mT)) * wide) @ vh + (outside - u @ (u.mT @ outside)) @ vh


def by_right_vectors(gradient: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
    """Return what `by_left_vectors` does, for the rows of Vh."""
    return by_left_vectors(gradient.mT, vh.mT, s, u.mT).mT


def by_singular_values(gradient: Tensor, u: Tensor, vh: Tensor) -> Tensor:
    """Return the gradient by a matrix."""
    return (u * gradient.unsqueeze(-2)) @ vh


def by_pinv(gradient: Tensor, made: Tensor, x: Tensor) -> Tensor:
    """Source: Golub and Pereyra, "The differentiation of pseudo-inverses" (1973); the rank is taken to be steady."""
    rows, columns = sizes(x, "pinv")
    outside_rows = x.eye(rows, dtype=x.dtype) - x @ made
    outside_columns = x.eye(columns, dtype=x.dtype) - made @ x
    return (
        -(made.mT @ gradient @ made.mT)
        + outside_rows @ gradient.mT @ made @ made.mT
        + made.mT @ made @ gradient.mT @ outside_columns
    )


def _between(s: Tensor) -> Tensor:
    square = s * s
    return _reciprocal(square.unsqueeze(-2) - square.unsqueeze(-1))


def _reciprocal(apart: Tensor) -> Tensor:
    """Return 1 / x off the diagonal, 0 on it."""
    same = apart.eye(sizes(apart, "a matrix")[0]).ne(0)
    return same.where(0.0, 1 / same.where(1.0, apart))
