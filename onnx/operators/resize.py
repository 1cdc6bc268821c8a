"""Resize and Upsample: each axis by weights of a few of its elements, which the host works out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, known_size, numbers


class Axis(NamedTuple):
    """How one axis is resized: its sizes, the scale, and the part (start, end) that tf_crop_and_resize takes."""

    size: int
    result: int
    scale: float
    region: tuple[float, float]


def resize(
    node: Node, x: Tensor, region: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Tensor:
    """Return it interpolated at other sizes."""
    axes = [axis % x.ndim for axis in node.ints("axes", range(x.ndim))]
    have = [known_size(x.shape[axis], str(node)) for axis in axes]
    cropped = node.get("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    regions = [(0.0, 1.0)] * len(axes)
    if cropped and region is not None and region.size:
        regions = list(zip(*(half.tolist() for half in np.split(region.reshape(-1), 2)), strict=True))
    if sizes is not None and sizes.size:
        given = _kept_aspect(node, have, numbers(sizes))
        factors = [new / size for new, size in zip(given, have, strict=True)]
        if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            # one scale for all, before sizes were rounded
            wanted = [new / size for new, size in zip(numbers(sizes), have, strict=True)]
            common = min(wanted) if node.get("keep_aspect_ratio_policy") == "not_larger" else max(wanted)
            factors = [common] * len(have)
    else:
        assert scales is not None
        factors = [float(one) for one in scales.reshape(-1)]
        given = [
            math.floor(size * (end - start) * factor)
            for size, (start, end), factor in zip(have, regions, factors, strict=True)
        ]
    made = x
    for place, axis in enumerate(axes):
        made = _along(node, made, axis, Axis(have[place], int(given[place]), factors[place], regions[place]))
    return made.cast(x.dtype)


def _kept_aspect(node: Node, have: Sequence[int], wanted: list[Any]) -> list[int]:
    """Return the sizes that a policy of one scale for all axes makes of those given."""
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted
    factors = [new / size for new, size in zip(wanted, have, strict=True)]
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(factor * size + 0.5) for size in have]


def _along(node: Node, x: Tensor, axis: int, how: Axis) -> Tensor:
    """Return one axis resized."""
    if how.size == how.result and how.scale == 1 and how.region == (0.0, 1.0):
        return x
    at = coordinates(node, how)
    outside = None
    if node.get("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        outside = (at < 0) | (at > how.size - 1)
    places, weights = taps(node, at, how)
    if (weights == 1).all() and weights.shape[1] == 1:
        made = x.take(places[:, 0], axis)
    else:
        wide = x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        parts = [
            wide.take(places[:, i], axis) * Tensor(weights[:, i].astype(wide.dtype.numpy)).reshape(shape)
            for i in range(weights.shape[1])
        ]
        made = parts[0]
        for part in parts[1:]:
            made = made + part
    if outside is not None and outside.any():
        mask = Tensor(outside).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        made = mask.where(node.get("extrapolation_value", 0.0), made)
    return made


def coordinates(node: Node, how: Axis) -> Array:
    """Return where each element of the result lies along the axis of the input."""
    place = np.arange(how.result, dtype=np.float64)
    mode = node.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    whole = how.scale * how.size
    if mode == "align_corners":
        return place * ((how.size - 1) / (whole - 1)) if whole > 1 else place * 0
    if mode == "asymmetric":
        return place / how.scale
    if mode == "pytorch_half_pixel":
        return (place + 0.5) / how.scale - 0.5 if whole > 1 else place * 0
    if mode == "tf_half_pixel_for_nn":
        return (place + 0.5) / how.scale
    if mode == "tf_crop_and_resize":
        start, end = how.region
        if how.result > 1:
            return start * (how.size - 1) + place * (end - start) * (how.size - 1) / (how.result - 1)
        return place + 0.5 * (start + end) * (how.size - 1)
    if mode == "half_pixel_symmetric":
        moved = how.size / 2 * (1 - how.result / whole)
        return moved + (place + 0.5) / how.scale - 0.5
    if mode == "half_pixel":
        return (place + 0.5) / how.scale - 0.5
    raise node.refuse(f"the coordinates {mode!r}")


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def taps(node: Node, at: Array, how: Axis) -> tuple[Array, Array]:
    """Return the places and the weights of the elements that make each of the result."""
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        rounding = node.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
        # what division leaves beside a whole number or a half does not decide
        near = ROUNDINGS[rounding](np.round(at, 9))
        return np.clip(near, 0, how.size - 1).astype(np.int64)[:, None], np.ones((how.result, 1))
    stretch = max(1.0, 1 / how.scale) if node.get("antialias", 0) else 1.0
    reach = (2 if mode == "cubic" else 1) * stretch
    first = np.floor(at - reach).astype(np.int64) + 1
    places = first[:, None] + np.arange(math.ceil(2 * reach) + (stretch != 1))
    distance = np.abs(places - at[:, None]) / stretch
    a = node.get("cubic_coeff_a", -0.75)
    weights = _cubic(distance, a) if mode == "cubic" else np.maximum(1 - distance, 0)
    if node.get("exclude_outside", 0) or stretch != 1:
        if node.get("exclude_outside", 0):
            weights = np.where((places >= 0) & (places < how.size), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, how.size - 1), weights


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    made: Array = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    return made


def upsample(node: Node, x: Tensor, scales: Array | None = None) -> Tensor:
    """Return it resized by scales, from the corner of each pixel."""
    given = np.asarray(node.get("scales")) if scales is None else scales
    fixed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(node.with_attributes({**node.attributes, **fixed}), x, None, given)


def resize_by_scales(node: Node, x: Tensor, scales: Array) -> Tensor:
    """Return opset 10's Resize, which knows no sizes."""
    return upsample(node, x, scales)


ROWS = (
    Row("Resize", resize_by_scales, since=10, host=(1,)),
    Row("Resize", resize, since=11, host=(1, 2, 3)),
    Row("Upsample", upsample, host=(1,)),
)
