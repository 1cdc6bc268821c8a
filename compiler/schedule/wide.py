"""Values made of several times as much memory as they are themselves: the state of an LSTM, made of its gates and of
the state before.

Where more than one kernel uses such a value, each would read all of that again, back to the first state; one of them
had better write it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.graph.nodes import ELEMENTWISE, MOVEMENT, Node, Op

WIDE = 4  # times its own elements
MAX_PARTS = 2 * WIDE  # that are told of a value: more make no difference
Parts = frozenset[
    tuple[Node, Node | None]
]  # what a value is made of: something that is no arithmetic, or a part of it that a SHRINK shows
_NONE: Parts = frozenset()
_NOTHING = (Op.CONST, Op.IOTA, Op.SIZE)


def find_wide(nodes: Sequence[Node]) -> set[Node]:
    """Return the elementwise nodes, of nodes in order, that join what is of at least WIDE times their elements."""
    parts: dict[Node, Parts] = {}
    found: set[Node] = set()
    for node in nodes:
        below = [parts[one] for one in node.sources]
        if node.op in _NOTHING or node.op is Op.EXPAND:  # what is repeated is little beside the result
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
    """Return the parts of all, those of the greatest first where they are too many: `below` itself where it has them
    all.
    """
    most = max(below, key=len)
    if len(most) >= MAX_PARTS:
        others = [part for one in below for part in one if part not in most]
        return frozenset([*others, *most][:MAX_PARTS]) if others else most
    return most if all(one <= most for one in below) else most.union(*below)


__all__ = ["find_wide"]
