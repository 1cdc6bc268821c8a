"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations.

The columns stand in pairs. A round turns all pairs at once, each so that the pair becomes orthogonal, and moves the
columns on to the next pairs, as players of a tournament move. After a sweep, which is n - 1 rounds, each column has met
each other one and is back in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.tensor import Tensor
from ringup.errors import CompileError
from ringup.linalg.gradients import (
    by_eigenvalues,
    by_eigenvectors,
    by_left_vectors,
    by_right_vectors,
    by_singular_values,
)
from ringup.linalg.matrices import computed, float_matrices, sizes, without_gradient
from ringup.linalg.orthogonal import reflected, squares

# Rotations converge quadratically: below ten sweeps in practice.
MAX_SWEEPS = 40
EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


class Eigen(NamedTuple):
    """Eigenvalues in rising order, and the eigenvectors, one in each column."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Singular(NamedTuple):
    """x = U diag(S) Vh, the singular values in falling order."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _moved(count: int) -> list[int]:
    """Return which column stands in each place after a round: the first stays, the others go around."""
    top, bottom = list(range(0, count, 2)), list(range(1, count, 2))
    if len(top) > 1:
        top, bottom = [top[0], bottom[0], *top[1:-1]], [*bottom[1:], top[-1]]
    return [one for pair in zip(top, bottom, strict=True) for one in pair]


def _angles(apart: Tensor, common: Tensor) -> tuple[Tensor, Tensor]:
    """Return (cosine, sine) of the rotation that makes `common` of each pair 0, for the difference of its diagonal."""
    still = common.eq(0)
    tau = apart / (still.where(1.0, common) * 2)
    # beyond this its square would overflow, and the tangent is 1 / (2 tau)
    large = tau.abs() > 1e15
    held = large.where(1.0, tau)
    tangent = large.where(0.5 / tau, 1 / (held.abs() + (held * held + 1).sqrt()) * held.signbit().where(-1.0, 1.0))
    tangent = still.where(0.0, tangent)
    cosine = 1 / (tangent * tangent + 1).sqrt()
    return cosine, tangent * cosine


def _turned(x: Tensor, cosine: Tensor, sine: Tensor, order: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Tensor:
    """Return the columns of matrices with each pair turned, in their next places."""
    pairs = x.reshape((*x.shape[:-1], len(order) // 2, 2))
    p, q = pairs[..., 0], pairs[..., 1]
    c, s = cosine.unsqueeze(-2), sine.unsqueeze(-2)
    return (c * p - s * q).stack(s * p + c * q, axis=-1).reshape(x.shape).take(order, -1)


def _with_phases(x: Tensor, common: Tensor) -> Tensor:
    """Return the columns with the second one of each pair turned by the conjugate of a phase, so that what the two have
    in common is real.
    """
    turn = common.eq(0).where(1, common.sgn().conj())
    both = turn.full_like(1).stack(turn, axis=-1)
    return x * both.reshape((*both.shape[:-2], both.shape[-2] * 2)).unsqueeze(-2)


def _symmetric_round(order: np.ndarray[tuple[int], np.dtype[np.int32]], x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    diagonal = x.diagonal(0, -2, -1)
    beside = x.diagonal(1, -2, -1)[..., ::2]
    if x.dtype.is_complex:
        x = _with_phases(_with_phases(x, beside).mH, beside)
        v, diagonal, beside = _with_phases(v, beside), diagonal.real, beside.abs()
    c, s = _angles(diagonal[..., 1::2] - diagonal[..., ::2], beside)
    turned = _turned(_turned(x, c, s, order).mH, c, s, order)
    return turned, _turned(v, c, s, order)


def _one_sided_round(order: np.ndarray[tuple[int], np.dtype[np.int32]], x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    pairs = x.reshape((*x.shape[:-1], len(order) // 2, 2))
    p, q = pairs[..., 0], pairs[..., 1]
    common = (p.conj() * q).sum(-2)
    if x.dtype.is_complex:
        x, v, common = _with_phases(x, common), _with_phases(v, common), common.abs()
    c, s = _angles((squares(q) - squares(p)).sum(-2), common)
    return _turned(x, c, s, order), _turned(v, c, s, order)


def _swept(
    x: Tensor,
    turn: Callable[..., tuple[Tensor, Tensor]],
    left_over: Callable[[Tensor], Tensor],
    what: str,
) -> tuple[Tensor, Tensor]:
    """Return matrices whose columns no rotation changes any more, and the product of the rotations. Columns are an even
    number.
    """
    count = sizes(x, what)[1]
    order = np.array(_moved(count), np.int32)
    v = x.eye(count, dtype=x.dtype).expand((*x.shape[:-2], count, count))
    if not x.numel():
        return x, v
    least = EPSILON[x.dtype.part] * count
    for _ in range(MAX_SWEEPS):
        for _ in range(max(count - 1, 1)):
            x, v = turn(order, x, v)
            computed((x, v))
        # NaN ends it too
        if not (left_over(x) > least).any().item():
            return x, v
    raise CompileError(f"{what} of {list(x.shape)} has not converged after {MAX_SWEEPS} sweeps")


def _even(x: Tensor, *, square: bool) -> Tensor:
    """Return matrices with a column of zeros (and a row, for square ones) where the columns are an odd number."""
    if sizes(x, "a matrix")[1] % 2 == 0:
        return x
    return x.pad([*[(0, 0)] * (x.ndim - 2), (0, int(square)), (0, 1)])


def eigh(x: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803
    """Return the eigenvalues of symmetric matrices in rising order, and orthonormal eigenvectors. Only the lower
    triangle is read, only the upper one for "U".
    """
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"eigh of the triangle {UPLO!r}: L or U")
    x = float_matrices(x, "eigh", square=True)
    x = x.mH if UPLO.upper() == "U" else x
    count = sizes(x, "eigh")[0]
    below = x.detach().tril(-1)
    # of the diagonal, the real parts count
    whole = below + below.mH + x.detach().tril().triu().real
    made, v = _swept(_even(whole, square=True), _symmetric_round, _beside_diagonal, "eigh")
    values, vectors = made.diagonal(0, -2, -1)[..., :count].real, v[..., :count, :count]
    order = values.argsort(-1)
    vectors = vectors.take_along_axis(order.unsqueeze(-2).expand(vectors.shape), -1)
    values = values.gather(-1, order)
    return Eigen(
        values._of(values.node)._with_rule(_values_rule, x), vectors._of(vectors.node)._with_rule(_vectors_rule, x)
    )


def _values_rule(gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (by_eigenvalues(gradient, eigh(x).eigenvectors),)


def _vectors_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    # of the signs that these have
    return (by_eigenvectors(gradient, eigh(x).eigenvalues, result),)


def _beside_diagonal(x: Tensor) -> Tensor:
    """Return how great what lies beside the diagonal is, relative to the whole."""
    apart = (x - x * x.eye(sizes(x, "eigh")[0], dtype=x.dtype)).abs().amax((-2, -1))
    return apart / x.abs().amax((-2, -1)).maximum(EPSILON[x.dtype.part] ** 2)


def eigvalsh(x: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803
    """Return the eigenvalues of symmetric or Hermitian matrices in rising order; see `eigh`."""
    return eigh(x, UPLO).eigenvalues


def svd(x: Tensor, *, full_matrices: bool = True) -> Singular:
    """Return U, S and Vh with x = U diag(S) Vh, S in falling order: (…, m, m), (…, k) and (…, n, n) for k = min(m, n),
    or U and Vh of k columns and rows without `full_matrices`.
    """
    x = float_matrices(x, "svd")
    rows, columns = sizes(x, "svd")
    wide = rows < columns
    left, values, right = _decomposed(x.detach().mH if wide else x.detach(), full=full_matrices)
    u, vh = (right, left.mH) if wide else (left, right.mH)
    values = values._of(values.node)._with_rule(partial(_svd_rule, by_value=True), x)
    if x.dtype.is_complex:
        refuse = partial(without_gradient, x=x, what="the vectors of svd of complex matrices")
        return Singular(refuse(u), values, refuse(vh))
    if full_matrices and rows != columns:
        refuse = partial(without_gradient, x=x, what="vectors of svd with full_matrices=True")
        return Singular(refuse(u), values, refuse(vh))
    return Singular(
        u._of(u.node)._with_rule(partial(_svd_rule, by_left=True), x),
        values,
        vh._of(vh.node)._with_rule(_svd_rule, x),
    )


def _svd_rule(
    gradient: Tensor, _result: Tensor, x: Tensor, *, by_value: bool = False, by_left: bool = False
) -> tuple[Tensor]:
    u, s, vh = svd(x, full_matrices=False)
    if by_value:
        return (by_singular_values(gradient, u, vh),)
    return ((by_left_vectors if by_left else by_right_vectors)(gradient, u, s, vh),)


def _decomposed(x: Tensor, *, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return (U, S, V) of matrices with as many rows as columns, or more."""
    columns = sizes(x, "svd")[1]
    size = x.abs()
    scale = size.amax((-2, -1), keepdims=True) if x.numel() else size.full_like(1).sum((-2, -1), keepdims=True)
    scale = scale.eq(0).where(1.0, scale)
    turned, v = _swept(_even(x / scale, square=False), _one_sided_round, _common, "svd")
    turned, v = turned[..., :columns], v[..., :columns, :columns]
    lengths = squares(turned).sum(-2).sqrt()
    order = lengths.argsort(-1, descending=True).unsqueeze(-2)
    turned, v = (one.take_along_axis(order.expand(one.shape), -1) for one in (turned, v))
    # the columns are orthogonal already: Q has their directions, and others where they are 0
    q, r = reflected(turned, min(sizes(x, "svd")[0] - 1, columns))
    diagonal = r.diagonal(0, -2, -1)
    if x.dtype.is_complex:
        signs = diagonal.eq(0).where(1, diagonal.sgn()).unsqueeze(-2)
    else:
        signs = diagonal.signbit().where(-1.0, 1.0).cast(x.dtype).unsqueeze(-2)
    left = q[..., :columns] * signs
    left = left.cat(q[..., columns:], axis=-1) if full else left
    return left, lengths.gather(-1, order.squeeze(-2)) * scale.squeeze(-1), v


def _common(x: Tensor) -> Tensor:
    """Return how far columns are from being orthogonal: the greatest cosine between two."""
    lengths, least = squares(x).sum(-2).sqrt(), EPSILON[x.dtype.part]
    unit = x / lengths.maximum(least**2).unsqueeze(-2)
    unit = (lengths > least * 1e-2).unsqueeze(-2).where(unit, 0.0)
    return (unit.mH @ unit).tril(-1).abs().amax((-2, -1))


def svdvals(x: Tensor) -> Tensor:
    """Return the singular values in falling order."""
    return svd(x, full_matrices=False).S
