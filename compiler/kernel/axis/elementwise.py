"""Kernels without reductions. A thread computes a few adjacent elements, a group a range of the innermost axis."""

from __future__ import annotations

from dataclasses import dataclass

from ringup.compiler.graph.index import Int, atom_of, axis, product, substitute
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.kernel.common.axes import Axis, threads
from ringup.compiler.kernel.common.expressions import WIDEST_BYTES, divides
from ringup.compiler.kernel.common.frame import Frame, Lowered
from ringup.compiler.kernel.common.merge_axes import Space, merged, most, places, stride
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import I32
from ringup.compiler.schedule.estimate_work import HEAVY
from ringup.compiler.schedule.kernel import Kernel, accesses
from ringup.compiler.schedule.views import within, written

# Threads of a full group.
GROUP = 256
# The group sizes of candidates.
GROUPS = (256, 128, 64, 512)
# Fewer threads than this leave compute units idle: vectors are made shorter first.
BUSY_THREADS = 8192


@dataclass(frozen=True)
class Shape:
    """The assignment of elements to threads: each computes `vector` adjacent elements along the last axis. `flat`:
    groups run through all axes at once.
    """

    vector: int
    group: int
    flat: bool

    def __str__(self) -> str:
        return f"elementwise vector={self.vector} group={self.group} {'flat' if self.flat else 'by rows'}"


def positions(kernel: Kernel) -> list[Int]:
    """Return every position in memory that a kernel reads or writes, in terms of its axes."""
    return [*places(accesses(kernel.results, kernel.inputs, kernel.folds)), *all_written(kernel)]


def all_written(kernel: Kernel) -> list[Int]:
    """Return the position that each root writes, in terms of the kernel's axes."""
    return [written(root, kernel.point_of(root, kernel.axes)) for root in kernel.roots]


def joins_pairs(node: Node) -> bool:
    """Return whether every second element comes from another source, as the two parts of complex numbers do."""
    return node.op is Op.CAT and len(node.sources) == 2 and node.shape[-1] == 2 and node.arg == len(node.shape) - 1


class Plan:
    """The merged axes of a kernel, and the shapes it may have. `wave`: threads of a wave."""

    def __init__(self, kernel: Kernel, wave: int) -> None:
        found = positions(kernel)
        self.wave = wave
        self.kernel = kernel
        self.space = merged(list(zip(kernel.axes, kernel.shape, strict=True)), found, "e")
        self._moved = [substitute(one, self.space.original) for one in found]

    def vectors(self) -> list[int]:
        """Return how many adjacent elements a thread may compute, most first. An access is at most 16 bytes. Above 1
        only where some access is contiguous along the last axis.
        """
        space = self.space
        last = space.sizes[-1] if space.sizes else 1
        widest = max(one.dtype.size_bytes for one in (*self.kernel.roots, *self.kernel.inputs))
        steady = (
            any(stride(position, space.variables[-1]) == 1 for position in self._moved) if space.variables else False
        )
        vector = max(1, WIDEST_BYTES // widest)
        found = []
        while vector > 1:
            if steady and divides(vector, last):
                found.append(vector)
            vector //= 2
        return [*found, 1]

    def choose(self) -> Shape:
        """Return the heuristic shape: accesses of 16 bytes where the last axis allows, and enough threads to fill a
        card.
        """
        total, vectors = most(self.space.size), self.vectors()
        if self.kernel.work >= HEAVY:
            # Such long code is not repeated for several elements; but a thread that chooses one of two has the code of
            # both, and with two elements it computes each of them once.
            vectors = [2, 1] if 2 in vectors and joins_pairs(self.kernel.computed) else [1]
        return self._shape(next((one for one in vectors if total // one >= BUSY_THREADS), 1), GROUP)

    def _shape(self, vector: int, group: int, *, flat_: bool = False) -> Shape:
        space = self.space
        threads_ = most(space.sizes[-1] if space.sizes else 1) // vector
        if len(space.sizes) > 1 and threads_ >= 64 and not flat_:
            return Shape(vector, min(group, self._whole_waves(threads_)), False)
        return Shape(vector, min(group, self._whole_waves(most(space.size) // vector)), True)

    def _whole_waves(self, count: int) -> int:
        return max(1, -(-count // self.wave)) * self.wave

    def candidates(self) -> list[Shape]:
        """Return every candidate shape; the one of `choose` is first."""
        found = [
            self._shape(vector, group, flat_=one)
            for vector in self.vectors()
            for group in GROUPS
            for one in (False, True)
        ]
        return list(dict.fromkeys([self.choose(), *found]))

    def axes(self, shape: Shape) -> list[Axis]:
        """Return the mapping of the axes."""
        sizes = self.space.sizes
        count = self.space.size if shape.flat else sizes[-1]
        rest = product(sizes[:-1]) if not shape.flat else 1
        found = [
            Axis(
                "group",
                "grid",
                _groups(count, shape),
                "stretches of the innermost axis" if not shape.flat else "stretches of all elements",
            )
        ]
        if rest != 1:
            found.append(Axis("row", "grid", rest, "the outer axes"))
        return [
            *found,
            *threads(shape.group, self.wave),
            Axis("vector", "unroll", shape.vector, "neighbouring elements of a thread"),
        ]


def candidates(kernel: Kernel, traits: Traits) -> list[Shape]:
    """Return every candidate shape of a kernel without folds, the heuristic one first."""
    return Plan(kernel, traits.wave_size).candidates()


def lower(kernel: Kernel, name: str, traits: Traits, choice: Shape | None = None) -> Lowered:
    """Return the machine IR of a kernel without folds, in the given or the heuristic shape."""
    plan = Plan(kernel, traits.wave_size)
    space = plan.space
    shape = choice or plan.choose()
    frame = Frame(kernel, name, shape.group, traits.wave_size)
    build = frame.build
    numbers = frame.expressions.numbers
    group_id = build.op("group_id", I32, imm=0)
    thread = build.op("thread_id", I32)
    count = space.size if shape.flat else space.sizes[-1]
    group, lane = axis("group", _groups(count, shape)), axis("lane", shape.group)
    frame.bind(group, group_id)
    frame.bind(lane, thread)
    first: Int = (group * shape.group + lane) * shape.vector
    limit = within(first, 0, count)
    outer = [] if shape.flat else list(zip(space.variables[:-1], space.sizes[:-1], strict=True))
    values = {} if not outer else _outer(frame, outer)
    if limit is True:
        _compute(frame, space, shape, first, values)
    elif limit is not False:
        with frame.expressions.when(numbers.condition(limit)):
            _compute(frame, space, shape, first, values)
    rest = product(size for _, size in outer)
    return frame.done((_groups(count, shape), rest, 1), plan.axes(shape), shape)


def _groups(count: Int, shape: Shape) -> Int:
    return (count + shape.group * shape.vector - 1) // (shape.group * shape.vector)


def _outer(frame: Frame, outer: list[tuple[Int, Int]]) -> dict[Int, Int]:
    """Return the indices of the outer axes in terms of the group's number along y."""
    row = axis("row", product(size for _, size in outer))
    frame.bind(row, frame.build.op("group_id", I32, imm=1))
    found: dict[Int, Int] = {}
    for variable, size in reversed(outer[1:]):
        found[variable] = row % size
        row = row // size
    found[outer[0][0]] = row
    return found


def _compute(frame: Frame, space: Space, shape: Shape, first: Int, outer: dict[Int, Int]) -> None:
    points = []
    for step in range(shape.vector):
        places_ = dict(outer)
        rest = first + step
        if shape.flat:
            for variable, size in zip(space.variables[:0:-1], space.sizes[:0:-1], strict=True):
                places_[variable] = rest % size
                rest = rest // size
            if space.variables:
                places_[space.variables[0]] = rest
        else:
            places_[space.variables[-1]] = rest
        atoms = {atom_of(variable): value for variable, value in places_.items() if not isinstance(variable, int)}
        points.append(tuple(substitute(index, atoms) for index in space.moved(frame.kernel.axes)))
    frame.store(points, frame.results(points, [None] * len(points)))
