"""Contractions of few results and a great depth, cut along their depth: parts of the sums on all of a card's units,
then the parts together.

The gradient by a convolution's weights is such a one, and so is a product of a short, long matrix with a tall, narrow
one. A tile of the result is made by one group, whose turns along the depth follow each other, while most of the card
has nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ringup.compiler.graph.nodes import Node, Op, contiguous, elementwise, node, reduce, reshape
from ringup.compiler.schedule.attention import find
from ringup.compiler.schedule.identity import kept
from ringup.compiler.schedule.kernel import MIN_TILED
from ringup.compiler.schedule.needs import depends

GROUPS_ENOUGH = 192  # two for each compute unit of a large card
TILE = 256  # results of the smallest tile
MIN_DEPTH = 256  # of a part
# steps along the depth that are worth another kernel: waves of a group share them, and do as many in 6 us by the model
MIN_SAVED = 4096


class Piece(NamedTuple):
    """What becomes of an axis of the depth: `parts`, each of `length` elements, the last one filled up with zeros."""

    parts: int
    length: int


def in_parts(fold: Node) -> Node:
    """Return a contraction as sums over parts of its depth that are added up, itself where that is not worth it."""
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
    # each axis is two now, its parts and their lengths
    partial = contiguous(reduce(op, elementwise(Op.MUL, first, second), [2 * axis + 1 for axis in axes]))
    return reshape(reduce(op, partial, [2 * axis for axis in axes]), fold.shape)


def _min_side(fold: Node, sizes: Sequence[int]) -> int:
    """Return the rows or the columns of a contraction, whichever are fewer."""
    first, second = (depends(factor) - {*fold.arg[1]} for factor in fold.sources[0].sources)
    return min(prod(sizes[axis] for axis in one) for one in (first - second, second - first))


def _pieces(sizes: Sequence[int], wanted: int) -> list[Piece]:
    """Return the pieces of the depth's axes, outer ones first, that make about as many parts as wanted, without filling
    up if they can.
    """
    found = []
    for size in sizes:
        parts = next(count for count in range(min(size, wanted), 0, -1) if size % count == 0)
        if parts * 2 <= min(size, wanted):  # no divisor is near
            parts = min(size, wanted)
        found.append(Piece(parts, -(-size // parts)))
        wanted //= parts
    return found


def _apart(factor: Node, pieces: Sequence[Piece]) -> Node:
    """Return a factor with each axis as two: the parts, and what is in one."""
    whole = tuple(piece.parts * piece.length for piece in pieces)
    if whole != factor.shape:
        amounts = tuple((0, size - had) for size, had in zip(whole, factor.shape, strict=True))
        factor = node(Op.PAD, factor.dtype, whole, (factor,), (amounts, 0))
    return reshape(factor, tuple(size for piece in pieces for size in piece))


__all__ = ["in_parts"]
