"""The common start and result of every lowering: arguments, symbolic sizes, the values of the roots, and the lowered
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler.graph import index
from ringup.compiler.graph.index import Atom, Expr, Int, bounds
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op, Storage
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.expressions import Expressions
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I32, I64, Function, Param, Value
from ringup.compiler.schedule.dependences import is_in_memory
from ringup.compiler.schedule.kernel import Kernel, memory_of, value_of
from ringup.compiler.schedule.views import Point, flat, source_point

Groups = tuple[Int, Int, Int]


@dataclass(frozen=True)
class Lowered:
    """A kernel as machine IR. `memory`: the nodes whose memory the first arguments point to. `sizes`: the symbolic
    sizes, which are the arguments after them.

    `axes` and `choice` describe the shape of the work for people.
    """

    function: Function
    memory: tuple[Node, ...]
    sizes: tuple[Atom, ...]
    groups: Groups
    axes: tuple[Axis, ...] = ()
    choice: str = ""


class Frame:
    """The builder of one kernel with its arguments bound."""

    def __init__(self, kernel: Kernel, name: str, group_size: int, wave_size: int) -> None:
        self.kernel = kernel
        targets = [target_of(root) for root in kernel.roots]
        self.memory = memory_order(kernel)
        self.sizes = tuple(_sizes(kernel))
        params = [
            Param(f"m{i}", I64, True, one in targets, bounds(one.size)[1] * one.dtype.size_bytes)
            for i, one in enumerate(self.memory)
        ]
        params += [Param(str(one), I32 if one.hi < 1 << 31 else I64) for one in self.sizes]
        self.build = Builder(name, params, group_size, wave_size=wave_size)
        numbers = {one: i for i, one in enumerate(self.memory)}
        places = {one: numbers[memory_of(one)] for one in kernel.inputs} | {one: numbers[one] for one in targets}
        self.expressions = Expressions(self.build, places, kernel.inputs, kernel.roots)
        for i, size in enumerate(self.sizes):
            self.expressions.numbers.bind(size, self.build.param(len(self.memory) + i))
        self._targets = targets

    def bind(self, variable: Int, value: Value) -> None:
        """Bind an axis to a value. An axis that can only be 0 needs none."""
        if isinstance(variable, Expr):
            self.expressions.numbers.bind(index.atom_of(variable), value)

    def results(self, points: Sequence[Point], masks: Sequence[Value | None]) -> list[list[Value]]:
        """Return the values of each root at points of the kernel's axes."""
        kernel = self.kernel
        return [
            self.expressions.values(
                value_of(root),
                [(kernel.point_of(root, point), mask) for point, mask in zip(points, masks, strict=True)],
            )
            for root in kernel.roots
        ]

    def store(self, points: Sequence[Point], results: Sequence[Sequence[Value]], mask: Value | None = None) -> None:
        """Store the values of each root at points of the kernel's axes.

        ORDER: a thread reads everything it needs at these points before it stores; a root may read what another one
        overwrites.
        """
        for root, target, values in zip(self.kernel.roots, self._targets, results, strict=True):
            self._store(root, target, [self.kernel.point_of(root, point) for point in points], values, mask)

    def _store(
        self, root: Node, target: Node, points: Sequence[Point], values: Sequence[Value], mask: Value | None
    ) -> None:
        if root.op is not Op.STORE:
            self.expressions.store(root, points, values, mask)
            return
        places = []
        for point in points:
            node = root.sources[0]
            while node.op in MOVEMENT:
                point, conditions = source_point(node, point)
                if conditions != []:
                    raise ValueError("a padded view cannot be stored to")
                node = node.sources[0]
            places.append(flat(point, node.shape))
        self.expressions.store_at(target, places, values, mask)

    def done(self, groups: Groups, axes: Sequence[Axis], choice: object) -> Lowered:
        """Return the lowered kernel."""
        return Lowered(self.build.function, self.memory, self.sizes, groups, tuple(axes), str(choice))


def memory_order(kernel: Kernel) -> tuple[Node, ...]:
    """Return the nodes whose memory a kernel's arguments point to: first what it writes, then what it reads."""
    return tuple(dict.fromkeys([*map(target_of, kernel.roots), *(memory_of(one) for one in kernel.inputs)]))


def target_of(root: Node) -> Node:
    """Return the node whose memory a root writes."""
    if root.op is not Op.STORE:
        return root
    node = root.sources[0]
    while not is_in_memory(node):
        if node.op not in MOVEMENT:
            raise ValueError(f"{node} is not a view of memory")
        node = node.sources[0]
    return memory_of(node)


def storage_of(node: Node) -> Storage | None:
    """Return a BUFFER's storage, None for memory in the plan's arena."""
    return node.arg if isinstance(node.arg, Storage) else None


def _sizes(kernel: Kernel) -> list[Atom]:
    """Return the symbolic sizes that a kernel may depend on, sorted by name."""
    found: dict[str, Atom] = {}
    stack, seen = [*kernel.roots], {*kernel.roots}
    while stack:
        node = stack.pop()
        if node in kernel.roots or node not in kernel.inputs:
            for source in node.sources:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        numbers: list[object] = [*node.shape]
        if node.op is Op.SIZE:
            numbers.append(node.arg)
        elif node.op is Op.SHRINK:
            numbers += [start for start, _ in node.arg]
        elif node.op is Op.PAD:
            numbers += [end for pair in node.arg[0] for end in pair]
        for number in numbers:
            if isinstance(number, Expr):
                found |= {str(atom): atom for atom in number.variables() if not index.is_axis(atom)}
    return [found[name] for name in sorted(found)]


__all__ = ["Frame", "Groups", "Lowered", "storage_of", "target_of"]
