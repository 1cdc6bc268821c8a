"""Dependences of values: the sources of a node at a point, the axes along which a value changes, and from that whether
a reduction is a contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from weakref import WeakKeyDictionary

from ringup.compiler.graph.index import Atom, Int, atom_of, axis, bounds, is_axis, runtime_value, variables
from ringup.compiler.graph.nodes import ELEMENTWISE, LINES, MOVEMENT, Node, Op
from ringup.compiler.schedule.views import Point, source_point, within

_ENDS = LINES | {Op.REDUCE, Op.CONTIGUOUS}


def is_in_memory(node: Node) -> bool:
    """Return whether a node is in memory already, without a kernel that computes it."""
    return node.op in (Op.BUFFER, Op.AFTER)


def is_contraction(node: Node) -> bool:
    """Return whether a reduction is a sum of products whose factors are each broadcast along some axis: a matrix
    product, a convolution.
    """
    if node.op is not Op.REDUCE or node.arg[0] is not Op.ADD or node.sources[0].op is not Op.MUL:
        return False
    first, second = node.sources[0].sources
    # A square has either rows or columns, not both.
    if first is second:
        return False
    kept = [i for i in range(len(node.shape)) if i not in node.arg[1] and node.shape[i] != 1]
    factors = [depends(source) for source in node.sources[0].sources]
    reduced = [i for i in node.arg[1] if node.sources[0].shape[i] != 1]
    if not all(i in factor for i in reduced for factor in factors):
        return False
    return all(any(i not in factor for i in kept) for factor in factors)


def depends(node: Node) -> frozenset[int]:
    """Return the axes of a node along which its value may change."""
    found = _known.get(node)
    if found is None:
        found = _known[node] = _depends(node)
    return found


# A cache: the same nodes are looked up repeatedly, and the result is slow to compute.
_known: WeakKeyDictionary[Node, frozenset[int]] = WeakKeyDictionary()


def _depends(node: Node) -> frozenset[int]:
    axes = tuple(axis(f"d{i}", size) for i, size in enumerate(node.shape))
    found = used(node, axes, _is_end)
    return frozenset(i for i, one in enumerate(axes) if not isinstance(one, int) and atom_of(one) in found)


def _is_end(node: Node) -> bool:
    return is_in_memory(node) or node.op in _ENDS


def used(
    node: Node, point: Point, is_end: Callable[[Node], bool], inside: Mapping[Node, Point] | None = None
) -> frozenset[Atom]:
    """Return the axes that a value at a point may change with: those of the addresses it reads, and those of the
    conditions on the reads.

    The search stops at nodes for which `is_end` holds. `inside`: reductions that are computed in place, with the points
    of their sources.
    """
    found: set[Atom] = set()
    stack, seen = [(node, point)], {(node, point)}
    while stack:
        current, at = stack.pop()
        here = axes_of(at)
        # Nothing new can be found below.
        if current.op is Op.CONST or here <= found:
            continue
        if current.op is Op.IOTA or is_end(current):
            found |= here
            continue
        found |= axes_of(_deciding(current, at))
        inner = inside.get(current) if inside else None
        for step in [(current.sources[0], inner)] if inner is not None else sources(current, at):
            if step not in seen:
                seen.add(step)
                stack.append(step)
    return frozenset(found)


def indices(
    node: Node, point: Point, is_end: Callable[[Node], bool], inside: Mapping[Node, Point] | None = None
) -> Point:
    """Return all indices that a value at a point may change with: those of the addresses it reads, and those of the
    conditions on the reads. The arguments are those of `used`.
    """
    found: list[Int] = []
    stack, seen = [(node, point)], {(node, point)}
    while stack:
        current, at = stack.pop()
        if current.op is Op.IOTA or is_end(current):
            found += at
            continue
        found += _deciding(current, at)
        inner = inside.get(current) if inside else None
        for step in [(current.sources[0], inner)] if inner is not None else sources(current, at):
            if step not in seen:
                seen.add(step)
                stack.append(step)
    return tuple(found)


def _deciding(node: Node, point: Point) -> Point:
    """Return the indices that decide between a PAD's fill and its source, or between the sources of a CAT. The values
    themselves may all be equal there.
    """
    if node.op is Op.CAT:
        return (point[node.arg],)
    if node.op is Op.PAD:
        return tuple(one.value for one in source_point(node, point)[1] or ())
    return ()


def axes_of(point: Point) -> frozenset[Atom]:
    """Return the axes that a point depends on, including those that determine its run-time values."""
    found: set[Atom] = set()
    for index in point:
        for atom in variables(index):
            if is_axis(atom):
                found.add(atom)
            elif atom.kind == "value" and isinstance(atom.parts[1], tuple):
                found |= axes_of(atom.parts[1][1])
    return frozenset(found)


def sources(node: Node, point: Point) -> Iterator[tuple[Node, Point]]:
    """Yield the sources of a node that is computed in place, each with the point at which it is needed."""
    if node.op in ELEMENTWISE or node.op is Op.CONTIGUOUS:
        for source in node.sources:
            yield source, point
    elif node.op in MOVEMENT:
        moved, conditions = source_point(node, point)
        if conditions is not None:
            yield node.sources[0], moved
    elif node.op is Op.CAT:
        along: int = node.arg
        start: Int = 0
        for source in node.sources:
            inner = point[along] - start
            start = start + source.shape[along]
            if within(inner, 0, source.shape[along]) is not False:
                yield source, (*point[:along], inner, *point[along + 1 :])
    elif node.op is Op.GATHER:
        along = node.arg
        source, index = node.sources
        yield index, point
        most = bounds(source.shape[along])[1] - 1
        place: Int = runtime_value("index", 0, most, (index, point)) if most > 0 else 0
        yield source, (*point[:along], place, *point[along + 1 :])
    elif node.op is Op.AFTER:
        # The kernel itself stores this value, so it has it in a register.
        yield node.sources[1].sources[1], point
