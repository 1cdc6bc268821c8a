"""Estimates the work for one element of a node, in instructions of a thread, to limit what a kernel computes besides a
reduction.

A kernel with a reduction, a scan or a sort computes several elements in each thread, with separate instructions for
each: 16 of a row, 8 of a product. With thousands of instructions for each element, the code would not fit into an
instruction cache and would take a minute to compile. To write the element and to read it again costs as much as a
hundred instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import bounds
from ringup.compiler.graph.nodes import ELEMENTWISE, LINES, MOVEMENT, Node, Op

# Instructions for one element: from here on, they are not computed in the kernel of a reduction.
HEAVY: Final = 1000
# The same limit where code for 32 or 64 elements is unrolled: after a product by matrix instructions, and between an
# attention's scores and its softmax.
HEAVY_UNROLLED: Final = 300
# The limit for the last node that a reduction's kernel computes, where too much work follows.
LIGHT: Final = 100
PLAIN: Final = 2
# Instructions for an element of 32 bits and of 64, counted in code for gfx1100.
COSTS: Final = {
    Op.SQRT: (21, 32), Op.RECIP: (17, 17), Op.RSQRT: (6, 49), Op.DIV: (17, 17), Op.EXP2: (9, 70), Op.LOG2: (10, 156), Op.SIN: (236, 877),
    Op.IDIV: (47, 131), Op.MOD: (60, 133), Op.POW: (260, 265), Op.LOGADDEXP: (15, 239),
}  # fmt: skip
# Additional instructions to round a result to a type without instructions of its own.
ROUNDED: Final = {"bfloat16": 10, "float8_e4m3": 25, "float8_e5m2": 25}
_ENDS = LINES | {Op.BUFFER, Op.AFTER, Op.REDUCE, Op.CONTIGUOUS}


def cost(op: Op, dtype: DType) -> int:
    """Return how many instructions an elementwise operation takes for one element."""
    return COSTS.get(op, (PLAIN, PLAIN))[dtype.bits == 64] + ROUNDED.get(dtype.name, 0)


def max_distance(reduction: Node, *, is_contraction: bool) -> int:
    """Return how much work for an element may share a kernel with a reduction."""
    if not is_contraction:
        return HEAVY
    factors = reduction.sources[0].sources
    return HEAVY_UNROLLED if all(_is_narrow(one) for one in factors) else HEAVY


def _is_narrow(node: Node) -> bool:
    while node.op in MOVEMENT or (node.op is Op.CAST and node.dtype.bits > 16):
        node = node.sources[0]
    return node.dtype.bits <= 16


def _before_widening(node: Node) -> Node:
    """Return the source of a cast of computed values to a wider type: it takes less memory."""
    source = node.sources[0]
    is_wider = node.op is Op.CAST and source.op in ELEMENTWISE and source.dtype.bits < node.dtype.bits
    return source if is_wider else node


class Work:
    """The work for an element of each node of a graph, down to nodes that are in memory, reduced, or in `kept`. `kept`
    holds the nodes before a reduction that are too much work: they are stored. Where such a node combines repeated
    elements of smaller nodes, as the products of a contraction do, the smaller nodes are stored instead.

    HEAVY stands for HEAVY and everything above. Values from HEAVY_UNROLLED on are exact. Smaller ones are upper bounds:
    they count a node once for each use.
    """

    def __init__(
        self, nodes: Sequence[Node], users: Mapping[Node, Sequence[Node]], contractions: Mapping[Node, bool]
    ) -> None:
        self._users, self._contractions = users, contractions
        self._of: dict[Node, int] = {}
        self.kept: set[Node] = set()
        self._position = {node: i for i, node in enumerate(nodes)}
        for node in nodes:
            work = self._count(node)
            if node.op not in ELEMENTWISE or work < HEAVY_UNROLLED:
                continue
            if work >= HEAVY:
                if self._is_repeated(node) and not self._keep_smaller(node, HEAVY):
                    self.kept.add(node)
            elif self._is_narrow_term(node):
                self._keep_smaller(node, HEAVY_UNROLLED)

    def of(self, node: Node) -> int:
        """Return the work for an element of a kernel's root."""
        return self._of[node]

    def _count(self, node: Node) -> int:
        """Determine the work for an element of a node."""
        found = sum([self._of[one] for one in self._below(node)])
        if node.op in ELEMENTWISE:
            found += cost(node.op, node.dtype)
        if found >= HEAVY_UNROLLED:
            found = self._exactly(node, found)
        self._of[node] = found
        return found

    def _is_narrow_term(self, node: Node) -> bool:
        """Return whether a node is the product of a contraction for which matrix instructions may be used."""
        if node.op is not Op.MUL:
            return False
        return any(
            self._contractions.get(one) and max_distance(one, is_contraction=True) == HEAVY_UNROLLED
            for one in self._users.get(node, ())
        )

    def _keep_smaller(self, node: Node, limit: int) -> bool:
        """Store those smaller nodes below a node that are much of its work, so that it is less work than the limit;
        return whether there are such nodes.
        """
        smaller = sorted(self._smaller(node), key=lambda one: self._of[one], reverse=True)
        left = bounds(node.size)[1]
        for one in smaller:
            left -= bounds(one.size)[1]
            if left < 0 or (self._of[node] < limit and self._of[one] < HEAVY_UNROLLED):
                break
            self.kept.add(one)
            self._recount(one)
        if self._of[node] < limit:
            return True
        self.kept.difference_update(smaller)
        for one in smaller:
            self._recount(one)
        return False

    def _smaller(self, node: Node) -> list[Node]:
        """Return the nodes with fewer elements that a node repeats elements of: the last ones along each path."""
        size = bounds(node.size)[1]
        found: dict[Node, None] = {}
        # Each node with whether its elements are repeated.
        seen, stack = {(node, False)}, [(node, False)]
        while stack:
            current, repeated = stack.pop()
            for one in self._below(current):
                below = (one, repeated or current.op in (Op.EXPAND, Op.GATHER))
                if below in seen:
                    continue
                seen.add(below)
                if below[1] and one.op in ELEMENTWISE and bounds(one.size)[1] < size and self._of[one] > LIGHT:
                    found[_before_widening(one)] = None
                else:
                    stack.append(below)
        return list(found)

    def _recount(self, start: Node) -> None:
        """Determine the work of all nodes counted so far that depend on whether `start` is stored."""
        found, stack = {start}, [start]
        while stack:
            for user in self._users.get(stack.pop(), ()):
                if user in self._of and user not in found:
                    found.add(user)
                    if user.op not in _ENDS and user not in self.kept:
                        stack.append(user)
        found.remove(start)
        for one in sorted(found, key=self._position.__getitem__):
            self._count(one)

    def _below(self, node: Node) -> list[Node]:
        """Return the sources that are computed together with a node."""
        return [one for one in node.sources if one.op not in _ENDS and one not in self.kept]

    def _exactly(self, node: Node, most: int) -> int:
        """Return the work for an element with each node counted once. `most` is the upper bound, which counts a node
        once for each use.
        """
        if any(self._of[one] >= HEAVY for one in self._below(node)):
            return HEAVY
        seen, stack = {node}, [node]
        total = 0
        while stack and total < min(most, HEAVY):
            current = stack.pop()
            total += cost(current.op, current.dtype) if current.op in ELEMENTWISE else 0
            more = [one for one in self._below(current) if one not in seen]
            seen.update(more)
            stack += more
        return min(total, HEAVY)

    def _is_repeated(self, node: Node) -> bool:
        """Return whether a node's elements are computed repeatedly if it is not stored: movement leads from it to a
        reduction or a line, to a larger node, or to a GATHER of as many elements.
        """
        stack, size = [node], bounds(node.size)[1]
        while stack:
            for user in self._users.get(stack.pop(), ()):
                most = bounds(user.size)[1]
                if user.op is Op.REDUCE or user.op in LINES or most > size or (user.op is Op.GATHER and most == size):
                    return True
                if user.op in MOVEMENT:
                    stack.append(user)
        return False
