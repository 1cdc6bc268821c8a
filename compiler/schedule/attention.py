"""Finds attention in a graph: a softmax over scores, which are sums of products, then a sum of weights times values
over the softmax's axis.

A kernel can compute it without storing the scores in memory: it keeps the running maximum and sum of a row, and
rescales them as further elements arrive. Source of the method: Milakov and Gimelshein, Online normalizer calculation
for softmax; Dao et al., FlashAttention.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import ELEMENTWISE, MOVEMENT, Node, Op

# The types that weights may be rounded to before the sum.
NARROW = (dtypes.float16, dtypes.bfloat16)


class Attention(NamedTuple):
    """The nodes of one attention.

    `result`: the sum over keys of `weights` times `values`. `scores`: the inner products. `logits`: the input of the
    softmax, computed from the scores. `greatest` and `total`: the softmax's reductions of the logits along `axis`.
    `scale`: the factor that logit minus `greatest` is multiplied by before EXP2. `narrow`: the type that the weights
    are rounded to before the sum, which is also the type of the values; None if the weights stay f32. `guarded`: a row
    without any visible key gives 0, not NaN.
    """

    result: Node
    weights: Node
    values: Node
    logits: Node
    scores: Node
    greatest: Node
    total: Node
    axis: int
    scale: float
    narrow: DType | None
    guarded: bool


def find(result: Node) -> Attention | None:
    """Return the attention that a reduction completes, None if there is none."""
    if not _is_sum_of_products(result) or result.dtype is not dtypes.float32:
        return None
    factors = result.sources[0].sources
    for first, values in (factors, factors[::-1]):
        weights, narrow = _below(first), None
        if weights.op is Op.CAST and weights.dtype in NARROW and _below(values).dtype is weights.dtype:
            weights, narrow = _below(weights.sources[0]), weights.dtype
        if weights.op is Op.DIV and weights.dtype is dtypes.float32:
            found = _softmax(result, weights, values, narrow)
            if found is not None:
                return found
    return None


def _softmax(result: Node, weights: Node, values: Node, narrow: DType | None) -> Attention | None:
    powers, below = weights.sources[0], _below(weights.sources[1])
    total = _plain(below, 0.0, 1.0)
    if (
        powers.op is not Op.EXP2
        or total.op is not Op.REDUCE
        or total.arg[0] is not Op.ADD
        or total.sources[0] is not powers
    ):
        return None
    scaled = powers.sources[0]
    if scaled.op is not Op.MUL:
        return None
    difference, factor = scaled.sources
    scale = _below(factor)
    if scale.op is not Op.CONST or difference.op is not Op.SUB or not scale.arg > 0:
        return None
    logits = difference.sources[0]
    greatest = _plain(_below(difference.sources[1]), float("-inf"), 0.0)
    if (
        greatest.op is not Op.REDUCE
        or greatest.arg != (Op.MAX, total.arg[1])
        or greatest.sources[0] is not logits
        or len(total.arg[1]) != 1
    ):
        return None
    scores = _scores(logits)
    if scores is None:
        return None
    (axis,) = total.arg[1]
    return Attention(
        result, weights, values, logits, scores, greatest, total, axis, float(scale.arg), narrow, below is not total
    )


def _scores(logits: Node) -> Node | None:
    """Return the only sum of products below the logits, None if there are none or several."""
    found: dict[Node, None] = {}
    stack, seen = [logits], {logits}
    while stack:
        node = stack.pop()
        if _is_sum_of_products(node):
            found[node] = None
        elif node.op in ELEMENTWISE or node.op in (Op.RESHAPE, Op.PERMUTE, Op.EXPAND):
            for source in node.sources:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
    return next(iter(found)) if len(found) == 1 else None


def _is_sum_of_products(node: Node) -> bool:
    return node.op is Op.REDUCE and node.arg[0] is Op.ADD and node.sources[0].op is Op.MUL


def _below(node: Node) -> Node:
    """Return the node below movement and casts to f32."""
    while node.op in MOVEMENT or (node.op is Op.CAST and node.dtype is dtypes.float32):
        node = node.sources[0]
    return node


def _plain(node: Node, bad: float, good: float) -> Node:
    """Return the reduction inside a WHERE that replaces its value for empty rows, `good` where it is `bad`; return any
    other node itself.
    """
    if node.op is not Op.WHERE or node.sources[0].op is not Op.EQ:
        return node
    test, instead, kept = node.sources
    constants = [_below(one) for one in (test.sources[1], instead)]
    is_guard = test.sources[0] is kept and [(one.op, one.arg) for one in constants] == [
        (Op.CONST, bad),
        (Op.CONST, good),
    ]
    return kept if is_guard else node
