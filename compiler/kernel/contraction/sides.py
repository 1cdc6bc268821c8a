"""The operands of a contraction in a kernel: which of the kernel's axes are rows, and which are columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, axis, substitute
from ringup.compiler.graph.nodes import Node
from ringup.compiler.schedule.dependences import axes_of, indices, used
from ringup.compiler.schedule.kernel import Fold, Kernel
from ringup.compiler.schedule.views import Point

# Axes that were split, each as a sum of its pieces.
Pieces: TypeAlias = Mapping[Atom, Int]


def split_axes(
    kernel: Kernel, fold: Fold, pieces: Pieces | None = None
) -> tuple[frozenset[Atom], frozenset[Atom]] | None:
    """Return the kernel's axes that only the first factor of a contraction depends on, and those that only the second
    one depends on; None if the axes mix.

    `pieces` replaces axes. In an attention, either set may be empty: a single query, or a single column. Its rows are
    axes of the queries alone: the keys do not depend on them.
    """
    if kernel.attention is not None:
        first, second = (axes_of(point) for point in _read_by_factors(kernel, pieces or {}))
        keys = axes_of(_moved(kernel, factors_of_scores(kernel)[1], pieces or {}))
        is_values = [factor is kernel.attention.values for factor in fold.node.sources[0].sources]
        return (first - second, second - first - keys) if is_values[0] else (first - second - keys, second - first)
    if kernel.pool is not None:
        return kernel.pool.sides
    own = axes_of(kernel.axes)
    first, second = (
        own & used(factor, fold.inner, lambda node: node in kernel.inputs) for factor in fold.node.sources[0].sources
    )
    return (first - second, second - first) if first - second and second - first else None


def factors_of_scores(kernel: Kernel) -> tuple[Node, Node]:
    """Return the queries and the keys of an attention. The keys depend on the variable of the sum over keys. Where
    neither factor does, they are the factor that depends on fewer axes.
    """
    assert kernel.scores is not None
    first, second = kernel.scores.node.sources[0].sources
    depth = axes_of(tuple(kernel.folds[0].variables.values()))
    mine, theirs = (axes_of(_moved(kernel, one, {})) for one in (first, second))
    is_swapped = len(mine) < len(theirs) if depth.isdisjoint(mine | theirs) else not depth.isdisjoint(mine)
    return (second, first) if is_swapped else (first, second)


def _moved(kernel: Kernel, factor: Node, pieces: Pieces) -> Point:
    """Return the indices that a factor of an attention's scores depends on."""
    assert kernel.scores is not None
    found = indices(factor, kernel.scores.inner, lambda node: node in kernel.inputs)
    return tuple(substitute(index, pieces) for index in found)


def _read_by_factors(kernel: Kernel, pieces: Pieces) -> list[Point]:
    """Return the indices that each factor of an attention depends on."""
    fold = kernel.folds[0]
    inside = {kernel.scores.node: kernel.scores.inner} if kernel.scores is not None else None
    return [
        tuple(
            substitute(index, pieces)
            for index in indices(factor, fold.inner, lambda node: node in kernel.inputs, inside)
        )
        for factor in fold.node.sources[0].sources
    ]


def in_pieces(kernel: Kernel) -> tuple[list[tuple[Int, Int]], Pieces]:
    """Return the axes of a kernel with their sizes, and those that were split into pieces. Only an attention's axes are
    split.

    One axis of the result may combine heads of queries that share a head of keys, or heads and their columns. One of
    its pieces is then an axis of both factors, the other an axis of a single factor. The whole axis is neither.
    """
    axes = [pair for pair in zip(kernel.axes, kernel.shape, strict=True) if isinstance(pair[0], Expr)]
    pieces: dict[Atom, Int] = {}
    if kernel.attention is None:
        return axes, pieces
    points = _read_by_factors(kernel, pieces)
    at = 0
    while at < len(axes):
        variable, size = axes[at]
        for sizes in _divisions(variable, size, points):
            outer, inner = (axis(f"p{len(pieces)}_{i}", one) for i, one in enumerate(sizes))
            here = {atom_of(variable): outer * sizes[1] + inner}
            moved = [tuple(substitute(index, here) for index in point) for point in points]
            used = [axes_of(point) for point in moved]
            is_shared = [all(atom_of(one) in own for own in used) for one in (outer, inner)]
            if not any(atom_of(variable) in own for own in used) and not all(is_shared):
                points = moved
                pieces = {atom: substitute(one, here) for atom, one in pieces.items()} | here
                axes[at : at + 1] = zip((outer, inner), sizes, strict=True)
                break
        else:
            at += 1
    return axes, pieces


def _divisions(variable: Int, size: Int, points: Sequence[Point]) -> list[tuple[int, int]]:
    """Return the sizes of the two pieces that an axis may be split into. Only where both factors read memory along the
    axis, and divide it by one of these sizes.
    """
    own = atom_of(variable)
    if not isinstance(size, int) or not all(own in axes_of(point) for point in points):
        return []
    found: set[object] = set()
    for atom in (atom for point in points for index in point if isinstance(index, Expr) for atom in index.atoms()):
        if atom.kind in ("div", "mod") and atom.parts[0] == variable:
            found.add(atom.parts[1])
    counts = sorted(one for one in found if isinstance(one, int) and 1 < one < size and size % one == 0)
    return [(size // count, count) for count in counts]
