"""The points at which a kernel's values use a reduction or a line, for given points of the values.

All uses of one element are the same point inside the axes. Of a place after the end of an axis, several paths may make
different points.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ringup.compiler.graph.nodes import ELEMENTWISE, Node, Op
from ringup.compiler.schedule.dependences import sources
from ringup.compiler.schedule.views import Point

_AT_THE_SAME_POINT = ELEMENTWISE | {Op.CONTIGUOUS, Op.AFTER}


class Uses:
    """The paths from `roots` to `target`. They end at nodes in `inputs`, which are in memory."""

    def __init__(self, roots: Sequence[Node], target: Node, inputs: Collection[Node]) -> None:
        self._target, self._inputs = target, inputs
        # The nodes of other operations between each node and the target, or the target, through elementwise nodes.
        self._next: dict[Node, list[Node]] = {}
        self._reaching = {target}
        for root in roots:
            self._find(root)
        if not any(root in self._reaching for root in roots):
            raise ValueError(f"{target} is not reached from {roots}")

    def points(self, root: Node, point: Point) -> list[Point]:
        """Return the points of the target that a root uses at a point, without those that a PAD fills."""
        found: dict[Point, None] = {}
        stack = [(root, point)]
        seen = set(stack)
        while stack:
            node, at = stack.pop()
            for one in self._following(node):
                if one is self._target:
                    found[at] = None
                    continue
                for source, there in sources(one, at):
                    if source in self._reaching and (source, there) not in seen:
                        seen.add((source, there))
                        stack.append((source, there))
        return list(found)

    def _following(self, node: Node) -> list[Node]:
        """Return the nodes at the same point that are not elementwise, with a path to the target."""
        found = self._next.get(node)
        if found is None:
            found = self._next[node] = []
            stack, seen = [node], {node}
            while stack:
                current = stack.pop()
                if current is self._target or current.op not in _AT_THE_SAME_POINT:
                    found.append(current)
                    continue
                for source in self._computed_from(current):
                    if source in self._reaching and source not in seen:
                        seen.add(source)
                        stack.append(source)
        return found

    def _find(self, root: Node) -> None:
        """Record which nodes below a root have a path to the target."""
        stack, seen = [(root, False)], {root}
        while stack:
            node, is_done = stack.pop()
            below = self._computed_from(node)
            if is_done:
                if any(one in self._reaching for one in below):
                    self._reaching.add(node)
                continue
            stack.append((node, True))
            for one in below:
                if one not in seen and one is not self._target:
                    seen.add(one)
                    stack.append((one, False))

    def _computed_from(self, node: Node) -> tuple[Node, ...]:
        """Return the sources of a node that is computed in place."""
        if node in self._inputs or node is self._target or node.op is Op.REDUCE:
            return ()
        return node.sources[1].sources[1:] if node.op is Op.AFTER else node.sources
