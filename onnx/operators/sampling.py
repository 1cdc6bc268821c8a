"""Values between the pixels of images, at coordinates that are tensors: GridSample and AffineGrid."""

from __future__ import annotations

from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.composed import sampling
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, numbers


def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Return images at the points of a grid, whose coordinates go from -1 to 1."""
    mode, edge = node.get("mode", "linear"), node.get("padding_mode", "zeros")
    return sampling.grid_sample(x, grid, mode, edge, aligned=bool(node.get("align_corners", 0)))


def affine_grid(node: Node, theta: Tensor, size: Array) -> Tensor:
    """Return the grid of points that affine maps make of those of an image."""
    return sampling.affine_grid(theta, numbers(size)[2:], aligned=bool(node.get("align_corners", 0)), alone=-1.0)


ROWS = (
    Row("GridSample", grid_sample),
    Row("AffineGrid", affine_grid, host=(1,)),
)
