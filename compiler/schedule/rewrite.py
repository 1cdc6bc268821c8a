"""Graph to graph, before kernels are cut: operations without a kernel of their own as others, and long sums in two steps.

What has no elements goes first (`empty.py`): the cut and what follows it know sizes above 0 only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringup.compiler import dtypes
from ringup.compiler.graph import (
    Node,
    Op,
    cast,
    const,
    elementwise,
    expand,
    node,
    ordered,
    permute,
    reduce,
    reshape,
)
from ringup.compiler.index import bounds, product
from ringup.compiler.schedule.cut import MANY_ROWS, ROW_LIMIT
from ringup.compiler.schedule.empty import without_empty
from ringup.compiler.schedule.identity import identity, kept
from ringup.compiler.schedule.needs import is_contraction

MOST_PARTS = 256
LEAST_PART = 2048  # elements


def rewritten(outputs: Sequence[Node]) -> list[Node]:
    """Return nodes of the same values that the cut can take."""
    made: dict[Node, Node] = {}
    for one in ordered(outputs):
        sources = tuple(made[source] for source in one.sources)
        same = without_empty(one if sources == one.sources else node(one.op, one.dtype, one.shape, sources, one.arg))
        rule = _RULES.get(same.op)
        made[one] = rule(same) if rule else same
    return [made[one] for one in outputs]


def _scattered(scatter: Node) -> Node:
    """Return a SCATTER as a fold over everything that is put: each element of the result looks for what is meant for it.

    Deterministic, and no two threads write one place; the cost is the product of both sizes along the axis.
    """
    target, index, values = scatter.sources
    axis, op = scatter.arg
    shape = target.shape
    rank = len(shape)
    count = index.shape[axis]
    amounts = tuple((0, 0 if i == axis else shape[i] - index.shape[i]) for i in range(rank))
    if any(after != 0 for _, after in amounts):
        wide = tuple(index.shape[i] if i == axis else shape[i] for i in range(rank))
        index = node(
            Op.PAD, index.dtype, wide, (index,), (amounts, -1 if index.dtype.kind == "int" else index.dtype.greatest)
        )
        values = node(Op.PAD, values.dtype, wide, (values,), (amounts, 0))
    whole = (*shape, count)

    def beside(source: Node) -> Node:  # the scattered axis becomes the last of `whole`
        order = [i for i in range(rank) if i != axis]
        moved = permute(source, [*order, axis])
        spread = [*(source.shape[i] for i in order), count]
        spread.insert(axis, 1)
        return expand(reshape(moved, tuple(spread)), whole)

    numbers = node(
        Op.IOTA, index.dtype if index.dtype in (dtypes.int32, dtypes.int64) else dtypes.int64, (shape[axis],)
    )
    places = expand(reshape(numbers, tuple(shape[axis] if i == axis else 1 for i in range(rank + 1))), whole)
    here = elementwise(Op.EQ, cast(beside(index), numbers.dtype), places)
    if op is None:
        order = node(Op.IOTA, dtypes.int32, (count,))
        turns = expand(reshape(order, (*(1 for _ in shape), count)), whole)
        last = reduce(Op.MAX, elementwise(Op.WHERE, here, turns, const(-1, dtypes.int32, whole)), [rank])
        last = reshape(last, shape)
        found = node(Op.GATHER, values.dtype, shape, (values, last), axis)
        is_put = elementwise(Op.LE, const(0, dtypes.int32, shape), last)
        return elementwise(Op.WHERE, is_put, found, target)
    nothing = const(identity(op, values.dtype), values.dtype, whole)
    folded = reduce(op, elementwise(Op.WHERE, here, beside(values), nothing), [rank])
    return elementwise(op, target, reshape(folded, shape))


def _reduced(fold: Node) -> Node:
    """Return a REDUCE of few results and many elements as one into parts and one over these, so that a card has work for all its units."""
    op, axes = fold.arg
    source = fold.sources[0]
    sizes = [source.shape[axis] for axis in axes]
    if any(not isinstance(size, int) for size in source.shape) or is_contraction(fold):
        return fold
    count, results = bounds(product(sizes))[1], bounds(fold.size)[1]
    if count <= ROW_LIMIT or results >= MANY_ROWS // 4:
        return fold
    parts = MOST_PARTS
    while parts > 1 and (count // parts < LEAST_PART or results * parts > 4 * MANY_ROWS):
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


def _seen(bitcast: Node) -> Node:
    """Return the source of a BITCAST that changes nothing: the language cuts gradients with such ones."""
    return bitcast.sources[0] if bitcast.dtype is bitcast.sources[0].dtype else bitcast


_RULES: dict[Op, Callable[[Node], Node]] = {Op.BITCAST: _seen, Op.SCATTER: _scattered, Op.REDUCE: _reduced}
