"""Whether a kernel may compute an attention at a point: the sum runs over the keys, and a tile holds the operands."""

from __future__ import annotations

from ringup.compiler.graph.index import atom_of, bounds, product, variables
from ringup.compiler.graph.nodes import ELEMENTWISE, MOVEMENT, Node, Op
from ringup.compiler.schedule.attention import Attention
from ringup.compiler.schedule.dependences import depends, is_contraction, sources
from ringup.compiler.schedule.kernel import FEW_QUERIES_LIMIT, Fold
from ringup.compiler.schedule.views import Point

# The longest query, and the longest value, in elements, that an attention's tile can hold.
MAX_DEPTH = 128
# The same for an attention of at most FEW_QUERIES_LIMIT queries.
MAX_DEPTH_OF_FEW_QUERIES = 512


def follow(start: Node, target: Node, point: Point) -> Point | None:
    """Follow movement and casts from one node to another; return the point there, None if any other operation is
    between.
    """
    node = start
    while node is not target:
        steps = list(sources(node, point))
        if len(steps) != 1 or node.op is Op.PAD:
            return None
        node, point = steps[0]
    return point


def leaves_of(found: Attention, values: Node, inner: Point, logits: Point) -> list[tuple[Node, Point]]:
    """Return what an attention reads and at which points: scores, values, and everything else that the logits are
    computed from.
    """
    leaves: dict[tuple[Node, Point], None] = {(values, inner): None}
    stack = [(found.logits, logits)]
    seen = set(stack)
    while stack:
        node, point = stack.pop()
        if node.op in ELEMENTWISE or node.op in MOVEMENT:
            more = [one for one in sources(node, point) if one not in seen]
            seen.update(more)
            stack += more
        elif node.op is not Op.CONST:
            leaves[node, point] = None
    return list(leaves)


def fits_tile(found: Attention, factor: Node, values: Node) -> bool:
    """Return whether the queries and values of an attention are short enough for its tile. Only an attention of few
    queries, or one whose result is a contraction, has a tile.
    """
    mine, theirs = depends(factor), depends(values)
    shape, axes = found.result.sources[0].shape, found.result.arg[1]
    queries, columns = (
        product(shape[i] for i in one - other if i not in axes) for one, other in ((mine, theirs), (theirs, mine))
    )
    scores = found.scores.sources[0]
    depth = product(scores.shape[i] for i in found.scores.arg[1])
    if not isinstance(depth, int) or not isinstance(columns, int):
        return False
    is_few = bounds(queries)[1] <= FEW_QUERIES_LIMIT
    return max(depth, columns) <= (MAX_DEPTH_OF_FEW_QUERIES if is_few else MAX_DEPTH) and (
        is_few or is_contraction(found.result)
    )


def runs_over_keys(fold: Fold, found: Attention, logits: Point) -> bool:
    """Return whether a sum runs over the whole axis of the softmax, which it reads at `logits`, and over nothing else.
    The sum of the gradient of the values does not.
    """
    along = [one for one in fold.variables.values() if not isinstance(one, int)]
    own = {atom_of(one) for one in along}
    others = [index for i, index in enumerate(logits) if i != found.axis]
    return (
        found.logits.shape[found.axis] == fold.count
        and logits[found.axis] == (along[0] if len(along) == 1 else 0)
        and len(along) < 2
        and all(own.isdisjoint(variables(one)) for one in others)
    )
