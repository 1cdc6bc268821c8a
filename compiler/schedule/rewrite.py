"""Rewrites the graph before it is cut into kernels: operations without a kernel of their own become others, long
reductions become two steps, and long scans three.

Nodes without elements are removed first (`remove_empty.py`): the cut and later passes handle sizes above 0 only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType, Scalar
from ringup.compiler.graph.index import bounds, product
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
    ordered,
    permute,
    reduce,
    reshape,
)
from ringup.compiler.schedule.dependences import is_contraction
from ringup.compiler.schedule.kernel import ONE_GROUP_A_ROW_MIN_ROWS, ROW_LIMIT
from ringup.compiler.schedule.reduction_facts import identity, kept
from ringup.compiler.schedule.remove_empty import without_empty
from ringup.compiler.schedule.scatter import scattered
from ringup.compiler.schedule.split_k import in_parts

MAX_PARTS = 256
# Elements of one part.
MIN_PART = 2048
# Elements of a segment where memory runs across the scanned axis.
MIN_COLUMN = 128
# Groups that occupy a card.
GROUPS_ENOUGH = 256
# Bytes of LDS in which a group sorts a row.
SORTED_BYTES = 32 << 10
# Adjacent rows that share a group.
LANES = 32


def rewritten(outputs: Sequence[Node]) -> list[Node]:
    """Return equivalent nodes that the cut accepts."""
    made: dict[Node, Node] = {}
    for one in ordered(outputs):
        sources = tuple(made[source] for source in one.sources)
        same = without_empty(one if sources == one.sources else node(one.op, one.dtype, one.shape, sources, one.arg))
        rule = _RULES.get(same.op)
        made[one] = rule(same) if rule else same
    return [made[one] for one in outputs]


def _scattered(scatter: Node) -> Node:
    """Return a SCATTER in terms of other nodes."""
    return scattered(scatter, _sorted, _scanned)


def _reduced(fold: Node) -> Node:
    """Split a REDUCE of few results and many elements into partial reductions and one over these, so that all units of
    a card have work.
    """
    op, axes = fold.arg
    source = fold.sources[0]
    sizes = [source.shape[axis] for axis in axes]
    if any(not isinstance(size, int) for size in source.shape):
        return fold
    if is_contraction(fold):
        return in_parts(fold)
    count, results = bounds(product(sizes))[1], bounds(fold.size)[1]
    if count <= ROW_LIMIT or results >= ONE_GROUP_A_ROW_MIN_ROWS // 4:
        return fold
    parts = MAX_PARTS
    while parts > 1 and (count // parts < MIN_PART or results * parts > 4 * ONE_GROUP_A_ROW_MIN_ROWS):
        parts //= 2
    if parts < 2:
        return fold
    running = kept(op, fold.dtype)
    others = [axis for axis in range(len(source.shape)) if axis not in axes]
    lines = reshape(permute(cast(source, running), [*others, *axes]), (results, count))
    length = -(-count // parts)
    if length * parts != count:
        amounts = ((0, 0), (0, length * parts - count))
        lines = node(Op.PAD, running, (results, length * parts), (lines,), (amounts, identity(op, running)))
    partial = node(
        Op.CONTIGUOUS, running, (results, parts, 1), (reduce(op, reshape(lines, (results, parts, length)), [2]),)
    )
    return cast(reshape(reduce(op, partial, [1]), fold.shape), fold.dtype)


def _scanned(scan: Node) -> Node:
    """Split a SCAN of few long rows into segments. Each segment starts from a SCAN over the totals of the segments
    before it. This makes three kernels.

    No segment waits for another inside a kernel. With keys, the total of a segment is its last element. What comes
    before joins an element where the key is the same: then the segment has this key from its start up to that element.
    """
    op, axis, stretch = scan.arg
    source, *keys = scan.sources
    size = scan.shape[axis]
    length = _stretch(scan) if stretch is None else None
    if length is None or not isinstance(size, int):
        return scan
    running = kept(op, scan.dtype)
    source, count = cast(source, running), -(-size // length)
    inside = graph.scan(op, source, axis, keys=keys[0] if keys else None, stretch=length)
    if keys:
        inside = contiguous(inside)
        ends = _last_of(inside, axis, length, count)
        last = _last_of(keys[0], axis, length, count)
        ends = graph.scan(op, ends, axis, keys=last)
    else:
        start = identity(op, running)
        whole = _padded(source, axis, 0, count * length - size, start)
        sums = reduce(op, reshape(whole, _split(whole.shape, axis, count, length)), [axis + 1])
        sums = reshape(sums, _with(scan.shape, axis, count))
        ends = _shrunk(graph.scan(op, contiguous(sums), axis), axis, 0, count - 1)
    before = _repeated(_padded(ends, axis, 1, 0, identity(op, running)), axis, length, size)
    joined = elementwise(op, before, inside)
    if keys:
        same = elementwise(Op.EQ, keys[0], _repeated(_padded(last, axis, 1, 0, 0), axis, length, size))
        joined = elementwise(Op.WHERE, same, joined, inside)
    return cast(joined, scan.dtype)


def _stretch(scan: Node) -> int | None:
    """Return the elements of a segment, None where there are groups enough without a split."""
    axis: int = scan.arg[1]
    size = scan.shape[axis]
    if any(not isinstance(one, int) for one in scan.shape):
        return None
    inner = bounds(product(scan.shape[axis + 1 :]))[1]
    outer = bounds(product(scan.shape[:axis]))[1]
    groups, least = (outer, MIN_PART) if inner == 1 else (outer * -(-inner // LANES), MIN_COLUMN)
    count = min(-(-GROUPS_ENOUGH // groups), bounds(size)[1] // least)
    if count < 2 or groups * 2 > GROUPS_ENOUGH:
        return None
    length = -(-bounds(size)[1] // count)
    return -(-length // least) * least


def _split(shape: Shape, axis: int, count: int, length: int) -> Shape:
    return (*shape[:axis], count, length, *shape[axis + 1 :])


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _padded(source: Node, axis: int, before: int, after: int, fill: Scalar) -> Node:
    """Return a node extended by some elements on one axis."""
    if not before and not after:
        return source
    size = source.shape[axis] + before + after
    amounts = tuple((before, after) if i == axis else (0, 0) for i in range(len(source.shape)))
    return node(Op.PAD, source.dtype, _with(source.shape, axis, bounds(size)[1]), (source,), (amounts, fill))


def _shrunk(source: Node, axis: int, start: int, stop: int) -> Node:
    """Return a range of a node along one axis."""
    limits = tuple((start, stop) if i == axis else (0, size) for i, size in enumerate(source.shape))
    return node(Op.SHRINK, source.dtype, _with(source.shape, axis, stop - start), (source,), limits)


def _last_of(source: Node, axis: int, length: int, count: int) -> Node:
    """Return the last element of each whole segment except the last one."""
    whole = _shrunk(source, axis, 0, (count - 1) * length)
    ends = _shrunk(reshape(whole, _split(whole.shape, axis, count - 1, length)), axis + 1, length - 1, length)
    return reshape(ends, _with(source.shape, axis, count - 1))


def _repeated(source: Node, axis: int, length: int, size: int) -> Node:
    """Repeat each element along an axis `length` times, and cut the result to `size`."""
    count = bounds(source.shape[axis])[1]
    wide = expand(reshape(source, _split(source.shape, axis, count, 1)), _split(source.shape, axis, count, length))
    return _shrunk(reshape(wide, _with(source.shape, axis, count * length)), axis, 0, size)


def _sorted(sort: Node) -> Node:
    """Split a SORT of rows too long for a group into sorted segments, and merge neighbours in pairs
    until one is left.
    """
    axis, stretch = sort.arg
    size, (source,) = sort.shape[axis], sort.sources
    length = max_sorted(sort.dtype)
    if not isinstance(size, int) or (stretch or size) <= length:
        return sort
    if stretch is not None:
        raise ValueError(f"{sort}: a stretch of {stretch} elements is more than the {length} a group sorts")
    made = graph.sort(source, axis, stretch=length)
    while length < size:
        made = _merged(contiguous(made), axis, length)
        length *= 2
    return made


def max_sorted(dtype: DType) -> int:
    """Return how many elements a group can sort, a power of two."""
    return SORTED_BYTES // max(4, dtype.size_bytes)


def _merged(source: Node, axis: int, length: int) -> Node:
    """Merge pairs of sorted segments of `length`, a power of two, into segments of twice the length.

    Each element of the result does a binary search for how many of the elements before it come from the first segment
    of the pair. The merge is stable: of equal elements, those of the first segment come first.
    """
    shape, size = source.shape, bounds(source.shape[axis])[1]

    def number(value: int) -> Node:
        return const(value, dtypes.int32, shape)

    def both(op: Op, a: Node, b: Node) -> Node:
        return elementwise(op, a, b)

    def at(place: Node) -> Node:
        return node(Op.GATHER, source.dtype, shape, (source, place), axis)

    line = node(Op.IOTA, dtypes.int32, (size,))
    place = expand(reshape(line, tuple(size if i == axis else 1 for i in range(len(shape)))), shape)
    inner = both(Op.AND, place, number(2 * length - 1))
    first = both(Op.SUB, place, inner)
    firsts = both(Op.MIN, number(length), both(Op.SUB, number(size), first))
    second = both(Op.ADD, first, firsts)
    seconds = both(Op.MIN, number(length), both(Op.SUB, number(size), second))
    low = both(Op.MAX, number(0), both(Op.SUB, inner, seconds))
    high = both(Op.MIN, inner, firsts)
    for _ in range(length.bit_length()):
        middle = both(Op.SHR, both(Op.ADD, low, high), number(1))
        other = both(Op.SUB, both(Op.SUB, both(Op.ADD, second, inner), middle), number(1))
        open_ = both(Op.LT, low, high)
        taken = both(Op.AND, open_, both(Op.LE, at(both(Op.ADD, first, middle)), at(other)))
        left = both(Op.AND, open_, elementwise(Op.NOT, taken))
        low = elementwise(Op.WHERE, taken, both(Op.ADD, middle, number(1)), low)
        high = elementwise(Op.WHERE, left, middle, high)
    after = both(Op.SUB, inner, low)
    mine, other = at(both(Op.ADD, first, low)), at(both(Op.ADD, second, after))
    ordered_ = both(Op.OR, both(Op.LE, seconds, after), both(Op.LE, mine, other))
    return elementwise(Op.WHERE, both(Op.AND, both(Op.LT, low, firsts), ordered_), mine, other)


def _seen(bitcast: Node) -> Node:
    """Return the source of a BITCAST that changes nothing. The tensor language stops gradients with such nodes."""
    return bitcast.sources[0] if bitcast.dtype is bitcast.sources[0].dtype else bitcast


_RULES: dict[Op, Callable[[Node], Node]] = {
    Op.BITCAST: _seen,
    Op.SCATTER: _scattered,
    Op.REDUCE: _reduced,
    Op.SCAN: _scanned,
    Op.SORT: _sorted,
}
