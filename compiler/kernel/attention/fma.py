"""Attention by multiply-adds: scores, softmax and the sum of values for a tile of queries and a tile of keys at a time,
without intermediate results in memory.

A group holds m queries of one head. For each n keys it multiplies queries and keys and turns the scores into logits.
For every query it keeps the greatest logit so far, the sum of the powers, and the sums of the powers times the values.
When a greater logit comes, these sums are scaled down to it. Eight adjacent threads share a query's row. Each has
adjacent keys of the scores, and every eighth run of four columns of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler.graph.index import Int, axis
from ringup.compiler.kernel.attention.parts import Attending
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.functions import exp2
from ringup.compiler.kernel.common.merge_axes import most
from ringup.compiler.kernel.common.staging import Operand, Staging
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.contraction.contraction import Problem, Run, by_speed
from ringup.compiler.machine.ir import F32, I32, Value

THREADS = 128
# Adjacent threads that share a row.
ROW_THREADS = 8
RUN = 4
# Elements after each row in LDS.
PAD = 4
MAX_LDS = 60 << 10
# Queries, keys of a thread, speed by the model.
SHAPES = ((64, 4, 1.0), (64, 2, 0.8), (32, 4, 0.64), (16, 4, 0.37), (128, 2, 0.76))
# The XOR distances of the lanes of a row.
_ROW = (1, 2, 4)


@dataclass(frozen=True)
class AttentionTile:
    """See `contraction.Tile`: `m` queries, `n` columns of the result (all of them), `k` keys in each iteration; `deep`:
    elements of a query.
    """

    m: int
    n: int
    k: int
    deep: int
    speed: float = 1.0

    @property
    def threads(self) -> int:
        """Return the number of threads of a group."""
        return THREADS

    @property
    def rows(self) -> int:
        """Return the number of queries of a thread."""
        return self.m * ROW_THREADS // THREADS

    @property
    def own(self) -> int:
        """Return the number of adjacent keys of a thread in an iteration."""
        return self.k // ROW_THREADS

    @property
    def lds_bytes(self) -> int:
        """Return the LDS size of queries, keys, values and powers."""
        rows = self.deep * (self.m + self.k + 2 * PAD) + self.k * (self.n + self.m + 2 * PAD)
        return 4 * rows

    def __str__(self) -> str:
        return f"attention queries={self.m} keys={self.k} columns={self.n} deep={self.deep}"


class FmaAttention(Attending):
    """The lowering."""

    tile: AttentionTile

    def lower(self) -> Lowered:
        """Return the machine IR."""
        tile, build = self.tile, self.frame.build
        self.frame.bind(self.thread, build.op("thread_id", I32))
        groups = self._groups()
        turns = self.turns
        queries, keys, values = self._stagings()
        place = 0
        for staging in (queries, keys, values):
            staging.place = place
            place += staging.slice_bytes
        self._powers_at = place
        build.function.lds_bytes = place + 4 * tile.k * (tile.m + PAD)
        zero = build.const(0)
        queries.put(queries.fetch(0), zero)
        least, nothing = build.const(float("-inf"), F32), build.const(0.0, F32)
        columns = tile.n // ROW_THREADS
        first = [least] * tile.rows + [nothing] * (tile.rows * (1 + columns))
        number = axis("turn", turns)
        with self.over_keys(number, first) as loop:
            for staging in (keys, values):
                staging.put(staging.fetch(number), zero)
            build.barrier()
            loop.following = self._turn(number, (queries, keys, values), list(loop.carried))
            build.barrier()
        sums = [self.below(self.across(one, _ROW, "fadd")) for one in loop.results[tile.rows : 2 * tile.rows]]
        totals = [build.op("div", F32, one, sums[i // columns]) for i, one in enumerate(loop.results[2 * tile.rows :])]
        runs = [
            Run(i * columns + j, self._row(i), self._column(j), RUN)
            for i in range(tile.rows)
            for j in range(0, columns, RUN)
        ]
        self._finish([totals], runs)
        return self.frame.done(groups, self.axes(groups, turns), tile)

    def thread_axes(self) -> list[Axis]:
        """Return the axes of the group's threads: the number of rows of threads, and the threads of a row."""
        return [
            Axis("row", "lane", THREADS // ROW_THREADS, "rows of threads, over all waves"),
            Axis("keys", "reduce", ROW_THREADS, "neighbouring threads that share the queries of a row"),
        ]

    def own_axes(self) -> list[Axis]:
        """Return the axes of the part of the tile that a thread holds."""
        tile = self.tile
        return [
            Axis("rows", "unroll", tile.rows, "queries of a thread"),
            Axis("columns", "unroll", tile.n // ROW_THREADS, "columns of a thread's results"),
            Axis("deep", "unroll", tile.deep, "elements of a query"),
        ]

    def _turn(self, number: Int, stagings: Sequence[Staging], carried: list[Value]) -> list[Value]:
        """Return greatest logits, sums of powers and sums of values after one more tile of keys."""
        tile, build = self.tile, self.frame.build
        queries, keys, values = stagings
        columns = tile.n // ROW_THREADS
        greatest, sums, totals = carried[: tile.rows], carried[tile.rows : 2 * tile.rows], carried[2 * tile.rows :]
        cells = [(self._row(i), number * tile.k + self._key(j)) for i in range(tile.rows) for j in range(tile.own)]
        logits = self.logits(cells, self._products(queries, keys))
        scale = build.const(self.sources.found.scale, F32)
        powers: list[list[Value]] = []
        new_greatest, new_sums, new_totals = [], [], []
        for i in range(tile.rows):
            row = logits[i * tile.own : (i + 1) * tile.own]
            after = self.greatest([greatest[i], self.across(self.greatest(row), _ROW, "fmax")])
            safe = self.safe(after)

            def power(value: Value, safe: Value = safe) -> Value:
                return exp2(build, build.op("fmul", F32, build.op("fsub", F32, value, safe), scale))

            down = power(greatest[i])
            powers.append([power(one) for one in row])
            new_greatest.append(after)
            new_sums.append(build.op("fma", F32, sums[i], down, self.sum(powers[i])))
            new_totals += [build.op("fmul", F32, one, down) for one in totals[i * columns : (i + 1) * columns]]
        self._put(powers)
        build.barrier()
        for key in range(tile.k):
            weights, wanted = self._weights(key), self._values(values, key)
            for i, a in enumerate(weights):
                for j, b in enumerate(wanted):
                    new_totals[i * columns + j] = build.op("fma", F32, a, b, new_totals[i * columns + j])
        return [*new_greatest, *new_sums, *new_totals]

    def _products(self, queries: Staging, keys: Staging) -> list[Value]:
        """Return the thread's scores: its rows by its keys."""
        build, own = self.frame.build, self.tile.own
        rows = self.frame.expressions.numbers.emit(self._row(0) * 4)
        columns = self.frame.expressions.numbers.emit(self._key(0) * 4)
        found = [build.const(0.0, F32)] * (self.tile.rows * own)
        for k in range(self.tile.deep):
            a = self._read(rows, queries.place + k * queries.stride * 4, self.tile.rows)
            b = self._read(columns, keys.place + k * keys.stride * 4, own)
            for i in range(self.tile.rows):
                for j in range(own):
                    found[i * own + j] = build.op("fma", F32, a[i], b[j], found[i * own + j])
        return found

    def _put(self, powers: Sequence[Sequence[Value]]) -> None:
        """Store the powers to LDS as [key][query]."""
        build, stride_ = self.frame.build, self.tile.m + PAD
        address = self.frame.expressions.numbers.emit((self._key(0) * stride_ + self._row(0)) * 4)
        for j in range(self.tile.own):
            build.lds_store(
                address, build.vector([row[j] for row in powers]), constant=self._powers_at + j * stride_ * 4
            )

    def _weights(self, key: int) -> list[Value]:
        rows = self.frame.expressions.numbers.emit(self._row(0) * 4)
        return self._read(rows, self._powers_at + key * (self.tile.m + PAD) * 4, self.tile.rows)

    def _values(self, values: Staging, key: int) -> list[Value]:
        address = self.frame.expressions.numbers.emit(self._column(0) * 4)
        found: list[Value] = []
        for first in range(0, self.tile.n, ROW_THREADS * RUN):
            found += self._read(address, values.place + (key * values.stride + first) * 4, RUN)
        return found

    def _read(self, address: Value, constant: int, count: int) -> list[Value]:
        build = self.frame.build
        vector = build.lds_load(F32.of(count), address, constant=constant)
        return [build.extract(vector, i) for i in range(count)]

    def _row(self, i: int) -> Int:
        return self.thread // ROW_THREADS * self.tile.rows + i

    def _key(self, j: int) -> Int:
        return self.thread % ROW_THREADS * self.tile.own + j

    def _column(self, j: int) -> Int:
        return j // RUN * (ROW_THREADS * RUN) + self.thread % ROW_THREADS * RUN + j % RUN

    def _stagings(self) -> tuple[Staging, Staging, Staging]:
        """Return the staging of queries ([deep][query]), keys ([deep][key]) and values ([key][column])."""
        tile, sources = self.tile, self.sources

        def place(_: Int, own: Int, k: Int) -> tuple[tuple[Int, ...], Int, Int]:
            point, row = self.query_place(own, k)
            return point, row, k

        rows = self.sides[0].own
        along = sources.queries_along
        run = sources.inner.sizes[-1] if along and sources.inner.sizes else rows.sizes[-1] if rows.sizes else 1
        operands = (
            (Operand(sources.queries, place, rows.size, sources.deep, along, run), tile.m, tile.deep),
            (self.staged_keys(sources.keys), tile.k, tile.deep),
            (self.staged_values(sources.values, along_k=False), tile.n, tile.k),
        )
        made = [
            Staging(self.frame, self.thread, operand, own, k, F32, by_k=True, pad=PAD) for operand, own, k in operands
        ]
        return made[0], made[1], made[2]


def candidates(problem: Problem, traits: Traits) -> list[AttentionTile]:
    """Return every candidate tile that fits into LDS, in order of estimated time; the first is the heuristic one."""
    assert problem.inner is not None
    n = -(-problem.n // (ROW_THREADS * RUN)) * ROW_THREADS * RUN
    deep = -(-most(problem.inner.size) // RUN) * RUN
    tiles = [AttentionTile(m, n, ROW_THREADS * own, deep, speed) for m, own, speed in SHAPES]
    return by_speed([one for one in tiles if one.lds_bytes <= MAX_LDS], problem, traits)
