"""Attention of few queries over many keys, as a decoder's step has it: what counts is that every key and value is read
once, by all threads.

A group takes queries of one head of keys, and its waves share the keys. `parts` neighbouring lanes hold a key and its
values, some elements each; so a wave works on several keys at once, and every lane on `own` keys of a turn. Whoever
works on the same keys keeps greatest logits, sums and results of its own; at the end those of a wave are put together
over its lanes, and those of the waves through LDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from ringup.compiler.graph.index import Int, axis
from ringup.compiler.graph.nodes import Node
from ringup.compiler.kernel.attention.parts import Attending, Sources
from ringup.compiler.kernel.common.axes import WAVE, Axis
from ringup.compiler.kernel.common.expressions import WIDEST_BYTES, Request, divides
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.functions import exp2
from ringup.compiler.kernel.common.space import most, power_of_two
from ringup.compiler.kernel.common.staging import masked, zeroed
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.contraction.contraction import Problem, Run
from ringup.compiler.kernel.contraction.matrix import FRAGMENT, uncast
from ringup.compiler.machine.ir import F32, I32, Value
from ringup.compiler.schedule.kernel import FEW_QUERIES_LIMIT
from ringup.compiler.schedule.views import Point, Within, within

WORD = 4  # bytes of what goes through LDS
MAX_HELD = 256  # elements of queries, of results, of keys or of values that a thread has registers for
MAX_QUERIES, MIN_MANY_KEYS = 32, 512  # more queries than a group has rows for are worth it over so many keys
BUSY_WAVES = 16  # waves a compute unit that keep the card busy: more groups than that need fewer waves each
TRIED = (  # waves, own keys: worth a try, good ones first
    (16, 4), (8, 4), (4, 4), (8, 2), (4, 2), (2, 4), (1, 4), (1, 2), (16, 2), (32, 2),
)  # fmt: skip


@dataclass(frozen=True)
class FewTile:
    """See `contraction.Tile`. A lane holds `vector` neighbouring elements of each `parts * vector`, of `own` keys a
    turn.
    """

    m: int
    n: int
    deep: int
    waves: int
    parts: int
    vector: int
    own: int
    speed: float = 1.0

    @property
    def threads(self) -> int:
        """Return the threads of a group of 32-lane waves."""
        return WAVE * self.waves

    @property
    def slots(self) -> int:
        """Return the keys that a wave works on at once."""
        return WAVE // self.parts

    @property
    def k(self) -> int:
        """Return the keys of a turn."""
        return self.waves * self.slots * self.own

    def pieces(self, size: int) -> int:
        """Return the vectors of a lane for so many elements."""
        return -(-size // (self.parts * self.vector))

    @property
    def columns(self) -> int:
        """Return the columns of all lanes together."""
        return self.pieces(self.n) * self.parts * self.vector

    @property
    def held(self) -> int:
        """Return the most elements that a thread holds of one kind: queries or results of all rows, keys or values of a
        turn.
        """
        return max(self.pieces(self.deep), self.pieces(self.n)) * self.vector * max(self.m, self.own)

    @property
    def statistics_at(self) -> int:
        """Return where greatest logits and sums lie in LDS, in pairs: behind the results."""
        return -(-self.waves * self.m * self.columns // 2) * 2 * WORD

    @property
    def lds_bytes(self) -> int:
        """Return the LDS in which waves meet: results, greatest logits and sums."""
        return self.statistics_at + 2 * WORD * self.waves * self.m

    def __str__(self) -> str:
        shape = f"columns={self.n} deep={self.deep}"
        return (
            f"few queries={self.m} keys={self.own} waves={self.waves} parts={self.parts} vector={self.vector} {shape}"
        )


@dataclass(frozen=True)
class State:
    """What a thread keeps of a row: the greatest logit so far, the sum of powers, and their sums with its columns of
    the values.
    """

    greatest: Value
    sum: Value
    results: tuple[Value, ...]


class FewAttention(Attending):
    """The lowering."""

    tile: FewTile

    def __init__(self, problem: Problem, name: str, tile: FewTile) -> None:
        super().__init__(problem, name, tile)
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
        """Return who the group's threads are."""
        tile = self.tile
        return [
            Axis("keys", "reduce", tile.waves * tile.slots, "keys that are worked on at once, over waves and lanes"),
            Axis("part", "reduce", tile.parts, "neighbouring lanes that share a key and its values"),
        ]

    def own_axes(self) -> list[Axis]:
        """Return what a thread holds."""
        tile = self.tile
        return [
            Axis("queries", "unroll", tile.m, "rows, all of them"),
            Axis("deep", "unroll", tile.pieces(tile.deep) * tile.vector, "elements of a query and of a key"),
            Axis("columns", "unroll", tile.pieces(tile.n) * tile.vector, "columns of values and results"),
        ]

    def _first(self) -> list[State]:
        """Return the rows before any key."""
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
        """Return the element of a query, key or value that is this lane's."""
        tile = self.tile
        return (piece * tile.parts + self._lane % tile.parts) * tile.vector + step

    def _elements(self, node: Node, size: int, place: Callable[[Int], Point], inside: Value | None) -> list[Value]:
        """Return this lane's elements of `size` that `place` finds, 0 beyond the last and where `inside` is false."""
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
        """Return the i-th of this lane's keys in a turn: keys side by side belong to lanes, then waves, side by
        side.
        """
        tile = self.tile
        slot = self._wave * tile.slots + self._lane // tile.parts
        return number * tile.k + i * (tile.waves * tile.slots) + slot

    def _turn(self, number: Int, queries: Sequence[Sequence[Value]], states: Sequence[State]) -> list[State]:
        """Return the rows after a turn's keys."""
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
        """Return a row of the whole wave, in each of its lanes."""
        build, over = self.frame.build, _distances(self.tile.parts, WAVE)
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
        """Put the waves' rows together and store them: elements of all rows side by side by threads side by side."""
        tile, expressions = self.tile, self.frame.expressions
        count = tile.m * tile.columns
        for first in range(0, count, tile.threads):
            element = self.thread + first
            row, column = element // tile.columns, element % tile.columns
            test = within(element, 0, count)
            # the last threads may have none
            with expressions.when(expressions.numbers.condition(test)) if isinstance(test, Within) else nullcontext():
                self._finish([[self._element(row, column)]], [Run(0, row, column, 1)])

    def _element(self, row: Int, column: Int) -> Value:
        """Return one element of the result, from all waves."""
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
    """Return whether keys are better shared than queries: few queries, or tiles of them that leave most of the card
    idle over many keys.
    """
    if problem.m <= FEW_QUERIES_LIMIT:
        return True
    idle = -(-problem.m // FRAGMENT) * most(problem.batch.size) * 4 <= traits.compute_units
    return problem.m <= MAX_QUERIES and idle and most(problem.depth.size) >= MIN_MANY_KEYS


def _distances(first: int, end: int) -> list[int]:
    """Return the powers of two from one up to below another."""
    return [1 << i for i in range(first.bit_length() - 1, end.bit_length() - 1)]


def candidates(problem: Problem, traits: Traits) -> list[FewTile]:
    """Return every tile worth a try, the heuristic one first: enough waves for the card to be busy, no more than have
    keys for two turns.
    """
    sources, inputs = Sources(problem), problem.kernel.inputs
    widest = max(uncast(one, inputs).dtype.size_bytes for one in (sources.keys, sources.values))
    vector = WIDEST_BYTES // widest
    while vector > 1 and not (divides(vector, sources.deep) and divides(vector, problem.n)):
        vector //= 2
    parts = min(WAVE, power_of_two(-(-max(sources.deep, problem.n) // vector)))
    keys, groups, rows = most(problem.depth.size), most(problem.batch.size), power_of_two(problem.m)
    # queries of a group share its loads; as long as compute units are idle, they are better apart, and share a cache
    shares = [m for m in (FEW_QUERIES_LIMIT, 4, 2, 1) if m <= rows]
    share = next((m for m in shares if -(-problem.m // m) * groups >= traits.compute_units), 1)
    tiles = [
        FewTile(m, problem.n, sources.deep, waves, parts, vector, own)
        for m in (share, *(m for m in shares if m != share))
        for waves, own in (TRIED if m == share else TRIED[:2])
    ]
    fitting = [one for one in tiles if one.held <= MAX_HELD and one.lds_bytes <= traits.lds_bytes] or tiles[-1:]
    groups *= -(-problem.m // share)

    def is_busy(tile: FewTile) -> bool:
        enough = tile.waves <= 4 or groups * tile.waves <= BUSY_WAVES * traits.compute_units
        return tile.m == share and 2 * tile.k <= keys and enough

    first = next((one for one in fitting if is_busy(one)), min(fitting, key=lambda one: one.k))
    return [first, *(one for one in fitting if one is not first)]
