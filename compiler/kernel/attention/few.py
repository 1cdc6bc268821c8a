"""Attention of few queries over many keys, such as a decoder's step. All threads together read every key and value just
once.

A group computes queries of one head of keys, and its waves divide the keys. `parts` adjacent lanes hold a key and its
values, some elements each. So a wave computes several keys at once, and every lane has `own` keys in each iteration.
The lanes of one key keep their own greatest logits, sums and results. At the end these are combined over the lanes of a
wave, and over the waves through LDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from ringup.compiler.graph.index import Int, axis
from ringup.compiler.graph.nodes import Node
from ringup.compiler.kernel.attention.parts import Attending, Sources
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.expressions import WIDEST_BYTES, Request, divides
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.functions import exp2
from ringup.compiler.kernel.common.merge_axes import most, power_of_two
from ringup.compiler.kernel.common.staging import masked, zeroed
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.contraction.contraction import Problem, Run
from ringup.compiler.kernel.contraction.matrix import FRAGMENT, uncast
from ringup.compiler.machine.ir import F32, I32, Value
from ringup.compiler.schedule.kernel import FEW_QUERIES_LIMIT
from ringup.compiler.schedule.views import Point, Within, within

# Bytes of a value in LDS.
WORD = 4
# Elements of queries, of results, of keys or of values that a thread has registers for.
MAX_HELD = 256
# Up to MAX_QUERIES queries, more than a group has rows for, use this lowering if there are at least MIN_MANY_KEYS keys.
MAX_QUERIES, MIN_MANY_KEYS = 32, 512
# Waves of a compute unit that keep it busy: with more groups than that, each needs fewer waves.
BUSY_WAVES = 16
# Candidates (waves, own keys), good ones first.
TRIED = (
    (16, 4), (8, 4), (4, 4), (8, 2), (4, 2), (2, 4), (1, 4), (1, 2), (16, 2), (32, 2),
)  # fmt: skip


@dataclass(frozen=True)
class FewTile:
    """See `contraction.Tile`. A lane holds `vector` adjacent elements of each `parts * vector`, for `own` keys in each
    iteration. `wave`: threads of a wave.
    """

    m: int
    n: int
    deep: int
    waves: int
    parts: int
    vector: int
    own: int
    wave: int
    speed: float = 1.0

    @property
    def threads(self) -> int:
        """Return the number of threads of a group."""
        return self.wave * self.waves

    @property
    def slots(self) -> int:
        """Return the number of keys that a wave computes at once."""
        return self.wave // self.parts

    @property
    def k(self) -> int:
        """Return the number of keys of an iteration."""
        return self.waves * self.slots * self.own

    def pieces(self, size: int) -> int:
        """Return the number of vectors that a lane holds of `size` elements."""
        return -(-size // (self.parts * self.vector))

    @property
    def columns(self) -> int:
        """Return the number of columns that all lanes hold together."""
        return self.pieces(self.n) * self.parts * self.vector

    @property
    def held(self) -> int:
        """Return the most elements that a thread holds of one kind: queries or results of all rows, or keys or values
        of an iteration.
        """
        return max(self.pieces(self.deep), self.pieces(self.n)) * self.vector * max(self.m, self.own)

    @property
    def statistics_at(self) -> int:
        """Return the place of the pairs of greatest logit and sum in LDS, after the results."""
        return -(-self.waves * self.m * self.columns // 2) * 2 * WORD

    @property
    def lds_bytes(self) -> int:
        """Return the LDS size of what waves exchange: results, greatest logits and sums."""
        return self.statistics_at + 2 * WORD * self.waves * self.m

    def __str__(self) -> str:
        shape = f"columns={self.n} deep={self.deep}"
        return (
            f"few queries={self.m} keys={self.own} waves={self.waves} parts={self.parts} vector={self.vector} {shape}"
        )


@dataclass(frozen=True)
class State:
    """What a thread keeps of a row: the greatest logit so far, the sum of the powers, and the sums of the powers times
    its columns of the values.
    """

    greatest: Value
    sum: Value
    results: tuple[Value, ...]


class FewAttention(Attending):
    """The lowering."""

    tile: FewTile

    def __init__(self, problem: Problem, name: str, tile: FewTile) -> None:
        super().__init__(problem, name, tile, tile.wave)
        self._lane, self._wave = self.place_in_waves(tile.waves)

    def lower(self) -> Lowered:
        """Return the machine IR."""
        build = self.frame.build
        self.frame.bind(self.thread, build.op("thread_id", I32))
        groups = self._groups()
        turns = self.turns
        queries = [self._query(row) for row in range(self.tile.m)]
        number = axis("turn", turns)
        with self.over_keys(number, self._flat(self._first())) as loop:
            loop.following = self._flat(self._turn(number, queries, self._states(loop.carried)))
        self._put([self._gathered(one) for one in self._states(loop.results)])
        build.barrier()
        self._combined()
        return self.frame.done(groups, self.axes(groups, turns), self.tile)

    def thread_axes(self) -> list[Axis]:
        """Return the axes of the group's threads."""
        tile = self.tile
        return [
            Axis("keys", "reduce", tile.waves * tile.slots, "keys computed at once, over waves and lanes"),
            Axis("part", "reduce", tile.parts, "neighbouring lanes that share a key and its values"),
        ]

    def own_axes(self) -> list[Axis]:
        """Return the axes of what a thread holds."""
        tile = self.tile
        return [
            Axis("queries", "unroll", tile.m, "rows, all of them"),
            Axis("deep", "unroll", tile.pieces(tile.deep) * tile.vector, "elements of a query and of a key"),
            Axis("columns", "unroll", tile.pieces(tile.n) * tile.vector, "columns of values and results"),
        ]

    def _first(self) -> list[State]:
        """Return the state of the rows before any key."""
        build, tile = self.frame.build, self.tile
        zero, least = build.const(0.0, F32), build.const(float("-inf"), F32)
        return [State(least, zero, (zero,) * (tile.pieces(tile.n) * tile.vector))] * tile.m

    @staticmethod
    def _flat(states: Sequence[State]) -> list[Value]:
        return [value for one in states for value in (one.greatest, one.sum, *one.results)]

    def _states(self, values: Sequence[Value]) -> list[State]:
        each = len(values) // self.tile.m
        rows = (values[i : i + each] for i in range(0, len(values), each))
        return [State(row[0], row[1], tuple(row[2:])) for row in rows]

    def _place(self, piece: int, step: int) -> Int:
        """Return which element of a query, key or value this lane holds."""
        tile = self.tile
        return (piece * tile.parts + self._lane % tile.parts) * tile.vector + step

    def _elements(self, node: Node, size: int, place: Callable[[Int], Point], inside: Value | None) -> list[Value]:
        """Return this lane's elements of `size`, at the points that `place` returns; 0 after the last one and where
        `inside` is false.
        """
        tile, build = self.tile, self.frame.build
        whole = divides(tile.vector, size)
        requests: list[Request] = []
        mask: Value | None = None
        for piece in range(tile.pieces(size)):
            for step in range(tile.vector):
                at_element = self._place(piece, step)
                if step == 0 or not whole:
                    mask = masked(self.frame, within(at_element, 0, size), inside)
                requests.append((place(at_element), mask))
        values = self.frame.expressions.values(node, requests)
        return [zeroed(build, value, mask) for value, (_, mask) in zip(values, requests, strict=True)]

    def _query(self, row: int) -> list[Value]:
        _, number = self.query_place(row, 0)
        inside = masked(self.frame, within(number, 0, self.sides[0].own.size), None)
        sources = self.sources
        return self._elements(sources.queries, sources.deep, lambda k: self.query_place(row, k)[0], inside)

    def _value_point(self, key: Int, column: Int) -> Point:
        return self.value_place(key, column)[0]

    def _key(self, number: Int, i: int) -> Int:
        """Return the number of this lane's i-th key in an iteration. Adjacent keys belong to adjacent slots of a wave,
        then to adjacent waves.
        """
        tile = self.tile
        slot = self._wave * tile.slots + self._lane // tile.parts
        return number * tile.k + i * (tile.waves * tile.slots) + slot

    def _turn(self, number: Int, queries: Sequence[Sequence[Value]], states: Sequence[State]) -> list[State]:
        """Return the state of the rows after the keys of an iteration."""
        build, sources = self.frame.build, self.sources
        keys = [self._key(number, i) for i in range(self.tile.own)]
        inside = [masked(self.frame, within(key, 0, self.keys), None) for key in keys]
        loaded = [
            self._elements(sources.keys, sources.deep, partial(self.key_place, key), test)
            for key, test in zip(keys, inside, strict=True)
        ]
        values = [
            self._elements(sources.values, self.tile.n, partial(self._value_point, key), test)
            for key, test in zip(keys, inside, strict=True)
        ]
        products = [self._product(query, key) for query in queries for key in loaded]
        logits = self.logits([(row, key) for row in range(self.tile.m) for key in keys], products)
        found = []
        for row, state in enumerate(states):
            mine = logits[row * len(keys) : (row + 1) * len(keys)]
            after = self.greatest([state.greatest, *mine])
            safe = self.safe(after)
            down, *powers = (self._power(one, safe) for one in (state.greatest, *mine))
            results = [build.op("fmul", F32, one, down) for one in state.results]
            for power, value in zip(powers, values, strict=True):
                results = [build.op("fma", F32, power, a, b) for a, b in zip(value, results, strict=True)]
            found.append(State(after, build.op("fma", F32, state.sum, down, self.sum(powers)), tuple(results)))
        return found

    def _product(self, query: Sequence[Value], key: Sequence[Value]) -> Value:
        """Return a score, in all lanes of a key."""
        build = self.frame.build
        total = build.op("fmul", F32, key[0], query[0])
        for a, b in zip(key[1:], query[1:], strict=True):
            total = build.op("fma", F32, a, b, total)
        return self.across(total, _distances(1, self.tile.parts), "fadd")

    def _power(self, logit: Value, safe: Value) -> Value:
        build = self.frame.build
        scale = build.const(self.sources.found.scale, F32)
        return exp2(build, build.op("fmul", F32, build.op("fsub", F32, logit, safe), scale))

    def _gathered(self, state: State) -> State:
        """Combine a row's state over the wave. Each lane gets the result."""
        build, over = self.frame.build, _distances(self.tile.parts, self.wave)
        if not over:
            return state
        greatest = self.across(state.greatest, over, "fmax")
        down = self._power(state.greatest, self.safe(greatest))
        total, *results = (
            self.across(build.op("fmul", F32, one, down), over, "fadd") for one in (state.sum, *state.results)
        )
        return State(greatest, total, tuple(results))

    def _put(self, states: Sequence[State]) -> None:
        """Store each wave's rows to LDS: results as [wave][row][column], greatest logits and sums as [wave][row]."""
        build, tile, numbers = self.frame.build, self.tile, self.frame.expressions.numbers
        build.function.lds_bytes = tile.lds_bytes
        width = min(tile.vector, WIDEST_BYTES // WORD)
        place = numbers.emit((self._wave * (tile.m * tile.columns) + self._place(0, 0)) * WORD)
        with build.when(build.compare("lt_u", build.op("lane_id", I32), build.const(tile.parts))):
            for row, state in enumerate(states):
                for i in range(0, len(state.results), width):
                    piece, step = divmod(i, tile.vector)
                    constant = row * tile.columns + piece * tile.parts * tile.vector + step
                    build.lds_store(place, build.vector(state.results[i : i + width]), constant=constant * WORD)
        own = numbers.emit(self._wave * (2 * tile.m * WORD))
        with build.when(build.compare("eq", build.op("lane_id", I32), build.const(0))):
            for row, state in enumerate(states):
                both = build.vector([state.greatest, state.sum])
                build.lds_store(own, both, constant=tile.statistics_at + 2 * row * WORD)

    def _combined(self) -> None:
        """Combine the rows of the waves and store them. Adjacent threads store adjacent elements."""
        tile, expressions = self.tile, self.frame.expressions
        count = tile.m * tile.columns
        for first in range(0, count, tile.threads):
            element = self.thread + first
            row, column = element // tile.columns, element % tile.columns
            test = within(element, 0, count)
            # The last threads may have no element.
            with expressions.when(expressions.numbers.condition(test)) if isinstance(test, Within) else nullcontext():
                self._finish([[self._element(row, column)]], [Run(0, row, column, 1)])

    def _element(self, row: Int, column: Int) -> Value:
        """Return one element of the result, combined over all waves."""
        build, tile, numbers = self.frame.build, self.tile, self.frame.expressions.numbers
        place = numbers.emit((row * tile.columns + column) * WORD)
        about = numbers.emit(row * (2 * WORD))
        waves = range(tile.waves)
        results = [build.lds_load(F32, place, constant=WORD * one * tile.m * tile.columns) for one in waves]
        pairs = [
            build.lds_load(F32.of(2), about, constant=tile.statistics_at + 2 * WORD * one * tile.m) for one in waves
        ]
        greatest = [build.extract(pair, 0) for pair in pairs]
        safe = self.safe(self.greatest(greatest))
        down = [self._power(one, safe) for one in greatest]
        total = self.sum(
            [build.op("fmul", F32, build.extract(pair, 1), by) for pair, by in zip(pairs, down, strict=True)]
        )
        result = self.sum([build.op("fmul", F32, one, by) for one, by in zip(results, down, strict=True)])
        return build.op("div", F32, result, self.below(total))


def suits(problem: Problem, traits: Traits) -> bool:
    """Return whether waves should divide the keys rather than the queries: there are few queries, or many keys and so
    few tiles of queries that most of the card would be idle.
    """
    if problem.m <= FEW_QUERIES_LIMIT:
        return True
    idle = -(-problem.m // FRAGMENT) * most(problem.batch.size) * 4 <= traits.compute_units
    return problem.m <= MAX_QUERIES and idle and most(problem.depth.size) >= MIN_MANY_KEYS


def _distances(first: int, end: int) -> list[int]:
    """Return the powers of two from `first` up to, but not including, `end`."""
    return [1 << i for i in range(first.bit_length() - 1, end.bit_length() - 1)]


def candidates(problem: Problem, traits: Traits) -> list[FewTile]:
    """Return every candidate tile, the heuristic one first: it has enough waves to keep the card busy, but no more than
    have keys for two iterations.
    """
    sources, inputs = Sources(problem), problem.kernel.inputs
    widest = max(uncast(one, inputs).dtype.size_bytes for one in (sources.keys, sources.values))
    vector = WIDEST_BYTES // widest
    while vector > 1 and not (divides(vector, sources.deep) and divides(vector, problem.n)):
        vector //= 2
    parts = min(traits.wave_size, power_of_two(-(-max(sources.deep, problem.n) // vector)))
    keys, groups, rows = most(problem.depth.size), most(problem.batch.size), power_of_two(problem.m)
    # The queries of a group share its loads. As long as compute units are idle, queries are better in different groups,
    # which share a cache.
    shares = [m for m in (FEW_QUERIES_LIMIT, 4, 2, 1) if m <= rows]
    share = next((m for m in shares if -(-problem.m // m) * groups >= traits.compute_units), 1)
    tiles = [
        FewTile(m, problem.n, sources.deep, waves, parts, vector, own, traits.wave_size)
        for m in (share, *(m for m in shares if m != share))
        for waves, own in (TRIED if m == share else TRIED[:2])
        if waves * traits.wave_size <= traits.max_threads
    ]
    fitting = [one for one in tiles if one.held <= MAX_HELD and one.lds_bytes <= traits.lds_bytes] or tiles[-1:]
    groups *= -(-problem.m // share)

    def is_busy(tile: FewTile) -> bool:
        enough = tile.waves <= 4 or groups * tile.waves <= BUSY_WAVES * traits.compute_units
        return tile.m == share and 2 * tile.k <= keys and enough

    first = next((one for one in fitting if is_busy(one)), min(fitting, key=lambda one: one.k))
    return [first, *(one for one in fitting if one is not first)]
