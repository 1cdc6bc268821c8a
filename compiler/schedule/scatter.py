"""Rewrites SCATTER as other operations. The result is deterministic, and no two threads write the same place. There are
two forms; the cost decides.

*Search*: each element of the result looks through all values for those with its index. The cost is the product of both
sizes. *Sort*: one stable SORT brings the values into the order of their indices; its keys are the index above the
number of the value. Values for one place are then adjacent, a run: a SCAN reduces each run, a binary search finds its
end, and the result gathers the total. Sums are added in the order of the numbers, in the pieces that the threads of the
SCAN have, so a result is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import bounds
from ringup.compiler.graph.nodes import (
    Node,
    Op,
    Shape,
    cast,
    const,
    contiguous,
    elementwise,
    expand,
    node,
    permute,
    reduce,
    reshape,
)
from ringup.compiler.schedule.dependences import depends
from ringup.compiler.schedule.reduction_facts import identity

Rewrite = Callable[[Node], Node]
# Up to this many pairs of a place and a value, the search form is used: by the model it takes 12 us, as long as some
# launches.
MAX_SEARCHED_PAIRS = 1 << 24
# Up to this many values along the axis, the search is unrolled and costs nothing extra.
UNROLLED_LIMIT = 8


def scattered(scatter: Node, sorted_: Rewrite, scanned: Rewrite) -> Node:
    """Return a SCATTER as other nodes. `sorted_` and `scanned` rewrite a SORT and a SCAN."""
    target, index, values = scatter.sources
    axis, op = scatter.arg
    index, values = _as_wide(target, index, values, axis)
    count, size = index.shape[axis], target.shape[axis]
    is_long = isinstance(count, int) and isinstance(size, int) and count > UNROLLED_LIMIT
    if not is_long or bounds(target.size)[1] * bounds(count)[1] <= MAX_SEARCHED_PAIRS:
        return _by_search(target, index, values, axis, op)
    runs = _Runs(index, axis, bounds(size)[1], sorted_)
    if op is None:
        winner = runs.spread(runs.number_at_end(), target.shape)
        found = node(Op.GATHER, values.dtype, target.shape, (values, winner), axis)
        return elementwise(Op.WHERE, _is_there(winner), found, target)
    order, keys = (runs.spread(one, values.shape) for one in (runs.numbers, runs.places))
    ordered = node(Op.GATHER, values.dtype, values.shape, (values, order), axis)
    folded = scanned(graph.scan(op, ordered, axis, keys=keys))
    ends = runs.spread(runs.ends, target.shape)
    found = node(Op.GATHER, folded.dtype, target.shape, (folded, ends), axis)
    return elementwise(Op.WHERE, _is_there(ends), elementwise(op, target, found), target)


def _is_there(place: Node) -> Node:
    return elementwise(Op.LE, const(0, place.dtype, place.shape), place)


def _as_wide(target: Node, index: Node, values: Node, axis: int) -> tuple[Node, Node]:
    """Extend index and values to the size of the target on all axes except the scattered one. The added indices are
    outside, so their values are dropped.
    """
    shape = target.shape
    amounts = tuple((0, 0 if i == axis else size - index.shape[i]) for i, size in enumerate(shape))
    if not any(after != 0 for _, after in amounts):
        return index, values
    wide = tuple(index.shape[i] if i == axis else size for i, size in enumerate(shape))
    outside = -1 if index.dtype.kind == "int" else index.dtype.greatest
    index = node(Op.PAD, index.dtype, wide, (index,), (amounts, outside))
    return index, node(Op.PAD, values.dtype, wide, (values,), (amounts, 0))


class _Runs:
    """The values in the order of their indices along an axis. Each sorted key holds the index above the number of the
    value.

    Where the indices do not depend on other axes, the other axes of all arrays here have size 1.
    """

    def __init__(self, index: Node, axis: int, size: int, sorted_: Rewrite) -> None:
        self._axis, self._size = axis, size
        if depends(index) <= {axis}:
            limits = tuple((0, one) if i == axis else (0, 1) for i, one in enumerate(index.shape))
            index = node(Op.SHRINK, index.dtype, tuple(stop for _, stop in limits), (index,), limits)
        self._shape = index.shape
        self._count = bounds(index.shape[axis])[1]
        self._bits = (self._count - 1).bit_length()
        self._dtype: DType = dtypes.int32 if self._bits + size.bit_length() < 32 else dtypes.int64
        packed = elementwise(Op.SHL, self._places_of(index), self._number(self._bits))
        packed = elementwise(Op.OR, packed, _along(self._dtype, index.shape, axis))
        self._sorted = contiguous(sorted_(graph.sort(packed, axis)))
        low = elementwise(Op.AND, self._sorted, self._number((1 << self._bits) - 1))
        self.numbers = cast(low, dtypes.int32)
        self.places = elementwise(Op.SHR, self._sorted, self._number(self._bits))
        self.ends = contiguous(self._find_ends())

    def _number(self, value: int, shape: Shape | None = None) -> Node:
        return const(value, self._dtype, self._shape if shape is None else shape)

    def _places_of(self, index: Node) -> Node:
        """Return the indices in the packed dtype. Those outside become `size`, one past the last place."""
        inside: Node | None = None
        if self._size <= int(index.dtype.greatest):
            inside = elementwise(Op.LT, index, const(self._size, index.dtype, index.shape))
        if index.dtype.kind == "int":
            positive = elementwise(Op.LE, const(0, index.dtype, index.shape), index)
            inside = positive if inside is None else elementwise(Op.AND, positive, inside)
        places = cast(index, self._dtype)
        return places if inside is None else elementwise(Op.WHERE, inside, places, self._number(self._size))

    def _find_ends(self) -> Node:
        """Return, for each place, the position of its last value in the sorted order, -1 where there is none. A binary
        search finds it.
        """
        axis = self._axis
        shape = tuple(self._size if i == axis else one for i, one in enumerate(self._shape))
        place = _along(self._dtype, shape, axis)
        following = elementwise(Op.ADD, place, self._number(1, shape))
        behind = elementwise(Op.SHL, following, self._number(self._bits, shape))

        def number(value: int) -> Node:
            return const(value, dtypes.int32, shape)

        low, high = number(0), number(self._count)
        for _ in range(self._count.bit_length()):
            middle = elementwise(Op.SHR, elementwise(Op.ADD, low, high), number(1))
            found = node(Op.GATHER, self._dtype, shape, (self._sorted, middle), axis)
            is_open = elementwise(Op.LT, low, high)
            before = elementwise(Op.AND, is_open, elementwise(Op.LT, found, behind))
            after = elementwise(Op.AND, is_open, elementwise(Op.NOT, before))
            low = elementwise(Op.WHERE, before, elementwise(Op.ADD, middle, number(1)), low)
            high = elementwise(Op.WHERE, after, middle, high)
        last = elementwise(Op.SUB, low, number(1))
        found = node(Op.GATHER, self._dtype, shape, (self._sorted, last), axis)
        own = elementwise(Op.EQ, elementwise(Op.SHR, found, self._number(self._bits, shape)), place)
        own = elementwise(Op.AND, own, elementwise(Op.LE, number(0), last))
        return elementwise(Op.WHERE, own, last, number(-1))

    def number_at_end(self) -> Node:
        """Return, for each place, the number of its last value, -1 where there is none."""
        ends = self.ends
        found = node(Op.GATHER, dtypes.int32, ends.shape, (self.numbers, ends), self._axis)
        return contiguous(elementwise(Op.WHERE, _is_there(ends), found, const(-1, dtypes.int32, ends.shape)))

    def spread(self, one: Node, shape: Shape) -> Node:
        """Expand an array of the runs to a shape."""
        return expand(one, tuple(one.shape[i] if i == self._axis else size for i, size in enumerate(shape)))


def _along(dtype: DType, shape: Shape, axis: int) -> Node:
    """Return the position along an axis."""
    line = node(Op.IOTA, dtype, (shape[axis],))
    return expand(reshape(line, tuple(size if i == axis else 1 for i, size in enumerate(shape))), shape)


def _by_search(target: Node, index: Node, values: Node, axis: int, op: Op | None) -> Node:
    """Return a SCATTER as a reduction over all values."""
    shape, count = target.shape, index.shape[axis]
    rank = len(shape)
    whole = (*shape, count)

    # Move the scattered axis to the end, as the last axis of `whole`.
    def beside(source: Node) -> Node:
        order = [i for i in range(rank) if i != axis]
        moved = permute(source, [*order, axis])
        spread = [*(source.shape[i] for i in order), count]
        spread.insert(axis, 1)
        return expand(reshape(moved, tuple(spread)), whole)

    kind = index.dtype if index.dtype in (dtypes.int32, dtypes.int64) else dtypes.int64
    here = elementwise(Op.EQ, cast(beside(index), kind), _along(kind, whole, axis))
    if op is None:
        turns = _along(dtypes.int32, whole, rank)
        last = reduce(Op.MAX, elementwise(Op.WHERE, here, turns, const(-1, dtypes.int32, whole)), [rank])
        last = reshape(last, shape)
        found = node(Op.GATHER, values.dtype, shape, (values, last), axis)
        return elementwise(Op.WHERE, _is_there(last), found, target)
    nothing = const(identity(op, values.dtype), values.dtype, whole)
    folded = reduce(op, elementwise(Op.WHERE, here, beside(values), nothing), [rank])
    return elementwise(op, target, reshape(folded, shape))
