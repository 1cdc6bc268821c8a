"""Elements by place: gathered, scattered, chosen by a mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, known_size, numbers

# the words for combining in ONNX and here
REDUCTIONS = {"add": "add", "mul": "mul", "max": "max", "min": "min"}


def _from_front(places: Tensor, size: Any) -> Tensor:
    """Return places with negative ones counted from the end."""
    return (places < 0).where(places + size, places) if places.dtype.kind == "int" else places


def gather(node: Node, x: Tensor, places: Tensor) -> Tensor:
    """Return the parts at places along an axis."""
    axis = node.get("axis", 0)
    return x.take(_from_front(places, x.shape[axis]), axis)


def gather_elements(node: Node, x: Tensor, places: Tensor) -> Tensor:
    """Return the element at a place along an axis for each place."""
    axis = node.get("axis", 0)
    return x.gather(axis, _from_front(places, x.shape[axis]))


def _flat(places: Tensor, sizes: list[int]) -> Tensor:
    """Return places of several axes (along the last axis) as one place each in the axes made one."""
    made = _from_front(places[..., 0], sizes[0])
    for i, size in enumerate(sizes[1:], 1):
        made = made * size + _from_front(places[..., i], size)
    return made


def gather_nd(node: Node, x: Tensor, places: Tensor) -> Tensor:
    """Return the parts at tuples of places, batch by batch."""
    batch = node.get("batch_dims", 0)
    sizes = [known_size(size, str(node)) for size in x.shape]
    depth = known_size(places.shape[-1], str(node))
    inner = sizes[batch : batch + depth]
    flat = _flat(places, inner)
    lead, rest = sizes[:batch], sizes[batch + depth :]
    groups = math.prod(lead)
    at = flat.reshape((groups, -1))
    at = at + (Tensor.arange(groups, dtype=at.dtype) * math.prod(inner)).unsqueeze(1)
    made = x.reshape((groups * math.prod(inner), *rest)).take(at.flatten(), 0)
    return made.reshape((*flat.shape, *rest))


def scatter_elements(node: Node, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """Return it with values put, or combined, at places along an axis."""
    axis, how = node.get("axis", 0), node.get("reduction", "none")
    at = _from_front(places, x.shape[axis])
    return x.scatter(axis, at, values) if how == "none" else x.scatter_reduce(axis, at, values, REDUCTIONS[how])


def scatter_nd(node: Node, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """Return it with parts put, or combined, at tuples of places."""
    sizes = [known_size(size, str(node)) for size in x.shape]
    depth, how = known_size(places.shape[-1], str(node)), node.get("reduction", "none")
    rest = math.prod(sizes[depth:])
    flat = _flat(places, sizes[:depth]).reshape((-1, 1))
    at = (flat * rest + Tensor.arange(rest, dtype=flat.dtype)).flatten()
    base, y = x.flatten(), values.flatten()
    made = base.scatter(0, at, y) if how == "none" else base.scatter_reduce(0, at, y, REDUCTIONS[how])
    return made.reshape(x.shape)


def tensor_scatter(node: Node, past: Tensor, update: Tensor, start: Tensor | None = None) -> Tensor:
    """Return a cache with new values written along an axis, from a place of its own in each part of the batch."""
    axis = node.get("axis", -2) % past.ndim
    size, count = known_size(past.shape[axis], str(node)), known_size(update.shape[axis], str(node))
    at = Tensor.arange(count, dtype="int64").reshape([-1 if i == axis else 1 for i in range(past.ndim)])
    if start is not None:
        at = at + start.cast("int64").reshape((-1, *[1] * (past.ndim - 1)))
    if node.get("mode", "linear") == "circular":
        at = at % size
    return past.scatter(axis, at.expand(update.shape), update)


def compress(node: Node, x: Tensor, mask: Array) -> Tensor:
    """Return the parts along an axis (the elements, without one) where a mask of the host is true."""
    axis, places = node.get("axis"), np.flatnonzero(mask)
    return x.flatten().take(places, 0) if axis is None else x.take(places, axis)


def nonzero(node: Node, x: Array) -> Array:
    """Return the places of elements that are not zero, one row for each axis; the host looks at the elements."""
    return np.asarray(np.nonzero(np.atleast_1d(x))[: max(x.ndim, 1)], np.int64)


def unique(node: Node, x: Array) -> tuple[Tensor, Array, Array, Array]:
    """Return what occurs, where first, which one each element is, and how often; the host looks at the elements."""
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=node.get("axis")
    )
    inverse = inverse.reshape(-1)
    if not node.get("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=node.get("axis") or 0)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return Tensor(values), *(one.astype(np.int64) for one in (first, inverse, counts))  # type: ignore[return-value]


def non_max_suppression(
    node: Node,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """Return (batch, class, box) of boxes that no better one overlaps too much; the host looks at them."""
    count = 0 if most is None else numbers(most)[0]
    limit = 0.0 if overlap is None else overlap.reshape(-1)[0]
    threshold = -np.inf if least is None else least.reshape(-1)[0]
    found: list[tuple[int, int, int]] = []
    corners = _corners(boxes, centred=bool(node.get("center_point_box", 0)))
    for batch, group in np.ndindex(scores.shape[:2]):
        points = scores[batch, group]
        kept: list[int] = []
        for box in np.argsort(-points, kind="stable"):
            if len(kept) == count:
                break
            if points[box] > threshold and all(
                _overlap(corners[batch, box], corners[batch, one]) <= limit for one in kept
            ):
                kept.append(int(box))
        found += [(batch, group, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Array, *, centred: bool) -> Array:
    """Return boxes as (lesser, lesser, greater, greater) corners."""
    if centred:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([middle - half, middle + half], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _overlap(one: Array, other: Array) -> float:
    """Return the area that two boxes share, divided by the area that they cover together."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    both = float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2])) - shared
    return shared / both if both > 0 else 0.0


def count_sequences(node: Node, x: Array) -> Tensor:
    """Return how often sequences of a pool occur in rows of whole numbers, with gaps of up to `max_skip_count`, which
    the host looks for; weighed by how rare they are, where asked for.
    """
    pool, starts, columns = node.ints("pool_int64s", ()), node.ints("ngram_counts", ()), node.ints("ngram_indexes", ())
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    made = np.zeros((len(rows), max(columns) + 1), np.float32)
    known: dict[tuple[int, ...], int] = {}
    for size, (first, last) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for at in range(first, last, size):
            known[tuple(pool[at : at + size])] = len(known)
    for row, made_row in zip(rows.tolist(), made, strict=True):
        for size in range(node.get("min_gram_length"), node.get("max_gram_length") + 1):
            # gaps change nothing about single numbers
            for step in range(1, node.get("max_skip_count") + 2 if size > 1 else 2):
                for at in range(len(row) - step * (size - 1)):
                    place = known.get(tuple(row[at : at + step * size : step]))
                    if place is not None:
                        made_row[columns[place]] += 1
    weights, mode = np.ones(made.shape[1], np.float32), node.get("mode")
    for place, weight in zip(columns, node.get("weights", ()), strict=False):
        weights[place] = weight
    made = made * weights if mode == "TFIDF" else (made > 0) * weights if mode == "IDF" else made
    return Tensor(np.asarray(made[0] if x.ndim == 1 else made, np.float32))


ROWS = (
    Row("Gather", gather),
    Row("GatherElements", gather_elements),
    Row("GatherND", gather_nd),
    Row("Scatter", scatter_elements),
    Row("ScatterElements", scatter_elements),
    Row("ScatterND", scatter_nd),
    Row("TensorScatter", tensor_scatter),
    Row("Compress", compress, host=(1,)),
    Row("NonZero", nonzero, host=(0,)),
    Row("Unique", unique, host=(0,)),
    Row("TfIdfVectorizer", count_sequences, host=(0,)),
    Row("NonMaxSuppression", non_max_suppression, host=(0, 1, 2, 3, 4)),
)
