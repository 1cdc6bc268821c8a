"""Attention in one kernel: scores, softmax and the sum of values, a tile of queries by a tile of keys at a time, nothing of it in memory.

A group holds m queries of one head. For each n keys it multiplies queries and keys, makes logits of the scores, and keeps of every query the
greatest logit so far, the sum of the powers and their sum with the values; when a greater logit comes, both sums are scaled down to it.
Eight neighbouring threads share a query's row: four keys each of the scores, and of the result every eighth run of four columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler import dtypes
from ringup.compiler.graph import Op
from ringup.compiler.index import Atom, Int, axis
from ringup.compiler.kernel.arith import operate
from ringup.compiler.kernel.axes import Axis
from ringup.compiler.kernel.contraction import Problem, Run, Tiled, path_to
from ringup.compiler.kernel.expressions import Request
from ringup.compiler.kernel.frame import Lowered
from ringup.compiler.kernel.functions import exp2
from ringup.compiler.kernel.space import Space, at, most, stride
from ringup.compiler.kernel.staging import Operand, Staging, masked
from ringup.compiler.machine.ir import F32, I32, Value
from ringup.compiler.schedule.attention import Attention
from ringup.compiler.schedule.cut import Fold
from ringup.compiler.schedule.views import Point, source_point, within

THREADS = 128
ROW_THREADS = 8  # neighbouring threads on one row
RUN = 4
PAD = 4  # elements behind each row in LDS
MOST_LDS = 60 << 10


@dataclass(frozen=True)
class AttentionTile:
    """See `contraction.Tile`: `m` queries, `n` columns of the result (all of them), `k` keys a turn; `deep`: elements of a query."""

    m: int
    n: int
    k: int
    deep: int
    speed: float = 1.0

    @property
    def threads(self) -> int:
        """Return the threads of a group."""
        return THREADS

    @property
    def rows(self) -> int:
        """Return the queries of a thread."""
        return self.m * ROW_THREADS // THREADS

    @property
    def lds_bytes(self) -> int:
        """Return the LDS it needs: queries, keys, values, powers."""
        rows = self.deep * (self.m + self.k + 2 * PAD) + self.k * (self.n + self.m + 2 * PAD)
        return 4 * rows

    def __str__(self) -> str:
        return f"attention queries={self.m} keys={self.k} columns={self.n} deep={self.deep}"


class AttentionContraction(Tiled):
    """The lowering."""

    tile: AttentionTile

    def __init__(self, problem: Problem, name: str, tile: AttentionTile, found: Attention, scores: Fold) -> None:
        super().__init__(problem, name, tile)
        self._found, self._scores = found, scores
        self._to_scores = path_to(found.logits, scores.node)
        weights = next(side.factor for side in self.sides if side.factor is not found.values)
        self._to_weights = path_to(weights, found.weights)

    def lower(self) -> Lowered:
        """Return the machine IR."""
        tile, build, expressions = self.tile, self.frame.build, self.frame.expressions
        self.frame.bind(self.thread, build.op("thread_id", I32))
        groups = self._groups()
        turns = -(-most(self.depth.size) // tile.k)
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
        with build.loop(0, turns, 1, first) as loop:
            expressions.enter()
            self.frame.bind(number, loop.index)
            for staging in (keys, values):
                staging.put(staging.fetch(number), zero)
            build.barrier()
            loop.following = self._turn(number, (queries, keys, values), list(loop.carried))
            build.barrier()
            expressions.leave()
        sums = [self._across(one, Op.ADD) for one in loop.results[tile.rows : 2 * tile.rows]]
        totals = [
            build.op("div", F32, one, self._guarded(sums[i // columns], 0.0, 1.0))
            for i, one in enumerate(loop.results[2 * tile.rows :])
        ]
        runs = [
            Run(i * columns + j, self._row(i), self._column(j), RUN)
            for i in range(tile.rows)
            for j in range(0, columns, RUN)
        ]
        self._finish(totals, runs)
        return self.frame.done(groups, self.axes(groups, turns), tile)

    def thread_axes(self) -> list[Axis]:
        """Return who the group's threads are: those of a row, and how many rows there are of them."""
        return [
            Axis("row", "lane", THREADS // ROW_THREADS, "rows of threads, over all waves"),
            Axis("keys", "reduce", ROW_THREADS, "neighbouring threads that share the queries of a row"),
        ]

    def own_axes(self) -> list[Axis]:
        """Return what a thread holds of the tile."""
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
        logits = self._logits(number, self._products(queries, keys))
        scale = build.const(self._found.scale, F32)
        powers: list[list[Value]] = []
        new_greatest, new_sums, new_totals = [], [], []
        for i in range(tile.rows):
            row = logits[i * RUN : (i + 1) * RUN]
            most_ = self._across(self._folded(Op.MAX, row), Op.MAX)
            after = operate(build, Op.MAX, dtypes.float32, dtypes.float32, (greatest[i], most_))
            safe = self._guarded(after, float("-inf"), 0.0)

            def power(value: Value, safe: Value = safe) -> Value:
                return exp2(build, build.op("fmul", F32, build.op("fsub", F32, value, safe), scale))

            down = power(greatest[i])
            powers.append([power(one) for one in row])
            new_greatest.append(after)
            new_sums.append(build.op("fma", F32, sums[i], down, self._folded(Op.ADD, powers[i])))
            new_totals += [build.op("fmul", F32, one, down) for one in totals[i * columns : (i + 1) * columns]]
        self._put(powers)
        build.barrier()
        for key in range(tile.k):
            weights, wanted = self._weights(key), self._values(values, key)
            for i, a in enumerate(weights):
                for j, b in enumerate(wanted):
                    new_totals[i * columns + j] = build.op("fma", F32, a, b, new_totals[i * columns + j])
        return [*new_greatest, *new_sums, *new_totals]

    def _logits(self, number: Int, products: Sequence[Value]) -> list[Value]:
        """Return what the graph makes of the scores before the softmax; minus infinity beyond the last key."""
        build, expressions = self.frame.build, self.frame.expressions
        count = most(self.depth.size)
        requests: list[Request] = []
        places: list[tuple[int, Value | None]] = []
        scores: dict[Point, Value] = {}
        for i in range(self.tile.rows):
            where_m, row = self.own(0, self._row(i))
            in_row = within(row, 0, self.problem.m)
            for j in range(RUN):
                key = number * self.tile.k + self._key(j)
                in_key = within(key, 0, count)
                if (
                    in_row is False or in_key is False
                ):  # such a place may wrap around to the point of another that counts
                    continue
                inner = self.point(self.fold.inner, where_m | at(self.depth, key))
                for node in self._to_weights:
                    inner, _ = source_point(node, inner)
                point = inner
                for node in self._to_scores:
                    point, _ = source_point(node, point)
                scores[point] = products[i * RUN + j]
                test = masked(self.frame, in_key, None)
                places.append((i * RUN + j, test))
                requests.append((inner, masked(self.frame, in_row, test)))
        expressions.define(self._scores.node, scores)
        values = expressions.values(self._found.logits, requests)
        least = build.const(float("-inf"), F32)
        logits = [least] * len(products)
        for (place, test), value in zip(places, values, strict=True):
            logits[place] = value if test is None else build.op("select", F32, test, value, least)
        return logits

    def _products(self, queries: Staging, keys: Staging) -> list[Value]:
        """Return the thread's scores: rows by RUN keys."""
        build = self.frame.build
        rows = self.frame.expressions.numbers.emit(self._row(0) * 4)
        columns = self.frame.expressions.numbers.emit(self._key(0) * 4)
        found = [build.const(0.0, F32)] * (self.tile.rows * RUN)
        for k in range(self.tile.deep):
            a = self._read(rows, queries.place + k * queries.stride * 4, self.tile.rows)
            b = self._read(columns, keys.place + k * keys.stride * 4, RUN)
            for i in range(self.tile.rows):
                for j in range(RUN):
                    found[i * RUN + j] = build.op("fma", F32, a[i], b[j], found[i * RUN + j])
        return found

    def _put(self, powers: Sequence[Sequence[Value]]) -> None:
        """Store the powers to LDS as [key][query]."""
        build, stride_ = self.frame.build, self.tile.m + PAD
        address = self.frame.expressions.numbers.emit((self._key(0) * stride_ + self._row(0)) * 4)
        for j in range(RUN):
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

    def _folded(self, op: Op, values: Sequence[Value]) -> Value:
        total = values[0]
        for one in values[1:]:
            total = operate(self.frame.build, op, dtypes.float32, dtypes.float32, (total, one))
        return total

    def _across(self, value: Value, op: Op) -> Value:
        """Return the value of a row's threads together, in each of them."""
        build, distance = self.frame.build, 1
        while distance < ROW_THREADS:
            value = self._folded(op, [value, build.op("shuffle_xor", F32, value, imm=distance)])
            distance *= 2
        return value

    def _guarded(self, value: Value, bad: float, good: float) -> Value:
        """Return a value, `good` where it is `bad`: rows that see nothing."""
        build = self.frame.build
        return build.op(
            "select", F32, build.compare("feq", value, build.const(bad, F32)), build.const(good, F32), value
        )

    def _row(self, i: int) -> Int:
        return self.thread // ROW_THREADS * self.tile.rows + i

    def _key(self, j: int) -> Int:
        return self.thread % ROW_THREADS * RUN + j

    def _column(self, j: int) -> Int:
        return j // RUN * (ROW_THREADS * RUN) + self.thread % ROW_THREADS * RUN + j % RUN

    def _stagings(self) -> tuple[Staging, Staging, Staging]:
        """Return how queries ([deep][query]), keys ([deep][key]) and values ([key][column]) go to LDS."""
        tile, problem = self.tile, self.problem
        inner = problem.inner
        assert inner is not None
        first, second = self._scores.node.sources[0].sources
        uses = [problem.position(one, self._scores.inner) for one in (first, second)]
        depth = self.depth.variables[-1] if self.depth.variables else 0
        # keys are the factor that moves with the variable of the sum over keys
        moves = [one is not None and stride(one, depth) != 0 for one in uses]
        if moves[0] and not moves[1]:
            first, second, uses = second, first, uses[::-1]
        deep = inner.variables[-1] if inner.variables else 0

        def of(side: str, where: dict[Atom, Int], k: Int) -> Point:
            del side
            return self.point(self._scores.inner, where | at(inner, k))

        def query(_: Int, own: Int, k: Int) -> tuple[Point, Int, Int]:
            where, place = self.own(0, own)
            return of("query", where, k), place, k

        def key(number: Int, own: Int, k: Int) -> tuple[Point, Int, Int]:
            place = number * tile.k + own
            return of("key", at(self.depth, place), k), place, k

        def value(number: Int, own: Int, k: Int) -> tuple[Point, Int, Int]:
            where, column = self.own(1, own)
            place = number * tile.k + k
            return self.point(self.fold.inner, where | at(self.depth, place)), column, place

        size = most(inner.size)
        along = [one is not None and stride(one, deep) == 1 for one in uses]
        runs = [
            _last(inner) if one else other
            for one, other in zip(along, (_last(self.sides[0].own), _last(self.depth)), strict=True)
        ]
        operands = (
            (Operand(first, query, problem.m, size, along[0], runs[0]), tile.m, tile.deep),
            (Operand(second, key, most(self.depth.size), size, along[1], runs[1]), tile.k, tile.deep),
            (
                Operand(self._found.values, value, problem.n, most(self.depth.size), False, _last(self.sides[1].own)),
                tile.n,
                tile.k,
            ),
        )
        made = [
            Staging(self.frame, self.thread, operand, own, k, F32, by_k=True, pad=PAD) for operand, own, k in operands
        ]
        return made[0], made[1], made[2]


def _last(space: Space) -> Int:
    """Return the size of the innermost variable, 1 where there is none: one query, one key or one column."""
    return space.sizes[-1] if space.sizes else 1


def candidates(problem: Problem) -> list[AttentionTile]:
    """Return every tile worth a try, the heuristic one first: the largest that fits LDS and is no larger than there are queries."""
    assert problem.inner is not None
    n = -(-problem.n // (ROW_THREADS * RUN)) * ROW_THREADS * RUN
    deep = -(-most(problem.inner.size) // RUN) * RUN
    tiles = [AttentionTile(m, n, ROW_THREADS * RUN, deep) for m in (64, 32, 16)]
    fitting = [one for one in tiles if one.lds_bytes <= MOST_LDS]
    first = next((one for one in fitting if one.m <= max(16, problem.m)), fitting[-1])
    return [first, *(one for one in fitting if one is not first)]


def lower(problem: Problem, name: str, found: Attention, scores: Fold, choice: AttentionTile | None = None) -> Lowered:
    """Return the machine IR of an attention, by the tile chosen or the heuristic one."""
    tile = choice or candidates(problem)[0]
    return AttentionContraction(problem, name, tile, found, scores).lower()
