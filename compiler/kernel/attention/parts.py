"""The common part of all lowerings of attention: the places of queries, keys and values, and the computation of logits
from scores.

Rows are queries (of all heads that share keys and values), columns are those of the values, and the sum runs over keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, axis, substitute
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.kernel.common import visible_keys
from ringup.compiler.kernel.common.arith import operate
from ringup.compiler.kernel.common.expressions import Request
from ringup.compiler.kernel.common.merge_axes import at, most, stride
from ringup.compiler.kernel.common.staging import Operand, masked
from ringup.compiler.kernel.common.uses import Uses
from ringup.compiler.kernel.contraction.contraction import Problem, Tile, Tiled, path_to
from ringup.compiler.kernel.contraction.sides import factors_of_scores
from ringup.compiler.machine.ir import F32, I1, I32, Loop, Value
from ringup.compiler.schedule.dependences import axes_of
from ringup.compiler.schedule.views import Point, source_point, within


class Sources:
    """The three factors of an attention: `queries` and `keys` of the scores, and `values`; their sizes, and whether a
    query or key is contiguous in memory.
    """

    def __init__(self, problem: Problem) -> None:
        found, scores, inner = problem.kernel.attention, problem.kernel.scores, problem.inner
        if found is None or scores is None or inner is None:
            raise ValueError(f"no attention: {problem.kernel.root}")
        self.found, self.scores, self.inner = found, scores, inner
        self.queries, self.keys = factors_of_scores(problem.kernel)
        variable = problem.depth.variables[-1] if problem.depth.variables else 0
        self.values: Node = found.values
        self.deep = most(inner.size)
        last = inner.variables[-1] if inner.variables else 0
        positions = [problem.position(one, scores.inner) for one in (self.queries, self.keys)]
        self.queries_along, self.keys_along = [one is not None and stride(one, last) == 1 for one in positions]
        position = problem.sides[1].position
        self.values_along_keys = position is not None and stride(position, variable) == 1


class Attending(Tiled):
    """The base of the lowerings. In a tile, `m` counts rows, `n` columns, and `k` the keys of an iteration."""

    def __init__(self, problem: Problem, name: str, tile: Tile, wave: int) -> None:
        super().__init__([problem], name, tile, wave)
        self.sources = Sources(problem)
        found = self.sources.found
        self._scores_of = Uses([found.logits], self.sources.scores.node, self.kernel.inputs)
        weights = next(side.factor for side in self.sides if side.factor is not found.values)
        self._to_weights = path_to(weights, found.weights)

    def place_in_waves(self, waves: int) -> tuple[Int, Int]:
        """Return a thread's lane and its wave, one of `waves` in the group."""
        build = self.frame.build
        lane, wave = axis("lane", self.wave), axis("wave", waves)
        self.frame.bind(lane, build.op("lane_id", I32))
        self.frame.bind(wave, build.op("wave_id", I32))
        return lane, wave

    @property
    def keys(self) -> Int:
        """Return the number of keys."""
        return self.depth.size

    @property
    def turns(self) -> Int:
        """Return the number of iterations over all keys."""
        return (self.keys + self.tile.k - 1) // self.tile.k

    @contextmanager
    def over_keys(self, number: Int, initial: Sequence[Value]) -> Iterator[Loop]:
        """Open the loop over tiles of keys; `number` is the iteration. It ends after the last key that any row of the
        group sees.
        """
        build, expressions, seen = self.frame.build, self.frame.expressions, self._seen_turns()
        stop = expressions.numbers.emit(self.turns)
        for one in seen:
            stop = build.op("min_s", I32, stop, expressions.numbers.emit(one))
        with build.loop(0, stop if seen or not isinstance(self.turns, int) else self.turns, 1, initial) as loop:
            expressions.enter()
            loop.expected = self._expected_turns(seen)
            self.frame.bind(number, loop.index)
            yield loop
            expressions.leave()

    def _seen_turns(self) -> list[Int]:
        """Return upper bounds for the number of iterations, from the visible keys of the group's rows by the graph's
        conditions; none where the rows see all keys.
        """
        local, key = axis("row_of_tile", self.tile.m), axis("key", self.keys)
        point, _ = self._logit_place(local, key)
        limits = [
            visible_keys.greatest(one, local, self.tile.m)
            for one in visible_keys.limits(self.sources.found.logits, point, key)
        ]
        turns = [(one + self.tile.k) // self.tile.k for one in dict.fromkeys(limits) if one is not None]
        return [one for one in turns if within(one - self.turns, 0, 1 << 30) is not True]

    def _expected_turns(self, seen: Sequence[Int]) -> int:
        """Return the mean number of iterations over the tiles of rows, with symbolic sizes at their maximum."""
        rows = (self.sides[0].own.size + self.tile.m - 1) // self.tile.m
        tile, count = axis("tile0", rows), most(rows)
        places = [{atom_of(tile): i} for i in range(count)] if isinstance(tile, Expr) else [dict[Atom, Int]()]
        found = [min(most(substitute(one, place)) for one in (self.turns, *seen)) for place in places]
        return max(1, sum(max(0, one) for one in found) // len(found))

    def query_place(self, local: Int, k: Int) -> tuple[Point, Int]:
        """Return the point of element `k` of a query, and the number of its row. A query does not depend on the keys,
        but the memory it reads may.
        """
        where, row = self.own(0, local)
        anywhere: dict[Atom, Int] = dict.fromkeys(axes_of(self.depth.variables), 0)
        return self.point(self.sources.scores.inner, anywhere | where | at(self.sources.inner, k)), row

    def key_place(self, key: Int, k: Int) -> Point:
        """Return the point of element `k` of a key."""
        return self.point(self.sources.scores.inner, at(self.depth, key) | at(self.sources.inner, k))

    def value_place(self, key: Int, local: Int) -> tuple[Point, Int]:
        """Return the point of a column of a key's values, and the number of the column."""
        where, column = self.own(1, local)
        return self.point(self.fold.inner, where | at(self.depth, key)), column

    def staged_keys(self, factor: Node) -> Operand:
        """Return the operand for staging keys, with their elements along K."""

        def place(number: Int, own: Int, k: Int) -> tuple[Point, Int, Int]:
            key = number * self.tile.k + own
            return self.key_place(key, k), key, k

        sources = self.sources
        run = sources.inner.sizes[-1] if sources.keys_along and sources.inner.sizes else self._last(self.depth.sizes)
        return Operand(factor, place, self.keys, sources.deep, sources.keys_along, run)

    def staged_values(self, factor: Node, *, along_k: bool) -> Operand:
        """Return the operand for staging values, with the keys along K."""

        def place(number: Int, own: Int, k: Int) -> tuple[Point, Int, Int]:
            key = number * self.tile.k + k
            point, column = self.value_place(key, own)
            return point, column, key

        run = self._last(self.depth.sizes if along_k else self.sides[1].own.sizes)
        return Operand(factor, place, self.problem.n, self.keys, along_k, run)

    @staticmethod
    def _last(sizes: Sequence[Int]) -> Int:
        return sizes[-1] if sizes else 1

    def logits(self, cells: Sequence[tuple[Int, Int]], products: Sequence[Value]) -> list[Value]:
        """Compute the logits of cells (row of the tile, key) from their scores; minus infinity after the last key.

        Cells are sorted by row, then by key.
        """
        build, expressions, sources = self.frame.build, self.frame.expressions, self.sources
        requests: list[Request] = []
        places: list[tuple[int, Value | None]] = []
        scores: dict[Point, tuple[Value, Value | None]] = {}
        for i, ((local, key), product) in enumerate(zip(cells, products, strict=True)):
            logit, row = self._logit_place(local, key)
            in_key, in_row = within(key, 0, self.keys), within(row, 0, self.sides[0].own.size)
            if in_key is False or in_row is False:
                continue
            test = masked(self.frame, in_key, None)
            for point in self._scores_of.points(sources.found.logits, logit):
                # A place after the last key may wrap around to the point of a valid one.
                other, is_other = scores.get(point, (product, None))
                if is_other is not None:
                    other = build.op("select", F32, is_other, other, product)
                    is_other = None if test is None else build.op("or", I1, is_other, test)
                elif point not in scores:
                    is_other = test
                scores[point] = other, is_other
            places.append((i, test))
            requests.append((logit, masked(self.frame, in_row, test)))
        expressions.define(sources.scores.node, {point: value for point, (value, _) in scores.items()})
        values = expressions.values(sources.found.logits, requests)
        least = build.const(float("-inf"), F32)
        logits = [least] * len(cells)
        for (place, test), value in zip(places, values, strict=True):
            logits[place] = value if test is None else build.op("select", F32, test, value, least)
        return logits

    def _logit_place(self, local: Int, key: Int) -> tuple[Point, Int]:
        where, row = self.own(0, local)
        where_key: dict[Atom, Int] = where | at(self.depth, key)
        point = self.point(self.fold.inner, where_key)
        for node in self._to_weights:
            point, _ = source_point(node, point)
        return point, row

    def greatest(self, values: Sequence[Value]) -> Value:
        """Return the maximum of some logits. NaN is ignored here: its power is NaN, and so are the sums."""
        best = values[0]
        for one in values[1:]:
            best = self.frame.build.op("fmax", F32, best, one)
        return best

    def sum(self, values: Sequence[Value]) -> Value:
        """Return the sum of some values, added pairwise."""
        rest = list(values)
        while len(rest) > 1:
            pairs = zip(rest[::2], rest[1::2], strict=False)
            rest = [operate(self.frame.build, Op.ADD, dtypes.float32, dtypes.float32, pair) for pair in pairs] + rest[
                len(rest) // 2 * 2 :
            ]
        return rest[0]

    def across(self, value: Value, distances: Sequence[int], op: str) -> Value:
        """Combine the values of lanes whose numbers differ by these powers of two. Each gets the result. `op`: fmax or
        fadd.
        """
        build = self.frame.build
        for distance in distances:
            value = build.op(op, F32, value, build.op("shuffle_xor", F32, value, imm=distance))
        return value

    def safe(self, greatest: Value) -> Value:
        """Return a row's greatest logit, or 0 while the row has seen no key: infinity minus infinity would be NaN."""
        return self.guarded(greatest, float("-inf"), 0.0)

    def below(self, total: Value) -> Value:
        """Return the divisor of a row's sums: 1 for rows without a visible key, if the graph asks for that."""
        return self.guarded(total, 0.0, 1.0) if self.sources.found.guarded else total

    def guarded(self, value: Value, bad: float, good: float) -> Value:
        """Return `good` where a value is `bad`, else the value."""
        build = self.frame.build
        is_bad = build.compare("feq", value, build.const(bad, F32))
        return build.op("select", F32, is_bad, build.const(good, F32), value)
