"""Merges adjacent axes of a kernel into one where every access has a uniform stride through both, so that indices need
no division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, axis, bounds, product, substitute
from ringup.compiler.schedule.kernel import Access
from ringup.compiler.schedule.views import Point, flat


@dataclass(frozen=True)
class Space:
    """Merged axes: `variables` with their `sizes`, outermost first. `original` gives each original axis in terms of
    them.
    """

    variables: Point
    sizes: tuple[Int, ...]
    original: dict[Atom, Int]

    @property
    def size(self) -> Int:
        """Return the number of points."""
        return product(self.sizes)

    def moved(self, point: Point) -> Point:
        """Express a point of the original axes in terms of the merged ones."""
        return tuple(substitute(index, self.original) for index in point)


def places(accesses: Sequence[Access]) -> list[Int]:
    """Return the positions in memory, in elements, of accesses."""
    return [flat(access.point, access.node.shape) for access in accesses]


def merged(axes: Sequence[tuple[Int, Int]], positions: Sequence[Int], name: str) -> Space:
    """Merge (variable, size) pairs, outermost first, where `positions`, those of all reads and writes, allow it. Axes
    of size 1 are removed.
    """
    groups: list[list[tuple[Expr, Int]]] = []
    for variable, size in axes:
        if not isinstance(variable, Expr):
            continue
        if groups and _walks_evenly(groups[-1][-1], (variable, size), positions):
            groups[-1].append((variable, size))
        else:
            groups.append([(variable, size)])
    variables: list[Int] = []
    sizes: list[Int] = []
    original: dict[Atom, Int] = {}
    for group in groups:
        size = product(one for _, one in group)
        if len(group) == 1:
            made: Int = group[0][0]
        else:
            made = axis(f"{name}{len(variables)}", size)
            rest = made
            for variable, inner in reversed(group[1:]):
                original[atom_of(variable)] = rest % inner
                rest = rest // inner
            original[atom_of(group[0][0])] = rest
        variables.append(made)
        sizes.append(size)
    return Space(tuple(variables), tuple(sizes), original)


def _walks_evenly(outer: tuple[Expr, Int], inner: tuple[Expr, Int], positions: Sequence[Int]) -> bool:
    a, b = atom_of(outer[0]), atom_of(inner[0])
    for position in positions:
        if isinstance(position, int):
            continue
        steps = dict(position.terms)
        if steps.get(a, 0) != steps.get(b, 0) * inner[1]:
            return False
        for atom, _ in position.terms:
            if atom.kind in ("div", "mod", "mul") or atom.kind == "value":
                used = Expr(0, ((atom, 1),)).variables()
                if a in used or b in used or any(_hides(one, a, b) for one in used):
                    return False
    return True


def _hides(atom: Atom, a: Atom, b: Atom) -> bool:
    """Return whether a run-time value is read at a place that depends on one of two axes."""
    if atom.kind != "value":
        return False
    identity = atom.parts[1]
    point = identity[1] if isinstance(identity, tuple) else ()
    return any(not isinstance(index, int) and (a in index.variables() or b in index.variables()) for index in point)


def stride(position: Int, variable: Int) -> int | None:
    """Return the stride of a position along a variable, None where it is not constant."""
    if isinstance(position, int) or isinstance(variable, int):
        return 0
    atom = atom_of(variable)
    step = 0
    for other, factor in position.terms:
        if other == atom:
            step = factor
        elif atom in Expr(0, ((other, 1),)).variables():
            return None
    return step


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`, which is above 0."""
    return 1 << (number - 1).bit_length()


def most(number: Int) -> int:
    """Return the upper bound of a number."""
    return bounds(number)[1]


def at(space: Space, number: Int) -> dict[Atom, Int]:
    """Return the index of each axis of a space at a row-major position."""
    found: dict[Atom, Int] = {}
    for variable, size in zip(space.variables[:0:-1], space.sizes[:0:-1], strict=True):
        found[atom_of(variable)] = number % size
        number = number // size
    if space.variables:
        found[atom_of(space.variables[0])] = number
    return found
