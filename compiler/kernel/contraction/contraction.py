"""Kernels of matrix products and convolutions: a sum of products over K for every pair of a row (M) and a column (N),
tile by tile.

A kernel has one such sum, or two with the same rows and columns: a convolution and the one of its shortcut, or two
products that are multiplied. Where a tile has all columns of the result, the kernel may reduce the values over them
(`pooling.py`).

A group computes an m x n tile of the result. Slices of k along K go to LDS. The threads are assigned to the elements of
an operand in the order in which its memory is contiguous. An operand need not be a plain load: a convolution's window,
a cast and a product with a scale are computed on the way to LDS. While a slice is multiplied, the next one is loaded
from memory. LDS holds two slices, so each slice needs one barrier, or one slice and two barriers. `fma.py` and
`matrix.py` multiply the tiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, axis, product, substitute
from ringup.compiler.graph.nodes import ELEMENTWISE, Node, Op
from ringup.compiler.kernel.axis.elementwise import all_written
from ringup.compiler.kernel.common.axes import Axis, threads
from ringup.compiler.kernel.common.expressions import divides
from ringup.compiler.kernel.common.frame import Frame, Lowered
from ringup.compiler.kernel.common.merge_axes import Space, at, merged, most, places, stride
from ringup.compiler.kernel.common.staging import Operand, Staging, masked
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.common.uses import Uses
from ringup.compiler.kernel.contraction.pooling import Pooling
from ringup.compiler.kernel.contraction.sides import in_pieces, split_axes
from ringup.compiler.machine.ir import I32, Value
from ringup.compiler.schedule.dependences import axes_of, is_contraction
from ringup.compiler.schedule.kernel import MAX_POOLED, MIN_TILED, Access, Fold, Kernel, accesses
from ringup.compiler.schedule.views import Point, within

# A SIMD's only wave waits for its loads: by the model of 26 products and convolutions on gfx1100 and gfx1201 it takes
# a quarter to a half as long again.
LONE = 0.25
# Operations after the sum, over all results of a thread, up to which the code is unrolled.
MAX_EPILOGUE = 1500
AnyTile = TypeVar("AnyTile", bound="Tile")


class Tile(Protocol):
    """The shape of a group's work. `speed`: the throughput of a compute unit relative to the best tile (GUESS, from the
    traffic of operands).
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


class StagedTile(Tile, Protocol):
    """`slices`: 2 if the next slice goes to a place of its own in LDS; 1 if it follows in the same place, after a
    second barrier, so that more groups fit.
    """

    @property
    def slices(self) -> int: ...


class Run(NamedTuple):
    """Adjacent elements of a result row that a thread holds: the number of the first one among its totals, and its row
    and column in the tile.
    """

    first: int
    row: Int
    column: Int
    length: int


@dataclass(frozen=True)
class Side:
    """One operand: its factor of the product, the merged axes that only it has (M or N), and the position it is read at
    (None: several).
    """

    factor: Node
    own: Space
    position: Int | None


def fits(kernel: Kernel) -> bool:
    """Return whether a kernel is a contraction, or several with the same rows and columns, for which tiles are
    suitable.
    """
    # The cut has checked it.
    if kernel.pool is not None:
        return True
    if not kernel.folds or not all(is_contraction(fold.node) for fold in kernel.folds):
        return False
    # Its products are in memory already.
    if any(fold.node.sources[0] in kernel.inputs for fold in kernel.folds):
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


def all_folds(kernel: Kernel) -> list[Fold]:
    """Return a kernel's folds and the scores of its attention."""
    return [*kernel.folds, *([kernel.scores] if kernel.scores else [])]


def by_speed(tiles: Sequence[AnyTile], problem: Problem, traits: Traits) -> list[AnyTile]:
    """Sort the tiles by a simple estimate of their time: iterations of the card's units times the size of a tile,
    divided by its speed, and more where a SIMD has few waves.
    """
    m, n, batch = problem.m, problem.n, most(problem.batch.size)
    if problem.kernel.pool is not None:
        tiles = [tile for tile in tiles if n <= tile.n <= MAX_POOLED]

    def turns(tile: AnyTile) -> float:
        groups = -(-m // tile.m) * -(-n // tile.n) * batch
        each = -(-groups // traits.compute_units)
        waves = max(1, each * tile.threads / (traits.wave_size * traits.simds))
        return each * tile.m * tile.n / tile.speed * (1 + LONE / waves**2)

    return sorted(tiles, key=turns)


class Problem:
    """A contraction before its tile is chosen: the assignment of axes to rows, columns, batch and depth, and the sizes.
    `rows`: the axes that must be the rows.
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
        # Columns are the axes along which the result is contiguous in memory, so adjacent threads store adjacent
        # elements. In an attention they are the columns of the values, with a pool the axes that it reduces.
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
        # The axes that the scores of an attention are summed over.
        self.inner: Space | None = None
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
        """Return the position in memory at which a node is read for a point, in terms of the merged axes; None if it
        reads several places.
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
    """Return the contractions of a kernel that `fits`, all with the same rows, the one with the least depth first.

    By the model the order matters little: the long loop of a block of 512 channels takes 16 % longer as the first loop
    than after a short one.
    """
    first = Problem(kernel)
    found = [first, *(Problem(kernel, fold, first.rows) for fold in kernel.folds[1:] if kernel.pool is None)]
    return sorted(found, key=lambda one: most(one.depth.size))


class Tiled(ABC):
    """The base of kernels that compute their result tile by tile: the assignment of axes, and what follows the sum.
    `wave`: threads of a wave.
    """

    def __init__(self, every: Sequence[Problem], name: str, tile: Tile, wave: int) -> None:
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
        self.wave = wave
        self.frame = Frame(problem.kernel, name, tile.threads, wave)
        self.thread = axis("thread", tile.threads)
        self._pool = problem.kernel.pool.fold if problem.kernel.pool is not None else None
        self._pooling: Pooling | None = None
        kernel = self.kernel
        self._axes = kernel.axes if self._pool is None else self._pool.inner
        self._valued = [root for root, _ in kernel.results] if self._pool is None else [self._pool.node.sources[0]]
        self._uses = [Uses(self._valued, one.fold.node, kernel.inputs) for one in every]
        self._at_batch: dict[Atom, Int] = {}
        # Where several threads have a result: the condition for storing it.
        self.storing: Value | None = None

    @abstractmethod
    def lower(self) -> Lowered:
        """Return the machine IR."""

    def axes(self, groups: Sequence[Int], slices: Int) -> list[Axis]:
        """Return the mapping of the axes."""
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
            found.append(Axis("slice", "loop", slices, "slices of K; the next one is being loaded"))
        found.append(Axis("k", "unroll", self.tile.k, "of a slice in LDS"))
        if self._pool is not None:
            found.append(Axis("column", "unroll", self.problem.n, "columns of a row, reduced through LDS"))
        return found

    def thread_axes(self) -> list[Axis]:
        """Return the axes of the group's threads."""
        return threads(self.tile.threads, self.wave)

    @abstractmethod
    def own_axes(self) -> list[Axis]:
        """Return the axes of the part of the tile that a thread or a wave holds."""

    def _groups(self) -> tuple[Int, Int, Int]:
        """Bind the group's tile and batch; return the number of groups. Columns are along x, so that adjacent groups
        share rows.
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
        """Return the indices of an operand's own axes at a position in the group's tile, and the position in the whole
        operand.
        """
        space = self.sides[side].own
        size = (self.tile.m, self.tile.n)[side]
        number = axis(f"tile{side}", (space.size + size - 1) // size) * size + local
        return at(space, number), number

    def point(self, point: Point, where: dict[Atom, Int]) -> Point:
        """Express a point in terms of threads and groups."""
        everything = self._at_batch | where
        return tuple(substitute(substitute(index, self._original), everything) for index in point)

    def _finish(self, products: Sequence[Sequence[Value]], runs: Sequence[Run]) -> None:
        """Compute what follows the sums, and store it run by run. Each product has a value for every result of the
        thread.
        """
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
            elif divides(run.length, columns):
                # A run is inside or outside as a whole.
                self._store(points, parts, masked(self.frame, tests[0], mask))
            else:
                for i, (point, test) in enumerate(zip(points, tests, strict=True)):
                    self._store([point], [part[i : i + 1] for part in parts], masked(self.frame, test, mask))

    @property
    def rolled_rows(self) -> int:
        """Return the number of rows of results of a thread, 0 if `rolled_runs` does not support the lowering."""
        return 0

    def rolled_runs(self, row: Int) -> list[Run]:
        """Return the runs of a thread's row, with `first` counted within the row."""
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
        """Do the same as `_finish` in loops over the thread's rows, so that long code is not repeated. The results wait
        in LDS.

        Each product's part of the rows has a loop of its own, so several products need no more LDS than one.
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
        """Return the LDS size of the results that wait for their row's iteration."""
        rows = self.rolled_rows // len(products) * len(products)
        return rows * (len(products[0]) // self.rolled_rows) * self.tile.threads * products[0][0].type.size_bytes

    def _define(self, points: Sequence[Point], parts: Sequence[Sequence[Value]]) -> None:
        """Set the values of the sums that some points of the result need, or points of the pool's source."""
        kernel = self.kernel
        for problem, uses, values in zip(self.problems, self._uses, parts, strict=True):
            found: dict[Point, Value] = {}
            for point, value in zip(points, values, strict=True):
                for root, result in zip(kernel.roots, self._valued, strict=False):
                    at_root = point if self._pool is not None else kernel.point_of(root, point)
                    for one in uses.points(result, at_root):
                        found.setdefault(one, value)
            self.frame.expressions.define(problem.fold.node, found)

    def _store(self, points: Sequence[Point], parts: Sequence[Sequence[Value]], mask: Value | None) -> None:
        self._define(points, parts)
        self.frame.store(points, self.frame.results(points, [mask] * len(points)), mask)

    def _store_pooled(self, pool: Fold, pooling: Pooling) -> None:
        """Store what follows the fold over the tile's columns."""
        uses = Uses([self.kernel.computed], pool.node, self.kernel.inputs)
        for local, there, value in pooling.results():
            where, row = self.own(0, local)
            point = self.point(self.kernel.axes, where)
            mask = masked(self.frame, within(row, 0, self.problem.m), there)
            at_pool = uses.points(self.kernel.computed, point)
            self.frame.expressions.define(pool.node, dict.fromkeys(at_pool, value))
            self.frame.store([point], self.frame.results([point], [mask]), mask)


class Contraction(Tiled):
    """The lowering of one product, or of several one after the other. The subclasses in `fma.py` and `matrix.py`
    multiply a tile.
    """

    tile: StagedTile

    def operand(self, problem: Problem, number: int) -> Operand:
        """Return the operand to stage: a product's rows (0) or columns (1)."""
        side, depth = problem.sides[number], problem.depth
        # The factor does not depend on the other operand's axes, but the memory it reads may.
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
        """Return the staging of a product's operands."""

    @abstractmethod
    def first(self) -> list[Value]:
        """Return the totals before the first slice."""

    @abstractmethod
    def multiplied(self, stagings: Sequence[Staging], here: Value, totals: Sequence[Value]) -> list[Value]:
        """Return the totals with the products of the slices at LDS offset `here` added."""

    @abstractmethod
    def results(self, totals: Sequence[Value]) -> tuple[list[Value], list[Run]]:
        """Return the thread's results in the product's dtype, and their places in the tile."""

    def lower(self) -> Lowered:
        """Return the machine IR."""
        build = self.frame.build
        self.frame.bind(self.thread, build.op("thread_id", I32))
        groups = self._groups()
        products: list[list[Value]] = []
        runs: list[Run] = []
        for problem in self.problems:
            if products and self._slices(self.problems[0]) == 1:
                # ORDER: these slices overwrite the previous product's, which must have been read.
                build.barrier()
            values, runs = self.results(self._product(problem))
            products.append(values)
        is_rolled = self.rolled_rows > len(products) and self._epilogue_size() * len(products[0]) > MAX_EPILOGUE
        if self._pool is not None:
            base = self._waiting_bytes(products) if is_rolled else 0
            pieces = -(-self.problem.n // runs[0].length)
            self._pooling = Pooling(
                self.frame, self._pool, self.thread, self.tile.m, self.tile.n // runs[0].length, pieces, base
            )
            # ORDER: the pool's values overwrite the slices.
            build.barrier()
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
        # The second pair of slices, if there is one, follows the first.
        half = 0
        for staging in stagings:
            staging.place = half
            half += staging.slice_bytes
        pairs = min(slices, self.tile.slices)
        build.function.lds_bytes = max(build.function.lds_bytes, half * pairs)
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
            here = there = zero
            if pairs > 1:
                here = build.mul(build.op("and", I32, loop.index, build.const(1)), half)
                there = build.op("sub", I32, build.const(half), here)
            loop.following = self.multiplied(stagings, here, loop.carried)
            if pairs == 1:
                # ORDER: the next slice overwrites this one, which every wave must have read.
                build.barrier()
            for staging, values in zip(stagings, fetched, strict=True):
                staging.put(values, there)
            build.barrier()
            expressions.leave()
        return loop.results


def path_to(root: Node, target: Node) -> list[Node]:
    """Return the movement nodes on the path from a kernel's root to its reduction."""
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
