"""A kernel as the cut leaves it and lowerings take it: what one launch computes, from which memory, at which points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringup.compiler.graph.index import Atom, Int, bounds, is_axis, product, variables
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op
from ringup.compiler.schedule.attention import Attention
from ringup.compiler.schedule.needs import sources
from ringup.compiler.schedule.views import Point, in_shape, source_point

# Elements of a row that one group works through alone. More groups share a longer row.
ROW_LIMIT = 16384
# Reductions in one kernel. Registers hold a row's share for each.
MAX_FOLDS = 8
# Queries of a head of keys. Up to so many, threads share the keys and not the queries.
FEW_QUERIES_LIMIT = 8
# With so many rows, one group a row keeps the card busy, whatever a row's length.
ONE_GROUP_A_ROW_MIN_ROWS = 512
# Rows or columns of a contraction. Of fewer no tile is made: a reduction by rows is as good.
MIN_TILED = 8
# Columns of a contraction that one tile can hold all of.
MAX_POOLED = 64


@dataclass(slots=True, eq=False)
class Fold:
    """A reduction inside a kernel: at which point of the kernel's axes, and the variables of its own reduced axes by
    axis.
    """

    node: Node
    point: Point
    variables: dict[int, Int]

    @property
    def inner(self) -> Point:
        """Return the point of its source."""
        return tuple(self.variables.get(axis, index) for axis, index in enumerate(self.point))

    @property
    def count(self) -> Int:
        """Return how many elements make one result."""
        return product(self.node.sources[0].shape[axis] for axis in self.variables)


class Rows(NamedTuple):
    """What a kernel's first fold says: the axes that tell rows apart, and the elements it folds for each row."""

    axes: frozenset[Atom]
    length: int


class Pool(NamedTuple):
    """A fold over all columns of a contraction that is computed below it, and over nothing else. `sides`: the axes of
    each factor's own.
    """

    fold: Fold
    sides: tuple[frozenset[Atom], frozenset[Atom]]


@dataclass(slots=True, eq=False)
class Kernel:
    """What one launch computes: `root` at every point of `axes`, with `folds` in the order of their dependence, from
    nodes in memory.

    A STORE root writes its value into a view of a buffer. `beside`: further roots, of the same axes but for those of
    one element. `rows`: the axes that folds depend on, some on fewer, None without folds. `attention`: the softmax and
    the scores below the one fold are computed inside too. `line`: the one SCAN or SORT computed inside, in a kernel
    without folds; its variable walks along the line. `pool`: the last fold, where it runs over the columns of the
    first.
    """

    root: Node
    axes: Point
    folds: list[Fold] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    rows: frozenset[Atom] | None = None
    attention: Attention | None = None
    scores: Fold | None = None  # of the attention that the one fold completes
    line: Fold | None = None
    pool: Pool | None = None
    work: int = 0  # instructions for an element of each root, together, counted up to HEAVY
    beside: tuple[Node, ...] = ()

    @property
    def roots(self) -> tuple[Node, ...]:
        """Return the root and those beside it."""
        return (self.root, *self.beside)

    @property
    def results(self) -> list[tuple[Node, Point]]:
        """Return the nodes whose values are computed, each with its point in terms of the axes."""
        return [(value_of(root), self.point_of(root, self.axes)) for root in self.roots]

    def forwards(self, node: Node) -> bool:
        """Return whether a node is memory that one of the roots has written, read as what is written."""
        return node.op is Op.AFTER and node.sources[1] in self.roots and node not in self.inputs

    def point_of(self, root: Node, point: Point) -> Point:
        """Return a point of the axes as one of a root's."""
        return point if root is self.root else in_shape(point, self.shape, shape_of(root))

    @property
    def shape(self) -> tuple[Int, ...]:
        """Return the sizes of the axes."""
        return shape_of(self.root)

    @property
    def row_info(self) -> Rows | None:
        """Return what its first fold says of rows, None without folds."""
        return None if self.rows is None else Rows(self.rows, bounds(self.folds[0].count)[1])

    @property
    def computed(self) -> Node:
        """Return the node whose values are computed: the root, or what a STORE stores."""
        return value_of(self.root)


def value_of(root: Node) -> Node:
    """Return the node whose values a kernel of this root computes."""
    return root.sources[1] if root.op is Op.STORE else root


def shape_of(root: Node) -> tuple[Int, ...]:
    """Return the shape of what a kernel of this root runs over."""
    return root.sources[0].shape if root.op is Op.STORE else root.shape


def viewed(store: Node) -> Node:
    """Return the node, BUFFER or AFTER, whose view a STORE writes: the state of the memory before it."""
    node = store.sources[0]
    while node.op in MOVEMENT:
        node = node.sources[0]
    return node


def states_before(store: Node) -> list[Node]:
    """Return the states of memory that a STORE ends: the one it writes into and those before that."""
    found = [viewed(store)]
    while found[-1].op is Op.AFTER:
        found.append(found[-1].sources[0])
    return found


def memory_of(node: Node) -> Node:
    """Return the BUFFER or root that an AFTER stands for: the same memory, later."""
    while node.op is Op.AFTER:
        node = node.sources[0]
    return node


def walked_by(line: Fold) -> Atom:
    """Return the kernel's axis that runs along a line, in its direction or against it."""
    (along,) = line.variables
    (found,) = walked_axes(line.point[along])
    return found


def walked_axes(index: Int) -> frozenset[Atom]:
    """Return the axes and run-time values that an index depends on; symbolic sizes are neither."""
    return frozenset(atom for atom in variables(index) if is_axis(atom) or atom.kind == "value")


@dataclass(slots=True)
class Access:
    """One read of memory in a kernel: at which point, and how many conditions (of PAD) guard it."""

    node: Node
    point: Point
    guarded: bool


def accesses(roots: Sequence[tuple[Node, Point]], inputs: Sequence[Node], folds: Sequence[Fold]) -> list[Access]:
    """Return every read of `inputs` (and IOTA as one) that the values of some nodes at points need, those inside of
    folds too.
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
