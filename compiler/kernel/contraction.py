"""Kernels of matrix products and convolutions: sums of products over K for every pair of a row (M) and a column (N), tile by tile.

A group computes a BM x BN tile of the result, a thread TM x TN of it. Slices of BK along K go to LDS, each operand's by the threads that load
them best from memory, whatever the operand is: a convolution's window, a cast, a product with a scale are computed on the way. While a slice
is multiplied the next one is on its way from memory; there are two places for slices, so one barrier a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler.dtypes import DType
from ringup.compiler.graph import ELEMENTWISE, Node, Op
from ringup.compiler.index import Atom, Expr, Int, atom_of, axis, is_axis, product, substitute
from ringup.compiler.kernel import holders
from ringup.compiler.kernel.arith import operate
from ringup.compiler.kernel.elementwise import written
from ringup.compiler.kernel.expressions import Request, divides
from ringup.compiler.kernel.frame import Frame, Lowered
from ringup.compiler.kernel.space import Space, merged, most, places, stride
from ringup.compiler.machine.ir import I1, I32, Type, Value
from ringup.compiler.schedule.cut import Access, Kernel, accesses, is_contraction
from ringup.compiler.schedule.views import Point, source_point, within

COMPUTE_UNITS = 96  # of a navi31; how many groups fill the card
PAD = 4  # elements behind each row of a slice in LDS: neighbouring threads' stores fall into other banks
LEAST_TILED = 8  # fewer rows or columns than this are no tile: a reduction by rows is as good


@dataclass(frozen=True)
class Tile:
    """How a group's work is shaped; `speed` is what a compute unit makes of it beside the largest (a guess from operand traffic)."""

    m: int
    n: int
    thread_m: int
    thread_n: int
    k: int
    speed: float

    @property
    def threads(self) -> int:
        """Return the threads of a group."""
        return self.m * self.n // (self.thread_m * self.thread_n)


TILES = (
    Tile(128, 128, 8, 8, 8, 1.0),
    Tile(128, 64, 8, 8, 8, 0.95),
    Tile(64, 128, 8, 8, 8, 0.95),
    Tile(64, 64, 8, 8, 8, 0.85),
    Tile(64, 64, 4, 4, 16, 0.7),
    Tile(32, 64, 4, 4, 16, 0.6),
    Tile(32, 32, 4, 4, 16, 0.5),
    Tile(16, 64, 4, 4, 16, 0.5),
    Tile(64, 16, 4, 4, 16, 0.5),
    Tile(16, 16, 2, 4, 16, 0.3),
)


@dataclass(frozen=True)
class Side:
    """One operand: its factor of the product, the merged axes of its own (M or N), and the position it is read at (None: several)."""

    factor: Node
    own: Space
    position: Int | None


def fits(kernel: Kernel) -> bool:
    """Return whether a kernel is a contraction that tiles suit."""
    if len(kernel.folds) != 1 or not is_contraction(kernel.folds[0].node):
        return False
    if kernel.folds[0].node.dtype.bits < 32 or any(not isinstance(size, int) for size in kernel.folds[0].node.sources[0].shape):
        return False
    split = _split_axes(kernel)
    return split is not None and min(_size(kernel, split[0]), _size(kernel, split[1])) >= LEAST_TILED


def _size(kernel: Kernel, atoms: frozenset[Atom]) -> int:
    return most(product(size for one, size in zip(kernel.axes, kernel.shape, strict=True) if _is_in(one, atoms)))


def _is_in(variable: Int, atoms: frozenset[Atom]) -> bool:
    return not isinstance(variable, int) and atom_of(variable) in atoms


def _split_axes(kernel: Kernel) -> tuple[frozenset[Atom], frozenset[Atom]] | None:
    """Return the kernel's axes that only the first and only the second factor depends on, None if the axes mix."""
    fold = kernel.folds[0]
    found = []
    for factor in fold.node.sources[0].sources:
        used: set[Atom] = set()
        for access in accesses([(factor, fold.inner)], kernel.inputs, ()):
            used |= _used(access.point)
        found.append(used)
    first, second = frozenset(found[0] - found[1]), frozenset(found[1] - found[0])
    return (first, second) if first and second else None


def _used(point: Point) -> set[Atom]:
    found: set[Atom] = set()
    for index in point:
        if isinstance(index, Expr):
            for atom in index.variables():
                if is_axis(atom):
                    found.add(atom)
                elif atom.kind == "value" and isinstance(atom.parts[1], tuple):
                    found |= _used(atom.parts[1][1])
    return found


def choose(m: int, n: int, batch: int, dtype: DType) -> Tile:
    """Return the tile that finishes first by a simple count: turns of the card's units times the size of a tile, by speed."""

    def turns(tile: Tile) -> float:
        groups = -(-m // tile.m) * -(-n // tile.n) * batch
        return -(-groups // COMPUTE_UNITS) * tile.m * tile.n / tile.speed

    allowed = [tile for tile in TILES if dtype.bits == 32 or tile.thread_m * tile.thread_n <= 16]
    return min(allowed, key=turns)


class Contraction:
    """The lowering of one kernel."""

    def __init__(self, kernel: Kernel, name: str, tile: Tile | None = None) -> None:
        self.kernel, self.fold = kernel, kernel.folds[0]
        product_node = self.fold.node.sources[0]
        self.dtype = product_node.dtype
        pairs = [pair for pair in zip(kernel.axes, kernel.shape, strict=True) if isinstance(pair[0], Expr)]
        out = written(kernel.root, kernel.axes)
        reads = accesses([(kernel.computed, kernel.axes)], kernel.inputs, kernel.folds)
        positions = [*places(reads), out]
        first, second = _split_axes(kernel) or (frozenset(), frozenset())
        factors = product_node.sources
        # columns are the axes that run through the result's memory: threads side by side store side by side
        if any(stride(out, pair[0]) == 1 for pair in pairs if atom_of(pair[0]) in first):
            first, second, factors = second, first, factors[::-1]
        spaces = [merged([pair for pair in pairs if atom_of(pair[0]) in atoms], positions, letter) for atoms, letter in ((first, "m"), (second, "n"))]
        self.batch = merged([pair for pair in pairs if atom_of(pair[0]) not in first | second], positions, "b")
        self.depth = merged([(variable, product_node.shape[i]) for i, variable in self.fold.variables.items()], positions, "k")
        self.original: dict[Atom, Int] = {}
        for space in (*spaces, self.batch, self.depth):
            self.original |= space.original
        self.sides = tuple(self._side(factor, space) for factor, space in zip(factors, spaces, strict=True))
        m, n = (most(space.size) for space in spaces)
        self.tile = tile or choose(m, n, most(self.batch.size), self.dtype)
        self.frame = Frame(kernel, name, self.tile.threads)
        self._path = _path(kernel.computed, self.fold.node)

    def _side(self, factor: Node, own: Space) -> Side:
        found: list[Access] = accesses([(factor, self.fold.inner)], self.kernel.inputs, ())
        positions = [substitute(one, self.original) for one in places(found)]
        return Side(factor, own, positions[0] if len(positions) == 1 else None)

    def lower(self) -> Lowered:
        """Return the machine IR."""
        tile, build, expressions = self.tile, self.frame.build, self.frame.expressions
        thread = axis("thread", tile.threads)
        self.frame.bind(thread, build.op("thread_id", I32))
        groups = self._groups()
        slices = -(-most(self.depth.size) // tile.k)
        stagings = [Staging(self, side, size, thread, i) for i, (side, size) in enumerate(zip(self.sides, (tile.m, tile.n), strict=True))]
        place = 0
        for staging in stagings:
            place = staging.take_lds(place)
        half = place  # the second slice's place lies behind the first's
        build.function.lds_bytes = half * (2 if slices > 1 else 1)
        zero = build.const(0)
        for staging in stagings:
            staging.put(staging.fetch(0), zero)
        build.barrier()
        totals = [holders.constant(build, 0, self.dtype)] * (tile.thread_m * tile.thread_n)
        if slices == 1:
            totals = self._multiply(stagings, zero, totals)
        else:
            with build.loop(0, slices, 1, totals) as loop:
                expressions.enter()
                following = build.op("min_s", I32, build.add(loop.index, 1), build.const(slices - 1))
                number = axis("slice", slices)
                self.frame.bind(number, following)
                fetched = [staging.fetch(number) for staging in stagings]
                here = build.mul(build.op("and", I32, loop.index, build.const(1)), half)
                there = build.op("sub", I32, build.const(half), here)
                loop.following = self._multiply(stagings, here, list(loop.carried))
                for staging, values in zip(stagings, fetched, strict=True):
                    staging.put(values, there)
                build.barrier()
                expressions.leave()
            totals = loop.results
        self._finish(totals)
        return self.frame.done(groups)

    def _groups(self) -> tuple[Int, Int, Int]:
        """Bind the group's tile and batch, return the number of groups: columns along x, so that neighbours share rows."""
        build = self.frame.build
        found = []
        for dimension, (side, size) in enumerate(((self.sides[1], self.tile.n), (self.sides[0], self.tile.m))):
            count = -(-most(side.own.size) // size)
            self.frame.bind(axis(f"tile{1 - dimension}", count), build.op("group_id", I32, imm=dimension))
            found.append(count)
        count = most(self.batch.size)
        self.frame.bind(axis("batch", count), build.op("group_id", I32, imm=2))
        self._at_batch = at(self.batch, axis("batch", count))
        return found[0], found[1], count

    def own(self, side: int, local: Int) -> tuple[dict[Atom, Int], Int]:
        """Return where the own axes of an operand are at a place within the group's tile, and the place in all of them."""
        space = self.sides[side].own
        size = (self.tile.m, self.tile.n)[side]
        number = axis(f"tile{side}", -(-most(space.size) // size)) * size + local
        return at(space, number), number

    def point(self, point: Point, where: dict[Atom, Int]) -> Point:
        """Return a point in terms of threads and groups."""
        everything = self._at_batch | where
        return tuple(substitute(substitute(index, self.original), everything) for index in point)

    def _multiply(self, stagings: Sequence[Staging], here: Value, totals: list[Value]) -> list[Value]:
        """Return the totals with one slice's products added."""
        tile, build = self.tile, self.frame.build
        totals = list(totals)
        readers = [staging.reader(here) for staging in stagings]
        for k in range(tile.k):
            rows, columns = (reader(k) for reader in readers)
            for i, a in enumerate(rows):
                for j, b in enumerate(columns):
                    at_ = i * tile.thread_n + j
                    totals[at_] = self._step(build, totals[at_], a, b)
        return totals

    def _step(self, build: object, total: Value, a: Value, b: Value) -> Value:
        make = self.frame.build
        if self.dtype.is_float:
            return make.op("fma", total.type, a, b, total)
        value = operate(make, Op.MUL, self.dtype, self.dtype, (a, b))
        return operate(make, Op.ADD, self.dtype, self.dtype, (total, value))

    def _finish(self, totals: Sequence[Value]) -> None:
        """Compute what follows the sum and store it, a run of neighbouring columns at a time."""
        tile, build, expressions = self.tile, self.frame.build, self.frame.expressions
        m, n = (most(side.own.size) for side in self.sides)
        run = min(4, tile.thread_n)
        for i in range(tile.thread_m):
            where_m, row = self.own(0, self.local(0, i))
            for j in range(0, tile.thread_n, run):
                mask = self._mask(within(row, 0, m), None)
                points, values = [], []
                whole = divides(run, n)
                for step in range(run):
                    where_n, column = self.own(1, self.local(1, j + step))
                    point = self.point(self.kernel.axes, where_m | where_n)
                    points.append(point)
                    values.append(totals[i * tile.thread_n + j + step])
                    if step == 0 or not whole:
                        own_mask = self._mask(within(column, 0, n), mask)
                    if not whole:
                        expressions.define(self.fold.node, {self._reduced(point): values[-1]})
                        self.frame.store([point], [expressions.value(self.kernel.computed, point, own_mask)], own_mask)
                if whole:
                    expressions.define(self.fold.node, {self._reduced(point): value for point, value in zip(points, values, strict=True)})
                    requests: list[Request] = [(point, own_mask) for point in points]
                    self.frame.store(points, expressions.values(self.kernel.computed, requests), own_mask)
        del build

    def _mask(self, condition: object, also: Value | None) -> Value | None:
        if condition is True:
            return also
        if condition is False:
            return self.frame.build.const(0, I1)
        value = self.frame.expressions.numbers.condition(condition)  # type: ignore[arg-type]
        return value if also is None else self.frame.build.op("and", I1, value, also)

    def _reduced(self, point: Point) -> Point:
        for node in self._path:
            point, _ = source_point(node, point)
        return point

    def local(self, side: int, i: int) -> Int:
        """Return which row (0) or column (1) of the tile a thread's i-th one is: runs of four, half a tile apart, so that
        threads side by side read LDS side by side."""
        tile = self.tile
        size, own = ((tile.m, tile.thread_m), (tile.n, tile.thread_n))[side]
        run = min(4, own)
        across = tile.n // tile.thread_n
        thread = axis("thread", tile.threads)
        number = thread % across if side else thread // across
        return i // run * (size // (own // run)) + number * run + i % run


class Staging:
    """The way of one operand's slices from memory through LDS to a thread's registers. A slice lies in LDS as [k][own], rows padded."""

    def __init__(self, contraction: Contraction, side: Side, size: int, thread: Int, number: int) -> None:
        self.contraction, self.side, self.size, self.number = contraction, side, size, number
        tile = contraction.tile
        self.type: Type = holders.held(contraction.dtype)
        self.size_bytes = self.type.size_bytes
        depth, own = contraction.depth, side.own
        along_k = side.position is not None and stride(side.position, depth.variables[-1] if depth.variables else 0) == 1
        per_thread = size * tile.k // tile.threads
        self.vector = 4
        last = depth.sizes[-1] if along_k else own.sizes[-1]
        while self.vector > 1 and (per_thread % self.vector or not divides(self.vector, last)):
            self.vector //= 2
        self.along_k = along_k
        self.passes = max(1, per_thread // self.vector)
        runs = tile.k // self.vector if along_k else size // self.vector  # vectors side by side
        self.idle = size * tile.k < tile.threads * self.vector
        self.fast, self.slow = thread % runs, thread // runs
        self.step = tile.threads // runs  # how far the slow axis moves from pass to pass
        self.row = size + (PAD if tile.threads >= 64 else 0)

    def take_lds(self, place: int) -> int:
        """Take this operand's place for one slice, return the first byte behind it."""
        self.place = place
        return -(-(place + self.row * self.contraction.tile.k * self.size_bytes) // 16) * 16

    def _where(self, i: int, step: int) -> tuple[Int, Int]:
        """Return (own, k) within the slice of one element that the thread loads."""
        fast = self.fast * self.vector + step
        slow = self.slow + i * self.step
        return (slow, fast) if self.along_k else (fast, slow)

    def fetch(self, number: Int) -> list[Value]:
        """Load this thread's elements of a slice."""
        contraction = self.contraction
        expressions = contraction.frame.expressions
        k_size, own_size = most(contraction.depth.size), most(self.side.own.size)
        requests: list[Request] = []
        for i in range(self.passes):
            mask: Value | None = None
            for step in range(self.vector):
                own, k = self._where(i, step)
                where, place = contraction.own(self.number, own)
                depth = number * contraction.tile.k + k
                if step == 0 or (self.along_k and not divides(self.vector, k_size)) or (not self.along_k and not divides(self.vector, own_size)):
                    mask = contraction._mask(within(place, 0, own_size), None)
                    mask = contraction._mask(within(depth, 0, k_size), mask)
                    if self.idle:
                        inside = within(k if not self.along_k else own, 0, contraction.tile.k if not self.along_k else self.size)
                        mask = contraction._mask(inside, mask)
                requests.append((contraction.point(contraction.fold.inner, where | at(contraction.depth, depth)), mask))
        values = expressions.values(self.side.factor, requests)
        return [self._zeroed(value, mask) for value, (_, mask) in zip(values, requests, strict=True)]

    def _zeroed(self, value: Value, mask: Value | None) -> Value:
        """Return a value that is 0 outside of the operand: what is multiplied there must not count."""
        build = self.contraction.frame.build
        if mask is None or is_zero_outside(value, mask):
            return value
        return build.op("select", value.type, mask, value, holders.constant(build, 0, self.contraction.dtype))

    def put(self, values: Sequence[Value], offset: Value) -> None:
        """Store a slice's elements to LDS at the operand's place plus an offset in bytes."""
        build, numbers = self.contraction.frame.build, self.contraction.frame.expressions.numbers
        for i in range(self.passes):
            part = values[i * self.vector : (i + 1) * self.vector]
            own, k = self._where(i, 0)
            address = numbers.emit((k * self.row + own) * self.size_bytes)
            address = build.add(address, offset)
            if self.along_k:
                for step, value in enumerate(part):
                    build.lds_store(address, value, constant=self.place + step * self.row * self.size_bytes)
            else:
                build.lds_store(address, build.vector(part), constant=self.place)

    def reader(self, offset: Value):  # type: ignore[no-untyped-def]
        """Return a function that reads this thread's elements of one k."""
        contraction = self.contraction
        build, numbers = contraction.frame.build, contraction.frame.expressions.numbers
        count = (contraction.tile.thread_m, contraction.tile.thread_n)[self.number]
        run = min(4, count)
        first = numbers.emit(contraction.local(self.number, 0) * self.size_bytes)
        first = build.add(first, offset)
        apart = self.size // (count // run) * self.size_bytes

        def read(k: int) -> list[Value]:
            found = []
            width = max(1, min(run, 16 // self.size_bytes))
            for i in range(0, count, width):
                constant = self.place + k * self.row * self.size_bytes + i // run * apart + i % run * self.size_bytes
                vector = build.lds_load(self.type.of(width), first, constant=constant)
                found += [build.extract(vector, step) for step in range(width)]
            return found

        return read


def is_zero_outside(value: Value, mask: Value) -> bool:
    """Return whether a value is a load, perhaps converted, that gives 0 where the mask is false."""
    while value.op in ("extract", "zext", "sext", "fconvert"):
        value = value.args[0]
    return value.op == "load" and len(value.args) == 3 and value.args[2] is mask


def at(space: Space, number: Int) -> dict[Atom, Int]:
    """Return what each axis of a space is at a row-major position."""
    found: dict[Atom, Int] = {}
    for variable, size in zip(space.variables[:0:-1], space.sizes[:0:-1], strict=True):
        found[atom_of(variable)] = number % size
        number = number // size
    if space.variables:
        found[atom_of(space.variables[0])] = number
    return found


def _path(root: Node, target: Node) -> list[Node]:
    """Return the movement nodes on the way from a kernel's root to its reduction."""
    stack: list[tuple[Node, list[Node]]] = [(root, [])]
    seen = {root}
    while stack:
        node, path = stack.pop()
        if node is target:
            return path
        sources = node.sources if node.op in ELEMENTWISE else node.sources[:1]
        for source in sources:
            if source not in seen:
                seen.add(source)
                stack.append((source, path if node.op in ELEMENTWISE or node.op is Op.CONTIGUOUS else [*path, node]))
    raise ValueError(f"{target} is not reached from {root}")


def lower(kernel: Kernel, name: str) -> Lowered:
    """Return the machine IR of a contraction."""
    return Contraction(kernel, name).lower()


__all__ = ["Contraction", "Tile", "choose", "fits", "lower"]
