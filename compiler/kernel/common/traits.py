"""What a kernel's lowering wants to know of a target. Each vendor's folder has the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringup.compiler.graph.index import Int

Place = tuple[Int, Int]


@dataclass(frozen=True)
class MatrixTraits:
    """How matrix instructions spread 16 x 16 x 16 products over the lanes of a wave.

    A lane holds `operand_count` elements of each factor, one row of A (column of B) at neighbouring k: `operand(lane)`
    tells the row and the first k. It holds `result_count` elements of the result: `result(lane, i)` tells row and
    column. `kinds`: the factors' dtypes by name. When A's row r is row `spread(r)` of what is multiplied, a lane's
    results are neighbours of one column: rows lane // 16 * `result_count` + i.
    """

    operand_count: int
    result_count: int
    operand: Callable[[Int], Place]
    result: Callable[[Int, int], Place]
    kinds: frozenset[str]
    spread: Callable[[Int], Int]


@dataclass(frozen=True)
class Traits:
    """One target. A wave has `wave_size` lanes, a group `max_threads` threads and `lds_bytes` of LDS at most."""

    wave_size: int
    compute_units: int
    lds_bytes: int
    max_threads: int
    matrix: MatrixTraits | None
