"""Kernels without reductions: a thread computes a few neighbouring elements, a group a stretch of the innermost axis."""

from __future__ import annotations

from dataclasses import dataclass

from ringup.compiler.graph import Node, Op
from ringup.compiler.index import Int, atom_of, axis, product, substitute
from ringup.compiler.kernel.expressions import WIDEST_BYTES, divides
from ringup.compiler.kernel.frame import Frame, Lowered
from ringup.compiler.kernel.space import Space, merged, most, places, stride
from ringup.compiler.machine.ir import I32
from ringup.compiler.schedule.cut import Kernel, accesses
from ringup.compiler.schedule.views import Point, flat, source_point, within

GROUP = 256  # threads of a full group: 8 waves of 32
BUSY_THREADS = 8192  # fewer threads than this leave compute units idle: vectors are made shorter first


@dataclass(frozen=True)
class Shape:
    """How the elements fall to threads: `vector` neighbours along the last axis each; `flat`: groups run through all axes at once."""

    vector: int
    group: int
    flat: bool


def positions(kernel: Kernel) -> list[Int]:
    """Return every position in memory that a kernel reads or writes, in terms of its axes."""
    reads = accesses([(kernel.computed, kernel.axes)], kernel.inputs, kernel.folds)
    return [*places(reads), written(kernel.root, kernel.axes)]


def written(root: Node, point: Point) -> Int:
    """Return the position that a kernel writes for a point of its axes."""
    if root.op is not Op.STORE:
        return flat(point, root.shape)
    node = root.sources[0]
    while node.sources and node.op not in (Op.BUFFER, Op.AFTER):
        point, _ = source_point(node, point)
        node = node.sources[0]
    return flat(point, node.shape)


def choose(kernel: Kernel, space: Space, moved: list[Int]) -> Shape:
    """Return the shape that suits a kernel: accesses of 16 bytes where the last axis allows, enough threads to fill a card."""
    last = space.sizes[-1] if space.sizes else 1
    total = most(space.size)
    widest = max(one.dtype.size_bytes for one in (kernel.computed, *kernel.inputs))
    vector = max(1, WIDEST_BYTES // widest)
    steady = any(stride(position, space.variables[-1]) == 1 for position in moved) if space.variables else False
    while vector > 1 and (not steady or not divides(vector, last) or total // vector < BUSY_THREADS):
        vector //= 2
    threads = most(last) // vector
    if len(space.sizes) > 1 and threads >= 64:
        return Shape(vector, min(GROUP, -(-threads // 32) * 32), False)
    return Shape(vector, min(GROUP, -(-(total // vector) // 32) * 32), True)


def lower(kernel: Kernel, name: str) -> Lowered:
    """Return the machine IR of a kernel that has no folds."""
    sizes = kernel.shape
    found = positions(kernel)
    space = merged(list(zip(kernel.axes, sizes, strict=True)), found, "e")
    shape = choose(kernel, space, [substitute(one, space.original) for one in found])
    frame = Frame(kernel, name, shape.group)
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
    return frame.done((_groups(count, shape), rest, 1))


def _groups(count: Int, shape: Shape) -> Int:
    return (count + shape.group * shape.vector - 1) // (shape.group * shape.vector)


def _outer(frame: Frame, outer: list[tuple[Int, Int]]) -> dict[Int, Int]:
    """Return what the outer axes are in terms of the group's number along y."""
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
    values = frame.expressions.values(frame.kernel.computed, [(point, None) for point in points])
    frame.store(points, values)
