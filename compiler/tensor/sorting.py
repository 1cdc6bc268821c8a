"""Running sums, order, and what rests on order. All stable, NaN last as NumPy has it.

What is sorted are integers, each the element's key (what of its bits tells its order) with its place below it, so that
no two are equal and the order of equals is their place's.
"""

from __future__ import annotations

from typing import Self

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.core import number_of, whole_number
from ringup.compiler.tensor.elementwise import SIGNED
from ringup.compiler.tensor.indexing import Indexing

BLOCK = 4096  # of a long row, of which the greatest k are wanted; a group sorts it


class Sorting(Indexing):
    """Running sums and extremes, sorting, the greatest k."""

    __slots__ = ()

    # running reductions

    def _scan(self, op: Op, axis: int) -> Self:
        """Return the running reduction along an axis."""
        return self._of(nodes.scan(op, self._node, self._axis(axis)))

    def cumsum(self, axis: int = 0) -> Self:
        """Return the running sum along an axis; narrow integers in int32, f16 and its like kept in f32 and rounded at
        the end.
        """
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
        """Return the logarithm of the running sum of exponentials along an axis, right also far below a row's
        greatest.
        """
        return self._wide()._scan(Op.LOGADDEXP, axis)._narrow(self)

    def diff(self, axis: int = -1) -> Self:
        """Return the differences of neighbours along an axis."""
        at = self._axis(axis)
        size = number_of(self.shape[at], "diff")
        if size < 1:
            return self
        return self._cut(at, 1, size) - self._cut(at, 0, size - 1)

    # order

    def _order_keys(self, *, descending: bool) -> Self:
        """Return integers in the order of the elements: -0.0 with 0.0, NaN as the greatest; turned around for
        descending.
        """
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
        """Return the places of the elements in rising (or falling) order along an axis, int32; equals keep their
        order.
        """
        if not self.shape:
            raise ValueError("argsort of a tensor of shape []: no axis to sort along")
        at = self._axis(axis)
        if number_of(self.shape[at], "sorting") == 0:
            return self._constant(0, dtypes.int32, self.shape)
        return self._order_keys(descending=descending)._places_in_order(at)

    def _places_in_order(self, axis: int) -> Self:
        """Return the places of keys in rising order, equals as they stand."""
        if self.dtype.bits == 64:  # by the lower half first: the second sorting keeps its order where it sees equals
            low = (self & 0xFFFF_FFFF).cast(dtypes.uint32)._places_in_order(axis)
            high = (self >> 32).cast(dtypes.int32 if self.dtype.kind == "int" else dtypes.uint32)
            return low.gather(axis, high.gather(axis, low)._places_in_order(axis))
        packed = self._with_places(axis)
        return packed._of(nodes.sort(packed._node, axis))._place_of(axis, self.shape[axis])

    def _with_places(self, axis: int) -> Self:
        """Return keys below 64 bits with their places along an axis below them in one number: no two are equal."""
        size = number_of(self.shape[axis], "sorting")
        bits = (size - 1).bit_length()
        signed = self.dtype.kind == "int"
        if self.dtype.bits + bits > 32:
            wide, bits = dtypes.int64 if signed else dtypes.uint64, 32
        else:
            wide = dtypes.int32 if signed else dtypes.uint32
        return (self.cast(wide) << bits) | self._places(axis).cast(wide)

    def _place_of(self, axis: int, size: Int) -> Self:
        """Return the place in a number that `_with_places` made of an axis of `size`."""
        bits = 32 if self.dtype.bits == 64 else (number_of(size, "sorting") - 1).bit_length()
        return (self & ((1 << bits) - 1)).cast(dtypes.int32)

    def sort(self, axis: int = -1, *, descending: bool = False) -> tuple[Self, Self]:
        """Return the elements in order along an axis, and the places they came from."""
        places = self.argsort(axis, descending=descending)
        return self.gather(axis, places), places

    def topk(self, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Self, Self]:
        """Return the k greatest (or least) along an axis, in order, and their places."""
        at = self._axis(axis)
        size, k = number_of(self.shape[at], "topk"), whole_number(k, "a count")
        if not 0 <= k <= size:
            raise ValueError(f"topk of {k} along axis {axis} of {list(self.shape)}: 0 to {size}")
        places = self._first_places(at, k, descending=largest)
        return self.gather(at, places), places

    def _first_places(self, axis: int, k: int, *, descending: bool) -> Self:
        """Return the first k places in order along an axis. Of a long row, only the first k of each block are looked at
        again.
        """
        if k == 0:
            return self._constant(0, dtypes.int32, self.shape)._cut(axis, 0, 0)
        keys = self._order_keys(descending=descending)
        if keys.dtype.bits == 64:
            return keys._places_in_order(axis)._cut(axis, 0, k)
        packed = keys._with_places(axis).movedim(axis, -1)
        lead, count = packed.shape[:-1], number_of(packed.shape[-1], "topk")
        while count > BLOCK >= 4 * k:
            blocks = -(-count // BLOCK)
            edges = [*[(0, 0)] * len(lead), (0, blocks * BLOCK - count)]
            rows = packed._pad(edges, int(packed.dtype.greatest)).reshape((*lead, blocks, BLOCK))
            firsts = rows._of(nodes.sort(rows._node, rows.ndim - 1))._cut(rows.ndim - 1, 0, k)
            packed, count = firsts.reshape((*lead, blocks * k)), blocks * k
        found = packed._of(nodes.sort(packed._node, packed.ndim - 1))._cut(packed.ndim - 1, 0, k)
        return found.movedim(-1, axis)._place_of(axis, self.shape[axis])

    def median(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Return the middle element in order along an axis, the mean of two for an even count, as f32 or wider; NaN if
        there is one.
        """
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
