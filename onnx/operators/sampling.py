"""Values between the pixels of images, at coordinates that are tensors: GridSample, regions, deformed convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, known_size, numbers

# the coefficient of cubic interpolation in GridSample, onnx.ai's Operators.md
CUBIC = -0.75
MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


def sampled(x: Tensor, coordinates: Sequence[Tensor], mode: str, edge: str, *, aligned: bool = True) -> Tensor:
    """Return values (N, C, P) of images (N, C, …) at P points each, whose coordinates (N, P) count pixels.

    `edge`: outside are zeros, the border, a reflection; "near" is the border up to one pixel out, zeros from there on.
    """
    return reduce(lambda a, b: a + b, shares(x, coordinates, mode, edge, aligned=aligned)).cast(x.dtype)


def shares(x: Tensor, coordinates: Sequence[Tensor], mode: str, edge: str, *, aligned: bool = True) -> Iterator[Tensor]:
    """Yield what each pixel beside the points contributes to their values: it times its weight."""
    sizes = [known_size(size, "sampling") for size in x.shape[2:]]
    lanes = [_taps(one, mode) for one in coordinates]
    flat = x.reshape((*x.shape[:2], -1))
    for chosen in product(*lanes):
        place, weight, inside = None, None, None
        for (at, factor), size, coordinate in zip(chosen, sizes, coordinates, strict=True):
            held, fine = _held(at, coordinate, size, edge, aligned=aligned)
            place = held if place is None else place * size + held
            weight = factor if weight is None else weight * factor
            inside = fine if inside is None or fine is None else inside & fine
        assert place is not None
        assert weight is not None
        points = place.cast(dtypes.int32).unsqueeze(1)
        values = flat.gather(2, points.expand((x.shape[0], x.shape[1], place.shape[-1])))
        part = values * weight.unsqueeze(1)
        if inside is not None:
            # a product with 0 would keep the NaN of infinite coordinates
            part = inside.unsqueeze(1).where(part, 0.0)
        yield part


def _taps(at: Tensor, mode: str) -> list[tuple[Tensor, Tensor]]:
    """Return the pixels beside coordinates along an axis, with their weights."""
    if mode == "nearest":
        return [(at.round(), at.full_like(1.0))]
    low = at.floor()
    part = at - low
    if mode == "linear":
        return [(low, 1 - part), (low + 1, part)]
    return [(low + i, _cubic((part - i).abs())) for i in (-1, 0, 1, 2)]


def _cubic(distance: Tensor) -> Tensor:
    """Return the weight of a pixel at a distance, by Keys' kernel."""
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return (distance <= 1).where(near, (distance < 2).where(far, 0.0))


def _held(at: Tensor, coordinate: Tensor, size: int, edge: str, *, aligned: bool) -> tuple[Tensor, Tensor | None]:
    """Return pixels brought inside of an axis, and which count."""
    if edge == "border":
        return at.clip(0, size - 1), None
    if edge == "reflection":
        return _reflected(at, size, aligned=aligned).clip(0, size - 1), None
    if edge == "near":
        return at.clip(0, size - 1), (coordinate >= -1) & (coordinate <= size)
    return at.clip(0, size - 1), (at >= 0) & (at <= size - 1)


def _reflected(at: Tensor, size: int, *, aligned: bool) -> Tensor:
    """Return coordinates mirrored into an axis: at the middle of its first and last pixel, or at their outer edges."""
    low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
    if span <= 0:
        return at * 0
    there = (at - low).mod(2 * span)
    return (there > span).where(2 * span - there, there) + low


def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Return images at the points of a grid, whose coordinates go from -1 to 1."""
    mode, edge = MODES[node.get("mode", "linear")], node.get("padding_mode", "zeros")
    aligned = bool(node.get("align_corners", 0))
    n = x.ndim - 2
    sizes = [known_size(size, str(node)) for size in x.shape[2:]]
    points = grid.reshape((x.shape[0], -1, n))
    coordinates = []
    for axis, size in enumerate(sizes):
        # the last coordinate is of the first axis
        at = points[..., n - 1 - axis]
        pixel = (at + 1) / 2 * (size - 1) if aligned else ((at + 1) * size - 1) / 2
        if mode != "cubic":
            pixel = _kept(pixel, size, edge, aligned=aligned)
        coordinates.append(pixel)
    made = sampled(x, coordinates, mode, edge, aligned=aligned)
    return made.reshape((*x.shape[:2], *grid.shape[1:-1]))


def _kept(pixel: Tensor, size: int, edge: str, *, aligned: bool) -> Tensor:
    """Return coordinates themselves brought inside, as modes other than cubic have it."""
    if edge == "border":
        return pixel.clip(0, size - 1)
    return _reflected(pixel, size, aligned=aligned).clip(0, size - 1) if edge == "reflection" else pixel


def affine_grid(node: Node, theta: Tensor, size: Array) -> Tensor:
    """Return the grid of points that affine maps make of those of an image."""
    shape = numbers(size)[2:]
    axes = []
    for count in shape:
        steps = np.arange(count, dtype=np.float64)
        across = steps * (2 / max(count - 1, 1)) - 1 if node.get("align_corners", 0) else (steps * 2 + 1) / count - 1
        axes.append(across)
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(shape)], -1).reshape(-1, len(shape) + 1)
    made = Tensor(points).cast(theta.dtype).matmul(theta.transpose())
    return made.reshape((theta.shape[0], *shape, len(shape)))


ROWS = (
    Row("GridSample", grid_sample),
    Row("AffineGrid", affine_grid, host=(1,)),
)
