"""Kernels with a running reduction (a scan): each element of a row is combined with all before it.

A thread scans a few adjacent elements. Lanes pass their totals up by DPP, and units (waves of a row, or parts of a
column) pass theirs through LDS. A row longer than a tile takes several iterations, with a carry. Where memory is
contiguous across rows, adjacent lanes have adjacent rows and pass nothing. With keys, each run of equal keys is scanned
separately: a total is combined with what follows if that has the same key. Runs are contiguous, so that is sufficient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Int, axis
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.kernel.axis.lines import Lines
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.arith import cast, operate
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.expressions import Request, divides
from ringup.compiler.kernel.common.frame import Frame, Lowered
from ringup.compiler.kernel.common.merge_axes import most, power_of_two
from ringup.compiler.kernel.common.sharing import Sharing, place_of_thread
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I1, I8, I32, Type, Value
from ringup.compiler.schedule.kernel import Kernel
from ringup.compiler.schedule.reduction_facts import identity, kept
from ringup.compiler.schedule.views import Within, within

# Lanes of a wave within which `shuffle_up` moves.
ROW = 16
GROUP = 256
# Adjacent elements of a thread. Twice as many for types below 32 bits, and across rows.
PIECE = 4
# Units whose totals each thread reads.
MAX_UNITS = 16
MAX_THREADS = 1024


class Shape(Sharing):
    """The assignment of rows to threads."""

    kind = "scan"

    @property
    def tile(self) -> int:
        """Return the elements of a row in one iteration."""
        return self.parts * self.vector


class Total(NamedTuple):
    """An accumulator, and the key of its last element if there are keys."""

    value: Value
    key: Value | None = None


class Scanner:
    """The arithmetic of one SCAN."""

    def __init__(self, build: Builder, node: Node) -> None:
        self.build, self.op, self.node = build, node.arg[0], node
        self.dtype: DType = kept(self.op, node.dtype)
        self.keys: DType | None = node.sources[1].dtype if len(node.sources) > 1 else None

    def first(self) -> Total:
        """Return the identity element. For sums of floats it is -0.0, which keeps the sign of a zero."""
        start = identity(self.op, self.dtype)
        value = element_forms.constant(
            self.build, -0.0 if self.op is Op.ADD and self.dtype.is_float else start, self.dtype
        )
        return Total(value, None if self.keys is None else element_forms.constant(self.build, 0, self.keys))

    def element(self, value: Value, key: Value | None, mask: Value | None) -> Total:
        """Return an element, or the identity element where the mask is false."""
        value = cast(self.build, value, self.node.dtype, self.dtype)
        if mask is not None:
            value = self.build.op("select", value.type, mask, value, self.first().value)
        return Total(value, key)

    def joined(self, before: Total, after: Total, where: Value | None = None) -> Total:
        """Combine a total with the one that follows it, where a condition holds and the keys are equal; elsewhere
        return the latter.
        """
        both = operate(self.build, self.op, self.dtype, self.dtype, (before.value, after.value))
        if before.key is not None and after.key is not None:
            same = self.build.compare("eq", before.key, after.key)
            where = same if where is None else self.build.op("and", I1, where, same)
        return Total(both if where is None else self.build.op("select", both.type, where, both, after.value), after.key)

    def chosen(self, where: Value, one: Total, other: Total) -> Total:
        """Return one total where a condition holds, the other elsewhere."""
        return self._each(lambda a, b: self.build.op("select", a.type, where, a, b), one, other)

    def up(self, total: Total, distance: int) -> Total:
        """Return the total of a lower lane in the same row of 16."""
        return self._each(lambda one: self.build.op("shuffle_up", one.type, one, imm=distance), total)

    def of_lane(self, total: Total, lane: int) -> Total:
        """Return the total of one lane."""
        return self._each(lambda one: self.build.op("read_lane", one.type, one, imm=lane), total)

    def of_any_lane(self, total: Total, lane: Value) -> Total:
        """Return the total of a lane that each lane chooses."""
        return self._each(lambda one: self.build.op("shuffle", one.type, one, lane), total)

    @staticmethod
    def _each(change: Callable[..., Value], *totals: Total) -> Total:
        values = change(*(one.value for one in totals))
        keys = [one.key for one in totals]
        return Total(values, None if None in keys else change(*keys))


class Scan(Lines):
    """The lowering of one kernel."""

    def choose(self) -> Shape:
        """Return the heuristic shape: a tile that holds a row, or as many threads as can pass totals cheaply."""
        size, length, count = self.kernel.computed.dtype.size_bytes, most(self.length), most(self.count)
        if self.across:
            own = min(self.wave, power_of_two(most(self.rows.sizes[-1])))
            vector = min(2 * PIECE, power_of_two(length))
            parts = max(self.wave // own, min(MAX_UNITS // 2, power_of_two(-(-length // vector))))
            return Shape(parts, own, vector, True, self.wave)
        vector = PIECE if size >= 4 else 2 * PIECE
        vector = min(vector, power_of_two(length))
        parts = min(GROUP, power_of_two(-(-length // vector)))
        return Shape(parts, max(1, min(GROUP // 2 // parts, power_of_two(count))), vector, False, self.wave)

    def candidates(self) -> list[Shape]:
        """Return every candidate shape; the one of `choose` is first. Less than a wave shares a row only where one tile
        holds it.
        """
        first = self.choose()
        found = [first]
        length, count = most(self.length), power_of_two(most(self.count))
        for vector in dict.fromkeys((first.vector, first.vector * 2, max(1, first.vector // 2), 1)):
            for parts in (first.parts // 2, first.parts, first.parts * 2, first.parts * 4):
                if self.across:
                    if 1 <= parts <= MAX_UNITS and self.wave <= parts * first.own <= MAX_THREADS:
                        found.append(Shape(parts, first.own, vector, True, self.wave))
                    continue
                if parts < 1 or parts > self.wave * MAX_UNITS or parts // 2 * vector >= length:
                    continue
                if parts < self.wave and parts * vector < length:
                    continue
                found += [
                    Shape(parts, max(1, min(group // parts, count)), vector, False, self.wave) for group in (128, GROUP)
                ]
        return list(dict.fromkeys(found))

    def axes(self) -> list[Axis]:
        """Return the mapping of the axes."""
        shape = self.shape
        found = [
            Axis("group", "grid", self._groups(), "groups of rows"),
            Axis("own", "lane" if shape.across or shape.parts < self.wave else "wave", shape.own, "rows of a group"),
            Axis("part", "reduce", shape.parts, "threads that share a row"),
            Axis("vector", "unroll", shape.vector, "neighbouring elements of a thread"),
        ]
        turns = self._turns()
        return found if turns == 1 else [*found, Axis("turn", "loop", turns, "tiles of a row, with a carry")]

    def _groups(self) -> Int:
        return (self.count + self.shape.own - 1) // self.shape.own

    def _turns(self) -> Int:
        return (self.length + self.shape.tile - 1) // self.shape.tile

    def lower(self, name: str, choice: Shape | None = None) -> Lowered:
        """Return the machine IR in the given or the heuristic shape."""
        self.shape = shape = choice or self.choose()
        self.frame = frame = Frame(self.kernel, name, shape.group, self.wave)
        self.build = frame.build
        self.scanner = Scanner(self.build, self.line.node)
        self.part, self.own = place_of_thread(self.frame.build, shape.parts, shape.own, across=shape.across)
        frame.bind(axis("part", shape.parts), self.part)
        number, self.is_row = self.row_number(self.count, shape.own, self.own, shape.parts * shape.own)
        self.place_row(number, across=shape.across)
        turns = self._turns()
        if turns == 1:
            self._tile(0, None, None)
        else:
            turn = axis("turn", turns)
            stop = turns if isinstance(turns, int) else frame.expressions.numbers.emit(turns)
            start = self.scanner.first()
            carried = [one for one in start if one is not None]
            with frame.expressions.loop(turn, 0, stop, 1, carried) as loop:
                following = self._tile(turn, Total(*loop.carried), loop.index)
                loop.following = [one for one in following if one is not None]
        self.build.function.lds_bytes = self._lds_bytes()
        return frame.done((self._groups(), 1, 1), self.axes(), shape)

    def _tile(self, turn: Int, carry: Total | None, index: Value | None) -> Total:
        """Scan and store one tile of each row; return the carry into the next."""
        places, masks = self._places(turn)
        elements = self._elements(places, masks)
        for i in range(1, len(elements)):
            elements[i] = self.scanner.joined(elements[i - 1], elements[i])
        before, after = self._before(elements[-1], carry, index)
        if before is not None:
            elements = [self.scanner.joined(before, one) for one in elements]
        node = self.line.node
        values = [cast(self.build, one.value, self.scanner.dtype, node.dtype) for one in elements]
        self.finish(places, masks, values, self.shape.vector)
        return after

    def _places(self, turn: Int) -> tuple[list[Int], list[Value | None]]:
        """Return this thread's positions along the row in one iteration, and the conditions for an element to exist."""
        shape, numbers = self.shape, self.frame.expressions.numbers
        inner: Int = turn * shape.tile + axis("part", shape.parts) * shape.vector
        whole = divides(shape.vector, self.size) and divides(shape.vector, self.length)
        places: list[Int] = []
        masks: list[Value | None] = []
        for step in range(shape.vector):
            place = inner + step
            tested = inner if whole else place
            tests = [within(tested, 0, self.length), within(self.start + tested, 0, self.size)]
            if False in tests:
                break
            places.append(self.start + place)
            masks.append(numbers.all_of([one for one in dict.fromkeys(tests) if isinstance(one, Within)]))
        return places, masks

    def _elements(self, places: Sequence[Int], masks: Sequence[Value | None]) -> list[Total]:
        points: list[Request] = [(self.source_point(place), mask) for place, mask in zip(places, masks, strict=True)]
        columns = [self.frame.expressions.values(source, points) for source in self.line.node.sources]
        keys: Sequence[Value | None] = columns[1] if len(columns) > 1 else [None] * len(points)
        return [self.scanner.element(*one) for one in zip(columns[0], keys, masks, strict=True)]

    def _before(self, total: Total, carry: Total | None, index: Value | None) -> tuple[Total | None, Total]:
        """Return the total of everything before a thread's elements (None: there is nothing), and the total of the row
        so far.
        """
        shape, scanner = self.shape, self.scanner
        below: Total | None = None
        if not shape.across and shape.parts > 1:
            total, below = self._over_lanes(total, min(shape.parts, self.wave))
        units = shape.parts if shape.across else shape.parts // self.wave
        if units > 1:
            if not shape.across:
                total = scanner.of_lane(total, self.wave - 1)
            before, after = self._over_units(total, carry, index, units)
        else:
            # The row has one wave.
            if below is not None and carry is not None:
                total = scanner.of_lane(total, self.wave - 1)
            before, after = carry, total if carry is None else scanner.joined(carry, total)
        if below is None or before is None:
            return below if before is None else before, after
        first = self.build.compare("eq", self._lane(), self.build.const(0))
        return scanner.chosen(first, before, scanner.joined(before, below)), after

    def _lane(self) -> Value:
        return self.build.op("lane_id", I32)

    def _over_lanes(self, total: Total, count: int) -> tuple[Total, Total]:
        """Scan `count` adjacent lanes. Return each lane's inclusive total, and its exclusive one; in the first lane,
        the latter is the identity element.
        """
        build, scanner = self.build, self.scanner
        within_row = min(count, ROW)
        lane = self._lane()
        place = build.op("and", I32, lane, build.const(within_row - 1))
        distance = 1
        while distance < within_row:
            has = build.compare("le_u", build.const(distance), place)
            total = scanner.joined(scanner.up(total, distance), total, has)
            distance *= 2
        below = scanner.chosen(build.compare("eq", place, build.const(0)), scanner.first(), scanner.up(total, 1))
        for start in range(ROW, count, ROW):
            low = self._last_below(total, start, count)
            number = build.op("and", I32, lane, build.const(count - 1)) if count < self.wave else lane
            upper = build.compare("le_u", build.const(start), number)
            if start + ROW < count:
                upper = build.op("and", I1, upper, build.compare("lt_u", number, build.const(start + ROW)))
            total = scanner.joined(low, total, upper)
            first = build.compare("eq", number, build.const(start))
            below = scanner.chosen(first, low, scanner.joined(low, below, upper))
        return total, below

    def _last_below(self, total: Total, start: int, count: int) -> Total:
        """Return the total of the last lane before lane `start`, of each `count` lanes."""
        if count == self.wave:
            return self.scanner.of_lane(total, start - 1)
        build = self.build
        first = build.op("and", I32, self._lane(), build.const(self.wave - count))
        return self.scanner.of_any_lane(total, build.add(first, start - 1))

    def _over_units(
        self, total: Total, carry: Total | None, index: Value | None, units: int
    ) -> tuple[Total | None, Total]:
        """Return the total before a unit and the total of all units, exchanged through LDS. With several iterations,
        these alternate between two halves of the LDS.
        """
        build, shape = self.build, self.shape
        unit = self.part if shape.across else build.op("and", I32, build.op("wave_id", I32), build.const(units - 1))
        half = 0 if index is None else build.mul(build.op("and", I32, index, build.const(1)), self._half_bytes())
        writes = None if shape.across else build.compare("eq", self._lane(), build.const(0))
        base, slots = 0, []
        for one in (one for one in total if one is not None):
            lying = build.op("zext", I8, one) if one.type is I1 else one
            size = max(1, lying.type.bits // 8)
            # Either the units of a row are adjacent, or the rows are.
            first, step = (size, shape.own * size) if shape.across else (units * size, size)
            start = build.add(build.mul(self.own, first), half)
            slot = _Slot(lying.type, start, base, step, one.type is I1)
            slot.put(build, lying, unit, writes)
            slots.append(slot)
            base += _slot_bytes(shape.own * units, size)
        build.barrier()
        columns = [[slot.get(build, i) for i in range(units)] for slot in slots]
        return self._chain([Total(*one) for one in zip(*columns, strict=True)], carry, unit)

    def _chain(self, totals: Sequence[Total], carry: Total | None, unit: Value) -> tuple[Total, Total]:
        """Return the total before a unit and the total of all units, from the total of each."""
        scanner, build = self.scanner, self.build
        so_far, before = carry or scanner.first(), carry or scanner.first()
        for i, one in enumerate(totals):
            so_far = one if i == 0 and carry is None else scanner.joined(so_far, one)
            if i + 1 < len(totals):
                before = scanner.chosen(build.compare("eq", unit, build.const(i + 1)), so_far, before)
        return before, so_far

    def _half_bytes(self) -> int:
        """Return the bytes of LDS that the totals of one iteration take."""
        shape = self.shape
        units = shape.parts if shape.across else shape.parts // self.wave
        if units < 2:
            return 0
        dtypes_ = [self.scanner.dtype, *([self.scanner.keys] if self.scanner.keys else [])]
        sizes = [max(1, element_forms.held(one).bits // 8) for one in dtypes_]
        return sum(_slot_bytes(shape.own * units, size) for size in sizes)

    def _lds_bytes(self) -> int:
        return self._half_bytes() * (1 if self._turns() == 1 else 2)


class _Slot(NamedTuple):
    """The place in LDS where each unit of a row stores one value: `start` + `base`, with `step` bytes from one to the
    next.
    """

    type: Type
    start: Value
    base: int
    step: int
    is_condition: bool

    def put(self, build: Builder, value: Value, unit: Value, writes: Value | None) -> None:
        """Store a unit's value, in the threads where `writes` holds."""
        place = build.add(self.start, build.mul(unit, self.step))
        if writes is None:
            build.lds_store(place, value, constant=self.base)
        else:
            with build.when(writes):
                build.lds_store(place, value, constant=self.base)

    def get(self, build: Builder, unit: int) -> Value:
        """Return the value of a unit."""
        value = build.lds_load(self.type, self.start, constant=self.base + unit * self.step)
        return build.compare("ne", build.op("zext", I32, value), build.const(0)) if self.is_condition else value


def _slot_bytes(count: int, size_bytes: int) -> int:
    return -(-count * size_bytes // 16) * 16


def candidates(kernel: Kernel, traits: Traits) -> list[Shape]:
    """Return every candidate shape of a kernel with a SCAN, the heuristic one first."""
    return Scan(kernel, traits.wave_size).candidates()


def lower(kernel: Kernel, name: str, traits: Traits, choice: Shape | None = None) -> Lowered:
    """Return the machine IR of a kernel with a SCAN, in the given or the heuristic shape."""
    return Scan(kernel, traits.wave_size).lower(name, choice)
