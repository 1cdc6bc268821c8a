"""The properties of a target that lowerings depend on. Each vendor's folder has the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringup.compiler.graph.index import Int

Place = tuple[Int, Int]


@dataclass(frozen=True)
class MatrixTraits:
    """How matrix instructions distribute products of 16 x 16 x 16 over the lanes of a wave.

    A lane holds `operand_count` elements of each factor, one row of A (column of B) at adjacent k: `operand(lane)`
    returns the row and the first k. It holds `result_count` elements of the result: `result(lane, i)` returns row and
    column. `kinds`: the names of the factors' dtypes. If row r of A is row `spread(r)` of the matrix that is
    multiplied, the results of a lane are adjacent in one column: rows lane // 16 * `result_count` + i.
    """

    operand_count: int
    result_count: int
    operand: Callable[[Int], Place]
    result: Callable[[Int, int], Place]
    kinds: frozenset[str]
    spread: Callable[[Int], Int]


@dataclass(frozen=True)
class Traits:
    """One target. A wave has `wave_size` lanes. A group has at most `max_threads` threads and `lds_bytes` of LDS."""

    wave_size: int
    compute_units: int
    lds_bytes: int
    max_threads: int
    matrix: MatrixTraits | None
