"""The same elements under other shapes: reshaped, moved, joined, cut, padded, repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, array_of_sizes, as_tensor, known_size, numbers

# the words for modes of padding in ONNX and here
PADDINGS = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def new_shape(shape: Sequence[Any], wanted: Sequence[Any], *, keep_zero: bool) -> list[Any]:
    """Return what Reshape's second input asks for: 0 keeps an axis, unless zeros are meant."""
    return [
        shape[i] if isinstance(size, int) and size == 0 and not keep_zero else size for i, size in enumerate(wanted)
    ]


def reshape(node: Node, x: Tensor, shape: Array | None = None) -> Tensor:
    """Return the elements under another shape."""
    wanted = node.get("shape") if shape is None else numbers(shape)
    return x.reshape(new_shape(x.shape, wanted, keep_zero=bool(node.get("allowzero", 0))))


def flatten(node: Node, x: Tensor) -> Tensor:
    """Return a matrix: the axes before `axis`, and those from it on."""
    at = node.get("axis", 1)
    at = at + x.ndim if at < 0 else at
    if all(isinstance(size, int) for size in x.shape):
        return x.reshape((math.prod(x.shape[:at]), math.prod(x.shape[at:])))
    return x.flatten(0, at - 1).flatten(1, -1) if at else x.reshape((1, -1))


def squeeze(node: Node, x: Tensor, axes: Array | None = None) -> Tensor:
    """Return it without axes of size 1."""
    return x.squeeze(node.get("axes") if axes is None else numbers(axes))


def unsqueeze(node: Node, x: Tensor, axes: Array | None = None) -> Tensor:
    """Return it with axes of size 1 put in at places of the result."""
    given = node.get("axes") if axes is None else numbers(axes)
    for at in sorted(axis % (x.ndim + len(given)) for axis in given):
        x = x.unsqueeze(at)
    return x


def transpose(node: Node, x: Tensor) -> Tensor:
    """Return its axes in another order, reversed unless given."""
    return x.permute(node.get("perm", list(range(x.ndim))[::-1]))


def expand(node: Node, x: Tensor, shape: Array) -> Tensor:
    """Return it broadcast together with a shape."""
    wanted, ndim = numbers(shape), max(len(shape), x.ndim)
    have = [1] * (ndim - x.ndim) + list(x.shape)
    want = [1] * (ndim - len(wanted)) + wanted
    return x.expand([a if isinstance(b, int) and b == 1 else b for a, b in zip(have, want, strict=True)])


def concat(node: Node, *parts: Tensor) -> Tensor:
    """Return tensors joined along an axis."""
    return Tensor.cat(list(parts), axis=node.get("axis", 1))


def split(node: Node, x: Tensor, sizes: Array | None = None) -> tuple[Tensor, ...]:
    """Return parts along an axis: of the sizes given, or as equal as the count of outputs allows."""
    axis = node.get("axis", 0)
    given = node.get("split") if sizes is None else numbers(sizes)
    if given is None:
        count = node.get("num_outputs", len(node.outputs))
        size = known_size(x.shape[axis], str(node))
        each = -(-size // count)
        given = [max(min(each, size - i * each), 0) for i in range(count)]
    return tuple(x.split(given, axis))


def cut_slices(
    x: Tensor, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Tensor:
    """Return the part between bounds, which may lie far outside."""
    key: list[Any] = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(starts)) if axes is None else axes):
        step, size = 1 if steps is None else steps[i], x.shape[axis]
        start, end = starts[i], ends[i]
        if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
            # below the first element, a reversed slice ends behind it
            end = None if step < 0 and end < -size else end
        elif isinstance(end, int) and end >= 1 << 31:
            end = None
        key[axis] = slice(start, end, step)
    return x[tuple(key)]


def slice_by_inputs(
    node: Node, x: Tensor, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Tensor:
    """Return the part between bounds, which are inputs."""
    given = [None if one is None else numbers(one) for one in (starts, ends, axes, steps)]
    return cut_slices(x, given[0] or [], given[1] or [], given[2], given[3])


def slice_by_attributes(node: Node, x: Tensor) -> Tensor:
    """Return the part between bounds, which are attributes."""
    return cut_slices(x, node.get("starts"), node.get("ends"), node.get("axes"), None)


def pad(
    node: Node, x: Tensor, widths: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Tensor:
    """Return it with edges added."""
    given = node.get("pads", node.get("paddings")) if widths is None else numbers(widths)
    fill = node.get("value", 0.0) if value is None else value.reshape(-1)[0].item() if value.size else 0
    count, places = len(given) // 2, range(x.ndim) if axes is None else [axis % x.ndim for axis in numbers(axes)]
    pairs: list[tuple[int, int]] = [(0, 0)] * x.ndim
    for i, axis in enumerate(places):
        pairs[axis] = (given[i], given[i + count])
    mode = PADDINGS[node.get("mode", "constant")]
    if not x.dtype.is_float and x.dtype.kind != "bool":
        fill = int(fill)
    return x.pad(pairs, mode=mode, value=fill) if mode == "constant" else x.pad(pairs, mode=mode)


def tile(node: Node, x: Tensor, counts: Array, axis: Array | None = None) -> Tensor:
    """Return it repeated along axes."""
    if axis is None:
        return x.tile(numbers(counts))
    # opset 1: a count and an axis
    return x.tile([numbers(counts)[0] if i == numbers(axis)[0] else 1 for i in range(x.ndim)])


def shape_of(node: Node, x: Any) -> Array:
    """Return the sizes of axes `start` to before `end`."""
    return array_of_sizes(as_tensor(x).shape[slice(node.get("start"), node.get("end"))])


def size_of(node: Node, x: Any) -> Array:
    """Return the number of elements."""
    return array_of_sizes([as_tensor(x).numel()]).reshape(())


def depth_to_space(node: Node, x: Tensor) -> Tensor:
    """Return blocks of channels laid out as squares."""
    n, c, h, w = x.shape
    block = node.get("blocksize")
    if node.get("mode", "DCR") == "DCR":
        parts = x.reshape((n, block, block, c // block**2, h, w)).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape((n, c // block**2, block, block, h, w)).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape((n, c // block**2, h * block, w * block))


def space_to_depth(node: Node, x: Tensor) -> Tensor:
    """Return squares laid out as blocks of channels."""
    n, c, h, w = x.shape
    block = node.get("blocksize")
    order = (0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = x.reshape((n, c, h // block, block, w // block, block)).permute(order)
    return parts.reshape((n, c * block**2, h // block, w // block))


def center_crop_pad(node: Node, x: Tensor, shape: Array) -> Tensor:
    """Return its middle in another shape: cut where it is larger, padded with zeros where it is smaller."""
    axes = [axis % x.ndim for axis in node.ints("axes", range(x.ndim))]
    bounds: list[tuple[int, int] | None] = [None] * x.ndim
    edges: list[tuple[int, int]] = [(0, 0)] * x.ndim
    for axis, want in zip(axes, numbers(shape), strict=True):
        have = known_size(x.shape[axis], str(node))
        if have > want:
            start = (have - want) // 2
            bounds[axis] = (start, start + want)
        else:
            before = (want - have) // 2
            edges[axis] = (before, want - have - before)
    return x.shrink(bounds).pad(edges)


def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    """Return each sequence of a batch with its first elements in reverse, as many as its length says."""
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    size = known_size(x.shape[time], str(node))
    count = lengths.cast("int64").reshape([-1 if i == batch else 1 for i in range(x.ndim)])
    at = Tensor.arange(size, dtype="int64").reshape([-1 if i == time else 1 for i in range(x.ndim)])
    return x.take_along_axis((at < count).where(count - 1 - at, at), time)


def triangle(node: Node, x: Tensor, diagonal: Array | None = None) -> Tensor:
    """Return it with 0 below (`upper`) or above a diagonal of the last two axes."""
    k = 0 if diagonal is None else numbers(diagonal)[0]
    return x.triu(k) if node.get("upper", 1) else x.tril(k)


ROWS = (
    Row("Reshape", reshape, host=(1,)),
    Row("Flatten", flatten),
    Row("Squeeze", squeeze, host=(1,)),
    Row("Unsqueeze", unsqueeze, host=(1,)),
    Row("Transpose", transpose),
    Row("Expand", expand, host=(1,)),
    Row("Concat", concat),
    Row("Split", split, host=(1,)),
    Row("Slice", slice_by_attributes),
    Row("Slice", slice_by_inputs, since=10, host=(1, 2, 3, 4)),
    Row("Pad", pad, host=(1, 2, 3)),
    Row("Tile", tile, host=(1, 2)),
    Row("Shape", shape_of, raw=True),
    Row("Size", size_of, raw=True),
    Row("DepthToSpace", depth_to_space),
    Row("SpaceToDepth", space_to_depth),
    Row("CenterCropPad", center_crop_pad, host=(1,)),
    Row("ReverseSequence", reverse_sequence),
    Row("Trilu", triangle, host=(1,)),
)
