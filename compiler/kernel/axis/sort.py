"""Kernels with a SORT: a bitonic network sorts the elements of a row in registers.

A thread holds adjacent elements. Steps between these compare registers. Steps between lanes exchange values by DPP, and
steps between waves of a row through LDS. The first step of each block compares mirrored positions, so the lesser
element always goes to the lower place and no step has a direction. Source: Batcher, Sorting Networks and Their
Applications, 1968, "bitonic sorters"; the mirrored first step is that network with renamed lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import xor

from ringup.compiler.graph.index import Int, axis
from ringup.compiler.kernel.axis.lines import Lines
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.expressions import divides
from ringup.compiler.kernel.common.frame import Frame, Lowered
from ringup.compiler.kernel.common.merge_axes import most, power_of_two
from ringup.compiler.kernel.common.sharing import place_of_thread
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import I1, I32, Value
from ringup.compiler.schedule.kernel import Kernel
from ringup.compiler.schedule.views import Within, within

# Threads of a group where rows are short.
GROUP = 128
MAX_THREADS = 1024
MAX_VECTOR = 8
# Elements of a row up to which a thread holds four.
SHORT = 1024


@dataclass(frozen=True)
class Shape:
    """The assignment of rows to threads: `parts` threads for a row, each with `vector` adjacent elements; `own` rows in
    a group; `wave` threads of a wave.
    """

    parts: int
    own: int
    vector: int
    wave: int

    def __str__(self) -> str:
        return f"sort parts={self.parts} own={self.own} vector={self.vector}"

    @property
    def group(self) -> int:
        """Return the number of threads of a group."""
        return max(self.wave, self.parts * self.own)


class Sort(Lines):
    """The lowering of one kernel."""

    def __init__(self, kernel: Kernel, wave: int) -> None:
        super().__init__(kernel, wave)
        self.padded = power_of_two(most(self.length))
        dtype = self.line.node.dtype
        self.type, self._less = element_forms.held(dtype), "lt_s" if dtype.kind == "int" else "lt_u"

    def _shape(self, vector: int, group: int) -> Shape:
        vector = min(vector, self.padded)
        parts = self.padded // vector
        return Shape(parts, max(1, min(group // parts, power_of_two(most(self.count)))), vector, self.wave)

    def choose(self) -> Shape:
        """Return the heuristic shape: as few elements for each thread as the size of a group allows."""
        return self._shape(MAX_VECTOR // 2 if self.padded <= SHORT else MAX_VECTOR, GROUP)

    def candidates(self) -> list[Shape]:
        """Return every candidate shape; the one of `choose` is first."""
        found = [self.choose()]
        for vector in (2, 4, 8, 16):
            shapes = [self._shape(vector, group) for group in (self.wave, GROUP, 2 * GROUP)]
            found += [one for one in shapes if one.group <= MAX_THREADS]
        return list(dict.fromkeys(found))

    def axes(self) -> list[Axis]:
        """Return the mapping of the axes."""
        shape = self.shape
        return [
            Axis("group", "grid", (self.count + shape.own - 1) // shape.own, "groups of rows"),
            Axis("own", "lane" if shape.parts < self.wave else "wave", shape.own, "rows of a group"),
            Axis("part", "reduce", shape.parts, "threads that share a row"),
            Axis("vector", "unroll", shape.vector, "neighbouring elements of a thread"),
        ]

    def lower(self, name: str, choice: Shape | None = None) -> Lowered:
        """Return the machine IR in the given or the heuristic shape."""
        self.shape = shape = choice or self.choose()
        self.frame = frame = Frame(self.kernel, name, shape.group, self.wave)
        self.build = frame.build
        self.part, self.own = place_of_thread(self.frame.build, shape.parts, shape.own, across=False)
        frame.bind(axis("part", shape.parts), self.part)
        number, self.is_row = self.row_number(self.count, shape.own, self.own, shape.parts * shape.own)
        self.place_row(number, across=False)
        places, masks = self._places()
        values = self._sorted(self._elements(places, masks))
        self.finish(places, masks, values[: len(places)], shape.vector)
        if shape.parts > self.wave:
            self.build.function.lds_bytes = shape.own * self.padded * self.type.size_bytes
        return frame.done(((self.count + shape.own - 1) // shape.own, 1, 1), self.axes(), shape)

    def _places(self) -> tuple[list[Int], list[Value | None]]:
        """Return this thread's positions along the row, without those that never exist, and the conditions for an
        element to exist.
        """
        shape, numbers = self.shape, self.frame.expressions.numbers
        first: Int = axis("part", shape.parts) * shape.vector
        whole = divides(shape.vector, self.size) and divides(shape.vector, self.length)
        places: list[Int] = []
        masks: list[Value | None] = []
        for step in range(shape.vector):
            tested = first if whole else first + step
            tests = [within(tested, 0, self.length), within(self.start + tested, 0, self.size)]
            if False in tests:
                break
            places.append(self.start + first + step)
            masks.append(numbers.all_of([one for one in dict.fromkeys(tests) if isinstance(one, Within)]))
        return places, masks

    def _elements(self, places: Sequence[Int], masks: Sequence[Value | None]) -> list[Value]:
        """Return a thread's elements. A missing one is the greatest number, which is sorted to the end."""
        (source,) = self.line.node.sources
        greatest = element_forms.constant(self.build, int(source.dtype.greatest), source.dtype)
        points = [(self.source_point(place), mask) for place, mask in zip(places, masks, strict=True)]
        found = []
        for value, mask in zip(self.frame.expressions.values(source, points), masks, strict=True):
            found.append(value if mask is None else self.build.op("select", value.type, mask, value, greatest))
        return found + [greatest] * (self.shape.vector - len(found))

    def _sorted(self, values: list[Value]) -> list[Value]:
        """Return this thread's elements of the sorted row."""
        vector = self.shape.vector
        block = 2
        while block <= self.padded:
            values = self._mirrored(values, block)
            distance = block // 4
            while distance:
                if distance < vector:
                    values = self._within_thread(values, partial(xor, distance))
                else:
                    values = self._kept(values, self._exchanged(values, distance // vector), distance // vector)
                distance //= 2
            block *= 2
        return values

    def _mirrored(self, values: list[Value], block: int) -> list[Value]:
        """Compare each element with the mirrored one in a block whose halves are sorted. Afterwards, the lower half
        holds the lesser ones.
        """
        vector = self.shape.vector
        if block <= vector:
            return self._within_thread(values, partial(xor, block - 1))
        lanes = block // vector - 1
        return self._kept(values, self._exchanged(values, lanes)[::-1], block // vector // 2)

    def _within_thread(self, values: list[Value], other: Callable[[int], int]) -> list[Value]:
        found = list(values)
        for i in range(len(values)):
            j = other(i)
            if i < j:
                a, b = values[i], values[j]
                less = self.build.compare(self._less, b, a)
                found[i] = self.build.op("select", a.type, less, b, a)
                found[j] = self.build.op("select", a.type, less, a, b)
        return found

    def _kept(self, mine: list[Value], other: list[Value], bit: int) -> list[Value]:
        """Return the lesser of two where the bit of the thread's number is clear, and the greater where it is set."""
        build = self.build
        upper = build.compare("ne", build.op("and", I32, self.part, build.const(bit)), build.const(0))
        found = []
        for a, b in zip(mine, other, strict=True):
            takes = build.op("xor", I1, build.compare(self._less, b, a), upper)
            found.append(build.op("select", a.type, takes, b, a))
        return found

    def _exchanged(self, values: list[Value], mask: int) -> list[Value]:
        """Return the elements of the thread whose number in the row differs in the bits of a mask."""
        build = self.build
        if mask < self.wave:
            return [build.op("shuffle_xor", one.type, one, imm=mask) for one in values]
        size, parts = self.type.size_bytes, self.shape.parts
        row = build.mul(self.own, self.padded * size)
        own = build.add(row, build.mul(self.part, size))
        other = build.add(row, build.mul(build.op("xor", I32, self.part, build.const(mask)), size))
        # Wait until the previous contents have been read.
        build.barrier()
        for i, one in enumerate(values):
            build.lds_store(own, one, constant=i * parts * size)
        build.barrier()
        return [build.lds_load(self.type, other, constant=i * parts * size) for i in range(len(values))]


def candidates(kernel: Kernel, traits: Traits) -> list[Shape]:
    """Return every candidate shape of a kernel with a SORT, the heuristic one first."""
    return Sort(kernel, traits.wave_size).candidates()


def lower(kernel: Kernel, name: str, traits: Traits, choice: Shape | None = None) -> Lowered:
    """Return the machine IR of a kernel with a SORT, in the given or the heuristic shape."""
    return Sort(kernel, traits.wave_size).lower(name, choice)
