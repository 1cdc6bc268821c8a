"""Values between the pixels of images, at coordinates that are tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import number_of, total
from ringup.compiler.tensor.tensor import Tensor

# the coefficient of cubic interpolation; PyTorch's and ONNX's
CUBIC = -0.75
MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
EDGES = ("zeros", "border", "reflection")


def sampled(x: Tensor, coordinates: Sequence[Tensor], mode: str, edge: str, *, aligned: bool = True) -> Tensor:
    """Return values (N, C, P) of images (N, C, …) at P points each, whose coordinates (N, P) count pixels.

    `edge`: outside are zeros, the border, a reflection; "near" is the border up to one pixel out, zeros from there on.
    """
    return reduce(lambda a, b: a + b, shares(x, coordinates, mode, edge, aligned=aligned)).cast(x.dtype)


def shares(x: Tensor, coordinates: Sequence[Tensor], mode: str, edge: str, *, aligned: bool = True) -> Iterator[Tensor]:
    """Yield what each pixel beside the points contributes to their values: it times its weight."""
    sizes = [number_of(size, "sampling") for size in x.shape[2:]]
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


def grid_sample(tensor: Tensor, grid: Tensor, mode: str, edge: str, *, aligned: bool) -> Tensor:
    """Return images (N, C, …) at the points of a grid (N, …, axes), whose coordinates go from -1 to 1, the last axis
    first: at the middle of the outer pixels if they are `aligned`, else at their outer edges.
    """
    n = tensor.ndim - 2
    if mode not in MODES or edge not in EDGES:
        raise ValueError(f"grid_sample by {mode!r} with {edge!r}; there are {', '.join(MODES)} with {', '.join(EDGES)}")
    if n < 1 or grid.ndim != n + 2 or grid.shape[-1] != n or grid.shape[0] != tensor.shape[0]:
        raise ValueError(f"grid_sample of {list(tensor.shape)} by {list(grid.shape)}: (N, C, …) and (N, …, {n})")
    points = grid.reshape((tensor.shape[0], total(grid.shape[1:-1]), n))
    coordinates = []
    for axis, one in enumerate(tensor.shape[2:]):
        size = number_of(one, "grid_sample")
        at = points[..., n - 1 - axis]
        pixel = (at + 1) / 2 * (size - 1) if aligned else ((at + 1) * size - 1) / 2
        if MODES[mode] != "cubic":
            pixel = _kept(pixel, size, edge, aligned=aligned)
        coordinates.append(pixel)
    made = sampled(tensor, coordinates, MODES[mode], edge, aligned=aligned)
    return made.reshape((*tensor.shape[:2], *grid.shape[1:-1]))


def _kept(pixel: Tensor, size: int, edge: str, *, aligned: bool) -> Tensor:
    """Return coordinates themselves brought inside, as modes other than cubic have it."""
    if edge == "border":
        return pixel.clip(0, size - 1)
    return _reflected(pixel, size, aligned=aligned).clip(0, size - 1) if edge == "reflection" else pixel


def affine_grid(theta: Tensor, sizes: Sequence[int], *, aligned: bool, alone: float) -> Tensor:
    """Return the grid of points (N, …, axes) that affine maps (N, axes, axes + 1) make of those of an image of these
    `sizes` of its axes. The only point of an axis lies at `alone` if the outer pixels are `aligned`.
    """
    axes = []
    for count in sizes:
        steps = np.arange(count, dtype=np.float64)
        if aligned:
            axes.append(steps * (2 / (count - 1)) - 1 if count > 1 else steps + alone)
        else:
            axes.append((steps * 2 + 1) / count - 1)
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(tuple(sizes))], -1).reshape(-1, len(sizes) + 1)
    made = Tensor(points).cast(theta.dtype).matmul(theta.mT)
    return made.reshape((theta.shape[0], *sizes, len(sizes)))
