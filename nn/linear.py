"""Layers that are matrix products, and layers that only change the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.core import DTypeLike, as_dtype
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.module import Module
from ringup.nn.parameter import Parameter


def float_type(dtype: DTypeLike | None) -> DType:
    """Return the type of a layer's parameters, f32 unless given."""
    return dtypes.float32 if dtype is None else as_dtype(dtype)


def empty(*shape: int, dtype: DTypeLike | None = None) -> Parameter:
    """Return a parameter that is to be filled."""
    return Parameter(Tensor.empty(*shape, dtype=float_type(dtype)))


def constant(shape: Sequence[int], value: float, kind: DType) -> Parameter:
    """Return a parameter filled with one value."""
    made = Parameter(Tensor.empty(*shape, dtype=kind))
    init.constant_(made, value)
    return made


class Identity(Module):
    """What comes in goes out."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take anything, as the layer that it stands for."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return input


class Linear(Module):
    """x @ weight.T + bias; weight (out_features, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: DTypeLike | None = None) -> None:
        """Make a layer; weights and bias are drawn evenly up to 1 / sqrt(in_features)."""
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty(out_features, in_features, dtype=dtype)
        self.bias = empty(out_features, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return (…, out_features) of (…, in_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """The sums of x_i weight_kij y_j for each output k; weight (out_features, in1_features, in2_features)."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; weights and bias are drawn evenly up to 1 / sqrt(in1_features)."""
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = empty(out_features, in1_features, in2_features, dtype=dtype)
        self.bias = empty(out_features, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        bound = 1 / math.sqrt(self.in1_features)
        for one in self.parameters():
            init.uniform_(one, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return (…, out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{sizes}, out_features={self.out_features}, bias={self.bias is not None}"


class Flatten(Module):
    """Axes from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        """Make a layer."""
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the input in its new shape."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis as several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        """Make a layer; one of the sizes may be -1."""
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input in its new shape."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Return the axis and its sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
