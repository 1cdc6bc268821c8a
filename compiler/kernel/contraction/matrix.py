"""Tiles of a contraction by matrix instructions: f16 or bf16 factors with f32 sums, or bytes with 32-bit integer sums;
on CDNA also f32 and f64, on CDNA4 floats of 8 bits.

A wave holds a rectangle of 16 x 16 fragments. A factor that is a cast of a narrow tensor is used before the cast: the
instruction widens it exactly as the cast would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.index import axis
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op, cast, node
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.axes import Axis
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.merge_axes import most
from ringup.compiler.kernel.common.staging import Staging
from ringup.compiler.kernel.common.traits import MatrixTraits, Traits, factors_name
from ringup.compiler.kernel.contraction.contraction import Contraction, Problem, Run, by_speed
from ringup.compiler.machine.ir import I32, Value

FRAGMENT = 16
# Lanes of RDNA's waves, for which TILES are.
WAVE = 32
# The usual depth of a tile. Tiles beyond the second depth are for kernels of one sum along one axis whose last slice is
# not filled up with many zeros: at most an eighth of the sum. In a convolution, each of a thread's many elements would
# have an address of its own.
DEEP, VERY_DEEP = 32, 64
# For each factor dtype, the dtype of the sums.
SUMS = {
    dtypes.float16: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
    dtypes.int8: dtypes.int32,
    dtypes.uint8: dtypes.uint32,
    dtypes.float32: dtypes.float32,
    dtypes.float64: dtypes.float64,
}
# Floats of 8 bits in OCP's formats, which CDNA4 multiplies. Elsewhere they are widened to f16, which holds all of them.
# QUIRK: CDNA3 multiplies floats of 8 bits too, but of other formats than these: half the value, and no infinity or
# negative zero. Source: CDNA3 ISA reference, "8-bit floating point": the FNUZ formats.
EIGHTHS = frozenset((dtypes.float8_e4m3, dtypes.float8_e5m2))
# Bytes after each row in LDS. Rows then start in different banks and stay aligned for the widest access.
PAD_BYTES = 16


@dataclass(frozen=True)
class MatrixTile:
    """See `contraction.StagedTile`. `waves_m` x `waves_n` waves of `wave` threads divide the tile."""

    m: int
    n: int
    k: int
    waves_m: int
    waves_n: int
    speed: float
    wave: int = WAVE
    slices: int = 2

    @property
    def threads(self) -> int:
        """Return the number of threads of a group."""
        return self.wave * self.waves_m * self.waves_n

    def __str__(self) -> str:
        once = " slices=1" if self.slices == 1 else ""
        return f"matrix tile={self.m}x{self.n}x{self.k} waves={self.waves_m}x{self.waves_n}{once}"


TILES = (
    MatrixTile(128, 128, 32, 4, 2, 1.0),
    MatrixTile(128, 64, 32, 4, 1, 0.9),
    MatrixTile(64, 128, 32, 2, 2, 0.9),
    MatrixTile(64, 64, 32, 2, 2, 0.75),
    MatrixTile(32, 64, 32, 1, 2, 0.6),
    MatrixTile(32, 32, 32, 1, 1, 0.45),
    MatrixTile(16, 32, 32, 1, 1, 0.35),
)
# Candidates that the heuristic never chooses.
TRIED = (
    MatrixTile(128, 128, 32, 2, 2, 0.9),
    MatrixTile(128, 128, 16, 4, 2, 0.9),
    MatrixTile(128, 64, 32, 2, 2, 0.85),
    MatrixTile(64, 64, 64, 2, 2, 0.75),
    MatrixTile(64, 64, 32, 2, 1, 0.75),
    MatrixTile(64, 32, 32, 2, 1, 0.6),
    MatrixTile(32, 32, 64, 2, 2, 0.4),
)


# The same for waves of 64 lanes, which hold larger rectangles. A card has so many of their units that most products
# have few tiles for each, and deep ones hide more of the latency of loads. With one slice in LDS, large tiles leave
# room for a second wave on each SIMD; without it the matrix unit waits for LDS.
WIDE_TILES = (
    MatrixTile(256, 128, 64, 4, 2, 1.12, slices=1),
    MatrixTile(128, 128, 128, 4, 2, 1.02, slices=1),
    MatrixTile(128, 128, 64, 4, 2, 1.0, slices=1),
    MatrixTile(128, 64, 64, 2, 2, 0.95, slices=1),
    MatrixTile(64, 128, 64, 2, 2, 0.95, slices=1),
    MatrixTile(64, 64, 256, 4, 2, 0.77, slices=1),
    MatrixTile(64, 64, 128, 4, 2, 0.76, slices=1),
    MatrixTile(64, 64, 64, 4, 2, 0.75),
    MatrixTile(32, 64, 64, 2, 2, 0.6),
    MatrixTile(64, 32, 64, 2, 2, 0.6),
    MatrixTile(32, 32, 256, 2, 2, 0.51, slices=1),
    MatrixTile(32, 32, 64, 2, 2, 0.5),
    MatrixTile(128, 128, 32, 4, 2, 0.9, slices=1),
    MatrixTile(128, 64, 32, 2, 2, 0.85, slices=1),
    MatrixTile(64, 128, 32, 2, 2, 0.85, slices=1),
    MatrixTile(64, 64, 32, 2, 1, 0.75),
    MatrixTile(32, 64, 32, 1, 2, 0.6),
    MatrixTile(32, 32, 32, 1, 1, 0.45),
    MatrixTile(16, 32, 32, 1, 1, 0.2),
)
WIDE_TRIED = (
    MatrixTile(128, 128, 32, 2, 2, 0.9),
    MatrixTile(128, 128, 32, 2, 4, 0.9),
    MatrixTile(64, 64, 32, 1, 1, 0.75),
    MatrixTile(64, 64, 32, 2, 2, 0.75),
)


class MatrixContraction(Contraction):
    """The lowering with matrix instructions."""

    tile: MatrixTile

    def __init__(self, problems: Sequence[Problem], name: str, tile: MatrixTile, traits: MatrixTraits) -> None:
        super().__init__(problems, name, tile, tile.wave)
        self._traits = traits
        self._total = element_forms.held(self.problem.dtype)
        self._rows = tile.m // tile.waves_m // FRAGMENT
        self._columns = tile.n // tile.waves_n // FRAGMENT
        self._lane = axis("lane", tile.wave)
        self._wave = axis("wave", tile.threads // tile.wave)
        self.frame.bind(self._lane, self.frame.build.op("lane_id", I32))
        self.frame.bind(self._wave, self.frame.build.op("wave_id", I32))

    def stagings(self, problem: Problem) -> tuple[Staging, Staging]:
        """Return the staging of the operands: rows or columns, each with all k of the slice."""
        type_ = element_forms.stored(self.sides[0].factor.dtype)
        pad = PAD_BYTES // type_.size_bytes
        rows, columns = (
            Staging(self.frame, self.thread, self.operand(problem, i), size, self.tile.k, type_, by_k=False, pad=pad)
            for i, size in enumerate((self.tile.m, self.tile.n))
        )
        return rows, columns

    def first(self) -> list[Value]:
        """Return fragments of zeros."""
        build = self.frame.build
        zeros = build.vector([build.const(0, self._total)] * self._traits.result_count)
        return [zeros] * (self._rows * self._columns)

    def multiplied(self, stagings: Sequence[Staging], here: Value, totals: Sequence[Value]) -> list[Value]:
        """Return the fragments with the products of the slice added, as many k at a time as the instruction has."""
        build = self.frame.build
        found = list(totals)
        kind = self._traits.kind
        addresses = [self._address(i, staging, here) for i, staging in enumerate(stagings)]
        for k in range(0, self.tile.k, self._traits.depth):
            rows = [self._fragment(stagings[0], addresses[0], i, k) for i in range(self._rows)]
            columns = [self._fragment(stagings[1], addresses[1], j, k) for j in range(self._columns)]
            for i, a in enumerate(rows):
                for j, b in enumerate(columns):
                    at = i * self._columns + j
                    found[at] = build.op("matrix", self._total.of(self._traits.result_count), a, b, found[at], imm=kind)
        return found

    def _address(self, number: int, staging: Staging, here: Value) -> Value:
        """Return the LDS address of this lane's part of the wave's first fragment."""
        own, k = self._traits.operand(self._lane)
        wave = (self._wave // self.tile.waves_n, self._wave % self.tile.waves_n)[number]
        count = (self._rows, self._columns)[number]
        place = (wave * (count * FRAGMENT) + own) * staging.stride + k
        return self.frame.build.add(self.frame.expressions.numbers.emit(place * staging.type.size_bytes), here)

    def _fragment(self, staging: Staging, address: Value, number: int, k: int) -> Value:
        place = number * FRAGMENT * staging.stride + k
        type_ = staging.type.of(self._traits.operand_count)
        return self.frame.build.lds_load(type_, address, constant=staging.place + place * staging.type.size_bytes)

    def own_axes(self) -> list[Axis]:
        """Return the wave's fragments."""
        return [
            Axis("fragment_m", "unroll", self._rows, "fragments of 16 rows that a wave holds"),
            Axis("fragment_n", "unroll", self._columns, "fragments of 16 columns"),
        ]

    def results(self, totals: Sequence[Value]) -> tuple[list[Value], list[Run]]:
        """Return the elements of the fragments one by one."""
        build, tile = self.frame.build, self.tile
        values: list[Value] = []
        runs: list[Run] = []
        first_row = self._wave // tile.waves_n * (self._rows * FRAGMENT)
        first_column = self._wave % tile.waves_n * (self._columns * FRAGMENT)
        for number, total in enumerate(totals):
            i, j = divmod(number, self._columns)
            for element in range(self._traits.result_count):
                row, column = self._traits.result(self._lane, element)
                runs.append(Run(len(values), first_row + i * FRAGMENT + row, first_column + j * FRAGMENT + column, 1))
                values.append(build.extract(total, element))
        return values, runs


def uncast(factor: Node, inputs: Collection[Node] = ()) -> Node:
    """Return a factor before it was widened, or unchanged if it was not; a float of 8 bits as one of 16. Movement
    between is repeated on the narrow elements.

    A node of `inputs` is read from memory and stays as it is.
    """
    if factor in inputs:
        return factor
    widens = factor.op is Op.CAST and factor.dtype.bits > factor.sources[0].dtype.bits
    if widens and SUMS.get(factor.sources[0].dtype) is factor.dtype:
        return factor.sources[0]
    # Every float of 8 bits is one of 16.
    if widens and factor.sources[0].dtype in EIGHTHS and factor.dtype is dtypes.float32:
        return cast(factor.sources[0], dtypes.float16)
    if factor.op in MOVEMENT:
        inner = uncast(factor.sources[0], inputs)
        if inner is not factor.sources[0]:
            return node(factor.op, inner.dtype, factor.shape, (inner,), factor.arg)
    return factor


def _eighths(factor: Node, inputs: Collection[Node]) -> Node:
    """Return a factor as the float of 8 bits from which it was widened, in one step or in several; unchanged if it was
    not. Movement between is repeated on the bytes.
    """
    if factor in inputs:
        return factor
    if factor.op is Op.CAST and factor.dtype.is_float and factor.dtype.bits > 8:
        inner = _eighths(factor.sources[0], inputs)
        # f16 and bf16 hold every float of 8 bits.
        return inner if inner.dtype in EIGHTHS else factor
    if factor.op in MOVEMENT:
        inner = _eighths(factor.sources[0], inputs)
        if inner.dtype in EIGHTHS and inner is not factor.sources[0]:
            return node(factor.op, inner.dtype, factor.shape, (inner,), factor.arg)
    return factor


def narrowed(problems: Sequence[Problem], traits: Traits) -> list[Problem] | None:
    """Return the problems with factors that matrix instructions accept, all of one kind; None if they have none. Where
    they are not of one kind before they were widened, they may be afterwards.
    """
    if not traits.matrix:
        return None
    wide = [[side.factor for side in problem.sides] for problem in problems]
    narrow = [[uncast(side.factor, problem.kernel.inputs) for side in problem.sides] for problem in problems]
    eighths = [[_eighths(side.factor, problem.kernel.inputs) for side in problem.sides] for problem in problems]
    is_eighths = all(one.dtype in EIGHTHS for pair in eighths for one in pair)
    for factors in (eighths, narrow, wide) if is_eighths else (narrow, wide):
        kinds = [one.dtype for one in factors[0]]
        if factors_name(*(kind.name for kind in kinds)) not in traits.matrix:
            continue
        if any([one.dtype for one in pair] != kinds for pair in factors):
            continue
        sums = dtypes.float32 if kinds[0] in EIGHTHS else SUMS[kinds[0]]
        if any(sums is not problem.dtype for problem in problems):
            continue
        for problem, pair in zip(problems, factors, strict=True):
            problem.sides = tuple(
                replace(side, factor=factor) for side, factor in zip(problem.sides, pair, strict=True)
            )
        return list(problems)
    return None


def _kind(problem: Problem, traits: Traits) -> MatrixTraits:
    """Return how to multiply the factors of a `narrowed` problem: short sums by instructions of less depth, where half
    of a very deep one would be idle.
    """
    name = factors_name(*(side.factor.dtype.name for side in problem.sides))
    kind = traits.matrix[name]
    is_idle = kind.depth > DEEP and most(problem.depth.size) <= kind.depth // 2
    return traits.shallow.get(name, kind) if is_idle else kind


def _fitting(tiles: Sequence[MatrixTile], problem: Problem, traits: Traits) -> list[MatrixTile]:
    """Return the tiles for the factors' type and the target's waves: with less depth for wider types, and without those
    that LDS does not hold or that are deeper than the sum. `problem` is `narrowed`.
    """
    kind, size_bytes = _kind(problem, traits), problem.sides[0].factor.dtype.size_bytes
    # By name: tiles that differ only below the least depth are the same, and the first of them counts.
    found: dict[str, MatrixTile] = {}
    for tile in tiles:
        depth = most(problem.depth.size)
        is_plain = len(problem.depth.variables) == 1 == len(problem.kernel.folds)
        if tile.k > DEEP and tile.k > depth:
            continue
        if tile.k > VERY_DEEP and not (is_plain and -depth % tile.k * 8 <= depth):
            continue
        k = max(kind.depth, tile.k * 2 // max(2, size_bytes))
        slices = tile.slices * (tile.m + tile.n) * (k * size_bytes + PAD_BYTES)
        if k % kind.depth == 0 and slices <= traits.lds_bytes:
            made = replace(tile, k=k, wave=traits.wave_size)
            found.setdefault(str(made), made)
    return by_speed(list(found.values()), problem, traits)


def candidates(problem: Problem, traits: Traits) -> list[MatrixTile]:
    """Return every candidate tile, the heuristic one first."""
    usual, tried = (TILES, TRIED) if traits.wave_size == WAVE else (WIDE_TILES, WIDE_TRIED)
    return _fitting(usual, problem, traits) + _fitting(tried, problem, traits)


def lower(problems: Sequence[Problem], name: str, traits: Traits, choice: MatrixTile | None = None) -> Lowered:
    """Return the machine IR of `narrowed` contractions by matrix instructions, with the given or the heuristic tile."""
    tile = choice or candidates(problems[0], traits)[0]
    return MatrixContraction(problems, name, tile, _kind(problems[0], traits)).lower()
