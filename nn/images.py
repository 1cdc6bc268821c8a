"""Edges, resampling and rearranged images as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn.functional.spatial import PerAxis
from ringup.nn.module import Module


class _Pad(Module):
    """Edges of the last axes; `padding` is one width for all, or (before, after) of the last axis, then of the one
    before it, and so on.
    """

    axes: ClassVar[int]
    mode: ClassVar[str]
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        """Make a layer."""
        self.padding = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 2 * self.axes:
            raise ValueError(f"{type(self).__name__} of {padding}: one width, or {2 * self.axes}")

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with its edges."""
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        """Return the widths."""
        return str(self.padding)


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        """Make a layer."""
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """Return the widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Edges of (…, L) of one value."""

    axes = 1


class ConstantPad2d(_ConstantPad):
    """Edges of (…, H, W) of one value."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """Edges of (…, D, H, W) of one value."""

    axes = 3


class ZeroPad1d(_Pad):
    """Edges of (…, L) of zeros."""

    axes, mode = 1, "constant"


class ZeroPad2d(_Pad):
    """Edges of (…, H, W) of zeros."""

    axes, mode = 2, "constant"


class ZeroPad3d(_Pad):
    """Edges of (…, D, H, W) of zeros."""

    axes, mode = 3, "constant"


class ReflectionPad1d(_Pad):
    """Edges of (…, L) mirrored, without the edge itself."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Edges of (…, H, W) mirrored, without the edge itself."""

    axes, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Edges of (…, D, H, W) mirrored, without the edge itself."""

    axes, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Edges of (…, L) that repeat the outermost elements."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Edges of (…, H, W) that repeat the outermost elements."""

    axes, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Edges of (…, D, H, W) that repeat the outermost elements."""

    axes, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Edges of (…, L) from the other side."""

    axes, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Edges of (…, H, W) from the other side."""

    axes, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Edges of (…, D, H, W) from the other side."""

    axes, mode = 3, "circular"


class Upsample(Module):
    """(N, C, …) with the other axes resampled."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        """Make a layer that gives a size, or scales."""
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, input: Tensor) -> Tensor:
        """Return the input resampled."""
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        """Return the size and the mode."""
        size = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{size}, mode={self.mode!r}"


class Unfold(Module):
    """The windows of (N, C, H, W) as columns."""

    def __init__(self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1) -> None:
        """Make a layer."""
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, C taps, windows)."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class UpsamplingNearest2d(Upsample):
    """(N, C, H, W) resampled to the nearest elements."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        """Make a layer that gives a size, or scales."""
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """(N, C, H, W) resampled linearly between neighbours, the corners kept."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        """Make a layer that gives a size, or scales."""
        super().__init__(size, scale_factor, "bilinear", True)


class Fold(Module):
    """Windows as columns (N, C taps, windows), added up to (N, C, H, W)."""

    def __init__(
        self,
        output_size: PerAxis,
        kernel_size: PerAxis,
        dilation: PerAxis = 1,
        padding: PerAxis = 0,
        stride: PerAxis = 1,
    ) -> None:
        """Make a layer."""
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, C, H, W)."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class ChannelShuffle(Module):
    """(N, C, …) with the channels of all groups in turn."""

    def __init__(self, groups: int) -> None:
        """Make a layer."""
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """Return the input rearranged."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """Return the number of groups."""
        return f"groups={self.groups}"


class PixelShuffle(Module):
    """(…, C r^2, H, W) as (…, C, H r, W r)."""

    def __init__(self, upscale_factor: int) -> None:
        """Make a layer."""
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the input rearranged."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """Return the factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(…, C, H r, W r) as (…, C r^2, H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        """Make a layer."""
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the input rearranged."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """Return the factor."""
        return f"downscale_factor={self.downscale_factor}"
