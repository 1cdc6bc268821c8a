"""Tiles of a contraction by multiply-adds: a thread holds thread_m x thread_n results, and for each k reads as many
rows and columns from LDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.arith import operate
from ringup.compiler.kernel.common.axes import Axis, threads
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.merge_axes import most
from ringup.compiler.kernel.common.staging import Staging
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.contraction.contraction import Contraction, Problem, Run, by_speed
from ringup.compiler.machine.ir import Value
from ringup.compiler.schedule.views import Within

# Elements after each row of a slice in LDS, so that the stores of adjacent threads go to different banks.
PAD = 4
# Adjacent rows or columns of a thread.
RUN = 4


@dataclass(frozen=True)
class FmaTile:
    """See `contraction.StagedTile`. `ways`: this many sets of waves have the same results; each takes a part of every
    slice's k, and the sets add up their totals at the end.
    """

    m: int
    n: int
    thread_m: int
    thread_n: int
    k: int
    speed: float
    ways: int = 1
    slices: int = 2

    @property
    def threads(self) -> int:
        """Return the number of threads of a group."""
        return self.own_threads * self.ways

    @property
    def own_threads(self) -> int:
        """Return the number of threads that together hold each result once."""
        return self.m * self.n // (self.thread_m * self.thread_n)

    def __str__(self) -> str:
        ways = f" ways={self.ways}" if self.ways > 1 else ""
        return f"fma tile={self.m}x{self.n}x{self.k} thread={self.thread_m}x{self.thread_n}{ways}"


TILES = (
    FmaTile(128, 128, 8, 8, 8, 1.0),
    FmaTile(128, 64, 8, 8, 8, 0.95),
    FmaTile(64, 128, 8, 8, 8, 0.95),
    FmaTile(64, 64, 8, 8, 8, 0.85),
    FmaTile(64, 64, 4, 4, 16, 0.7),
    FmaTile(32, 64, 4, 4, 16, 0.6),
    FmaTile(32, 32, 4, 4, 16, 0.5),
    FmaTile(16, 64, 4, 4, 16, 0.5),
    FmaTile(64, 16, 4, 4, 16, 0.5),
    FmaTile(16, 16, 2, 4, 16, 0.3),
)
# Candidates that the heuristic never chooses.
TRIED = (
    FmaTile(128, 128, 8, 8, 16, 0.9),
    FmaTile(64, 64, 8, 8, 16, 0.8),
    FmaTile(64, 128, 4, 8, 8, 0.8),
    FmaTile(128, 64, 8, 4, 8, 0.8),
    FmaTile(64, 64, 4, 4, 8, 0.7),
    FmaTile(32, 64, 4, 8, 16, 0.6),
    FmaTile(32, 32, 4, 4, 8, 0.5),
)
# For a pool, where a tile has all columns and there are few rows. By the model, 512 x 49 x 4608 takes 27 us with the
# first one and 49 us with 16 rows.
POOLED = (
    FmaTile(8, 64, 2, 4, 16, 0.46),
    FmaTile(4, 64, 1, 4, 16, 0.28),
)
# Threads of a group whose waves share k.
MAX_SHARING = 512
# Results of a thread that may be added up over ways: each takes an LDS access for every way.
MAX_SHARED = 16
# Iterations of the loop with ways. With fewer than MIN_TURNS, no more ways are used. From MAX_TURNS on, BUSY_WAVES
# applies.
MIN_TURNS, MAX_TURNS = 4, 32
# Waves of a compute unit up to which ways are used, by the model as good as more: with few iterations, and with many.
FEW_WAVES_LIMIT, BUSY_WAVES = 4, 8
# Results of 8 bytes that a thread may hold.
MAX_WIDE = 16


class FmaContraction(Contraction):
    """The lowering with multiply-adds."""

    tile: FmaTile

    def __init__(self, every: Sequence[Problem], name: str, tile: FmaTile, wave: int) -> None:
        super().__init__(every, name, tile, wave)
        self._own, self._way = self.thread % tile.own_threads, self.thread // tile.own_threads

    def stagings(self, problem: Problem) -> tuple[Staging, Staging]:
        """Return the staging of the operands: rows of k, each with all rows or columns of the tile."""
        type_ = element_forms.stored(problem.dtype)
        rows, columns = (
            Staging(self.frame, self.thread, self.operand(problem, i), size, self.tile.k, type_, by_k=True, pad=PAD)
            for i, size in enumerate((self.tile.m, self.tile.n))
        )
        return rows, columns

    def first(self) -> list[Value]:
        """Return zeros."""
        return [element_forms.constant(self.frame.build, 0, self.problem.dtype)] * (
            self.tile.thread_m * self.tile.thread_n
        )

    def multiplied(self, stagings: Sequence[Staging], here: Value, totals: Sequence[Value]) -> list[Value]:
        """Return the totals with every product of a row and a column of each k added."""
        found = list(totals)
        addresses = [self._address(i, staging, here) for i, staging in enumerate(stagings)]
        for k in range(self.tile.k // self.tile.ways):
            rows, columns = (self._read(i, staging, addresses[i], k) for i, staging in enumerate(stagings))
            for i, a in enumerate(rows):
                for j, b in enumerate(columns):
                    found[i * len(columns) + j] = self._step(found[i * len(columns) + j], a, b)
        return found

    def _address(self, number: int, staging: Staging, here: Value) -> Value:
        skipped = self._way * (self.tile.k // self.tile.ways * staging.stride)
        first = self.frame.expressions.numbers.emit((self._local(number, 0) + skipped) * staging.type.size_bytes)
        return self.frame.build.add(first, here)

    def _read(self, number: int, staging: Staging, address: Value, k: int) -> list[Value]:
        build, size = self.frame.build, staging.type.size_bytes
        count = (self.tile.thread_m, self.tile.thread_n)[number]
        run = min(RUN, count)
        width = min(run, 16 // size)
        apart = staging.size // (count // run)
        found: list[Value] = []
        for i in range(0, count, width):
            place = k * staging.stride + i // run * apart + i % run
            vector = build.lds_load(staging.type.of(width), address, constant=staging.place + place * size)
            found += [build.extract(vector, step) for step in range(width)]
        return found

    def _step(self, total: Value, a: Value, b: Value) -> Value:
        build, dtype = self.frame.build, self.problem.dtype
        if dtype.is_float:
            return build.op("fma", total.type, a, b, total)
        return operate(build, Op.ADD, dtype, dtype, (total, operate(build, Op.MUL, dtype, dtype, (a, b))))

    def results(self, totals: Sequence[Value]) -> tuple[list[Value], list[Run]]:
        """Return the totals over all ways, in runs of adjacent columns."""
        tile = self.tile
        if tile.ways > 1:
            totals = self._over_ways(totals)
        run = min(RUN, tile.thread_n)
        runs = [
            Run(i * tile.thread_n + j, self._local(0, i), self._local(1, j), run)
            for i in range(tile.thread_m)
            for j in range(0, tile.thread_n, run)
        ]
        return list(totals), runs

    def _over_ways(self, totals: Sequence[Value]) -> list[Value]:
        """Add up the totals of all ways through LDS, where the values of the threads are adjacent. Each way gets the
        same sums.
        """
        build, numbers, tile = self.frame.build, self.frame.expressions.numbers, self.tile
        size = totals[0].type.size_bytes
        function = build.function
        function.lds_bytes = max(function.lds_bytes, len(totals) * tile.threads * size)
        # ORDER: they overwrite the slices, which must have been read.
        build.barrier()
        own = numbers.emit(self.thread * size)
        for i, total in enumerate(totals):
            build.lds_store(own, total, constant=i * tile.threads * size)
        build.barrier()
        first = numbers.emit(self._own * size)
        found = []
        for i in range(len(totals)):
            parts = [
                build.lds_load(totals[0].type, first, constant=(i * tile.threads + way * tile.own_threads) * size)
                for way in range(tile.ways)
            ]
            while len(parts) > 1:
                parts = [self._sum(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            found += parts
        # ORDER: later values use the same place.
        build.barrier()
        self.storing = numbers.condition(Within(self._way, 0, 1))
        return found

    def _sum(self, a: Value, b: Value) -> Value:
        return operate(self.frame.build, Op.ADD, self.problem.dtype, self.problem.dtype, (a, b))

    @property
    def rolled_rows(self) -> int:
        """Return the number of the thread's rows."""
        return self.tile.thread_m

    def rolled_runs(self, row: Int) -> list[Run]:
        """Return the runs of a thread's row."""
        tile = self.tile
        run = min(RUN, tile.thread_n)
        return [Run(j, self._local(0, row), self._local(1, j), run) for j in range(0, tile.thread_n, run)]

    def thread_axes(self) -> list[Axis]:
        """Return the axes of the group's threads."""
        ways = [Axis("way", "reduce", self.tile.ways, "waves that share k")] if self.tile.ways > 1 else []
        return [*threads(self.tile.own_threads, self.wave), *ways]

    def own_axes(self) -> list[Axis]:
        """Return the thread's rows and columns."""
        tile = self.tile
        return [
            Axis("thread_m", "unroll", tile.thread_m, "rows of a thread"),
            Axis("thread_n", "unroll", tile.thread_n, "columns of a thread"),
        ]

    def _local(self, side: int, i: Int) -> Int:
        """Return the row (0) or column (1) of the tile that the thread's i-th one is.

        A thread's runs of four are spread over the tile, so that adjacent threads read adjacent places in LDS.
        """
        tile = self.tile
        size, own = ((tile.m, tile.thread_m), (tile.n, tile.thread_n))[side]
        run = min(RUN, own)
        across = tile.n // tile.thread_n
        number = self._own % across if side else self._own // across
        return i // run * (size // (own // run)) + number * run + i % run


def _usual(problem: Problem) -> Sequence[FmaTile]:
    return TILES if problem.kernel.pool is None else (*TILES, *POOLED)


def _allowed(tiles: Sequence[FmaTile], problem: Problem, traits: Traits) -> list[FmaTile]:
    wide = problem.dtype.bits > 32
    found = [one for one in tiles if not wide or one.thread_m * one.thread_n <= MAX_WIDE]
    # The waves that share k hide latency as others do.
    shared = {_shared(one, problem, traits): one for one in found}
    return [shared[one] for one in by_speed(list(shared), problem, traits)]


def _shared(tile: FmaTile, problem: Problem, traits: Traits) -> FmaTile:
    """Return a tile with as many ways as there are idle waves. Each way must have enough iterations, and the slices
    must fit into LDS.
    """
    if tile.thread_m * tile.thread_n > MAX_SHARED:
        return tile
    groups = -(-problem.m // tile.m) * -(-problem.n // tile.n) * most(problem.batch.size)
    waves = groups * tile.own_threads / (traits.wave_size * traits.compute_units)
    line_bytes = problem.dtype.size_bytes
    # Bytes of one step along the depth, in two slices.
    line_bytes *= 2 * (tile.m + tile.n + 2 * PAD)
    ways = 1
    while tile.own_threads * ways * 2 <= MAX_SHARING and tile.k * ways * 2 * line_bytes <= traits.lds_bytes:
        turns = most(problem.depth.size) // (tile.k * ways * 2)
        if turns < MIN_TURNS or waves * ways * 2 > (BUSY_WAVES if turns >= MAX_TURNS else FEW_WAVES_LIMIT):
            break
        ways *= 2
    return replace(tile, k=tile.k * ways, ways=ways)


def candidates(problem: Problem, traits: Traits) -> list[FmaTile]:
    """Return every candidate tile, the heuristic one first."""
    first, *others = _allowed(_usual(problem), problem, traits)
    found = [_shared(first, problem, traits), first, *others, *(_shared(one, problem, traits) for one in others)]
    return list(dict.fromkeys([*found, *_allowed(TRIED, problem, traits)]))


def lower(problems: Sequence[Problem], name: str, traits: Traits, choice: FmaTile | None = None) -> Lowered:
    """Return the machine IR of contractions by multiply-adds, with the given or the heuristic tile."""
    if choice is None:
        choice = _shared(_allowed(_usual(problems[0]), problems[0], traits)[0], problems[0], traits)
    return FmaContraction(problems, name, choice, traits.wave_size).lower()
