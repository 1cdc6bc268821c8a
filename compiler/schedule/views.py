"""Movement as index arithmetic: which element of a node's source an element of the node shows, and the conditions under
which there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ringup.compiler.graph.index import Int, bounds, product, total
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op, Shape

Point = tuple[Int, ...]


class Within(NamedTuple):
    """A condition: `lo <= value < hi`."""

    value: Int
    lo: Int
    hi: Int


def within(value: Int, lo: Int, hi: Int) -> Within | bool:
    """Return the condition, True if it always holds, False if it never does."""
    least, most = bounds(value)
    low, high = bounds(lo), bounds(hi)
    if least >= low[1] and most < high[0]:
        return True
    if most < low[0] or least >= high[1]:
        return False
    return Within(value, lo, hi)


@lru_cache(maxsize=4096)
def flat(point: Point, shape: Shape) -> Int:
    """Return the row-major position of a point. Cached, since the same few points recur."""
    strides = _strides(shape)
    if strides is not None:
        return total(point, strides)
    position: Int = 0
    for index, size in zip(point, shape, strict=True):
        position = position * size + index
    return position


@lru_cache(maxsize=4096)
def _strides(shape: Shape) -> tuple[int, ...] | None:
    """Return the row-major strides of a shape in elements, None where a size is known at run time only."""
    found: list[int] = []
    stride = 1
    for size in reversed(shape):
        if not isinstance(size, int):
            return None
        found.append(stride)
        stride *= size
    return tuple(reversed(found))


def unflat(position: Int, shape: Shape) -> Point:
    """Return the point of a shape at a row-major position. The outermost axis of more than one element takes what is
    left.
    """
    found: list[Int] = [0] * len(shape)
    axes = [i for i, size in enumerate(shape) if size != 1]
    for i in reversed(axes[1:]):
        found[i] = position % shape[i]
        position = position // shape[i]
    if axes:
        found[axes[0]] = position
    return tuple(found)


@lru_cache(maxsize=4096)
def reshaped(point: Point, shape: Shape, source: Shape) -> Point:
    """Translate a point of `shape` into the point of `source` at the same position, in groups of axes that hold as many
    elements on both sides.
    """
    found: list[Int] = []
    for first, last, one, other in _groups(shape, source):
        if len(one) == len(other) == 1:
            found.append(point[first])
        else:
            found += unflat(flat(point[first:last], one), other)
    return tuple(found)


@lru_cache(maxsize=4096)
def _groups(shape: Shape, source: Shape) -> tuple[tuple[int, int, Shape, Shape], ...]:
    """Return the smallest groups of axes that hold as many elements in `shape` and in `source`, each as (first axis,
    last axis + 1, sizes, sizes in the source).
    """
    found: list[tuple[int, int, Shape, Shape]] = []
    i = j = 0
    while i < len(shape) or j < len(source):
        first, second = i, j
        left, right = _take(shape, i), _take(source, j)
        i, j = min(i + 1, len(shape)), min(j + 1, len(source))
        while left != right:
            if j < len(source) and (i >= len(shape) or _smaller(right, left)):
                right, j = right * source[j], j + 1
            elif i < len(shape):
                left, i = left * shape[i], i + 1
            else:
                return ((0, len(shape), shape, source),)
        found.append((first, i, shape[first:i], source[second:j]))
    return tuple(found)


def _take(shape: Shape, i: int) -> Int:
    return shape[i] if i < len(shape) else 1


def _smaller(a: Int, b: Int) -> bool:
    return bounds(a)[1] < bounds(b)[1]


def source_point(node: Node, point: Point) -> tuple[Point, list[Within] | None]:
    """Return the point of `node.sources[0]` that a movement node shows at a point, and the conditions for there being
    one (None: never).
    """
    return _RULES[node.op](node, point)


def _permuted(node: Node, point: Point) -> tuple[Point, list[Within]]:
    axes: Sequence[int] = node.arg
    found: list[Int] = [0] * len(point)
    for axis, index in zip(axes, point, strict=True):
        found[axis] = index
    return tuple(found), []


def _padded(node: Node, point: Point) -> tuple[Point, list[Within] | None]:
    amounts, _ = node.arg
    found: list[Int] = []
    conditions: list[Within] = []
    for index, (before, _), size in zip(point, amounts, node.sources[0].shape, strict=True):
        inner = index - before
        condition = within(inner, 0, size)
        if condition is False:
            return tuple(found), None
        if condition is not True:
            conditions.append(condition)
        found.append(inner)
    return tuple(found), conditions


_RULES: dict[Op, Callable[[Node, Point], tuple[Point, list[Within] | None]]] = {
    Op.RESHAPE: lambda node, point: (reshaped(point, node.shape, node.sources[0].shape), []),
    Op.PERMUTE: _permuted,
    Op.EXPAND: lambda node, point: (
        tuple(0 if size == 1 else index for index, size in zip(point, node.sources[0].shape, strict=True)),
        [],
    ),
    Op.PAD: _padded,
    Op.SHRINK: lambda node, point: (
        tuple(index + start for index, (start, _) in zip(point, node.arg, strict=True)),
        [],
    ),
    Op.FLIP: lambda node, point: (
        tuple(
            size - 1 - index if axis in node.arg else index
            for axis, (index, size) in enumerate(zip(point, node.shape, strict=True))
        ),
        [],
    ),
}


def squeezed(shape: Shape) -> Shape:
    """Return a shape without its axes of one element."""
    return tuple(size for size in shape if size != 1)


def in_shape(point: Point, shape: Shape, other: Shape) -> Point:
    """Translate a point of a shape into a point of another shape that differs only by axes of size 1."""
    rest = iter([index for index, size in zip(point, shape, strict=True) if size != 1])
    return tuple(0 if size == 1 else next(rest) for size in other)


def written(root: Node, point: Point) -> Int:
    """Return the position in memory that a kernel writes for a point of a root's shape."""
    node = root
    if root.op is Op.STORE:
        node = root.sources[0]
        while node.op in MOVEMENT:
            point, _ = source_point(node, point)
            node = node.sources[0]
    return flat(point, node.shape)


def is_whole(shape: Shape) -> bool:
    """Return whether a shape has elements for every value of its symbolic sizes."""
    return bounds(product(shape))[0] > 0
