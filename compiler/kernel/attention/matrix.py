"""Attention by matrix instructions: queries, keys and values in f16 or bf16; scores, softmax and sums in f32; powers
rounded in between.

Both products are computed transposed: keys times queries, then values times powers. So a lane holds one query's column
of either result. It needs one greatest logit, one sum and one scale, and two lanes share a query. The rows of A are
permuted so that the eight results of a lane are adjacent (`MatrixTraits.spread`): eight keys of the scores, eight
columns of the result. The powers are B of the second product. On RDNA4 they are in the right place already. On RDNA3 a
lane of B holds all sixteen keys, so the two lanes of a query exchange theirs first. While the keys and values of an
iteration are multiplied, the next ones are loaded from memory; LDS holds both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringup.compiler.graph.index import Int, axis
from ringup.compiler.kernel.attention.parts import Attending, Sources
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.expressions import Request, divides
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.merge_axes import most
from ringup.compiler.kernel.common.staging import Staging, masked, zeroed
from ringup.compiler.kernel.common.traits import MatrixTraits, Traits
from ringup.compiler.kernel.contraction.contraction import Problem, Run
from ringup.compiler.kernel.contraction.matrix import FRAGMENT, PAD_BYTES, uncast
from ringup.compiler.machine.ir import F32, I32, Value
from ringup.compiler.schedule.attention import NARROW
from ringup.compiler.schedule.views import within

# Elements after each row in LDS.
PAD = PAD_BYTES // 2
# Candidates (waves, fragments of queries of a wave, keys of an iteration), those that share most first.
SHAPES = (
    (8, 1, 32), (4, 1, 32), (4, 1, 16), (2, 1, 32), (2, 1, 16), (1, 1, 16), (8, 1, 64), (4, 1, 64), (1, 1, 32), (4, 2, 32), (2, 2, 32),
)  # fmt: skip
# Elements of a query above which a wave's registers hold only one fragment of queries.
WIDE_VALUES = 64
# Elements of an iteration's keys and values that a thread may have in flight.
MAX_STAGED = 64
# Groups of a compute unit that keep a card busy.
BUSY = 2
# Waves of a group that has the LDS of a compute unit for itself.
ENOUGH_WAVES = 8


@dataclass(frozen=True)
class MatrixAttentionTile:
    """See `contraction.Tile`: `m` queries, `n` columns (all, in whole fragments), `k` keys in each iteration; `deep`:
    elements of a query, in whole fragments. `wave`: threads of a wave.
    """

    m: int
    n: int
    k: int
    deep: int
    waves: int
    wave: int
    speed: float = 1.0

    @property
    def threads(self) -> int:
        """Return the number of threads of a group."""
        return self.wave * self.waves

    @property
    def fragments(self) -> int:
        """Return the number of fragments of queries of a wave."""
        return self.m // self.waves // FRAGMENT

    @property
    def slices_bytes(self) -> int:
        """Return the LDS size of the keys and values of an iteration."""
        return 2 * (self.k * (self.deep + PAD) + self.n * (self.k + PAD))

    def __str__(self) -> str:
        return f"matrix attention queries={self.m} keys={self.k} waves={self.waves} columns={self.n} deep={self.deep}"


class MatrixAttention(Attending):
    """The lowering."""

    tile: MatrixAttentionTile

    def __init__(
        self, problem: Problem, name: str, tile: MatrixAttentionTile, kinds: Mapping[str, MatrixTraits]
    ) -> None:
        super().__init__(problem, name, tile, tile.wave)
        inputs, sources = self.kernel.inputs, self.sources
        self._queries, self._keys, self._values = (
            uncast(one, inputs) for one in (sources.queries, sources.keys, sources.values)
        )
        self._dtype = self._values.dtype
        self._traits = kinds[self._dtype.name]
        self._type = element_forms.stored(self._dtype)
        self._lane, self._wave = self.place_in_waves(tile.waves)

    def lower(self) -> Lowered:
        """Return the machine IR."""
        build = self.frame.build
        self.frame.bind(self.thread, build.op("thread_id", I32))
        groups = self._groups()
        turns = self.turns
        stagings = self._stagings()
        # The second slices follow the first ones.
        half = 0
        for staging in stagings:
            staging.place = half
            half += staging.slice_bytes
        build.function.lds_bytes = half * (2 if most(turns) > 1 else 1)
        zero = build.const(0)
        for staging in stagings:
            staging.put(staging.fetch(0), zero)
        queries = [self._query(f) for f in range(self.tile.fragments)]
        build.barrier()
        number, following = axis("turn", turns), axis("following", turns)
        with self.over_keys(number, self._first()) as loop:
            last = build.add(loop.stop, -1)
            self.frame.bind(following, build.op("min_s", I32, build.add(loop.index, 1), last))
            ahead = [staging.fetch(following) for staging in stagings] if most(turns) > 1 else []
            here = build.mul(build.op("and", I32, loop.index, build.const(1)), half) if ahead else zero
            loop.following = self._turn(number, stagings, here, queries, list(loop.carried))
            for staging, values in zip(stagings, ahead, strict=False):
                staging.put(values, build.op("sub", I32, build.const(half), here))
            build.barrier()
        values, runs = self._results(loop.results)
        self._finish([values], runs)
        return self.frame.done(groups, self.axes(groups, turns), self.tile)

    def own_axes(self) -> list[Axis]:
        """Return the axes of the part of the tile that a wave holds."""
        tile = self.tile
        return [
            Axis(
                "queries",
                "unroll",
                tile.fragments,
                "fragments of 16 queries of a wave, one a lane and the lane 16 further",
            ),
            Axis("columns", "unroll", tile.n // FRAGMENT, "fragments of 16 columns of a wave's results"),
            Axis("deep", "unroll", tile.deep // FRAGMENT, "fragments of 16 elements of a query, in registers"),
        ]

    @property
    def _blocks(self) -> int:
        """Return the number of fragments of keys of an iteration."""
        return self.tile.k // FRAGMENT

    @property
    def _parts(self) -> int:
        """Return the number of fragments of columns."""
        return self.tile.n // FRAGMENT

    def _first(self) -> list[Value]:
        """Return the values carried into the first iteration: greatest logits, sums and results of each fragment of
        queries.
        """
        build, count = self.frame.build, self.tile.fragments
        zero, least = build.const(0.0, F32), build.const(float("-inf"), F32)
        nothing = build.vector([zero] * self._traits.result_count)
        return [least] * count + [zero] * count + [nothing] * (count * self._parts)

    def _stagings(self) -> tuple[Staging, Staging]:
        """Return the staging of keys ([key][deep]) and values ([column][key])."""
        tile = self.tile
        keys, values = (
            Staging(self.frame, self.thread, operand, own, k, self._type, by_k=False, pad=PAD)
            for operand, own, k in (
                (self.staged_keys(self._keys), tile.k, tile.deep),
                (self.staged_values(self._values, along_k=self.sources.values_along_keys), tile.n, tile.k),
            )
        )
        return keys, values

    @property
    def _sharing(self) -> Sequence[int]:
        """Return the distances of the lanes that share a query."""
        return [one for one in (FRAGMENT, 2 * FRAGMENT) if one < self.tile.wave]

    def _row(self, f: int) -> Int:
        """Return the row of this lane's query in the group's tile."""
        return self._wave * (self.tile.fragments * FRAGMENT) + f * FRAGMENT + self._lane % FRAGMENT

    def _neighbours(self) -> Int:
        """Return the first of the eight rows of a result that this lane holds."""
        return self._lane // FRAGMENT * self._traits.result_count

    def _query(self, f: int) -> list[Value]:
        """Load this lane's part of a fragment of queries from memory."""
        build, count = self.frame.build, self._traits.operand_count
        _, first = self._traits.operand(self._lane)
        whole = divides(count, self.sources.deep)
        requests: list[Request] = []
        mask: Value | None = None
        for start in range(0, self.tile.deep, FRAGMENT):
            for i in range(count):
                k = first + start + i
                point, row = self.query_place(self._row(f), k)
                if i == 0 or not whole:
                    mask = masked(self.frame, within(row, 0, self.sides[0].own.size), None)
                    mask = masked(self.frame, within(k, 0, self.sources.deep), mask)
                requests.append((point, mask))
        values = self.frame.expressions.values(self._queries, requests)
        lying = [
            element_forms.to_memory(build, zeroed(build, value, mask), self._dtype)
            for value, (_, mask) in zip(values, requests, strict=True)
        ]
        return [build.vector(lying[i : i + count]) for i in range(0, len(lying), count)]

    def _turn(
        self,
        number: Int,
        stagings: Sequence[Staging],
        here: Value,
        queries: Sequence[Sequence[Value]],
        carried: list[Value],
    ) -> list[Value]:
        """Return greatest logits, sums and results after one more tile of keys."""
        build, count, each = self.frame.build, self.tile.fragments, self._traits.result_count
        keys, values = stagings
        scores = self._scores(keys, here, queries)
        powers: list[list[Value]] = []
        greatest, sums, totals = [], [], []
        for f in range(count):
            before, total = carried[f], carried[count + f]
            after, down, found = self._powers(number, f, scores[f], before)
            powers.append([self._operand(found[i : i + each]) for i in range(0, len(found), each)])
            greatest.append(after)
            sums.append(build.op("fma", F32, total, down, self.sum(found)))
            first = 2 * count + f * self._parts
            totals += [self._scaled(one, down) for one in carried[first : first + self._parts]]
        address = self._address(values, here)
        for part in range(self._parts):
            for block in range(self._blocks):
                a = self._fragment(values, address, part, block)
                for f in range(count):
                    at = f * self._parts + part
                    totals[at] = self._multiplied(a, powers[f][block], totals[at])
        return [*greatest, *sums, *totals]

    def _scores(self, keys: Staging, here: Value, queries: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """Return each lane's scores of its queries, in the order of the keys it has: eight of each sixteen."""
        build, eight = self.frame.build, self._traits.result_count
        address = self._address(keys, here)
        found: list[list[Value]] = [[] for _ in queries]
        for block in range(self._blocks):
            totals = [build.vector([build.const(0.0, F32)] * eight)] * len(queries)
            for k in range(self.tile.deep // FRAGMENT):
                a = self._fragment(keys, address, block, k)
                totals = [self._multiplied(a, query[k], total) for query, total in zip(queries, totals, strict=True)]
            for scores, total in zip(found, totals, strict=True):
                scores += [build.extract(total, i) for i in range(eight)]
        return found

    def _powers(self, number: Int, f: int, scores: Sequence[Value], before: Value) -> tuple[Value, Value, list[Value]]:
        """Return a row's greatest logit so far, the factor that scales its sums down, and the powers of this
        iteration's logits.
        """
        build, eight = self.frame.build, self._traits.result_count
        cells = [
            (self._row(f), number * self.tile.k + block * FRAGMENT + self._neighbours() + i)
            for block in range(self._blocks)
            for i in range(eight)
        ]
        logits = self.logits(cells, scores)
        after = self.greatest([before, self.across(self.greatest(logits), self._sharing, "fmax")])
        scale = build.const(self.sources.found.scale, F32)
        lowered = build.op("fmul", F32, self.safe(after), build.const(-self.sources.found.scale, F32))
        # The hardware's exp2 flushes denormal results. They do not change a sum of 1 or more.
        down, *powers = (build.op("exp2", F32, build.op("fma", F32, one, scale, lowered)) for one in (before, *logits))
        return after, down, powers

    def _operand(self, powers: Sequence[Value]) -> Value:
        """Return this lane's part of a fragment of powers, keys along K, from the eight powers of each of a query's two
        lanes.
        """
        build, count = self.frame.build, self._traits.operand_count
        narrow = [build.op("fconvert", self._type, one) for one in powers]
        own = [build.op("bitcast", I32, build.vector(narrow[i : i + 2])) for i in range(0, len(narrow), 2)]
        if count == len(powers):
            return build.op("bitcast", self._type.of(count), build.vector(own))
        is_first = build.compare("lt_u", build.op("lane_id", I32), build.const(FRAGMENT))
        other = [build.op("shuffle_xor", I32, one, imm=FRAGMENT) for one in own]
        pairs = list(zip(own, other, strict=True))
        words = [build.op("select", I32, is_first, a, b) for a, b in pairs]
        words += [build.op("select", I32, is_first, b, a) for a, b in pairs]
        return build.op("bitcast", self._type.of(count), build.vector(words))

    def _scaled(self, total: Value, down: Value) -> Value:
        build = self.frame.build
        parts = [build.extract(total, i) for i in range(self._traits.result_count)]
        return build.vector([build.op("fmul", F32, one, down) for one in parts])

    def _multiplied(self, a: Value, b: Value, total: Value) -> Value:
        return self.frame.build.op("matrix", total.type, a, b, total, imm=self._traits.kind)

    def _address(self, staging: Staging, here: Value) -> Value:
        """Return the LDS address of this lane's part of the first fragment, with the rows permuted by `spread`."""
        own, k = self._traits.operand(self._lane)
        place = self._traits.spread(own) * staging.stride + k
        return self.frame.build.add(self.frame.expressions.numbers.emit(place * staging.type.size_bytes), here)

    def _fragment(self, staging: Staging, address: Value, row: int, column: int) -> Value:
        place = (row * staging.stride + column) * FRAGMENT * staging.type.size_bytes
        type_ = staging.type.of(self._traits.operand_count)
        return self.frame.build.lds_load(type_, address, constant=staging.place + place)

    def _results(self, found: Sequence[Value]) -> tuple[list[Value], list[Run]]:
        """Divide the sums by the totals of their rows; return the results in runs of eight adjacent columns."""
        build, count, eight = self.frame.build, self.tile.fragments, self._traits.result_count
        values: list[Value] = []
        runs: list[Run] = []
        for f in range(count):
            total = self.below(self.across(found[count + f], self._sharing, "fadd"))
            inverse = build.op("div", F32, build.const(1.0, F32), total)
            for part in range(self._parts):
                runs.append(Run(len(values), self._row(f), part * FRAGMENT + self._neighbours(), eight))
                sums = found[2 * count + f * self._parts + part]
                values += [build.op("fmul", F32, build.extract(sums, i), inverse) for i in range(eight)]
        return values, runs


def candidates(problem: Problem, traits: Traits) -> list[MatrixAttentionTile]:
    """Return every candidate tile, the heuristic one first; none if matrix instructions do not accept the factors."""
    sources, inputs = Sources(problem), problem.kernel.inputs
    factors = {uncast(one, inputs).dtype for one in (sources.queries, sources.keys, sources.values)}
    narrow = sources.found.narrow
    if narrow not in NARROW or factors != {narrow} or narrow.name not in traits.sixteen_deep:
        return []
    n, deep = (-(-size // FRAGMENT) * FRAGMENT for size in (problem.n, sources.deep))
    max_fragments = 1 if max(n, deep) > WIDE_VALUES else 2
    tiles = [
        MatrixAttentionTile(waves * fragments * FRAGMENT, n, k, deep, waves, traits.wave_size)
        for waves, fragments, k in SHAPES
        if fragments <= max_fragments
    ]
    tiles = [one for one in tiles if 2 * one.slices_bytes <= traits.lds_bytes]

    def is_good(tile: MatrixAttentionTile) -> bool:
        groups = -(-problem.m // tile.m) * most(problem.batch.size)
        is_busy = tile.waves <= 2 or groups >= BUSY * traits.compute_units
        has_waves = tile.waves >= ENOUGH_WAVES or 2 * 2 * tile.slices_bytes <= traits.lds_bytes
        return is_busy and has_waves and tile.k * (deep + n) <= MAX_STAGED * tile.threads

    shared = [one for one in tiles if one.m <= max(FRAGMENT, problem.m)]
    first = next((one for one in shared if is_good(one)), min(shared, key=lambda one: (one.m, one.k)))
    return [first, *(one for one in tiles if one is not first)]
