"""A kernel, as the cut makes it and the lowerings take it: what one launch computes, which memory it reads, and at
which points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringup.compiler.graph.index import Atom, Int, bounds, is_axis, product, variables
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op
from ringup.compiler.schedule.attention import Attention
from ringup.compiler.schedule.dependences import sources
from ringup.compiler.schedule.views import Point, in_shape, source_point

# Elements of a row that one group computes alone. Several groups share a longer row.
ROW_LIMIT = 16384
# Reductions in one kernel. Registers hold a partial result of the row for each.
MAX_FOLDS = 8
# Queries for each head of keys. Up to this many, threads divide the keys among themselves and not the queries.
FEW_QUERIES_LIMIT = 8
# From this many rows on, one group for each row occupies the card, however long a row is.
ONE_GROUP_A_ROW_MIN_ROWS = 512
# Rows or columns of a contraction. Below this, no tile is used: a reduction by rows is as fast.
MIN_TILED = 8
# Columns of a contraction that one tile can hold all of.
MAX_POOLED = 64


@dataclass(slots=True, eq=False)
class Fold:
    """A reduction inside a kernel. `point` is its point in terms of the kernel's axes. `variables` holds, for each
    reduced axis, the variable that runs along it.
    """

    node: Node
    point: Point
    variables: dict[int, Int]

    @property
    def inner(self) -> Point:
        """Return the point of the reduction's source."""
        return tuple(self.variables.get(axis, index) for axis, index in enumerate(self.point))

    @property
    def count(self) -> Int:
        """Return how many elements are reduced to one result."""
        return product(self.node.sources[0].shape[axis] for axis in self.variables)


class Rows(NamedTuple):
    """The rows of a kernel, as its first fold defines them: the axes that distinguish rows, and the elements reduced
    for each row.
    """

    axes: frozenset[Atom]
    length: int


class Pool(NamedTuple):
    """A fold over all columns of a contraction, and over nothing else; the contraction is computed in the same kernel.
    `sides` holds, for each factor, the axes that only this factor has.
    """

    fold: Fold
    sides: tuple[frozenset[Atom], frozenset[Atom]]


@dataclass(slots=True, eq=False)
class Kernel:
    """What one launch computes: `root` at every point of `axes`, from `inputs` in memory. `folds` are in the order of
    their dependence.

    A STORE root writes its value into a view of a buffer. `beside`: further roots, with the same axes except axes of
    size 1. `rows`: the axes that the folds depend on, None without folds; a fold may depend on fewer. `attention`: the
    kernel also computes the softmax and the scores below its one fold. `line`: the one SCAN or SORT that a kernel
    without folds computes; its variable runs along the line. `pool`: set if the last fold runs over the columns of the
    first.
    """

    root: Node
    axes: Point
    folds: list[Fold] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    rows: frozenset[Atom] | None = None
    attention: Attention | None = None
    # The scores of the attention that the one fold completes.
    scores: Fold | None = None
    line: Fold | None = None
    pool: Pool | None = None
    # Instructions for one element of every root, added up to at most HEAVY.
    work: int = 0
    beside: tuple[Node, ...] = ()

    @property
    def roots(self) -> tuple[Node, ...]:
        """Return the root and the further roots."""
        return (self.root, *self.beside)

    @property
    def results(self) -> list[tuple[Node, Point]]:
        """Return the nodes whose values the kernel computes, each with its point in terms of the axes."""
        return [(value_of(root), self.point_of(root, self.axes)) for root in self.roots]

    def forwards(self, node: Node) -> bool:
        """Return whether a node reads memory that one of the roots has just written, so that the
        kernel has the value.
        """
        return node.op is Op.AFTER and node.sources[1] in self.roots and node not in self.inputs

    def point_of(self, root: Node, point: Point) -> Point:
        """Translate a point of the axes into a point of a root."""
        return point if root is self.root else in_shape(point, self.shape, shape_of(root))

    @property
    def shape(self) -> tuple[Int, ...]:
        """Return the sizes of the axes."""
        return shape_of(self.root)

    @property
    def row_info(self) -> Rows | None:
        """Return the rows as the first fold defines them, None without folds."""
        return None if self.rows is None else Rows(self.rows, bounds(self.folds[0].count)[1])

    @property
    def computed(self) -> Node:
        """Return the node whose values the kernel computes: the root, or the value of a STORE."""
        return value_of(self.root)


def value_of(root: Node) -> Node:
    """Return the node whose values a kernel with this root computes."""
    return root.sources[1] if root.op is Op.STORE else root


def shape_of(root: Node) -> tuple[Int, ...]:
    """Return the shape of the axes of a kernel with this root."""
    return root.sources[0].shape if root.op is Op.STORE else root.shape


def viewed(store: Node) -> Node:
    """Return the node, BUFFER or AFTER, whose view a STORE writes: the state of the memory before it."""
    node = store.sources[0]
    while node.op in MOVEMENT:
        node = node.sources[0]
    return node


def states_before(store: Node) -> list[Node]:
    """Return the states of memory that a STORE ends: the one it writes into and all earlier ones."""
    found = [viewed(store)]
    while found[-1].op is Op.AFTER:
        found.append(found[-1].sources[0])
    return found


def memory_of(node: Node) -> Node:
    """Return the BUFFER or root whose memory an AFTER shows in a later state."""
    while node.op is Op.AFTER:
        node = node.sources[0]
    return node


def walked_by(line: Fold) -> Atom:
    """Return the kernel's axis that runs along a line, forwards or backwards."""
    (along,) = line.variables
    (found,) = walked_axes(line.point[along])
    return found


def walked_axes(index: Int) -> frozenset[Atom]:
    """Return the axes and run-time values that an index depends on. Symbolic sizes do not count."""
    return frozenset(atom for atom in variables(index) if is_axis(atom) or atom.kind == "value")


@dataclass(slots=True)
class Access:
    """One read of memory in a kernel: the node, the point, and whether a condition (of PAD, CAT or
    GATHER) guards it.
    """

    node: Node
    point: Point
    guarded: bool


def accesses(roots: Sequence[tuple[Node, Point]], inputs: Sequence[Node], folds: Sequence[Fold]) -> list[Access]:
    """Return every read of `inputs` that the values of `roots` at their points need, including reads inside folds. IOTA
    counts as a read.
    """
    found: list[Access] = []
    inside = {fold.node: fold for fold in folds}
    stack = [(node, point, False) for node, point in roots]
    seen = set(stack)
    while stack:
        node, point, guarded = stack.pop()
        if node in inputs or node.op is Op.IOTA:
            found.append(Access(node, point, guarded))
            continue
        fold = inside.get(node)
        steps = [(source, fold.inner) for source in node.sources] if fold else list(sources(node, point))
        more = guarded or node.op in (Op.CAT, Op.GATHER) or (node.op is Op.PAD and bool(source_point(node, point)[1]))
        for source, at in steps:
            if (source, at, more) not in seen:
                seen.add((source, at, more))
                stack.append((source, at, more))
    return found
