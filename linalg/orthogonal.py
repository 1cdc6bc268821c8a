"""The QR decomposition, by Householder's reflections."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ringup.compiler.tensor.reductions import squared_size
from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.gradients import by_qr
from ringup.linalg.matrices import float_matrices, line, places, sizes, steps, without_gradient

MODES = ("reduced", "complete")


class Orthogonal(NamedTuple):
    """Q of orthonormal columns, R an upper triangle."""

    Q: Tensor
    R: Tensor


def qr(x: Tensor, *, mode: str = "reduced") -> Orthogonal:
    """Return Q and R with x = Q R: (…, m, k) and (…, k, n) for k = min(m, n), or all m columns of Q for "complete". The
    diagonal of R is real.
    """
    if mode not in MODES:
        raise ValueError(f"qr has no mode {mode!r}; there are {', '.join(MODES)}")
    x = float_matrices(x, "qr")
    rows, columns = sizes(x, "qr")
    # a last element that is complex is turned too
    q, r = reflected(x.detach(), min(rows - (not x.dtype.is_complex), columns))
    count = min(rows, columns) if mode == "reduced" else rows
    q, r = q[..., :count], r[..., :count, :].triu()
    if count != columns:
        refuse = partial(without_gradient, x=x, what="qr of a wide matrix, or of all columns of Q,")
        return Orthogonal(refuse(q), refuse(r))
    return Orthogonal(q._of(q.node)._with_rule(_q_rule, x), r._of(r.node)._with_rule(_r_rule, x))


def _q_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    r = qr(x).R
    return (by_qr(gradient, r * 0, result, r),)


def _r_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    q = qr(x).Q
    return (by_qr(q * 0, gradient, q, result),)


def squares(x: Tensor) -> Tensor:
    """Return the squares of elements, of complex ones those of their sizes."""
    return squared_size(x) if x.dtype.is_complex else x * x


def reflected(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return (Q, R) after `count` reflections, Q (…, m, m)."""
    rows = sizes(x, "qr")[0]
    q = x.eye(rows, dtype=x.dtype).expand((*x.shape[:-2], rows, rows))
    made = steps((q, x), max(count, 0), _reflect)
    return made[0], made[1]


def _reflect(number: Tensor, q: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    rows = places(r, -2)
    column = (rows >= number).where(line(r, number, -1), 0.0)
    # scaled, so that squares neither overflow nor vanish
    scale = column.abs().amax(-2, keepdims=True)
    column = column / scale.eq(0).where(1.0, scale)
    length = squares(column).sum(-2, keepdims=True).sqrt()
    first = line(column, number, -2)
    if first.dtype.is_complex:
        return _reflect_complex(q, r, column, rows.eq(number), first, length)
    pivot = length.copysign(first)
    v = column + rows.eq(number).where(pivot, 0.0)
    square = squares(v).sum(-2, keepdims=True)
    v = v * square.eq(0).where(0.0, (2.0 / square).sqrt())
    return q - (q @ v) @ v.mH, r - v @ (v.mH @ r)


def _reflect_complex(
    q: Tensor, r: Tensor, column: Tensor, here: Tensor, first: Tensor, length: Tensor
) -> tuple[Tensor, Tensor]:
    """Reflect so that the element of the diagonal becomes real, as LAPACK's zlarfg has it: by I - tau w wᴴ, which is
    unitary, with the first element of w being 1.
    """
    real = -length.copysign(first.real)
    # nothing to do for what is real, with zeros below
    still = (column.abs().sum(-2, keepdims=True) - first.abs()).eq(0) & first.imag.eq(0)
    pivot = still.where(1, first - real)
    w = here.where(1, column / pivot)
    tau = still.where(0, (real - first) / still.where(1.0, real))
    return q - (q @ w) * tau @ w.mH, r - w @ (w.mH @ r) * tau.conj()
