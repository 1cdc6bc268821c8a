"""How much is computed for one element of a node, in instructions of a thread: what a kernel may do beside reductions,
where it is too much.

A kernel with a reduction, a scan or a sort computes several elements in each thread, with instructions for each of
them: 16 of a row, 8 of a product's. Where there are thousands for one element, code would fit into no instruction cache
and take a minute to compile, while writing the element and reading it again costs as much as a hundred instructions do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import bounds
from ringup.compiler.graph.nodes import ELEMENTWISE, LINES, MOVEMENT, Node, Op

HEAVY: Final = 1000  # instructions for one element that are not computed beside a reduction
# the same where 32 or 64 are written out: behind a product by matrix instructions, between an attention's scores and
# its softmax
HEAVY_UNROLLED: Final = 300
LIGHT: Final = 100  # what the last of a reduction's kernel may be where too much follows
PLAIN: Final = 2
# instructions of an element of 32 bits and of 64, as code for gfx1100 has them
COSTS: Final = {
    Op.SQRT: (21, 32), Op.RECIP: (17, 17), Op.RSQRT: (6, 49), Op.DIV: (17, 17), Op.EXP2: (9, 70), Op.LOG2: (10, 156), Op.SIN: (236, 877),
    Op.IDIV: (47, 131), Op.MOD: (60, 133), Op.POW: (260, 265), Op.LOGADDEXP: (15, 239),
}  # fmt: skip
ROUNDED: Final = {
    "bfloat16": 10,
    "float8_e4m3": 25,
    "float8_e5m2": 25,
}  # more where results are rounded to a type that has no instructions
_ENDS = LINES | {Op.BUFFER, Op.AFTER, Op.REDUCE, Op.CONTIGUOUS}


def cost(op: Op, dtype: DType) -> int:
    """Return how many instructions an elementwise operation takes."""
    return COSTS.get(op, (PLAIN, PLAIN))[dtype.bits == 64] + ROUNDED.get(dtype.name, 0)


def max_distance(reduction: Node, *, is_contraction: bool) -> int:
    """Return how much work for an element goes together with a reduction."""
    if not is_contraction:
        return HEAVY
    factors = reduction.sources[0].sources
    return HEAVY_UNROLLED if all(_is_narrow(one) for one in factors) else HEAVY


def _is_narrow(node: Node) -> bool:
    while node.op in MOVEMENT or (node.op is Op.CAST and node.dtype.bits > 16):
        node = node.sources[0]
    return node.dtype.bits <= 16


class Work:
    """The work for an element of each node of a graph, down to what is in memory, reduced, or `kept`: in front of a
    reduction and too much.

    HEAVY stands for all that is more. Less than HEAVY_UNROLLED may be less still: what is used twice is counted twice
    there.
    """

    def __init__(self, nodes: Sequence[Node], users: Mapping[Node, Sequence[Node]]) -> None:
        self._users = users
        self._of: dict[Node, int] = {}
        self.kept: set[Node] = set()
        below: dict[Node, int] = {}  # what a node adds to the work of its users
        for node in nodes:
            found = sum([below[one] for one in node.sources])
            if node.op in ELEMENTWISE:
                found += cost(node.op, node.dtype)
            if found >= HEAVY_UNROLLED:
                found = self._exactly(node, found)
                if found >= HEAVY and node.op in ELEMENTWISE and self._is_repeated(node):
                    self.kept.add(node)
            self._of[node] = found
            below[node] = 0 if node.op in _ENDS or node in self.kept else found

    def of(self, node: Node) -> int:
        """Return the work for an element of a kernel's root."""
        return self._of[node]

    def _below(self, node: Node) -> list[Node]:
        """Return the sources that are computed with a node."""
        return [one for one in node.sources if one.op not in _ENDS and one not in self.kept]

    def _exactly(self, node: Node, most: int) -> int:
        """Return the work for an element with each node counted once, of which `most` counts some again for each of
        their users.
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
        """Return whether movement leads from a node to a reduction or line, or makes more of its elements, or fetches
        as many.
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
