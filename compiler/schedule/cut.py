"""Cuts a graph into kernels: decides which nodes are stored in memory, and which kernel computes each reduction.

Every kernel that uses a movement or elementwise node computes it again.

A reduction joins the kernel of its user if the kernel uses it at one point, and that point depends only on the kernel's
own axes. There are two cases. In the first, the kernel computes something from the result, such as a sum and the
operations on it. In the second, the kernel uses the result once for each row, such as a softmax or a norm; its axes are
then the axes of the rows and the rest. The first reduction that joins defines the rows. Further reductions depend on
the same axes or on fewer. If on fewer, each row computes them again (a norm before a product with a vector). That is
allowed if it is little work compared with the first.

If a reduction cannot join, the last node that all of its uses go through (a post-dominator) is stored in memory
instead. The exception is a node that is larger than what was reduced.

A contraction is the only reduction of its kernel, with two exceptions: a second contraction with the same rows and
columns, and a reduction over its columns, such as a mean over the positions of a convolution.

A line (a SCAN or a SORT) joins a kernel that has no reductions, and that uses it at one point, each element once. The
kernel then also computes what follows from the line's results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ringup.compiler.graph.index import Atom, Expr, atom_of, axis, bounds, is_axis, product
from ringup.compiler.graph.nodes import ELEMENTWISE, LINES, MOVEMENT, Node, Op, ordered
from ringup.compiler.schedule.attention import Attention, find
from ringup.compiler.schedule.attention_fit import fits_tile, follow, leaves_of, runs_over_keys
from ringup.compiler.schedule.dependences import axes_of, depends, is_contraction, is_in_memory, sources
from ringup.compiler.schedule.estimate_work import HEAVY, HEAVY_UNROLLED, LIGHT, Work, max_distance
from ringup.compiler.schedule.kernel import (
    MAX_FOLDS,
    MAX_POOLED,
    MIN_TILED,
    ONE_GROUP_A_ROW_MIN_ROWS,
    ROW_LIMIT,
    Fold,
    Kernel,
    Pool,
    Rows,
    shape_of,
    states_before,
    walked_axes,
)
from ringup.compiler.schedule.views import Point, within
from ringup.compiler.schedule.wide_values import find_wide

# Reductions below a node that the search for joinable ones examines at most.
MAX_CANDIDATES = 4 * MAX_FOLDS
# Nodes after a reduction that are considered as the node to store instead of it.
MAX_GATES = 256
# The depth of a contraction, for each of its rows, up to which a pool is used: deeper ones need more groups.
POOLED_DEPTH = 16
# An elementwise node that all kernels together use at more points than this is stored in memory.
POINTS_LIMIT = 6
# A costly node is computed at most this many times for each of its elements, or CHEAP_EVALUATIONS_LIMIT times in all. A
# card computes that many in less time than it takes to start another kernel (GUESS: 2 us).
RECOMPUTED_LIMIT = 4
CHEAP_EVALUATIONS_LIMIT = 1 << 15
COSTLY = frozenset(
    (Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.DIV, Op.RECIP, Op.RSQRT, Op.POW, Op.LOGADDEXP, Op.IDIV, Op.MOD)
)


class Joinable(NamedTuple):
    """`found`: reductions that may join a kernel together. `undecided`: those that the search did not reach."""

    found: set[Node]
    undecided: set[Node]


class Cut:
    """The kernels of one graph. `kernels` are in no particular order; `order.py` sorts them."""

    def __init__(self, outputs: Sequence[Node]) -> None:
        self.kernels: dict[Node, Kernel] = {}
        self._nodes = ordered(outputs)
        self._outputs = {one for one in outputs if not is_in_memory(one)}
        self._users: dict[Node, list[Node]] = {}
        for node in self._nodes:
            for source in dict.fromkeys(node.sources):
                self._users.setdefault(source, []).append(node)
        self._position = {node: i for i, node in enumerate(self._nodes)}
        self._contractions = {node: is_contraction(node) for node in self._nodes if node.op is Op.REDUCE}
        self._costly = self._find_costly()
        self._wide = find_wide(self._nodes)
        self._work = Work(self._nodes, self._users, self._contractions)
        self._gates = self._find_gates()
        self._reads_overwritten = self._find_overwritten_reads()
        self._accesses: dict[Node, dict[tuple[Kernel, Point], None]] = {}
        for node in reversed(self._nodes):
            self._visit(node)
        for kernel in self.kernels.values():
            kernel.folds.reverse()

    def _find_gates(self) -> dict[Node, list[Node]]:
        """Return, for each elementwise node that post-dominates reductions, those reductions."""
        # Immediate post-dominators. None: the end of the graph.
        after: dict[Node, Node | None] = {}
        for node in reversed(self._nodes):
            users = self._users.get(node, [])
            if not users or node in self._outputs:
                after[node] = None
                continue
            common: Node | None = users[0]
            for user in users[1:]:
                common = _meet(common, user, after, self._position)
            after[node] = common
        gates: dict[Node, list[Node]] = {}
        for node in self._nodes:
            if node.op is not Op.REDUCE:
                continue
            most = bounds((node if self._contractions[node] else node.sources[0]).size)[1]
            gate = after[node]
            for _ in range(MAX_GATES):
                if gate is None or gate.op is Op.REDUCE or gate.op is Op.STORE:
                    break
                if gate.op in ELEMENTWISE and bounds(gate.size)[1] <= most and not self._is_term(gate):
                    gates.setdefault(gate, []).append(node)
                gate = after[gate]
        return gates

    def _find_costly(self) -> set[Node]:
        """Return the costly nodes, and the nodes computed from them element by element. Of a chain of these, only the
        last one is stored in memory.

        A value computed from several gathered elements, such as an interpolated image, is costly too.
        """
        found: set[Node] = set()
        fetched: dict[Node, frozenset[Node]] = {}
        for node in self._nodes:
            below = [fetched[one] for one in node.sources if one in fetched]
            if node.op is Op.GATHER:
                fetched[node] = frozenset((node,))
            elif below and (node.op in ELEMENTWISE or node.op in MOVEMENT):
                fetched[node] = next((one for one in below if len(one) > 1), below[0].union(*below[1:]))
            if node.op in ELEMENTWISE and (
                (node.op in COSTLY and node.dtype.is_float)
                or any(one in found for one in node.sources)
                or len(fetched.get(node, ())) > 1
            ):
                found.add(node)
        return found

    def _is_heavy(self, kernel: Kernel, reduction: Node) -> bool:
        """Return whether a kernel does too much work for each element of its root to compute a reduction as well."""
        if kernel.work < HEAVY_UNROLLED:
            return False
        return kernel.work >= max_distance(reduction, is_contraction=self._contractions[reduction])

    def _is_term(self, node: Node) -> bool:
        """Return whether a node is a product that one reduction uses directly: storing the factors takes no more memory
        than storing the product.
        """
        if node.op is not Op.MUL:
            return False
        users = self._users.get(node, [])
        while len(users) == 1 and users[0].op in MOVEMENT:
            users = self._users.get(users[0], [])
        return len(users) == 1 and users[0].op is Op.REDUCE

    def _find_overwritten_reads(self) -> set[Node]:
        """Return the reductions and lines that read memory which a store of this graph overwrites. They join no kernel.

        They need all of that memory in its old state. Neither the kernel that stores nor a later one guarantees that.
        """
        states = {state for node in self._nodes if node.op is Op.STORE for state in states_before(node)}
        found: set[Node] = set()
        reads = set(states)
        for node in self._nodes if states else ():
            if (
                node.op is not Op.CONTIGUOUS
                and not is_in_memory(node)
                and any(source in reads for source in node.sources)
            ):
                (found if node.op is Op.REDUCE or node.op in LINES else reads).add(node)
        return found

    def _visit(self, node: Node) -> None:
        accesses = self._accesses.pop(node, {})
        if (
            node in self._outputs
            or node.op is Op.STORE
            or (accesses and (node.op is Op.CONTIGUOUS or node in self._work.kept))
        ):
            for kernel, _ in accesses:
                _add_input(kernel, node)
            self._start(node)
            return
        if not accesses or node.op in (Op.CONST, Op.IOTA, Op.SIZE):
            return
        if is_in_memory(node):
            for kernel, _ in accesses:
                _add_input(kernel, node)
            # The stores of an AFTER are kernels of their own. `_visit` reaches them later.
            return
        if self._must_be_stored(node, accesses):
            for kernel, _ in accesses:
                _add_input(kernel, node)
            self._start(node)
            return
        for kernel, point in accesses:
            if node.op is Op.REDUCE:
                self._add_fold(kernel, node, point)
            elif node.op in LINES:
                self._add_line(kernel, node, point)
            else:
                self._add_sources(kernel, node, point)

    def _must_be_stored(self, node: Node, accesses: Mapping[tuple[Kernel, Point], None]) -> bool:
        if node.op is Op.SCATTER:
            raise ValueError("a SCATTER is rewritten before kernels are cut")
        if node.op is Op.REDUCE:
            if len(accesses) > 1 or node in self._reads_overwritten:
                return True
            (kernel, point), = accesses  # fmt: skip
            return not self._may_join(kernel, node, point, kernel.row_info)
        if node.op in LINES:
            if len(accesses) > 1 or node in self._reads_overwritten:
                return True
            (kernel, point), = accesses  # fmt: skip
            return kernel.work >= HEAVY or not _may_add_line(kernel, node, point)
        if len(accesses) > POINTS_LIMIT and node.op in ELEMENTWISE:
            return True
        reduces = self._gates.get(node)
        if reduces is not None and self._is_gate(node, accesses, reduces):
            return True
        if node in self._wide and len({kernel for kernel, _ in accesses}) > 1:
            return True
        return node.op in ELEMENTWISE and self._is_recomputed(node, accesses)

    def _is_gate(self, node: Node, accesses: Mapping[tuple[Kernel, Point], None], reduces: Sequence[Node]) -> bool:
        """Return whether to store a node because of a reduction below it: the reduction cannot join the node's users,
        but it can join the node.
        """
        kernels = list(dict.fromkeys(kernel for kernel, _ in accesses))
        if self._work.of(node) > LIGHT and any(self._is_heavy(kernel, one) for kernel in kernels for one in reduces):
            return False
        if len(kernels) == 1:
            joined, undecided = self._joinable(kernels[0], [(node, point) for _, point in accesses], reduces)
            # The search did not decide about the others: a node before the joined reductions is stored for them.
            if joined:
                joined |= undecided
            reduces = [one for one in reduces if one not in joined]
        if not reduces:
            return False
        own = self._kernel(node)
        return not self._joinable(own, [(node, own.axes)], reduces).found.isdisjoint(reduces)

    def _joinable(self, kernel: Kernel, roots: Sequence[tuple[Node, Point]], wanted: Sequence[Node]) -> Joinable:
        """Return the reductions below some values, nested ones included, that one kernel may compute together.

        Users are visited before the nodes they use, so all uses of a reduction are known when it is visited. The search
        ends at the last of `wanted` or when the kernel is full; `undecided` are those of `wanted` that it did not
        reach.
        """
        found: set[Node] = set()
        left, looked, rows = set(wanted), 0, kernel.row_info
        uses: dict[Node, dict[Point, None]] = {}
        # A heap of negative positions, so that the last node of the order comes first.
        waiting: list[int] = []

        def need(node: Node, point: Point) -> None:
            if node not in uses:
                uses[node] = {}
                heappush(waiting, -self._position[node])
            uses[node][point] = None

        for node, point in roots:
            need(node, point)
        while waiting and left and looked < MAX_CANDIDATES and len(kernel.folds) + len(found) < MAX_FOLDS:
            current = self._nodes[-heappop(waiting)]
            points = uses.pop(current)
            if current.op is Op.REDUCE and current is not kernel.root:
                looked += 1
                left.discard(current)
                at = next(iter(points))
                if len(points) == 1 and self._may_join(kernel, current, at, rows):
                    own = _rows_of(at, kernel)
                    if rows is None and own is not None:
                        rows = Rows(own, _length(current))
                    found.add(current)
                    inner = {i: axis(f"r{len(found)}_{i}", current.sources[0].shape[i]) for i in current.arg[1]}
                    need(current.sources[0], tuple(inner.get(i, index) for i, index in enumerate(at)))
            elif (
                not is_in_memory(current)
                and current.op is not Op.CONTIGUOUS
                and (current not in self.kernels or current is kernel.root)
            ):
                for at in points:
                    for source, there in sources(current, at):
                        need(source, there)
        return Joinable(found, left)

    def _is_recomputed(self, node: Node, accesses: Mapping[tuple[Kernel, Point], None]) -> bool:
        """Return whether a reduction over other axes would compute a costly node many times for
        each of its elements.
        """
        if node not in self._costly:
            return False
        most = max(RECOMPUTED_LIMIT * bounds(node.size)[1], CHEAP_EVALUATIONS_LIMIT)
        return any(_evaluations(kernel, point) > most for kernel, point in accesses)

    def _kernel(self, root: Node) -> Kernel:
        axes = tuple(axis(f"i{i}", size) for i, size in enumerate(shape_of(root)))
        return Kernel(root, axes, work=0 if root.op is Op.REDUCE or root.op in LINES else self._work.of(root))

    def _start(self, root: Node) -> None:
        kernel = self.kernels[root] = self._kernel(root)
        axes = kernel.axes
        if root.op is Op.REDUCE:
            self._add_fold(kernel, root, axes)
        elif root.op in LINES:
            self._add_line(kernel, root, axes)
        elif root.op is Op.STORE:
            self._add_access(kernel, root.sources[1], axes)
        elif root.op is Op.CONTIGUOUS:
            self._add_access(kernel, root.sources[0], axes)
        else:
            self._add_sources(kernel, root, axes)

    def _add_sources(self, kernel: Kernel, node: Node, point: Point) -> None:
        for source, at in sources(node, point):
            self._add_access(kernel, source, at)

    def _add_access(self, kernel: Kernel, node: Node, point: Point) -> None:
        self._accesses.setdefault(node, {})[kernel, point] = None

    def _add_fold(self, kernel: Kernel, node: Node, point: Point) -> None:
        _, axes = node.arg
        number = len(kernel.folds)
        inner = {i: axis(f"r{number}_{i}", node.sources[0].shape[i]) for i in axes}
        fold = Fold(node, point, inner)
        kernel.pool = self._pool_of(kernel, node, point)
        kernel.folds.append(fold)
        if kernel.rows is None:
            kernel.rows = _rows_of(point, kernel)
        found = find(node) if number == 0 else None
        if found is None or not self._add_attention(kernel, fold, found):
            self._add_access(kernel, node.sources[0], fold.inner)

    def _add_line(self, kernel: Kernel, node: Node, point: Point) -> None:
        """Add a line to a kernel."""
        along: int = node.arg[-2]
        kernel.line = Fold(node, point, {along: axis("line", node.shape[along])})
        for source in node.sources:
            self._add_access(kernel, source, kernel.line.inner)

    def _add_attention(self, kernel: Kernel, fold: Fold, found: Attention) -> bool:
        """Add a whole attention to a kernel if it may compute one, with all that it reads; return
        whether it was added.
        """
        inside = (found.weights, found.logits, found.scores, found.greatest, found.total)
        if any(one in self._accesses or one in self._outputs or one in self._reads_overwritten for one in inside):
            return False
        if self._work.of(found.logits) >= HEAVY_UNROLLED:
            return False
        first, second = found.result.sources[0].sources
        values = first if first is found.values else second
        factor = second if values is first else first
        logits = follow(factor, found.weights, fold.inner)
        if logits is None or not runs_over_keys(fold, found, logits) or not fits_tile(found, factor, values):
            return False
        if _rows_of(fold.point, kernel) != frozenset(atom_of(one) for one in kernel.axes if not isinstance(one, int)):
            return False
        leaves = leaves_of(found, values, fold.inner, logits)
        at = [point for node, point in leaves if node is found.scores]
        if len(set(at)) != 1:
            return False
        waiting = [node for node, uses in self._accesses.items() if any(user is kernel for user, _ in uses)]
        if self._reach([*waiting, *(node for node, _ in leaves if node is not found.scores)], inside):
            return False
        variables = {i: axis(f"s{i}", found.scores.sources[0].shape[i]) for i in found.scores.arg[1]}
        scores = Fold(found.scores, at[0], variables)
        keys = axes_of(tuple(fold.variables.values()))
        queries = [keys.isdisjoint(_axes_of(one, scores.inner)) for one in found.scores.sources[0].sources]
        if not any(queries):
            return False
        kernel.attention, kernel.scores = found, scores
        for node, point in leaves:
            if node is found.scores:
                self._add_access(kernel, node.sources[0].sources[0], kernel.scores.inner)
                self._add_access(kernel, node.sources[0].sources[1], kernel.scores.inner)
            else:
                self._add_access(kernel, node, point)
        return True

    def _reach(self, starts: Sequence[Node], targets: Collection[Node]) -> bool:
        """Return whether nodes that are computed in place lead from some nodes to others."""
        first = min(self._position[one] for one in targets)
        stack = list(starts)
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node in targets:
                return True
            if node.op in ELEMENTWISE or node.op in MOVEMENT or node.op in (Op.CAT, Op.GATHER):
                more = [one for one in node.sources if one not in seen and self._position[one] >= first]
                seen.update(more)
                stack += more
        return False

    def _may_join(self, kernel: Kernel, node: Node, point: Point, rows: Rows | None) -> bool:
        if (
            node in self._reads_overwritten
            or self._is_heavy(kernel, node)
            or kernel.attention is not None
            or kernel.line is not None
            or len(kernel.folds) >= MAX_FOLDS
            or any(fold.node is node for fold in kernel.folds)
        ):
            return False
        # An axis is always within its own size, whatever that size is.
        own_sizes = dict(zip(kernel.axes, kernel.shape, strict=True))
        for index, size in zip(point, node.shape, strict=True):
            if within(index, 0, size) is not True and own_sizes.get(index) != size:
                return False
        if self._pool_of(kernel, node, point) is not None:
            return True
        own = _rows_of(point, kernel)
        if own is None or kernel.pool is not None or (rows is not None and not own <= rows.axes):
            return False
        if _points(kernel, own) > bounds(node.size)[1]:
            return False
        whole = bounds(product(kernel.shape))[1]
        count, length = _points(kernel, own if rows is None else rows.axes), _length(node)
        if rows is not None and own != rows.axes and length > max(rows.length, CHEAP_EVALUATIONS_LIMIT // count):
            return False
        if self._contractions[node]:
            return count == whole and self._may_add_contraction(kernel, node, point)
        if kernel.folds and self._contractions[kernel.folds[0].node]:
            return False
        return count == whole or max(whole // count, length) <= ROW_LIMIT or count >= ONE_GROUP_A_ROW_MIN_ROWS

    def _may_add_contraction(self, kernel: Kernel, node: Node, point: Point) -> bool:
        """Return whether a kernel may compute a contraction: as its only fold, or together with another contraction of
        the same rows and columns.
        """
        if not kernel.folds:
            return True
        first, *more = kernel.folds
        if (
            more
            or kernel.attention is not None
            or not self._contractions[first.node]
            or node.dtype is not first.node.dtype
        ):
            return False
        own = axes_of(kernel.axes)
        sides = _sides(first.node, first.point, own)
        return all(sides) and frozenset(sides) == frozenset(_sides(node, point, own))

    def _pool_of(self, kernel: Kernel, node: Node, point: Point) -> Pool | None:
        """Return the pool that results if a kernel's one fold runs over all columns of a reduction below it, else None.

        The columns must be few and belong to that reduction alone. Then only one tile uses the staged rows, whatever
        the other sizes are.
        """
        if len(kernel.folds) != 1 or not self._contractions[node] or kernel.root in self._reads_overwritten:
            return None
        (fold,) = kernel.folds
        if self._contractions[fold.node] or node.dtype.bits < 32 or find(node) is not None:
            return None
        if any(not isinstance(size, int) for size in (*kernel.shape, *node.sources[0].shape)):
            return None
        own, columns = axes_of(kernel.axes), axes_of(tuple(fold.variables.values()))
        sides = _sides(node, point, own | columns)
        if kernel.rows != own or not columns or columns not in sides:
            return None
        rows, wide = _points(kernel, sides[columns == sides[0]]), bounds(fold.count)[1]
        if _points(kernel, own) * wide > bounds(node.size)[1]:
            return None
        is_deep = _length(node) > POOLED_DEPTH * rows
        return Pool(fold, sides) if rows >= MIN_TILED and MIN_TILED <= wide <= MAX_POOLED and not is_deep else None


def _may_add_line(kernel: Kernel, node: Node, point: Point) -> bool:
    """Return whether a kernel may compute a line: it has neither a line nor folds, and each of its elements uses a
    different element of the line.
    """
    along: int = node.arg[-2]
    own = {atom_of(one) for one in kernel.axes if not isinstance(one, int)}
    used = [walked_axes(index) for index in point]
    if kernel.line is not None or kernel.folds or not own.issuperset(frozenset().union(*used)):
        return False
    if len(used[along]) != 1 or any(used[along] & other for i, other in enumerate(used) if i != along):
        return False
    (walked,) = used[along]
    there, back = Expr(0, ((walked, 1),)), node.shape[along] - 1 - Expr(0, ((walked, 1),))
    sizes = [size for one, size in zip(kernel.axes, kernel.shape, strict=True) if one == there]
    if point[along] not in (there, back) or sizes != [node.shape[along]]:
        return False
    return product(kernel.shape) == node.size and all(
        within(index, 0, size) is True
        for i, (index, size) in enumerate(zip(point, node.shape, strict=True))
        if i != along
    )


def _rows_of(point: Point, kernel: Kernel) -> frozenset[Atom] | None:
    """Return the kernel's axes that a point depends on, None if the point depends on anything else."""
    own = {atom_of(one) for one in kernel.axes if not isinstance(one, int)}
    used: set[Atom] = set()
    for index in point:
        if not isinstance(index, int):
            used |= {atom for atom in index.variables() if is_axis(atom) or atom.kind == "value"}
    return frozenset(used) if used <= own else None


def _sides(contraction: Node, point: Point, axes: frozenset[Atom]) -> tuple[frozenset[Atom], frozenset[Atom]]:
    """Return the rows and the columns of a contraction: the axes that one factor depends on and the other does not, for
    each factor.
    """
    first, second = (_axes_of(factor, point) & axes for factor in contraction.sources[0].sources)
    return first - second, second - first


def _axes_of(node: Node, point: Point) -> frozenset[Atom]:
    """Return the axes that a node's value at a point depends on."""
    return axes_of(tuple(point[i] for i in depends(node)))


def _points(kernel: Kernel, atoms: frozenset[Atom]) -> int:
    """Return how many points a subset of the kernel's axes has."""
    return bounds(
        product(bounds(one)[1] + 1 for one in kernel.axes if not isinstance(one, int) and atom_of(one) in atoms)
    )[1]


def _length(reduction: Node) -> int:
    """Return how many elements are reduced to each result."""
    return bounds(reduction.sources[0].size)[1] // bounds(reduction.size)[1]


def _evaluations(kernel: Kernel, point: Point) -> int:
    """Return how often folds compute a value at a point: once for every element of each fold whose variables the point
    depends on.
    """
    rows = _points(kernel, kernel.rows or frozenset())
    most = 0
    for fold in kernel.folds:
        own = {atom_of(one) for one in fold.variables.values() if not isinstance(one, int)}
        if any(not isinstance(index, int) and not own.isdisjoint(index.variables()) for index in point):
            most = max(most, rows * bounds(fold.count)[1])
    return most


def _meet(
    a: Node | None, b: Node | None, after: Mapping[Node, Node | None], position: Mapping[Node, int]
) -> Node | None:
    while a is not b:
        if a is None or b is None:
            return None
        if position[a] < position[b]:
            a = after[a]
        else:
            b = after[b]
    return a


def _add_input(kernel: Kernel, node: Node) -> None:
    if node not in kernel.inputs:
        kernel.inputs.append(node)
