"""Splits contractions of few results and great depth along their depth (split-K): all of a card's units compute partial
sums, a second kernel adds these up.

The gradient of a convolution's weights is such a contraction, and so is the product of a short, long matrix with a
tall, narrow one. One group computes each tile of the result and walks the depth step by step, so without the split most
of the card would be idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ringup.compiler.graph.nodes import Node, Op, contiguous, elementwise, node, reduce, reshape
from ringup.compiler.schedule.attention import find
from ringup.compiler.schedule.dependences import depends
from ringup.compiler.schedule.kernel import MIN_TILED
from ringup.compiler.schedule.reduction_facts import kept

# Two groups for each compute unit of a large card.
GROUPS_ENOUGH = 192
# Results of the smallest tile.
TILE = 256
# The depth of one part, in elements.
MIN_DEPTH = 256
# The steps along the depth that the split must save to pay for a second kernel. The waves of a group share the steps;
# by the model they do this many in 6 us.
MIN_SAVED = 4096


class Piece(NamedTuple):
    """How one axis of the depth is split: `parts` parts of `length` elements; zeros fill up the last one."""

    parts: int
    length: int


def in_parts(fold: Node) -> Node:
    """Return a contraction as a sum of partial contractions along its depth, or unchanged where the
    split does not pay.
    """
    op, axes = fold.arg
    shape = fold.sources[0].shape
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape) or kept(op, fold.dtype) is not fold.dtype:
        return fold
    depth = prod(sizes[axis] for axis in axes)
    results = prod(sizes) // depth
    wanted = min(GROUPS_ENOUGH // -(-results // TILE), depth // MIN_DEPTH)
    if wanted < 2 or depth - depth // wanted < MIN_SAVED or _min_side(fold, sizes) < MIN_TILED or find(fold):
        return fold
    pieces = _pieces([sizes[axis] for axis in axes], wanted)
    apart = [Piece(1, size) for size in sizes]
    for axis, piece in zip(axes, pieces, strict=True):
        apart[axis] = piece
    first, second = (_apart(factor, apart) for factor in fold.sources[0].sources)
    # Each axis is now two: the parts, and the elements of a part.
    partial = contiguous(reduce(op, elementwise(Op.MUL, first, second), [2 * axis + 1 for axis in axes]))
    return reshape(reduce(op, partial, [2 * axis for axis in axes]), fold.shape)


def _min_side(fold: Node, sizes: Sequence[int]) -> int:
    """Return the number of rows or of columns of a contraction, whichever is less."""
    first, second = (depends(factor) - {*fold.arg[1]} for factor in fold.sources[0].sources)
    return min(prod(sizes[axis] for axis in one) for one in (first - second, second - first))


def _pieces(sizes: Sequence[int], wanted: int) -> list[Piece]:
    """Split the axes of the depth, outer axes first, into about `wanted` parts; without padding where the sizes have
    suitable divisors.
    """
    found = []
    for size in sizes:
        parts = next(count for count in range(min(size, wanted), 0, -1) if size % count == 0)
        # No divisor is near the wanted count.
        if parts * 2 <= min(size, wanted):
            parts = min(size, wanted)
        found.append(Piece(parts, -(-size // parts)))
        wanted //= parts
    return found


def _apart(factor: Node, pieces: Sequence[Piece]) -> Node:
    """Return a factor with each axis split into two: the parts, and the elements of a part."""
    whole = tuple(piece.parts * piece.length for piece in pieces)
    if whole != factor.shape:
        amounts = tuple((0, size - had) for size, had in zip(whole, factor.shape, strict=True))
        factor = node(Op.PAD, factor.dtype, whole, (factor,), (amounts, 0))
    return reshape(factor, tuple(size for piece in pieces for size in piece))


__all__ = ["in_parts"]
