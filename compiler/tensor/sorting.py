"""Running sums, order, and what rests on order. All stable, NaN last as NumPy has it.

Short rows are sorted by rank: how many elements come before one is a REDUCE over all pairs, and one SCATTER puts it there. Long rows are cut
into such blocks, and sorted neighbours merge: the rank of an element in the other half is found by halving, a chain of GATHERs in one kernel.
"""

from __future__ import annotations

from typing import Self

from ringup.compiler import dtypes, graph
from ringup.compiler.graph import Op
from ringup.compiler.tensor.core import number_of, spread
from ringup.compiler.tensor.elementwise import SIGNED
from ringup.compiler.tensor.indexing import Indexing

RANKED = 1024  # rows up to this are sorted by rank alone
BLOCK = 256  # longer ones start from blocks of this


class Sorting(Indexing):
    """Running sums and extremes, sorting, the greatest k."""

    __slots__ = ()

    # running reductions

    def _scan(self, op: Op, axis: int) -> Self:
        """Return the running reduction along an axis."""
        return self._of(graph.scan(op, self._node, self._axis(axis)))

    def cumsum(self, axis: int = 0) -> Self:
        """Return the running sum along an axis; narrow integers in int32, f16 and its like kept in f32 and rounded at the end."""
        x = self._wide() if self.dtype.is_float else self.cast(self._sum_dtype())
        return x._scan(Op.ADD, axis)._narrow(self)

    def cumprod(self, axis: int = 0) -> Self:
        """Return the running product along an axis."""
        x = self._wide() if self.dtype.is_float else self.cast(self._sum_dtype())
        return x._scan(Op.MUL, axis)._narrow(self)

    def cummax(self, axis: int = 0) -> Self:
        """Return the running maximum along an axis; NaN from where there is one."""
        return self._scan(Op.MAX if self.dtype.kind != "bool" else Op.OR, axis)

    def cummin(self, axis: int = 0) -> Self:
        """Return the running minimum along an axis; NaN from where there is one."""
        return self._scan(Op.MIN if self.dtype.kind != "bool" else Op.AND, axis)

    def logcumsumexp(self, axis: int = 0) -> Self:
        """Return the logarithm of the running sum of exponentials along an axis."""
        x = self._wide()
        top = x.max(axis, keepdims=True).detach()
        top = top.isfinite().where(top, 0)
        return ((x - top).exp().cumsum(axis).log() + top)._narrow(self)

    def diff(self, axis: int = -1) -> Self:
        """Return the differences of neighbours along an axis."""
        at = self._axis(axis)
        size = number_of(self.shape[at], "diff")
        if size < 1:
            return self
        return self._cut(at, 1, size) - self._cut(at, 0, size - 1)

    # order

    def _order_keys(self, *, descending: bool) -> Self:
        """Return integers in the order of the elements: -0.0 with 0.0, NaN as the greatest; turned around for descending."""
        if self.dtype.kind == "bool":
            keys = self.cast(dtypes.int8)
        elif not self.dtype.is_float:
            keys = self
        else:
            signed = SIGNED[self.dtype.bits]
            bits = self.eq(0).where(self._like(0), self).detach().bitcast(signed)
            folded = bits ^ ((bits >> self.dtype.bits - 1) & int(signed.greatest))
            keys = self.isnan().where(folded._like(int(signed.greatest)), folded)
        return ~keys if descending else keys

    def argsort(self, axis: int = -1, *, descending: bool = False) -> Self:
        """Return the places of the elements in rising (or falling) order along an axis, int32; equals keep their order."""
        if not self.shape:
            raise ValueError("argsort of a tensor of shape []: no axis to sort along")
        at = self._axis(axis)
        size = number_of(self.shape[at], "sorting")
        keys = self._order_keys(descending=descending).movedim(at, -1)
        lead = keys.shape[:-1]
        rows = keys.reshape((-1 if 0 not in lead else 0, size)) if size else keys.reshape((0, 0))
        if size == 0:
            return self._constant(0, dtypes.int32, self.shape)
        return rows._sorted_places(size).reshape((*lead, size)).movedim(-1, at)

    def _sorted_places(self, size: int) -> Self:
        """Return the places of (rows, size) keys in rising order along the last axis."""
        if size <= RANKED:
            return self._ranked()[1]
        top = int(self.dtype.greatest)
        block, whole = BLOCK, BLOCK
        while whole < size:
            whole *= 2
        rows = self.shape[0]
        keys, places = self._pad([(0, 0), (0, whole - size)], top).reshape((-1, block))._ranked()
        offsets = self._of(graph.node(Op.IOTA, dtypes.int32, (whole // block,))).reshape((1, -1, 1)) * block
        places = (places.reshape((rows, whole // block, block)) + offsets).reshape((-1, block))
        while block < whole:
            keys, places = keys._merged(places, block)
            block *= 2
        return places.reshape((rows, whole))._cut(
            1, 0, size
        )  # padding is equal to the greatest at most, and came after it

    def _ranked(self) -> tuple[Self, Self]:
        """Return sorted rows of keys and where each came from, by counting for every element those before it."""
        rows, size = self.shape
        wide = (rows, size, size)
        mine, other = self.unsqueeze(2).expand(wide), self.unsqueeze(1).expand(wide)
        here, there = mine._places(1), mine._places(2)
        before = (other < mine).logical_or(other.eq(mine).logical_and(there < here))
        rank = before.cast(dtypes.int32).sum(2)
        return self._put(rank), self._row_places()._put(rank)

    def _row_places(self) -> Self:
        return self._of(spread(self._places(1)._node, self.shape)).cast(dtypes.int32)

    def _put(self, rank: Self) -> Self:
        """Return rows with each element at its rank, a permutation."""
        empty = self._like(0)
        return self._of(
            graph.node(Op.SCATTER, self.dtype, self.shape, (empty._node, rank._node, self._node), (1, None))
        )

    def _merged(self, places: Self, block: int) -> tuple[Self, Self]:
        """Return sorted rows of 2 * block from pairs of sorted rows of block, with the places that went along."""
        keys = self.contiguous().reshape((-1, 2, block))
        other = keys.flip(1)
        second = keys._places(1).eq(
            1
        )  # in the second half, equals of the first come before; in the first, those of the second after
        low = keys._like(0).cast(dtypes.int32)
        high = low + block
        for _ in range(block.bit_length()):
            middle = (low + high) >> 1
            found = other.gather(2, middle)
            before = second.where(found <= keys, found < keys) & (low < high)
            low, high = before.where(middle + 1, low), before.where(high, middle)
        rank = (low + keys._places(2)).reshape((-1, 2 * block))
        return keys.reshape((-1, 2 * block))._put(rank), places.reshape((-1, 2 * block))._put(rank)

    def sort(self, axis: int = -1, *, descending: bool = False) -> tuple[Self, Self]:
        """Return the elements in order along an axis, and the places they came from."""
        places = self.argsort(axis, descending=descending)
        return self.gather(axis, places), places

    def topk(self, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Self, Self]:
        """Return the k greatest (or least) along an axis, in order, and their places."""
        at = self._axis(axis)
        size = number_of(self.shape[at], "topk")
        if not 0 <= k <= size:
            raise ValueError(f"topk of {k} along axis {axis} of {list(self.shape)}: 0 to {size}")
        places = self.argsort(at, descending=largest)._cut(at, 0, k)
        return self.gather(at, places), places

    def median(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Return the middle element in order along an axis, the mean of two for an even count, as f32 or wider; NaN if there is one."""
        if axis is None:
            found = self.flatten().median(0)
            return found.reshape((1,) * self.ndim) if keepdims else found
        at = self._axis(axis)
        size = number_of(self.shape[at], "median")
        if size == 0:
            raise ValueError(f"median of {list(self.shape)} along axis {axis}: nothing is there")
        x = self.sort(at)[0]._wide()
        low, high = x._cut(at, (size - 1) // 2, (size - 1) // 2 + 1), x._cut(at, size // 2, size // 2 + 1)
        made = (low + high) * 0.5 if size % 2 == 0 else low
        if self.dtype.is_float:
            last = x._cut(at, size - 1, size)
            made = last.isnan().where(last, made)
        return (made if keepdims else made._dropped((at,)))._narrow(self)
