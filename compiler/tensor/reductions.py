"""Axes folded to one value: sums and their like, extremes and where they are, statistics, softmax.

f16, bf16 and float8 are summed in f32 and rounded once. Integers narrower than 32 bits and bools are summed in int32 or
uint32.
"""

from __future__ import annotations

import math
from typing import Any, Self

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.activations import Activations
from ringup.compiler.tensor.core import Axes, DTypeLike, as_dtype, detached, total


class Reductions(Activations):
    """Sums, extremes, statistics, softmax."""

    __slots__ = ()

    def _reduce(self, op: Op, axes: Axes, *, keepdims: bool) -> Self:
        folded = self._axes(axes)
        made = self._of(nodes.reduce(op, self._node, folded))
        return made if keepdims else made._dropped(folded)

    def _dropped(self, axes: tuple[int, ...]) -> Self:
        return self._of(nodes.reshape(self._node, tuple(size for i, size in enumerate(self.shape) if i not in axes)))

    def _sum_dtype(self) -> DType:
        if self.dtype.kind == "bool" or (self.dtype.kind == "int" and self.dtype.bits < 32):
            return dtypes.int32
        return dtypes.uint32 if self.dtype.kind == "uint" and self.dtype.bits < 32 else self.dtype

    def sum(self, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the sum along axes (all for None, none for ()); 0 of nothing."""
        kind = self._sum_dtype() if dtype is None else as_dtype(dtype)
        return self.cast(kind)._reduce(Op.ADD, axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the product along axes; 1 of nothing."""
        kind = self._sum_dtype() if dtype is None else as_dtype(dtype)
        return self.cast(kind)._reduce(Op.MUL, axis, keepdims=keepdims)

    def _extreme(self, op: Op, axis: Axes, *, keepdims: bool) -> Self:
        for one in self._axes(axis):
            if self.shape[one] == 0:
                raise ValueError(f"{op.value} of {list(self.shape)} along axis {one}: nothing there has no {op.value}")
        if self.dtype.kind == "bool":
            op = Op.OR if op is Op.MAX else Op.AND
        return self._reduce(op, axis, keepdims=keepdims)

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return the greatest along axes, NaN if there is one."""
        return self._extreme(Op.MAX, axis, keepdims=keepdims)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return the least along axes, NaN if there is one."""
        return self._extreme(Op.MIN, axis, keepdims=keepdims)

    amax, amin = max, min

    def any(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return whether one along axes is not zero."""
        return self.bool()._reduce(Op.OR, axis, keepdims=keepdims)

    def all(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return whether none along axes is zero."""
        return self.bool()._reduce(Op.AND, axis, keepdims=keepdims)

    def count_nonzero(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return how many along axes are not zero, as int32."""
        return self.bool().sum(axis, keepdims=keepdims)

    def _best(self, op: Op, axis: int | None, *, keepdims: bool) -> Self:
        if axis is None:
            found = self.flatten()._best(op, 0, keepdims=False)
            return found.reshape((1,) * self.ndim) if keepdims else found
        at = self._axis(axis)
        size = self.shape[at]
        best = self._extreme(op, at, keepdims=True)
        hit = self.eq(best).logical_or(self.isnan()) if self.dtype.is_float else self.eq(best)
        places = self._places(at)
        return hit.where(places, places._lift(size))._reduce(Op.MIN, at, keepdims=keepdims)

    def _places(self, axis: int) -> Self:
        """Return 0, 1, … along an axis, 1 wide along the others; int32, int64 where that is too narrow."""
        size = self.shape[axis]
        kind = dtypes.int32 if (size if isinstance(size, int) else size.hi) < 1 << 31 else dtypes.int64
        counted = nodes.node(Op.IOTA, kind, (size,))
        return self._of(nodes.reshape(counted, tuple(size if i == axis else 1 for i in range(self.ndim))))

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Return the place of the greatest along an axis (of the flattened tensor for None), the first of equals; NaN
        counts as greatest.
        """
        return self._best(Op.MAX, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Return the place of the least along an axis, the first of equals; NaN counts as least."""
        return self._best(Op.MIN, axis, keepdims=keepdims)

    # statistics

    def _count(self, axes: Axes) -> Int:
        return total(self.shape[axis] for axis in self._axes(axes))

    def mean(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return the mean along axes; of integers as f32, of nothing NaN."""
        x = self._wide()
        return x._over(x.sum(axis, keepdims=keepdims), self._count(axis))._narrow(self)

    def _over(self, value: Self, count: Int) -> Self:
        return (
            value * (1 / count)
            if isinstance(count, int) and count and not count & (count - 1)
            else value / value._lift(count)
        )

    def var(self, axis: Axes = None, *, correction: int = 1, keepdims: bool = False) -> Self:
        """Return the variance along axes, divided by the count less `correction` (NumPy's ddof; 1 unless said)."""
        x = self._wide()
        apart = x - x.mean(axis, keepdims=True)
        count = self._count(axis)
        below = max(count - correction, 0) if isinstance(count, int) else count - correction
        return x._over((apart * apart).sum(axis, keepdims=keepdims), below)._narrow(self)

    def std(self, axis: Axes = None, *, correction: int = 1, keepdims: bool = False) -> Self:
        """Return the square root of the variance."""
        return self._wide().var(axis, correction=correction, keepdims=keepdims).sqrt()._narrow(self)

    def norm(self, order: float = 2, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return the vector norm of that order along axes: 0 counts, infinity is the greatest, minus infinity the
        least.
        """
        x = self._wide().abs()
        if order == 0:
            made = x.bool().cast(x.dtype).sum(axis, keepdims=keepdims)
        elif math.isinf(order):
            made = x.max(axis, keepdims=keepdims) if order > 0 else x.min(axis, keepdims=keepdims)
        elif order == 1:
            made = x.sum(axis, keepdims=keepdims)
        elif order == 2:
            made = (x * x).sum(axis, keepdims=keepdims).sqrt()
        else:
            made = x.pow(order).sum(axis, keepdims=keepdims).pow(1 / order)
        return made._narrow(self)

    # softmax

    def _softmax_parts(self, axis: int) -> tuple[Self, Self, Self]:
        """Return (x less its greatest, the powers of it, their sum), in f32 or f64. The greatest is held constant: it
        cancels out.
        """
        x = self._wide()
        less = x - x._of(detached(x.max(axis, keepdims=True)._node))
        powers = less._exp_negative()
        return less, powers, powers.sum(axis, keepdims=True)

    def softmax(self, axis: int = -1) -> Self:
        """Return the powers of e along an axis, divided by their sum."""
        self._nonempty(axis, "softmax")
        _, powers, below = self._softmax_parts(axis)
        return (powers / below)._narrow(self)

    def log_softmax(self, axis: int = -1) -> Self:
        """Return the logarithm of softmax."""
        self._nonempty(axis, "log_softmax")
        less, _, below = self._softmax_parts(axis)
        return (less - below.log())._narrow(self)

    def _nonempty(self, axis: int, what: str) -> None:
        if self.shape[self._axis(axis)] == 0:
            raise ValueError(f"{what} of {list(self.shape)} along axis {axis}: nothing is there")

    def logsumexp(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """Return log(sum(exp(x))) along axes without overflow."""
        x = self._wide()
        top = x._of(detached(x.max(axis, keepdims=True)._node))
        top = top.isfinite().where(top, 0)
        made = (x - top).exp().sum(axis, keepdims=True).log() + top
        return (made if keepdims else made._dropped(self._axes(axis)))._narrow(self)

    # triangles

    def _triangle(self, diagonal: int) -> Self:
        """Return where column - row is at most `diagonal`, over the last two axes."""
        if self.ndim < 2:
            raise ValueError(f"a triangle of {list(self.shape)}: two axes at least")
        return self._places(self.ndim - 1) <= self._places(self.ndim - 2) + diagonal

    def tril(self, diagonal: int = 0) -> Self:
        """Return it with 0 above the diagonal of the last two axes."""
        return self._triangle(diagonal).where(self, self._like(0))

    def triu(self, diagonal: int = 0) -> Self:
        """Return it with 0 below the diagonal of the last two axes."""
        return self._triangle(diagonal - 1).where(self._like(0), self)

    def trace(self) -> Self:
        """Return the sum of the diagonal of a matrix."""
        return self.diagonal().sum(-1)

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Self:
        """Return whether all elements are within `atol + rtol |other|` of another's, as a bool tensor."""
        x, y = self._fit(other)
        return ((x - y).abs() <= y.abs() * rtol + atol).logical_or(x.eq(y)).all()
