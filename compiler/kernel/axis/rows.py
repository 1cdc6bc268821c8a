"""Kernels with reductions of rows: sums and what follows them, softmax, norms. Threads divide the elements of a row,
and a group holds some rows.

A thread is one of `parts` that work on a row, and its group holds `own` rows. Adjacent threads are adjacent in the row,
or in the number of the row where memory is contiguous across rows (`across`). A thread keeps what it has loaded and
computed for one reduction in registers, for the next reduction and for the output, as long as its share of the row
fits. A larger share is loaded again for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ringup.compiler.graph.index import Atom, Int, atom_of, axis, substitute
from ringup.compiler.graph.nodes import Node
from ringup.compiler.kernel.axis.elementwise import all_written
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.expressions import WIDEST_BYTES, divides
from ringup.compiler.kernel.common.folding import Folder
from ringup.compiler.kernel.common.frame import Frame, Lowered
from ringup.compiler.kernel.common.merge_axes import Space, at, merged, most, places, power_of_two, stride
from ringup.compiler.kernel.common.sharing import Sharing, place_of_thread
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import I1, I32, Value
from ringup.compiler.schedule.kernel import Fold, Kernel, accesses
from ringup.compiler.schedule.views import Point, within

# Elements of a row that a thread keeps in registers, for each reduction.
KEPT_ELEMENTS = 32
# Chunks in one iteration of a loop.
UNROLLED = 4
GROUP = 256
# Vectors of a row that a thread should have before more threads share the row.
SHARE = 4
# Adjacent rows of a group, where memory is contiguous across rows.
LANE_WIDE = 32
# With fewer groups than this, more threads share a row.
FEW_GROUPS_LIMIT = 512
MAX_PARTS_ACROSS = 16
# Threads of a group, for candidates.
MAX_THREADS = 512


class Shape(Sharing):
    """The assignment of rows to threads."""

    kind = "rows"


@dataclass(frozen=True)
class Walk:
    """The elements of a row in the order of a reduction or of the output: merged axes, the last one divided among the
    threads.
    """

    space: Space

    @property
    def shared(self) -> Int:
        """Return the size of the axis that threads divide."""
        return self.space.sizes[-1] if self.space.sizes else 1


# The indices of a walk's axes, and the condition for the element to exist.
Place = tuple[dict[Atom, Int], "Value | None"]
Totals = list["Value | None"]
Take = Callable[[Sequence[Place], Totals], Totals]
Firsts = Sequence[Callable[[], Value]]


class Rows:
    """The lowering of one kernel."""

    shape: Shape
    frame: Frame

    def __init__(self, kernel: Kernel, wave: int) -> None:
        self._lds_bytes, self._wave = 0, wave
        self._row: dict[Atom, Int] = {}
        self.kernel = kernel
        rows = kernel.rows or frozenset()
        pairs = [pair for pair in zip(kernel.axes, kernel.shape, strict=True) if not isinstance(pair[0], int)]
        reads = accesses(kernel.results, kernel.inputs, kernel.folds)
        positions = [*places(reads), *all_written(kernel)]
        self.rows = merged([pair for pair in pairs if atom_of(pair[0]) in rows], positions, "row")
        inner = [pair for pair in pairs if atom_of(pair[0]) not in rows]
        self.output = Walk(merged(inner, positions, "x")) if inner else None
        walks: dict[Point, Walk] = {}
        for i, fold in enumerate(kernel.folds):
            along = tuple(fold.variables.values())
            if along not in walks:
                walks[along] = Walk(merged(_reduced(fold), positions, f"k{i}_"))
        self.walks = [walks[tuple(fold.variables.values())] for fold in kernel.folds]
        self.original: dict[Atom, Int] = dict(self.rows.original)
        for walk in (*self.walks, *([self.output] if self.output else [])):
            self.original |= walk.space.original
        size = most(self.rows.size) * (most(self.output.space.size) if self.output else 1)
        sizes = [most(one.node.size) for one in reads] + [size] * len(kernel.roots)
        self._fit([substitute(one, self.original) for one in positions], sizes)

    def _fit(self, positions: Sequence[Int], sizes: Sequence[int]) -> None:
        """Find the facts that shapes depend on: how many rows there are, how long they are, and whether memory is
        contiguous along or across them. `sizes` weights each position by the size of its memory.
        """
        everything = [*self.walks, *([self.output] if self.output else [])]
        shared = [walk.space.variables[-1] for walk in everything if walk.space.variables]
        row = self.rows.variables[-1] if self.rows.variables else 0
        pairs = list(zip(positions, sizes, strict=True))
        along = sum(size for one, size in pairs if any(stride(one, variable) == 1 for variable in shared))
        over = sum(size for one, size in pairs if stride(one, row) == 1) if not isinstance(row, int) else 0
        self.count, self.longest = most(self.rows.size), max(most(walk.shared) for walk in everything)
        self.across = over > along
        widest = max(one.dtype.size_bytes for one in (*self.kernel.roots, *self.kernel.inputs))
        self.vector = 1 if self.across else max(1, WIDEST_BYTES // widest)
        while self.vector > 1 and not (along and all(divides(self.vector, walk.shared) for walk in everything)):
            self.vector //= 2

    def choose(self) -> Shape:
        """Return the heuristic shape: enough threads for a row to hide the latency of loads, but none without work."""
        count, longest, vector = self.count, self.longest, self.vector
        if self.across:
            own = min(LANE_WIDE, power_of_two(count))
            parts = self._wave // own
            while (
                parts < MAX_PARTS_ACROSS
                and count * parts // self._wave < FEW_GROUPS_LIMIT
                and parts * 2 * UNROLLED <= longest
            ):
                parts *= 2
            return Shape(parts, own, 1, True, self._wave)
        share = SHARE if count >= FEW_GROUPS_LIMIT else 1
        parts = min(GROUP, power_of_two(-(-longest // (vector * share))))
        own = max(1, min(GROUP // 2 // parts, power_of_two(count)))
        return Shape(parts, own, vector, False, self._wave)

    def candidates(self) -> list[Shape]:
        """Return every candidate shape; the one of `choose` is first.

        All have the thread order of `choose`. The other order is slower by an order of magnitude, and the model does
        not see that.
        """
        first = self.choose()
        found = [first]
        rows = power_of_two(self.count)
        if self.across:
            for own in (first.own, max(8, first.own // 2)):
                for parts in (1, 2, 4, 8, 16, 32):
                    if own <= rows and self._wave <= own * parts <= MAX_THREADS and parts <= power_of_two(self.longest):
                        found.append(Shape(parts, own, 1, True, self._wave))
            return list(dict.fromkeys(found))
        for vector in dict.fromkeys((first.vector, max(1, first.vector // 2), 1)):
            needed = power_of_two(-(-self.longest // vector))
            for parts in (first.parts // 4, first.parts // 2, first.parts, first.parts * 2, first.parts * 4):
                if not 1 <= parts <= min(needed, MAX_THREADS):
                    continue
                for group in (self._wave, 128, GROUP):
                    own = max(1, min(group // parts, rows))
                    found.append(Shape(parts, own, vector, False, self._wave))
        return list(dict.fromkeys(found))

    def axes(self) -> list[Axis]:
        """Return the mapping of the axes."""
        shape = self.shape
        rows, parts = (
            Axis("own", "wave" if shape.parts >= self._wave else "lane", shape.own, "rows of a group"),
            Axis("part", "reduce", shape.parts, "threads that share a row"),
        )
        found = [Axis("group", "grid", (self.rows.size + shape.own - 1) // shape.own, "groups of rows"), rows, parts]
        if shape.vector > 1:
            found.append(Axis("vector", "unroll", shape.vector, "neighbouring elements of a thread"))
        everything = [
            (f"k{i}", f"reduction {i}: {fold.node.arg[0].value}", walk)
            for i, (fold, walk) in enumerate(zip(self.kernel.folds, self.walks, strict=True))
        ]
        for name, meaning, walk in [*everything, *([("x", "the output", self.output)] if self.output else [])]:
            found += [
                Axis(f"{name}.{i}", "loop", size, f"{meaning}, outer axis")
                for i, size in enumerate(walk.space.sizes[:-1])
            ]
            turns, chunks = self._turns(walk.shared)
            if turns != 0:
                found.append(Axis(name, "loop", turns, f"{meaning}, iterations of the loop"))
            found.append(
                Axis(
                    f"{name}.chunk",
                    "unroll",
                    chunks,
                    f"{meaning}, a thread's pieces" + " of an iteration" * (turns != 0),
                )
            )
        return found

    def _turns(self, size: Int) -> tuple[Int, int]:
        """Return how many iterations a walk along an axis takes, and how many chunks one iteration has; (0, all chunks)
        without a loop.
        """
        span = self.shape.parts * self.shape.vector
        count = -(-most(size) // span)
        if count <= UNROLLED or (
            isinstance(size, int) and (count * self.shape.vector <= KEPT_ELEMENTS or size < 2 * UNROLLED * span)
        ):
            return 0, count
        if isinstance(size, int):
            return size // (span * UNROLLED), UNROLLED
        return (size + span * UNROLLED - 1) // (span * UNROLLED), UNROLLED

    def lower(self, name: str, choice: Shape | None = None) -> Lowered:
        """Return the machine IR in the given or the heuristic shape."""
        self.shape = choice or self.choose()
        self.frame = Frame(self.kernel, name, self.shape.group, self._wave)
        shape, build = self.shape, self.frame.build
        part, own = place_of_thread(self.frame.build, self.shape.parts, self.shape.own, across=self.shape.across)
        count = self.rows.size
        group = axis("group", (count + shape.own - 1) // shape.own)
        self.frame.bind(group, build.op("group_id", I32, imm=0))
        number: Int = group * shape.own + axis("own", shape.own)
        self.frame.bind(axis("own", shape.own), own)
        self.frame.bind(axis("part", shape.parts), part)
        valid = within(number, 0, count)
        is_row: Value | None = None
        # Spare threads of the last group compute the last row again and store nothing.
        if valid is not True:
            is_row = self.frame.expressions.numbers.condition(valid)  # type: ignore[arg-type]
            value = self.frame.expressions.numbers.emit(number)
            last = self.frame.expressions.numbers.emit(count - 1, value.type)
            number = axis("row", count)
            self.frame.bind(number, build.op("min_u", value.type, value, last))
        if shape.parts * shape.own < shape.group:
            inside = build.compare("lt_u", build.op("thread_id", I32), build.const(shape.parts * shape.own))
            is_row = inside if is_row is None else build.op("and", I1, is_row, inside)
        self._row = at(self.rows, number)
        for number, folds in self._passes().items():
            self._fold(number, folds, part, own)
        self._store(is_row, part)
        self.frame.build.function.lds_bytes = self._lds_bytes
        return self.frame.done(((count + shape.own - 1) // shape.own, 1, 1), self.axes(), shape)

    def _passes(self) -> dict[int, list[Fold]]:
        """Return the folds that one walk computes, by the number of the first: consecutive ones over the same elements
        that do not depend on each other.
        """
        found: dict[int, list[Fold]] = {}
        last = 0
        for i, fold in enumerate(self.kernel.folds):
            before = {one.node for one in found.get(last, ())}
            is_beside = bool(before) and self.walks[last] is self.walks[i]
            if is_beside and not _needs(fold.node.sources[0], before, self.kernel.inputs):
                found[last].append(fold)
            else:
                found[i], last = [fold], i
        return found

    def _fold(self, number: int, folds: Sequence[Fold], part: Value, own: Value) -> None:
        folders = [Folder(self.frame.build, fold.node) for fold in folds]
        width = max(1, min(8, self.shape.vector * UNROLLED) // len(folds))

        def take(points: Sequence[Place], totals: Totals) -> Totals:
            for first, folder, fold in zip(range(0, len(totals), width), folders, folds, strict=True):
                moved = [(self._moved(fold.inner, point), mask) for point, mask in points]
                values = self.frame.expressions.values(fold.node.sources[0], moved)
                for i, (value, (_, mask)) in enumerate(zip(values, points, strict=True)):
                    at = first + i % width
                    totals[at] = folder.step(totals[at], folder.element(value, mask))
            return totals

        firsts = [folder.first for folder in folders for _ in range(width)]
        totals = self._walk(f"c{number}", self.walks[number], [None] * len(firsts), take, firsts)
        for first, folder, fold in zip(range(0, len(totals), width), folders, folds, strict=True):
            total = self._combined(folder, folder.joined(totals[first : first + width]), part, own)
            self.frame.expressions.define(fold.node, folder.finished(total))

    def _combined(self, folder: Folder, total: Value, part: Value, own: Value) -> Value:
        """Combine the values of a row's parts. Every thread of the row gets the result."""
        shape, build = self.shape, self.frame.build
        size = max(1, total.type.bits // 8)
        if shape.across:
            if shape.parts == 1:
                return total
            row, step, count, writes = own, shape.own * size, shape.parts, None
            place = build.add(build.mul(part, step), build.mul(own, size))
            first = build.mul(row, size)
        else:
            total = folder.across_lanes(total, min(shape.parts, self._wave))
            count = shape.parts // self._wave
            if count <= 1:
                return total
            lane = build.op("lane_id", I32)
            writes = build.compare("eq", lane, build.const(0))
            place, step = build.mul(build.op("wave_id", I32), size), size
            first = build.mul(own, count * size)
        base = self._lds_bytes
        self._lds_bytes += (
            -(-max(shape.group // self._wave, shape.parts * shape.own if shape.across else 0) * size // 16) * 16
        )
        return folder.through_lds(total, place, first, step, count, base=base, writes=writes)

    def _moved(self, point: Point, places_: dict[Atom, Int]) -> Point:
        found = []
        for index in point:
            index = substitute(index, self.original)
            found.append(substitute(index, self._row | places_))
        return tuple(found)

    def _walk(
        self, name: str, walk: Walk, totals: Totals, take: Take, firsts: Sequence[Callable[[], Value]] = ()
    ) -> Totals:
        """Call `take` for every element of a walk that belongs to this thread; return the final accumulators.

        An accumulator without elements is None. `firsts` create the identity elements that a loop needs instead.
        """
        outer = list(zip(walk.space.variables[:-1], walk.space.sizes[:-1], strict=True))
        if outer:
            totals = _with_identities(totals, firsts)
        return self._outer(name, walk, outer, totals, take, firsts)

    def _outer(
        self, name: str, walk: Walk, outer: list[tuple[Int, Int]], totals: Totals, take: Take, firsts: Firsts
    ) -> Totals:
        if not outer:
            return self._shared(name, walk, totals, take, firsts)
        (variable, size), *rest = outer
        expressions = self.frame.expressions
        stop = size if isinstance(size, int) else expressions.numbers.emit(size)
        with expressions.loop(variable, 0, stop, 1, totals) as loop:  # type: ignore[arg-type]
            loop.following = self._outer(name, walk, rest, list(loop.carried), take, firsts)  # type: ignore[assignment]
        return list(loop.results)

    def _shared(self, name: str, walk: Walk, totals: Totals, take: Take, firsts: Firsts) -> Totals:
        shape, size = self.shape, walk.shared
        variable = walk.space.variables[-1] if walk.space.variables else 0
        span = shape.parts * shape.vector
        part = axis("part", shape.parts)

        def requests(start: Int, chunks: int) -> list[Place]:
            found: list[Place] = []
            for chunk in range(chunks):
                for step in range(shape.vector):
                    place = start + chunk * span + part * shape.vector + step
                    # If the vector divides the size, it is inside or outside as a whole.
                    test = within(place - step if divides(shape.vector, size) else place, 0, size)
                    if test is False:
                        continue
                    mask = None if test is True else self.frame.expressions.numbers.condition(test)
                    found.append(({} if isinstance(variable, int) else {atom_of(variable): place}, mask))
            return found

        turns, chunks = self._turns(size)
        if turns == 0:
            return take(requests(0, chunks), totals) if chunks else totals
        expressions = self.frame.expressions
        index = axis(name, turns)
        stop = turns if isinstance(turns, int) else expressions.numbers.emit(turns)
        with expressions.loop(index, 0, stop, 1, _with_identities(totals, firsts)) as loop:  # type: ignore[arg-type]
            loop.following = take(requests(index * (span * UNROLLED), UNROLLED), list(loop.carried))  # type: ignore[assignment]
        totals = list(loop.results)
        if isinstance(size, int) and size % (span * UNROLLED):
            rest = size % (span * UNROLLED)
            totals = take(requests(size - rest, -(-rest // span)), totals)
        return totals

    def _store(self, is_row: Value | None, part: Value) -> None:
        frame, build = self.frame, self.frame.build
        if self.output is None:
            points = [self._moved(self.kernel.axes, {})]
            results = frame.results(points, [None])
            first = build.compare("eq", part, build.const(0)) if self.shape.parts > 1 else None
            mask = first if is_row is None else is_row if first is None else build.op("and", I1, first, is_row)
            frame.store(points, results, mask)
            return

        def take(points: Sequence[Place], totals: Totals) -> Totals:
            moved = [self._moved(self.kernel.axes, place) for place, _ in points]
            results = frame.results(moved, [mask for _, mask in points])
            i = 0
            while i < len(points):
                count = 1
                while i + count < len(points) and points[i + count][1] is points[i][1] and count < self.shape.vector:
                    count += 1
                mask = points[i][1]
                both = is_row if mask is None else mask if is_row is None else build.op("and", I1, mask, is_row)
                frame.store(moved[i : i + count], [values[i : i + count] for values in results], both)
                i += count
            return totals

        self._walk("x", self.output, [], take)


def candidates(kernel: Kernel, traits: Traits) -> list[Shape]:
    """Return every candidate shape of a kernel with folds, the heuristic one first."""
    return Rows(kernel, traits.wave_size).candidates()


def lower(kernel: Kernel, name: str, traits: Traits, choice: Shape | None = None) -> Lowered:
    """Return the machine IR of a kernel with folds, in the given or the heuristic shape."""
    return Rows(kernel, traits.wave_size).lower(name, choice)


def _with_identities(totals: Totals, firsts: Firsts) -> Totals:
    return [first() if total is None else total for total, first in zip(totals, firsts, strict=True)]


def _needs(node: Node, others: Collection[Node], inputs: Collection[Node]) -> bool:
    """Return whether a kernel that reads `inputs` computes a value from some others."""
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if current in others:
            return True
        for source in current.sources if current not in inputs else ():
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def _reduced(fold: Fold) -> list[tuple[Int, Int]]:
    shape = fold.node.sources[0].shape
    return [(variable, shape[i]) for i, variable in fold.variables.items()]
