"""Pooling, edges and resampling as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ringup.compiler.tensor.composed import pooling
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn.functional import spatial
from ringup.nn.functional.spatial import PerAxis
from ringup.nn.module import Module

# what a layer is shown without; as PyTorch has it
HIDDEN = ("training", "return_indices")


class _Windows(Module):
    axes: ClassVar[int]

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{name}={value}" for name, value in vars(self).items() if name not in HIDDEN)


class _MaxPool(_Windows):
    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        """Make a layer; `stride` is the kernel unless given."""
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """Return the greatest of each window, and their places with `return_indices`."""
        return spatial.max_pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.axes,
            self.return_indices,
        )  # fmt: skip


class _MaxUnpool(_Windows):
    def __init__(self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0) -> None:
        """Make a layer; `stride` is the kernel unless given."""
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Return zeros with the elements at the places that they were taken from."""
        sizes = spatial.per_axis(self.kernel_size, self.axes, "kernel_size")
        return input.max_unpool(indices, sizes, self.stride, self.padding, output_size)


class _AvgPool(_Windows):
    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        """Make a layer; `stride` is the kernel unless given."""
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """Return the mean of each window."""
        return spatial.avg_pool(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override, self.axes,
        )  # fmt: skip


class _LPPool(_Windows):
    def __init__(
        self, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
    ) -> None:
        """Make a layer; `stride` is the kernel unless given."""
        self.norm_type, self.kernel_size, self.ceil_mode = norm_type, kernel_size, ceil_mode
        self.stride = kernel_size if stride is None else stride

    def forward(self, input: Tensor) -> Tensor:
        """Return the norm of each window."""
        return spatial.lp_pool(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode, self.axes)


class _AdaptiveAvgPool(_Windows):
    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        """Make a layer; None keeps the size of an axis."""
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Return one mean for each part."""
        return pooling.adaptive_avg_pool(input, self.output_size, self.axes)


class _AdaptiveMaxPool(_Windows):
    def __init__(self, output_size: int | Sequence[int | None], return_indices: bool = False) -> None:
        """Make a layer; None keeps the size of an axis. With `return_indices` it gives places too."""
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        """Return the greatest of each part, and their places with `return_indices`."""
        return pooling.adaptive_max_pool(input, self.output_size, self.axes, return_indices=self.return_indices)


class MaxPool1d(_MaxPool):
    """The greatest of each window of (…, L)."""

    axes = 1


class MaxPool2d(_MaxPool):
    """The greatest of each window of (…, H, W)."""

    axes = 2


class MaxPool3d(_MaxPool):
    """The greatest of each window of (…, D, H, W)."""

    axes = 3


class MaxUnpool1d(_MaxUnpool):
    """What MaxPool1d took of (…, L), at the places it came from."""

    axes = 1


class MaxUnpool2d(_MaxUnpool):
    """What MaxPool2d took of (…, H, W), at the places it came from."""

    axes = 2


class MaxUnpool3d(_MaxUnpool):
    """What MaxPool3d took of (…, D, H, W), at the places it came from."""

    axes = 3


class AvgPool1d(_AvgPool):
    """The mean of each window of (…, L)."""

    axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of (…, H, W)."""

    axes = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of (…, D, H, W)."""

    axes = 3


class LPPool1d(_LPPool):
    """The norm of each window of (…, L)."""

    axes = 1


class LPPool2d(_LPPool):
    """The norm of each window of (…, H, W)."""

    axes = 2


class LPPool3d(_LPPool):
    """The norm of each window of (…, D, H, W)."""

    axes = 3


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of a stated number of parts of (…, L)."""

    axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of a stated number of parts of (…, H, W)."""

    axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of a stated number of parts of (…, D, H, W)."""

    axes = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest of a stated number of parts of (…, L)."""

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest of a stated number of parts of (…, H, W)."""

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest of a stated number of parts of (…, D, H, W)."""

    axes = 3
