"""Removes nodes without elements: an empty node becomes a constant, and an operation on empty sources becomes its
defined result.
"""

from __future__ import annotations

from ringup.compiler.graph.index import bounds
from ringup.compiler.graph.nodes import Node, Op, const, node
from ringup.compiler.schedule.reduction_facts import identity


def is_empty(one: Node) -> bool:
    """Return whether a node has no elements for any value of its symbolic sizes."""
    return bounds(one.size)[1] == 0


def without_empty(one: Node) -> Node:
    """Return an equivalent node that does not use empty sources. The sources themselves have been rewritten already."""
    if one.op is Op.AFTER:
        stores = tuple(store for store in one.sources[1:] if not is_empty(store))
        if len(stores) == len(one.sources) - 1:
            return one
        return node(Op.AFTER, one.dtype, one.shape, (one.sources[0], *stores), one.arg) if stores else one.sources[0]
    if one.op in (Op.BUFFER, Op.STORE, Op.CONST):
        return one
    if is_empty(one):
        return const(0, one.dtype, one.shape)
    if not any(map(is_empty, one.sources)):
        return one
    if one.op is Op.REDUCE:
        return const(identity(one.arg[0], one.dtype), one.dtype, one.shape)
    if one.op is Op.PAD:
        return const(one.arg[1], one.dtype, one.shape)
    # Every index is outside.
    if one.op is Op.GATHER:
        return const(0, one.dtype, one.shape)
    # Nothing is stored.
    if one.op is Op.SCATTER:
        return one.sources[0]
    if one.op is Op.CAT:
        rest = tuple(source for source in one.sources if not is_empty(source))
        return rest[0] if len(rest) == 1 else node(Op.CAT, one.dtype, one.shape, rest, one.arg)
    return one
