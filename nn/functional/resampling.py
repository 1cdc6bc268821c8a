"""Images resampled, cut into windows and rearranged, with PyTorch's names and arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ringup.compiler.tensor.composed import sampling
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.movement import windows_along
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn.functional.spatial import PerAxis, pad, per_axis


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Return (N, C, …) with the other axes resampled to `size`, or by factors, rounded down.

    `mode`: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area. With `recompute_scale_factor` elements
    lie as the rounded sizes have them, else as the factors.
    """
    if antialias:
        raise ValueError("interpolate takes antialias as False only: what is made smaller is not smoothed before")
    if recompute_scale_factor:
        if scale_factor is None or size is not None:
            raise ValueError("interpolate with recompute_scale_factor needs a scale_factor, and no size")
        lengths = [number_of(one, "interpolate") for one in input.shape[2:]]
        factors = [scale_factor] * len(lengths) if isinstance(scale_factor, (int, float)) else scale_factor
        size, scale_factor = [math.floor(a * b) for a, b in zip(lengths, factors, strict=True)], None
    return input.interpolate(size, mode, scale_factor=scale_factor, align_corners=align_corners)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Return (N, C, …) at the points of a grid (N, …, axes), whose coordinates go from -1 to 1, the last axis first.

    `mode`: bilinear, nearest, bicubic of two axes. `padding_mode`: zeros, border, reflection. With `align_corners`
    -1 and 1 are the middle of the outer pixels, else their outer edges.
    """
    if mode == "bicubic" and input.ndim != 4:
        raise ValueError(f"grid_sample of {list(input.shape)} by bicubic: (N, C, H, W)")
    return sampling.grid_sample(input, grid, mode, padding_mode, aligned=bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return the grid (N, …, axes) that affine maps (N, axes, axes + 1) make of an image of `size` (N, C, …)."""
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise ValueError(f"affine_grid of {list(theta.shape)} for {list(size)}: (N, axes, axes + 1), (N, C, …)")
    return sampling.affine_grid(theta, list(size[2:]), aligned=bool(align_corners), alone=0.0)


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Return what `interpolate` does."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Return (N, C, …) with each element repeated."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Return (N, C, H, W) resampled between neighbours, corners on corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def unfold(
    input: Tensor, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1
) -> Tensor:
    """Return the windows of (N, C, H, W) as columns: (N, C taps, windows)."""
    sizes, taps, sides, steps = (
        per_axis(one, 2, what)
        for one, what in (
            (kernel_size, "kernel_size"),
            (dilation, "dilation"),
            (padding, "padding"),
            (stride, "stride"),
        )
    )
    made = pad(input, [sides[1], sides[1], sides[0], sides[0]])
    # (N, C, outputs, taps, outputs, taps)
    for axis, place in ((2, 0), (4, 1)):
        made = windows_along(made, axis, sizes[place], steps[place], taps[place])
    n, c, high, _, wide, _ = made.shape
    return made.permute([0, 1, 3, 5, 2, 4]).reshape((n, c * sizes[0] * sizes[1], high * wide))


def fold(
    input: Tensor,
    output_size: PerAxis,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """Return (N, C, H, W) of the size `output_size` from windows as columns (N, C taps, windows): what `unfold` makes,
    added up.
    """
    whole, sizes, taps, sides, steps = (
        per_axis(one, 2, "fold") for one in (output_size, kernel_size, dilation, padding, stride)
    )
    reach = [tap * (size - 1) + 1 for tap, size in zip(taps, sizes, strict=True)]
    spans = [size + 2 * side - one for size, side, one in zip(whole, sides, reach, strict=True)]
    counts = [span // step + 1 for span, step in zip(spans, steps, strict=True)]
    area = sizes[0] * sizes[1]
    batch, rows, windows = (number_of(size, "fold") for size in input.shape)
    if rows % area or windows != counts[0] * counts[1]:
        raise ValueError(
            f"fold of {list(input.shape)}: a multiple of {area} rows, and {counts[0]} times {counts[1]} windows"
        )
    channels = rows // area
    # a transposed convolution whose taps are those of the windows
    one_tap = input.eye(area, dtype=input.dtype).reshape((area, 1, *sizes))
    weight = one_tap.unsqueeze(0).expand((channels, area, 1, *sizes)).reshape((rows, 1, *sizes))
    left = tuple(span % step for span, step in zip(spans, steps, strict=True))
    return input.reshape((batch, rows, *counts)).conv_transpose(
        weight, stride=steps, padding=sides, output_padding=left, dilation=taps, groups=channels
    )


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Return (N, C, …) with the channels of all groups in turn."""
    channels = number_of(input.shape[1], "channel_shuffle")
    if groups < 1 or channels % groups:
        raise ValueError(f"channel_shuffle of {list(input.shape)} in {groups} groups: no multiple")
    return input.unflatten(1, (groups, channels // groups)).transpose(1, 2).flatten(1, 2)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Return (…, C r^2, H, W) as (…, C, H r, W r)."""
    return input.pixel_shuffle(upscale_factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Return (…, C, H r, W r) as (…, C r^2, H, W)."""
    return input.pixel_unshuffle(downscale_factor)
