"""Finds the greatest visible key of attention rows from the conditions in the graph, so that later keys are not even
loaded.

The logits must be minus infinity wherever a comparison of integers fails, as in a causal mask: key <= query + start.
Conditions that are read from memory, and expressions that are too complex, give no bound; the result stays correct.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.graph.index import Atom, Expr, Int, atom_of, bounds, substitute
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op
from ringup.compiler.kernel.common.merge_axes import stride
from ringup.compiler.schedule.views import Point, source_point

_NUMBERS: dict[Op, Callable[[Int, Int], Int]] = {Op.ADD: lambda a, b: a + b, Op.SUB: lambda a, b: a - b}


def limits(logits: Node, point: Point, key: Int) -> list[Int]:
    """Return upper bounds (inclusive) of the keys for which the logits at a point are above minus infinity. `key` is
    the key's variable in the point.
    """
    found: list[Int] = []
    stack = [(logits, point)]
    while stack:
        node, at = stack.pop()
        if node.op in MOVEMENT and node.op is not Op.PAD:
            stack.append((node.sources[0], source_point(node, at)[0]))
        elif node.op is Op.WHERE and _is_least(node.sources[2]):
            stack.append((node.sources[0], at))
            stack.append((node.sources[1], at))
        elif node.op is Op.AND and node.dtype.kind == "bool":
            stack += [(source, at) for source in node.sources]
        elif node.op in (Op.LE, Op.LT):
            a, b = (_number(source, at) for source in node.sources)
            if a is not None and b is not None and stride(a - b, key) == 1:
                found.append(key - (a - b) - (node.op is Op.LT))
    return found


def greatest(limit: Int, local: Int, count: int) -> Int | None:
    """Return the maximum of a limit over a variable from 0 to `count` - 1, None where the limit is neither monotonic
    nor linear in it.
    """
    if isinstance(local, int) or _rises(limit, atom_of(local)):
        return limit if isinstance(local, int) else substitute(limit, {atom_of(local): count - 1})
    step = stride(limit, local)
    return None if step is None else limit - step * local


def _rises(limit: Int, variable: Atom) -> bool:
    """Return whether a number is monotonic in a variable: it is multiplied and divided by positive numbers only."""
    if isinstance(limit, int):
        return True
    return all(_term_rises(atom, factor, variable) for atom, factor in limit.terms)


def _term_rises(atom: Atom, factor: int, variable: Atom) -> bool:
    if atom == variable:
        return factor > 0
    if variable not in Expr(0, ((atom, 1),)).variables():
        return True
    whole, by = atom.parts if atom.kind == "div" else (None, None)
    is_even = factor > 0 and isinstance(by, int) and by > 0
    return is_even and isinstance(whole, Expr) and _rises(whole, variable)


def _is_least(node: Node) -> bool:
    while node.op in MOVEMENT and node.op is not Op.PAD:
        node = node.sources[0]
    return node.op is Op.CONST and node.arg == float("-inf")


def _number(node: Node, point: Point) -> Int | None:
    """Return an integer of the graph as an expression, None if it is not one or may wrap around in its type."""
    found = _unwrapped(node, point) if node.dtype.is_integer else None
    if found is None:
        return None
    low, high = bounds(found)
    return found if node.dtype.least <= low and high <= node.dtype.greatest else None


def _unwrapped(node: Node, point: Point) -> Int | None:
    if node.op is Op.CONST:
        return int(node.arg)
    if node.op is Op.IOTA:
        return point[0]
    if node.op is Op.SIZE:
        size: Int = node.arg
        return size
    if node.op in MOVEMENT and node.op is not Op.PAD:
        return _number(node.sources[0], source_point(node, point)[0])
    if node.op is Op.CAST:
        return _number(node.sources[0], point)
    if node.op in _NUMBERS:
        a, b = (_number(source, point) for source in node.sources)
        return None if a is None or b is None else _NUMBERS[node.op](a, b)
    return None
