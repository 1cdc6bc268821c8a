"""The common part of kernels that work along one whole axis (SCAN, SORT): the row of a thread, and the rest of the
kernel after the line's results.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, axis, substitute
from ringup.compiler.kernel.axis.elementwise import all_written
from ringup.compiler.kernel.common.frame import Frame
from ringup.compiler.kernel.common.merge_axes import at, merged, places, stride
from ringup.compiler.kernel.common.uses import Uses
from ringup.compiler.machine.ir import I1, I32, Value
from ringup.compiler.schedule.kernel import Kernel, accesses, walked_by
from ringup.compiler.schedule.views import Point, Within, within


class Lines:
    """A kernel's axes, divided into rows and the axis of the line. `across`: memory is contiguous across rows, not
    along them. `wave`: threads of a wave.
    """

    frame: Frame
    # The indices of the axes of `rows`.
    row: dict[Atom, Int]
    # Whether a thread's row exists and is stored by this thread.
    is_row: Value | None

    def __init__(self, kernel: Kernel, wave: int) -> None:
        assert kernel.line is not None
        self.wave = wave
        self.kernel, self.line = kernel, kernel.line
        ((along, variable),) = kernel.line.variables.items()
        self.size: Int = kernel.line.node.shape[along]
        stretch: int | None = kernel.line.node.arg[-1]
        # Elements of one separate line.
        self.length: Int = self.size if stretch is None else stretch
        self.stretches: Int = 1 if stretch is None else (self.size + stretch - 1) // stretch
        self._inner, self._outer = atom_of(variable), walked_by(kernel.line)
        outer = Expr(0, ((self._outer, 1),))
        self._is_flipped = kernel.line.point[along] != outer
        self._uses = Uses([kernel.computed], kernel.line.node, kernel.inputs)
        reads = accesses(kernel.results, kernel.inputs, [kernel.line])
        positions = list(dict.fromkeys([*places(reads), *all_written(kernel)]))
        pairs = [pair for pair in zip(kernel.axes, kernel.shape, strict=True) if not isinstance(pair[0], int)]
        self.rows = merged([pair for pair in pairs if atom_of(pair[0]) != self._outer], positions, "row")
        moved = [substitute(one, self.rows.original) for one in positions]
        on = sum(any(stride(one, walked) in (1, -1) for walked in (variable, outer)) for one in moved)
        over = sum(stride(one, self.rows.variables[-1]) == 1 for one in moved) if self.rows.variables else 0
        self.across = over > on
        self.count = self.rows.size * self.stretches

    def row_number(self, count: Int, own: int, own_row: Value, threads: int) -> tuple[Int, Value | None]:
        """Return the number of a thread's row, of `count` rows with `own` in each group, and the condition for storing
        it (None: always).

        Spare threads of the last group compute the last row again and store nothing. Threads beyond the `threads` that
        have work store nothing either.
        """
        build, numbers = self.frame.build, self.frame.expressions.numbers
        group = axis("group", (count + own - 1) // own)
        self.frame.bind(group, build.op("group_id", I32, imm=0))
        self.frame.bind(axis("own", own), own_row)
        number: Int = group * own + axis("own", own)
        valid = within(number, 0, count)
        is_row: Value | None = None
        if isinstance(valid, Within):
            is_row = numbers.condition(valid)
            value = numbers.emit(number)
            last = numbers.emit(count - 1, value.type)
            number = axis("row", count)
            self.frame.bind(number, build.op("min_u", value.type, value, last))
        if threads < build.function.wave_size:
            inside = build.compare("lt_u", build.op("thread_id", I32), build.const(threads))
            is_row = inside if is_row is None else build.op("and", I1, is_row, inside)
        return number, is_row

    def place_row(self, number: Int, *, across: bool) -> None:
        """Set the row, and the start of the segment in it, that the threads of a row work on."""
        self.start: Int = 0
        if self.stretches == 1:
            self.row = at(self.rows, number)
        elif across:
            # Adjacent threads of a group are adjacent in memory: the row number changes fastest.
            rows = self.rows.size
            self.row, self.start = at(self.rows, number % rows), number // rows * self.length
        else:
            self.row, self.start = at(self.rows, number // self.stretches), number % self.stretches * self.length

    def source_point(self, place: Int) -> Point:
        """Return the point of the sources at a position along the row."""
        return self._moved(self.line.inner, {self._inner: place})

    def finish(self, along: Sequence[Int], masks: Sequence[Value | None], values: Sequence[Value], most: int) -> None:
        """Compute and store the root at positions along the row, from the line's results there. One store takes at most
        `most` of them.
        """
        frame, build = self.frame, self.frame.build
        points = []
        for place in along:
            moved = self.size - 1 - place if self._is_flipped else place
            points.append(self._moved(self.kernel.axes, {self._outer: moved}))
        found: dict[Point, Value] = {}
        for point, value in zip(points, values, strict=True):
            for one in self._uses.points(self.kernel.computed, point):
                found.setdefault(one, value)
        frame.expressions.define(self.line.node, found)
        made = frame.results(points, masks)
        i = 0
        while i < len(points):
            count = 1
            while i + count < len(points) and masks[i + count] is masks[i] and count < most:
                count += 1
            mask, is_row = masks[i], self.is_row
            both = is_row if mask is None else mask if is_row is None else build.op("and", I1, mask, is_row)
            frame.store(points[i : i + count], [values[i : i + count] for values in made], both)
            i += count

    def _moved(self, point: Point, along: dict[Atom, Int]) -> Point:
        places_ = self.row | along
        return tuple(substitute(substitute(index, self.rows.original), places_) for index in point)
