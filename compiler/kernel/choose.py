"""Chooses the lowering of a kernel and its shape: the heuristic one, or another candidate."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ringup.compiler.graph.nodes import Op
from ringup.compiler.kernel.attention import choose
from ringup.compiler.kernel.axis import elementwise, rows, scan, sort
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.contraction import contraction, fma, matrix
from ringup.compiler.schedule.kernel import Kernel

# `str` of a choice is its name among the kernel's candidates.
Choice: TypeAlias = (
    elementwise.Shape | rows.Shape | scan.Shape | sort.Shape | fma.FmaTile | matrix.MatrixTile | choose.Tile
)
# For contractions of at most this many rows or columns, a reduction by rows may be as fast as tiles.
SMALL_SIDE = 32


class Named(NamedTuple):
    """A candidate found by its name. `is_heuristic`: `lower` takes it when no choice is given."""

    choice: Choice
    is_heuristic: bool


def lower(kernel: Kernel, name: str, traits: Traits, choice: Choice | None = None) -> Lowered:
    """Return the machine IR of a kernel for a target with these traits.

    `choice` is one of the kernel's `candidates`. The result of the kernel does not depend on it.
    """
    if kernel.line is not None:
        if kernel.line.node.op is Op.SORT:
            return sort.lower(kernel, name, traits, choice if isinstance(choice, sort.Shape) else None)
        return scan.lower(kernel, name, traits, choice if isinstance(choice, scan.Shape) else None)
    if isinstance(choice, rows.Shape):
        return rows.lower(kernel, name, traits, choice)
    if isinstance(choice, elementwise.Shape) or not kernel.folds:
        return elementwise.lower(kernel, name, traits, choice if isinstance(choice, elementwise.Shape) else None)
    if kernel.attention is not None:
        tile = choice if isinstance(choice, choose.Tile) else None
        return choose.lower(contraction.Problem(kernel), name, traits, tile)
    if contraction.fits(kernel):
        problems = contraction.problems(kernel)
        if not isinstance(choice, fma.FmaTile):
            narrow = matrix.narrowed(problems, traits)
            if narrow is not None:
                return matrix.lower(narrow, name, traits, choice if isinstance(choice, matrix.MatrixTile) else None)
        return fma.lower(problems, name, traits, choice if isinstance(choice, fma.FmaTile) else None)
    return rows.lower(kernel, name, traits)


def candidates(kernel: Kernel, traits: Traits) -> list[Choice]:
    """Return every candidate; the first is the one that `lower` takes when no choice is given."""
    if kernel.line is not None:
        return [*(sort if kernel.line.node.op is Op.SORT else scan).candidates(kernel, traits)]
    if not kernel.folds:
        return [*elementwise.candidates(kernel, traits)]
    if kernel.attention is not None:
        return [*choose.candidates(contraction.Problem(kernel), traits)]
    if not contraction.fits(kernel):
        return [*rows.candidates(kernel, traits)]
    problems = contraction.problems(kernel)
    problem = problems[0]
    small = min(problem.m, problem.n) <= SMALL_SIDE
    narrow = matrix.narrowed(problems, traits)
    found: list[Choice] = [*(fma.candidates(problem, traits) if narrow is None else matrix.candidates(problem, traits))]
    return [*found, *rows.candidates(kernel, traits)[:1]] if small and kernel.pool is None else found


def named(kernel: Kernel, traits: Traits, text: str) -> Named | None:
    """Return the candidate of that name, None where the kernel has none, or no longer has one."""
    for i, one in enumerate(candidates(kernel, traits)):
        if str(one) == text:
            return Named(one, i == 0)
    return None
