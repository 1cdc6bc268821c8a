"""Kernels of matrix products and convolutions: sums of products over K for every pair of a row (M) and a column (N),
tile by tile.

A kernel has one such sum or two, of the same rows and columns: a convolution and the one on the way around it, two
products that are multiplied. Where a tile has all of a result's columns, what follows the sums may be folded over them
(`pooling.py`).

A group computes an m x n tile of the result. Slices of k along K go to LDS, each operand's by the threads that load
them best from memory, whatever the operand is: a convolution's window, a cast, a product with a scale are computed on
the way. While a slice is multiplied the next one is on its way from memory; there are two places for slices, so one
barrier a slice. How a tile is multiplied: `fma.py`, `matrix.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, axis, product, substitute
from ringup.compiler.graph.nodes import ELEMENTWISE, Node, Op
from ringup.compiler.kernel.axis.elementwise import all_written
from ringup.compiler.kernel.common.axes import Axis, threads
from ringup.compiler.kernel.common.expressions import divides
from ringup.compiler.kernel.common.frame import Frame, Lowered
from ringup.compiler.kernel.common.space import Space, at, merged, most, places, stride
from ringup.compiler.kernel.common.staging import Operand, Staging, masked
from ringup.compiler.kernel.contraction.pooling import Pooling
from ringup.compiler.machine.ir import I32, Value
from ringup.compiler.schedule.kernel import MAX_POOLED, MIN_TILED, Access, Fold, Kernel, accesses
from ringup.compiler.schedule.needs import axes_of, is_contraction, used
from ringup.compiler.schedule.views import Point, Within, source_point, within

MAX_EPILOGUE = 1500  # operations behind the sum, over all results of a thread, that are written out one by one
AnyTile = TypeVar("AnyTile", bound="Tile")
Pieces: TypeAlias = Mapping[Atom, Int]  # axes that were cut, as sums of what they were cut into


class Tile(Protocol):
    """How a group's work is shaped; `speed` is what a compute unit makes of it beside the best (a guess from operand
    traffic).
    """

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def speed(self) -> float: ...
    @property
    def threads(self) -> int: ...


class Run(NamedTuple):
    """Neighbouring elements of a result row that a thread holds: the first one's number among its totals, row and first
    column in the tile.
    """

    first: int
    row: Int
    column: Int
    length: int


@dataclass(frozen=True)
class Side:
    """One operand: its factor of the product, the merged axes of its own (M or N), and the position it is read at
    (None: several).
    """

    factor: Node
    own: Space
    position: Int | None


def fits(kernel: Kernel) -> bool:
    """Return whether a kernel is a contraction, or several of the same rows and columns, that tiles suit."""
    if kernel.pool is not None:  # the cut made sure of it
        return True
    if not kernel.folds or not all(is_contraction(fold.node) for fold in kernel.folds):
        return False
    if any(
        fold.node.dtype.bits < 32 or any(not isinstance(size, int) for size in fold.node.sources[0].shape)
        for fold in kernel.folds
    ):
        return False
    splits = [split_axes(kernel, fold) for fold in kernel.folds]
    sides = {None if one is None else frozenset(one) for one in splits}
    (first,) = sides if len(sides) == 1 else (None,)
    return first is not None and min(_size(kernel, one) for one in first) >= MIN_TILED


def _size(kernel: Kernel, atoms: frozenset[Atom]) -> int:
    return most(product(size for one, size in zip(kernel.axes, kernel.shape, strict=True) if _is_in(one, atoms)))


def _is_in(variable: Int, atoms: frozenset[Atom]) -> bool:
    return not isinstance(variable, int) and atom_of(variable) in atoms


def split_axes(
    kernel: Kernel, fold: Fold, pieces: Pieces | None = None
) -> tuple[frozenset[Atom], frozenset[Atom]] | None:
    """Return the kernel's axes that only the first and only the second factor of a contraction depends on, None if the
    axes mix.

    `pieces` tells axes as others. An attention may have none of either: a single query, a single column.
    """
    if kernel.attention is not None:
        first, second = (axes_of(point) for point in _read_by_factors(kernel, pieces or {}))
        return first - second, second - first
    if kernel.pool is not None:
        return kernel.pool.sides
    own = axes_of(kernel.axes)
    first, second = (
        own & used(factor, fold.inner, lambda node: node in kernel.inputs) for factor in fold.node.sources[0].sources
    )
    return (first - second, second - first) if first - second and second - first else None


def _read_by_factors(kernel: Kernel, pieces: Pieces) -> list[Point]:
    """Return the indices at which each factor reads memory, of all reads together."""
    fold = kernel.folds[0]
    return [
        tuple(
            substitute(index, pieces)
            for access in accesses([(factor, fold.inner)], kernel.inputs, all_folds(kernel)[1:])
            for index in access.point
        )
        for factor in fold.node.sources[0].sources
    ]


def in_pieces(kernel: Kernel) -> tuple[list[tuple[Int, Int]], Pieces]:
    """Return the axes of a kernel with their sizes, and what those are that were cut into pieces: only an attention's
    are.

    Heads of queries that share a head of keys may be one axis of the result, and so may heads with the columns of each:
    its pieces are an axis of both factors and one of a single factor, which the whole is not.
    """
    axes = [pair for pair in zip(kernel.axes, kernel.shape, strict=True) if isinstance(pair[0], Expr)]
    pieces: dict[Atom, Int] = {}
    if kernel.attention is None:
        return axes, pieces
    points = _read_by_factors(kernel, pieces)
    at = 0
    while at < len(axes):
        variable, size = axes[at]
        for sizes in _divisions(variable, size, points):
            outer, inner = (axis(f"p{len(pieces)}_{i}", one) for i, one in enumerate(sizes))
            here = {atom_of(variable): outer * sizes[1] + inner}
            moved = [tuple(substitute(index, here) for index in point) for point in points]
            used = [axes_of(point) for point in moved]
            is_shared = [all(atom_of(one) in own for own in used) for one in (outer, inner)]
            if not any(atom_of(variable) in own for own in used) and not all(is_shared):
                points = moved
                pieces = {atom: substitute(one, here) for atom, one in pieces.items()} | here
                axes[at : at + 1] = zip((outer, inner), sizes, strict=True)
                break
        else:
            at += 1
    return axes, pieces


def _divisions(variable: Int, size: Int, points: Sequence[Point]) -> list[tuple[int, int]]:
    """Return the sizes of the two pieces that an axis may be cut into: where both factors read memory and divide it
    there.
    """
    own = atom_of(variable)
    if not isinstance(size, int) or not all(own in axes_of(point) for point in points):
        return []
    found: set[object] = set()
    for atom in (atom for point in points for index in point if isinstance(index, Expr) for atom in index.atoms()):
        if atom.kind in ("div", "mod") and atom.parts[0] == variable:
            found.add(atom.parts[1])
    counts = sorted(one for one in found if isinstance(one, int) and 1 < one < size and size % one == 0)
    return [(size // count, count) for count in counts]


def by_speed(tiles: Sequence[AnyTile], problem: Problem, compute_units: int) -> list[AnyTile]:
    """Return the tiles by when they finish, by a simple count: turns of the card's units times the size of a tile, by
    speed.
    """
    m, n, batch = problem.m, problem.n, most(problem.batch.size)
    if problem.kernel.pool is not None:
        tiles = [tile for tile in tiles if n <= tile.n <= MAX_POOLED]

    def turns(tile: AnyTile) -> float:
        groups = -(-m // tile.m) * -(-n // tile.n) * batch
        return -(-groups // compute_units) * tile.m * tile.n / tile.speed

    return sorted(tiles, key=turns)


def all_folds(kernel: Kernel) -> list[Fold]:
    """Return a kernel's folds and the scores of its attention."""
    return [*kernel.folds, *([kernel.scores] if kernel.scores else [])]


class Problem:
    """A contraction before its tile is chosen: whose axes are whose, and how large it is. `rows`: the axes that are to
    be its rows.
    """

    def __init__(self, kernel: Kernel, fold: Fold | None = None, rows: frozenset[Atom] | None = None) -> None:
        self.kernel, self.fold = kernel, fold or kernel.folds[0]
        product_node = self.fold.node.sources[0]
        pairs, pieces = in_pieces(kernel)
        pool = kernel.pool.fold if kernel.pool is not None else None
        if pool is not None:
            reduced = [(one, pool.node.sources[0].shape[i]) for i, one in pool.variables.items()]
            pairs += [pair for pair in reduced if isinstance(pair[0], Expr)]
        out, *others = (substitute(one, pieces) for one in all_written(kernel))
        reads = accesses(kernel.results, kernel.inputs, all_folds(kernel))
        positions = [*(substitute(one, pieces) for one in places(reads)), out, *others]
        first, second = split_axes(kernel, self.fold, pieces) or (frozenset(), frozenset())
        factors = product_node.sources
        # columns are the axes that run through the result's memory: threads side by side store side by side; an
        # attention's are its values', a pool's what it runs over
        if rows is not None:
            swapped = first != rows
        elif pool is not None:
            swapped = first == axes_of(tuple(pool.variables.values()))
        elif kernel.attention is not None:
            swapped = factors[0] is kernel.attention.values
        else:
            swapped = any(stride(out, pair[0]) == 1 for pair in pairs if atom_of(pair[0]) in first)
        if swapped:
            first, second, factors = second, first, factors[::-1]
        self.rows = first
        spaces = [
            merged([pair for pair in pairs if atom_of(pair[0]) in atoms], positions, letter)
            for atoms, letter in ((first, "m"), (second, "n"))
        ]
        self.batch = merged([pair for pair in pairs if atom_of(pair[0]) not in first | second], positions, "b")
        self.inner: Space | None = None  # what the scores of an attention are summed over
        if kernel.scores is not None:
            shape = kernel.scores.node.sources[0].shape
            self.inner = merged([(one, shape[i]) for i, one in kernel.scores.variables.items()], positions, "s")
        self.depth = merged(
            [(variable, product_node.shape[i]) for i, variable in self.fold.variables.items()], positions, "k"
        )
        self.original: dict[Atom, Int] = {}
        for space in (*spaces, self.batch, self.depth, *([self.inner] if self.inner else [])):
            self.original |= space.original
        self.original |= {atom: substitute(one, self.original) for atom, one in pieces.items()}
        self.dtype = product_node.dtype
        self.sides = tuple(self._side(factor, space) for factor, space in zip(factors, spaces, strict=True))

    def _side(self, factor: Node, own: Space) -> Side:
        return Side(factor, own, self.position(factor, self.fold.inner))

    def position(self, node: Node, point: Point) -> Int | None:
        """Return where in memory a node is read for a point, in terms of the merged axes; None where it is read at
        several places.
        """
        found: list[Access] = accesses([(node, point)], self.kernel.inputs, ())
        positions = [substitute(one, self.original) for one in places(found)]
        return positions[0] if len(positions) == 1 else None

    @property
    def m(self) -> int:
        """Return the number of rows."""
        return most(self.sides[0].own.size)

    @property
    def n(self) -> int:
        """Return the number of columns."""
        return most(self.sides[1].own.size)


def problems(kernel: Kernel) -> list[Problem]:
    """Return the contractions of a kernel that `fits`, all with the same rows, the shallowest first.

    By the model the order matters little: the long loop of a block of 512 channels takes 16 % longer behind nothing
    than behind a short one.
    """
    first = Problem(kernel)
    found = [first, *(Problem(kernel, fold, first.rows) for fold in kernel.folds[1:] if kernel.pool is None)]
    return sorted(found, key=lambda one: most(one.depth.size))


class Tiled(ABC):
    """A kernel whose result is made tile by tile: whose axes are whose, and what follows the sum."""

    def __init__(self, every: Sequence[Problem], name: str, tile: Tile) -> None:
        problem = every[0]
        self.problems, self.problem, self.kernel, self.fold, self.tile = (
            every,
            problem,
            problem.kernel,
            problem.fold,
            tile,
        )
        self.sides, self.depth = problem.sides, problem.depth
        self._original = {atom: index for one in every for atom, index in one.original.items()}
        self.frame = Frame(problem.kernel, name, tile.threads)
        self.thread = axis("thread", tile.threads)
        self._pool = problem.kernel.pool.fold if problem.kernel.pool is not None else None
        self._pooling: Pooling | None = None
        result, self._axes = (
            self.kernel.results[0] if self._pool is None else (self._pool.node.sources[0], self._pool.inner)
        )
        self._paths = [path_to(result, one.fold.node) for one in every]
        self._at_batch: dict[Atom, Int] = {}
        self.storing: Value | None = None  # where several threads have a result: which of them stores it

    @abstractmethod
    def lower(self) -> Lowered:
        """Return the machine IR."""

    def axes(self, groups: Sequence[Int], slices: Int) -> list[Axis]:
        """Return who walks through what."""
        found = [
            Axis(name, "grid", size, meaning)
            for name, size, meaning in zip(
                ("tile_n", "tile_m", "batch"),
                groups,
                ("tiles along columns", "tiles along rows", "products side by side"),
                strict=True,
            )
            if size != 1
        ]
        found += [*self.thread_axes(), *self.own_axes()]
        if slices != 1:
            found.append(Axis("slice", "loop", slices, "slices of K, the next one on its way from memory"))
        found.append(Axis("k", "unroll", self.tile.k, "of a slice in LDS"))
        if self._pool is not None:
            found.append(Axis("column", "unroll", self.problem.n, "columns of a row, folded through LDS"))
        return found

    def thread_axes(self) -> list[Axis]:
        """Return who the group's threads are."""
        return threads(self.tile.threads)

    @abstractmethod
    def own_axes(self) -> list[Axis]:
        """Return what a thread, or a wave, holds of the tile."""

    def _groups(self) -> tuple[Int, Int, Int]:
        """Bind the group's tile and batch, return the number of groups: columns along x, so that neighbours share
        rows.
        """
        build = self.frame.build
        found: list[Int] = []
        for dimension, (side, size) in enumerate(((self.sides[1], self.tile.n), (self.sides[0], self.tile.m))):
            count = (side.own.size + size - 1) // size
            self.frame.bind(axis(f"tile{1 - dimension}", count), build.op("group_id", I32, imm=dimension))
            found.append(count)
        batch = self.problem.batch
        count = batch.size
        self.frame.bind(axis("batch", count), build.op("group_id", I32, imm=2))
        self._at_batch = at(batch, axis("batch", count))
        return found[0], found[1], count

    def own(self, side: int, local: Int) -> tuple[dict[Atom, Int], Int]:
        """Return where the own axes of an operand are at a place within the group's tile, and the place in all of
        them.
        """
        space = self.sides[side].own
        size = (self.tile.m, self.tile.n)[side]
        number = axis(f"tile{side}", (space.size + size - 1) // size) * size + local
        return at(space, number), number

    def point(self, point: Point, where: dict[Atom, Int]) -> Point:
        """Return a point in terms of threads and groups."""
        everything = self._at_batch | where
        return tuple(substitute(substitute(index, self._original), everything) for index in point)

    def _finish(self, products: Sequence[Sequence[Value]], runs: Sequence[Run]) -> None:
        """Compute what follows the sums, each with a value for every result of the thread, and store it, run by run."""
        rows, columns = (side.own.size for side in self.sides)
        for run in runs:
            where_m, row = self.own(0, run.row)
            mask = masked(self.frame, within(row, 0, rows), self.storing if self._pooling is None else None)
            points: list[Point] = []
            tests = []
            for step in range(run.length):
                where_n, column = self.own(1, run.column + step)
                points.append(self.point(self._axes, where_m | where_n))
                tests.append(within(column, 0, columns))
            parts = [values[run.first : run.first + run.length] for values in products]
            if self._pooling is not None:
                masks = [masked(self.frame, test, mask) for test in tests]
                self._define(points, parts)
                requests = list(zip(points, masks, strict=True))
                values = self.frame.expressions.values(self._pooling.source, requests)
                self._pooling.put(run.row, run.column // run.length, values, masks)
            elif divides(run.length, columns):  # a run lies inside or outside as a whole
                self._store(points, parts, masked(self.frame, tests[0], mask))
            else:
                for i, (point, test) in enumerate(zip(points, tests, strict=True)):
                    self._store([point], [part[i : i + 1] for part in parts], masked(self.frame, test, mask))

    @property
    def rolled_rows(self) -> int:
        """Return the rows of results that a thread holds, 0 where `rolled_runs` cannot tell a row's runs."""
        return 0

    def rolled_runs(self, row: Int) -> list[Run]:
        """Return the runs of a thread's row, `first` counted within the row."""
        raise ValueError(f"{type(self).__name__} has no rows to roll over: row {row}")

    def _epilogue_size(self) -> int:
        """Return how many operations follow the sum for each result."""
        folds = {one.fold.node for one in self.problems}
        seen: set[Node] = set()
        stack = [node for node, _ in self.kernel.results]
        count = 0
        while stack:
            node = stack.pop()
            if node in seen or node in folds or node in self.kernel.inputs:
                continue
            seen.add(node)
            count += node.op in ELEMENTWISE
            stack += node.sources
        return count

    def _finish_rolled(self, products: Sequence[Sequence[Value]]) -> None:
        """Do the same as `_finish` in loops over the thread's rows, the results waiting in LDS: long code stays short.

        There is a loop for each product, over its part of the rows, so that several take no more LDS than one.
        """
        build, expressions = self.frame.build, self.frame.expressions
        type_ = products[0][0].type
        size, threads = type_.size_bytes, self.tile.threads
        each, rows = len(products[0]) // self.rolled_rows, self.rolled_rows // len(products)
        build.function.lds_bytes = max(build.function.lds_bytes, self._waiting_bytes(products))
        place = expressions.numbers.emit(self.thread * size)
        build.barrier()
        row = axis("row", rows)
        for first in range(0, self.rolled_rows, rows):
            waiting = [value for values in products for value in values[first * each : (first + rows) * each]]
            for i, value in enumerate(waiting):
                build.lds_store(place, value, constant=i * threads * size)
            with expressions.loop(row, 0, rows, 1, []):
                address = expressions.numbers.emit(row * (each * threads * size) + self.thread * size)
                found = [
                    [
                        build.lds_load(type_, address, constant=(i * rows * each + j) * threads * size)
                        for j in range(each)
                    ]
                    for i in range(len(products))
                ]
                self._finish(found, self.rolled_runs(row + first))

    def _waiting_bytes(self, products: Sequence[Sequence[Value]]) -> int:
        """Return the LDS that results take which wait for their rows' turn."""
        rows = self.rolled_rows // len(products) * len(products)
        return rows * (len(products[0]) // self.rolled_rows) * self.tile.threads * products[0][0].type.size_bytes

    def _define(self, points: Sequence[Point], parts: Sequence[Sequence[Value]]) -> None:
        """Say what the sums are that some points of the result, or of what a pool is made of, need."""
        for problem, path, values in zip(self.problems, self._paths, parts, strict=True):
            self.frame.expressions.define(problem.fold.node, _along(path, points, values))

    def _store(self, points: Sequence[Point], parts: Sequence[Sequence[Value]], mask: Value | None) -> None:
        self._define(points, parts)
        self.frame.store(points, self.frame.results(points, [mask] * len(points)), mask)

    def _store_pooled(self, pool: Fold, pooling: Pooling) -> None:
        """Store what follows the fold over the tile's columns."""
        path = path_to(self.kernel.computed, pool.node)
        for local, there, value in pooling.taken_up():
            where, row = self.own(0, local)
            point = self.point(self.kernel.axes, where)
            mask = masked(self.frame, within(row, 0, self.problem.m), there)
            self.frame.expressions.define(pool.node, _along(path, [point], [value]))
            self.frame.store([point], self.frame.results([point], [mask]), mask)


class Contraction(Tiled):
    """The lowering of one product, or of several one after the other; how a tile is multiplied is the two below this:
    `fma.py`, `matrix.py`.
    """

    def operand(self, problem: Problem, number: int) -> Operand:
        """Return what is staged of a product's rows (0) or columns (1)."""
        side, depth = problem.sides[number], problem.depth
        # along the other's axes the factor does not change, though what it is read from may have them
        anywhere: dict[Atom, Int] = dict.fromkeys(axes_of(problem.sides[1 - number].own.variables), 0)
        along_k = (
            side.position is not None and stride(side.position, depth.variables[-1] if depth.variables else 0) == 1
        )

        def place(slice_: Int, own: Int, k: Int) -> tuple[Point, Int, Int]:
            where, at_own = self.own(number, own)
            at_k = slice_ * self.tile.k + k
            return self.point(problem.fold.inner, anywhere | where | at(depth, at_k)), at_own, at_k

        run = depth.sizes[-1] if along_k else side.own.sizes[-1]
        return Operand(side.factor, place, most(side.own.size), most(depth.size), along_k, run)

    @abstractmethod
    def stagings(self, problem: Problem) -> tuple[Staging, Staging]:
        """Return how the slices of a product's operands go to LDS."""

    @abstractmethod
    def first(self) -> list[Value]:
        """Return the totals of before the first slice."""

    @abstractmethod
    def multiplied(self, stagings: Sequence[Staging], here: Value, totals: Sequence[Value]) -> list[Value]:
        """Return the totals with the products of the slices at LDS offset `here` added."""

    @abstractmethod
    def results(self, totals: Sequence[Value]) -> tuple[list[Value], list[Run]]:
        """Return the thread's results in the product's dtype and where in the tile they belong."""

    def lower(self) -> Lowered:
        """Return the machine IR."""
        build = self.frame.build
        self.frame.bind(self.thread, build.op("thread_id", I32))
        groups = self._groups()
        products: list[list[Value]] = []
        runs: list[Run] = []
        for problem in self.problems:
            if products and self._slices(self.problems[0]) == 1:
                build.barrier()  # ORDER: the slices lie where the ones before are read
            values, runs = self.results(self._product(problem))
            products.append(values)
        is_rolled = self.rolled_rows > len(products) and self._epilogue_size() * len(products[0]) > MAX_EPILOGUE
        if self._pool is not None:
            base = self._waiting_bytes(products) if is_rolled else 0
            pieces = -(-self.problem.n // runs[0].length)
            self._pooling = Pooling(
                self.frame, self._pool, self.thread, self.tile.m, self.tile.n // runs[0].length, pieces, base
            )
            build.barrier()  # ORDER: what is folded lies where the slices were
        if is_rolled:
            self._finish_rolled(products)
        else:
            self._finish(products, runs)
        if self._pool is not None and self._pooling is not None:
            self._store_pooled(self._pool, self._pooling)
        return self.frame.done(groups, self.axes(groups, self._slices(self.problem)), self.tile)

    def _slices(self, problem: Problem) -> int:
        return -(-most(problem.depth.size) // self.tile.k)

    def _product(self, problem: Problem) -> Sequence[Value]:
        """Return the totals of a product."""
        build, expressions = self.frame.build, self.frame.expressions
        slices, stagings = self._slices(problem), self.stagings(problem)
        half = 0  # the second slices' places lie behind the first's
        for staging in stagings:
            staging.place = half
            half += staging.slice_bytes
        build.function.lds_bytes = max(build.function.lds_bytes, half * (2 if slices > 1 else 1))
        zero = build.const(0)
        for staging in stagings:
            staging.put(staging.fetch(0), zero)
        build.barrier()
        totals = self.first()
        if slices == 1:
            return self.multiplied(stagings, zero, totals)
        with build.loop(0, slices, 1, totals) as loop:
            expressions.enter()
            following = build.op("min_s", I32, build.add(loop.index, 1), build.const(slices - 1))
            number = axis("slice", slices)
            self.frame.bind(number, following)
            fetched = [staging.fetch(number) for staging in stagings]
            here = build.mul(build.op("and", I32, loop.index, build.const(1)), half)
            there = build.op("sub", I32, build.const(half), here)
            loop.following = self.multiplied(stagings, here, loop.carried)
            for staging, values in zip(stagings, fetched, strict=True):
                staging.put(values, there)
            build.barrier()
            expressions.leave()
        return loop.results


def _along(path: Sequence[Node], points: Sequence[Point], values: Sequence[Value]) -> dict[Point, Value]:
    """Return values by where points of the first of some movement nodes lie in the source of the last, without those
    that a PAD fills.
    """
    found: dict[Point, Value] = {}
    for point, value in zip(points, values, strict=True):
        conditions: list[Within] | None = []
        for node in path:
            point, conditions = source_point(node, point)
            if conditions is None:
                break
        if conditions is not None:
            found[point] = value
    return found


def path_to(root: Node, target: Node) -> list[Node]:
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
