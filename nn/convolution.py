"""Convolutions and transposed convolutions over one, two and three axes."""

from __future__ import annotations

import math
from typing import ClassVar

from ringup.compiler.tensor.core import DTypeLike
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.functional.spatial import PerAxis, per_axis
from ringup.nn.linear import empty
from ringup.nn.module import Module

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What both kinds share: sizes, parameters and their first values."""

    axes: ClassVar[int]
    transposed: ClassVar[bool] = False

    def _setup(
        self,
        channels: tuple[int, int],
        kernel_size: PerAxis,
        stride: PerAxis,
        dilation: PerAxis,
        groups: int,
        bias: bool,
        dtype: DTypeLike | None,
    ) -> None:
        self.in_channels, self.out_channels, self.groups = *channels, groups
        if groups < 1 or self.in_channels % groups or self.out_channels % groups:
            raise ValueError(f"{self.in_channels} to {self.out_channels} channels in {groups} groups: no multiples")
        self.kernel_size = per_axis(kernel_size, self.axes, "kernel_size")
        self.stride, self.dilation = per_axis(stride, self.axes, "stride"), per_axis(dilation, self.axes, "dilation")
        first, second = channels if self.transposed else channels[::-1]
        self.weight = empty(first, second // groups, *self.kernel_size, dtype=dtype)
        self.bias = empty(self.out_channels, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again, evenly up to 1 / sqrt(inputs of an output)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(init.fans(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", 0), ("output_padding", 0), ("dilation", 1)):
            value = vars(self).get(name, usual)
            if value not in (usual, (usual,) * self.axes):
                text += f", {name}={value}"
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += ", bias=False" if self.bias is None else ""
        mode = vars(self).get("padding_mode", "zeros")
        return text + (f", padding_mode={mode}" if mode != "zeros" else "")


class _Conv(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis | str = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; `padding` may be "same" or "valid", `padding_mode` zeros, reflect, replicate or circular."""
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"there is no padding_mode {padding_mode!r}; there are {', '.join(PADDING_MODES)}")
        self.padding = padding if isinstance(padding, str) else per_axis(padding, self.axes, "padding")
        self.padding_mode = padding_mode
        self._setup((in_channels, out_channels), kernel_size, stride, dilation, groups, bias, dtype)

    def _edges(self) -> list[int]:
        """Return the widths of the edges as `F.pad` takes them, the last axis first."""
        if isinstance(self.padding, str):
            reach = [tap * (size - 1) for tap, size in zip(self.dilation, self.kernel_size, strict=True)]
            pairs = [(one // 2, one - one // 2) if self.padding == "same" else (0, 0) for one in reach]
        else:
            pairs = [(one, one) for one in self.padding]
        return [width for pair in reversed(pairs) for width in pair]

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution of (N, C, …) or (C, …)."""
        function = (F.conv1d, F.conv2d, F.conv3d)[self.axes - 1]
        padding: PerAxis | str = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._edges(), self.padding_mode), 0
        return function(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Convolution of (N, C, L); weight (out_channels, in_channels / groups, taps)."""

    axes = 1


class Conv2d(_Conv):
    """Convolution of (N, C, H, W); weight (out_channels, in_channels / groups, taps, taps)."""

    axes = 2


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W); weight (out_channels, in_channels / groups, taps, taps, taps)."""

    axes = 3


class _ConvTranspose(_Convolution):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: PerAxis = 1,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; `output_padding` makes the result longer at its end."""
        self.padding = per_axis(padding, self.axes, "padding")
        self.output_padding = per_axis(output_padding, self.axes, "output_padding")
        self._setup((in_channels, out_channels), kernel_size, stride, dilation, groups, bias, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return the transposed convolution of (N, C, …) or (C, …)."""
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.axes - 1]
        return function(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (N, C, L); weight (in_channels, out_channels / groups, taps)."""

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (N, C, H, W); weight (in_channels, out_channels / groups, taps, taps)."""

    axes = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (N, C, D, H, W); weight (in_channels, out_channels / groups, taps, taps, taps)."""

    axes = 3
