"""Pooling: windows folded to one value each, whole images folded, regions of interest."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.composed.sampling import sampled, shares
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, known_size, numbers
from ringup.onnx.operators.windows import windowed, windows_of


def max_pool(node: Node, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """Return the greatest of each window, and where it lies in the flattened input."""
    how = windows_of(node, x, node.ints("kernel_shape", ()))
    n, lowest = len(how.kernel), x.dtype.least
    taps = windowed(x, how, lowest)
    outputs = taps.shape[: x.ndim]
    if not node.wants(1):
        return taps.amax(tuple(range(x.ndim, x.ndim + n)))
    flat = taps.reshape((*outputs, math.prod(how.kernel)))
    best = flat.argmax(-1, keepdims=True)
    sizes = [known_size(size, str(node)) for size in x.shape]
    inner: Array = np.arange(math.prod(sizes[2:]), dtype=np.int64)
    # places count rows first, or columns first
    inner = inner.reshape(sizes[2:][::-1]).T if node.get("storage_order", 0) else inner.reshape(sizes[2:])
    where = windowed(Tensor(inner[None, None]), how, 0).reshape((1, 1, *outputs[2:], math.prod(how.kernel)))
    places = where.take_along_axis(best, -1).squeeze(-1)
    planes = Tensor.arange(sizes[0] * sizes[1], dtype="int64") * math.prod(sizes[2:])
    return flat.amax(-1), places + planes.reshape((*sizes[:2], *[1] * n))


def average_pool(node: Node, x: Tensor) -> Tensor:
    """Return the mean of each window, of the elements there or, with `count_include_pad`, of the padding too."""
    how = windows_of(node, x, node.ints("kernel_shape", ()))
    axes = tuple(range(x.ndim, x.ndim + len(how.kernel)))
    total = windowed(x, how, 0).sum(axes)
    if not any(map(any, how.pads)) and not any(how.beyond):
        return total / math.prod(how.kernel)
    ones = Tensor.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    counts = windowed(ones, how, 1 if node.get("count_include_pad", 0) else 0, 0).sum(axes)
    return (total / counts).cast(x.dtype)


def lp_pool(node: Node, x: Tensor) -> Tensor:
    """Return the norm of each window."""
    order: int = node.get("p", 2)
    how = windows_of(node, x, node.ints("kernel_shape", ()))
    raised = windowed(x, how, 0).abs() ** order
    return (raised.sum(tuple(range(x.ndim, x.ndim + len(how.kernel)))) ** (1 / order)).cast(x.dtype)


def global_average(node: Node, x: Tensor) -> Tensor:
    """Return the mean of each channel."""
    return x.mean(tuple(range(2, x.ndim)), keepdims=True)


def global_max(node: Node, x: Tensor) -> Tensor:
    """Return the greatest of each channel."""
    return x.amax(tuple(range(2, x.ndim)), keepdims=True)


def global_lp(node: Node, x: Tensor) -> Tensor:
    """Return the norm of each channel."""
    return x.norm(node.get("p", 2), tuple(range(2, x.ndim)), keepdims=True)


def max_unpool(node: Node, x: Tensor, places: Tensor, shape: Array | None = None) -> Tensor:
    """Return zeros with the elements at the places that MaxPool found."""
    kernel = node.ints("kernel_shape", ())
    n = len(kernel)
    strides, pads = node.ints("strides", [1] * n), node.ints("pads", [0] * (2 * n))
    sizes = [
        (known_size(size, str(node)) - 1) * strides[i] - pads[i] - pads[n + i] + kernel[i]
        for i, size in enumerate(x.shape[2:])
    ]
    lead = [known_size(size, str(node)) for size in x.shape[:2]]
    made = Tensor.zeros(math.prod([*lead, *sizes]), dtype=x.dtype).scatter(0, places.flatten(), x.flatten())
    made = made.reshape((*lead, *sizes))
    if shape is None:
        return made
    # the places are those of the smaller image
    return made.pad([(0, want - known_size(have, "")) for have, want in zip(made.shape, numbers(shape), strict=True)])


def align_regions(node: Node, x: Tensor, boxes: Tensor, batch: Tensor) -> Tensor:
    """Return regions of images pooled to one size, from points between pixels. Sizes of regions that adapt the count
    of points (`sampling_ratio` 0) are looked at by the host.
    """
    height, width = node.get("output_height", 1), node.get("output_width", 1)
    scale, ratio = node.number("spatial_scale", 1.0), node.get("sampling_ratio", 0)
    pixel = node.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel")
    shift = 0.5 if pixel == "half_pixel" else 0.0
    corners = boxes * scale - shift
    ends = corners[:, 2:] - corners[:, :2]
    ends = ends if shift else ends.maximum(1.0)
    images = x.take(batch, 0)
    if ratio:
        return _pooled(node, images, corners, ends, (height, width), (ratio, ratio))
    parts = []
    for i, (wide, high) in enumerate(np.asarray(ends.numpy())):
        points = (math.ceil(high / height), math.ceil(wide / width))
        one = slice(i, i + 1)
        parts.append(_pooled(node, images[one], corners[one], ends[one], (height, width), points))
    return Tensor.cat(parts, axis=0)


def _pooled(
    node: Node, images: Tensor, corners: Tensor, ends: Tensor, size: tuple[int, int], points: tuple[int, int]
) -> Tensor:
    """Return one region of each image, from a grid of points in each bin."""
    coordinates = []
    for axis in (0, 1):
        # corners are (x, y), axes (y, x)
        start, length = corners[:, 1 - axis], ends[:, 1 - axis]
        bins = Tensor.arange(size[axis]).float().unsqueeze(1) * points[axis] + Tensor.arange(points[axis]) + 0.5
        at = start.unsqueeze(1) + length.unsqueeze(1) / size[axis] * (bins.flatten() / points[axis])
        # (regions, bins · points)
        coordinates.append(at)
    rows, columns = size[0] * points[0], size[1] * points[1]
    ys = coordinates[0].unsqueeze(2).expand((-1, rows, columns)).flatten(1)
    xs = coordinates[1].unsqueeze(1).expand((-1, rows, columns)).flatten(1)
    shape = (*images.shape[:2], size[0], points[0], size[1], points[1])
    if node.get("mode", "avg") == "max":
        # the greatest of what each pixel contributes, as the operator is defined
        best = reduce(lambda a, b: a.maximum(b), shares(images, [ys, xs], "linear", "near"))
        return best.reshape(shape).amax((3, 5)).cast(images.dtype)
    return sampled(images, [ys, xs], "linear", "near").reshape(shape).mean((3, 5)).cast(images.dtype)


def rois_max(node: Node, x: Tensor, boxes: Array) -> Tensor:
    """Return the greatest of each bin of regions, whose corners the host looks at."""
    height, width = node.ints("pooled_shape", ())
    scale, parts = node.number("spatial_scale", 1.0), []
    limits = [known_size(size, str(node)) for size in x.shape[2:]]
    for box in boxes:
        left, top, right, bottom = (int(np.round(one * scale)) for one in box[1:])
        high, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
        rows = [_bin(i, high / height, top, limits[0]) for i in range(height)]
        columns = [_bin(i, wide / width, left, limits[1]) for i in range(width)]
        image = x[int(box[0])]
        cells = [
            image[:, a:b, c:d].amax((1, 2)) if b > a and d > c else image[:, 0, 0] * 0
            for a, b in rows
            for c, d in columns
        ]
        parts.append(Tensor.stack(cells, axis=-1).reshape((x.shape[1], height, width)))
    return Tensor.stack(parts) if parts else Tensor.zeros((0, x.shape[1], height, width), dtype=dtypes.float32)


def _bin(place: int, size: float, start: int, limit: int) -> tuple[int, int]:
    first, last = math.floor(place * size) + start, math.ceil((place + 1) * size) + start
    return min(max(first, 0), limit), min(max(last, 0), limit)


ROWS = (
    Row("MaxPool", max_pool),
    Row("AveragePool", average_pool),
    Row("LpPool", lp_pool),
    Row("GlobalAveragePool", global_average),
    Row("GlobalMaxPool", global_max),
    Row("GlobalLpPool", global_lp),
    Row("MaxUnpool", max_unpool, host=(2,)),
    Row("RoiAlign", align_regions),
    Row("MaxRoiPool", rois_max, host=(1,)),
)
