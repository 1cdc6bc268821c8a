"""Convolutions, pooling, edges and resampling, with PyTorch's names and arguments. A missing batch axis is added and
taken away again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ringup.compiler.tensor import movement
from ringup.compiler.tensor.composed import pooling
from ringup.compiler.tensor.tensor import Tensor

PerAxis: TypeAlias = int | Sequence[int]


def per_axis(value: PerAxis, n: int, what: str) -> tuple[int, ...]:
    """Return one number for each of `n` axes."""
    made = (value,) if isinstance(value, int) else tuple(value)
    made = made * n if len(made) == 1 else made
    if len(made) != n:
        raise ValueError(f"{what} of {value} for {n} axes: one for all or one for each")
    return made


def _batched(input: Tensor, n: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what is computed of (N, C, …), for (C, …) too."""
    if input.ndim == n + 1:
        made = compute(input.unsqueeze(0))
        return made.reshape(made.shape[1:])
    return compute(input)


# convolutions


def _conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis | str,
    dilation: PerAxis,
    groups: int,
    n: int,
) -> Tensor:
    if weight.ndim != n + 2:
        raise ValueError(f"conv{n}d with a weight of {list(weight.shape)}: {n + 2} axes")
    return _batched(
        input,
        n,
        lambda x: x.conv(weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups),
    )


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of (N, C, L) with (outputs, C / groups, taps)."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of (N, C, H, W) with (outputs, C / groups, taps, taps)."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of (N, C, D, H, W) with (outputs, C / groups, taps, taps, taps)."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 3)


def _conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis,
    output_padding: PerAxis,
    groups: int,
    dilation: PerAxis,
    n: int,
) -> Tensor:
    if weight.ndim != n + 2:
        raise ValueError(f"conv_transpose{n}d with a weight of {list(weight.shape)}: {n + 2} axes")
    return _batched(
        input,
        n,
        lambda x: x.conv_transpose(
            weight,
            bias,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            groups=groups,
            dilation=dilation,
        ),
    )


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """Return the transposed convolution of (N, C, L) with (C, outputs / groups, taps)."""
    return _conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """Return the transposed convolution of (N, C, H, W) with (C, outputs / groups, taps, taps)."""
    return _conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """Return the transposed convolution of (N, C, D, H, W) with (C, outputs / groups, taps, taps, taps)."""
    return _conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)


# edges


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Return it with edges added; `pad` holds (before, after) of the last axis, then of the one before it, and so on.

    `mode`: constant (`value`), reflect, replicate or circular. Negative widths cut off.
    """
    widths = [int(one) for one in pad]
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise ValueError(f"pad of {list(input.shape)} by {widths}: a pair for each axis, the last axis first")
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)]
    kept = [(0, 0)] * (input.ndim - len(pairs))
    return movement.pad(input, [*kept, *reversed(pairs)], 0 if value is None else value, mode)


# pooling


def max_pool(
    input: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: PerAxis,
    dilation: PerAxis,
    ceil: bool,
    n: int,
    indices: bool = False,
) -> Any:
    """Return the greatest of each window over the last `n` axes, and their places with `indices`."""
    sizes = per_axis(kernel, n, "kernel_size")
    _check_edges(sizes, per_axis(padding, n, "padding"), per_axis(dilation, n, "dilation"))
    return input.max_pool(sizes, stride or None, padding, dilation, ceil=ceil, return_indices=indices)


def max_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the greatest of each window of (…, L), and their places if asked for."""
    return max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, 1, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the greatest of each window of (…, H, W), and their places if asked for."""
    return max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, 2, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the greatest of each window of (…, D, H, W), and their places if asked for."""
    return max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, 3, return_indices)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return zeros with what max_pool1d made of (…, L) at the places it came from."""
    return pooling.max_unpool(input, indices, per_axis(kernel_size, 1, "kernel_size"), stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return zeros with what max_pool2d made of (…, H, W) at the places it came from."""
    return pooling.max_unpool(input, indices, per_axis(kernel_size, 2, "kernel_size"), stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return zeros with what max_pool3d made of (…, D, H, W) at the places it came from."""
    return pooling.max_unpool(input, indices, per_axis(kernel_size, 3, "kernel_size"), stride, padding, output_size)


def avg_pool(
    input: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: PerAxis,
    ceil: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    n: int,
) -> Tensor:
    """Return the mean of each window over the last `n` axes."""
    sizes = per_axis(kernel, n, "kernel_size")
    _check_edges(sizes, per_axis(padding, n, "padding"), (1,) * n)
    return input.avg_pool(
        sizes, stride or None, padding, ceil=ceil, count_padding=count_include_pad, divisor=divisor_override
    )


def _check_edges(sizes: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> None:
    """Refuse edges more than half a window wide: windows of nothing but padding are a mistake."""
    for size, side, spread in zip(sizes, padding, dilation, strict=True):
        if 2 * side > spread * (size - 1) + 1:
            raise ValueError(f"padding of {side} beside windows of {size}, {spread} apart: half of a window at most")


def avg_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of (…, L)."""
    return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, None, 1)


def avg_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window of (…, H, W)."""
    return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 2)


def avg_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window of (…, D, H, W)."""
    return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 3)


def lp_pool(input: Tensor, norm_type: float, kernel: PerAxis, stride: PerAxis | None, ceil: bool, n: int) -> Tensor:
    """Return the norm of each window over the last `n` axes."""
    return input.lp_pool(norm_type, per_axis(kernel, n, "kernel_size"), stride, ceil=ceil)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of that order of each window of (…, L)."""
    return lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of that order of each window of (…, H, W)."""
    return lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of that order of each window of (…, D, H, W)."""
    return lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 3)


def _of_channels(input: Tensor, n: int, sizes: int | Sequence[int | None]) -> Tensor:
    """Return (C, …) or (N, C, …) with `n` last axes as it is, others refused."""
    if input.ndim not in (n + 1, n + 2):
        raise ValueError(
            f"adaptive pooling of {list(input.shape)} to {sizes}: channels and {n} axes, or a batch of these"
        )
    return input


def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of that many parts of (…, L)."""
    return pooling.adaptive_avg_pool(_of_channels(input, 1, output_size), output_size, 1)


def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of that many parts of (…, H, W)."""
    return pooling.adaptive_avg_pool(_of_channels(input, 2, output_size), output_size, 2)


def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of that many parts of (…, D, H, W)."""
    return pooling.adaptive_avg_pool(_of_channels(input, 3, output_size), output_size, 3)


def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Return the greatest of that many parts of (…, L)."""
    return pooling.adaptive_max_pool(_of_channels(input, 1, output_size), output_size, 1, return_indices=return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Return the greatest of that many parts of (…, H, W)."""
    return pooling.adaptive_max_pool(_of_channels(input, 2, output_size), output_size, 2, return_indices=return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """Return the greatest of that many parts of (…, D, H, W)."""
    return pooling.adaptive_max_pool(_of_channels(input, 3, output_size), output_size, 3, return_indices=return_indices)
