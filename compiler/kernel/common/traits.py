"""The properties of a target that lowerings depend on. Each vendor's folder has the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ringup.compiler.graph.index import Int

Place = tuple[Int, Int]


@dataclass(frozen=True)
class MatrixTraits:
    """How matrix instructions distribute products of 16 x 16 x `depth` over the lanes of a wave, for one type of
    factors, or one pair of types. `kind`: its name in the machine IR.

    A lane holds `operand_count` elements of each factor, one row of A (column of B) at adjacent k: `operand(lane)`
    returns the row and the first k. It holds `result_count` elements of the result: `result(lane, i)` returns row and
    column. If row r of A is row `spread(r)` of the matrix that is multiplied, the results of a lane are adjacent in one
    column: rows lane // 16 * `result_count` + i (not for f64).
    """

    kind: str
    operand_count: int
    result_count: int
    operand: Callable[[Int], Place]
    result: Callable[[Int, int], Place]
    spread: Callable[[Int], Int]
    depth: int = 16


@dataclass(frozen=True)
class Traits:
    """One target. A wave has `wave_size` lanes, and a compute unit `simds` SIMDs that run waves. A group has at most
    `max_threads` threads and `lds_bytes` of LDS. `matrix`: for each dtype of factors that matrix instructions accept,
    by name, how; two dtypes that they multiply with each other are `factors_name`. `shallow` has products that are
    less deep, where those of `matrix` are deeper: 16 for types of 16 bits.
    """

    wave_size: int
    compute_units: int
    lds_bytes: int
    max_threads: int
    matrix: Mapping[str, MatrixTraits]
    shallow: Mapping[str, MatrixTraits] = field(default_factory=dict)
    simds: int = 2

    @property
    def sixteen_deep(self) -> Mapping[str, MatrixTraits]:
        """The products that attention uses, whose scores are 16 wide along each axis."""
        return {**self.matrix, **self.shallow}


def factors_name(first: str, second: str) -> str:
    """Return the name of two dtypes of factors among `Traits.matrix`: both names, or the one if they are the same."""
    return first if first == second else f"{first} {second}"
