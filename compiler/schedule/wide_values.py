"""Finds values computed from several times as many elements as they have, such as the state of an LSTM: its gates and
the previous state.

If several kernels use such a value without its being stored, each one reads all its parts, back to the first state. So
it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.graph.nodes import ELEMENTWISE, MOVEMENT, Node, Op

# Parts, each as large as the value itself.
WIDE = 4
# Parts recorded for a value; more make no difference.
MAX_PARTS = 2 * WIDE
# What a value is computed from: nodes other than arithmetic and movement, or the parts of them that a SHRINK shows.
Parts = frozenset[tuple[Node, Node | None]]
_NONE: Parts = frozenset()
_NOTHING = (Op.CONST, Op.IOTA, Op.SIZE)


def find_wide(nodes: Sequence[Node]) -> set[Node]:
    """Return the elementwise nodes that combine at least WIDE parts. `nodes` come in the order of the graph."""
    parts: dict[Node, Parts] = {}
    found: set[Node] = set()
    for node in nodes:
        below = [parts[one] for one in node.sources]
        # A broadcast value is small compared with the result.
        if node.op in _NOTHING or node.op is Op.EXPAND:
            parts[node] = _NONE
        elif node.op is Op.SHRINK:
            parts[node] = frozenset((leaf, node) for leaf, _ in below[0])
        elif node.op in MOVEMENT:
            parts[node] = below[0]
        elif node.op in ELEMENTWISE:
            parts[node] = joined = _joined(below)
            if len(joined) >= WIDE and all(one != joined for one in below):
                found.add(node)
        else:
            parts[node] = frozenset(((node, None),))
    return found


def _joined(below: Sequence[Parts]) -> Parts:
    """Return the union of the parts. Where the largest set has MAX_PARTS already, keep only that many, the parts of the
    other sets first. Return the largest set itself where it has all parts.
    """
    most = max(below, key=len)
    if len(most) >= MAX_PARTS:
        others = [part for one in below for part in one if part not in most]
        return frozenset([*others, *most][:MAX_PARTS]) if others else most
    return most if all(one <= most for one in below) else most.union(*below)


__all__ = ["find_wide"]
