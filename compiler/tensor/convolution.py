"""Convolutions and pooling: windows of the padded input as views, then a contraction or a reduction over them.

A window's index is output * stride + tap * dilation along each axis (`movement.windows_along`), so a convolution is the
contraction of the matrix product with such indices. Layouts are (N, C, …) and (outputs, inputs / groups, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import is_list, number_of, total, whole_number
from ringup.compiler.tensor.linear import contract
from ringup.compiler.tensor.movement import add_edges, cut, pad, windows_along
from ringup.compiler.tensor.reductions import flat_root, in_statistics, over_count

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

PerAxis: TypeAlias = int | Sequence[int]
Widths: TypeAlias = "list[tuple[int, int]]"


def conv(
    tensor: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: PerAxis = 1,
    padding: PerAxis | str | Sequence[tuple[int, int]] = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution (cross-correlation) of (N, C, …) with weight (outputs, C / groups, …), as many axes as
    the weight has.

    `padding`: zeros on both sides, a pair for each axis, "same" (for a stride of 1) or "valid"; also twice as many
    numbers as axes, before and after the last axis, then the one before it, as nn.functional.pad has them. Negative
    ones cut off.
    """
    n = weight.ndim - 2
    _check_conv(tensor, weight, groups, n)
    steps, taps = per_axis(stride, n, "stride"), per_axis(dilation, n, "dilation")
    kernel = [number_of(size, "a convolution's weight") for size in weight.shape[2:]]
    tensor, sides = _cut_off(tensor, widths(padding, kernel, steps, taps, cutting=True))
    kind = dtypes.promote(tensor.dtype, weight.dtype)
    made = _conv(tensor.cast(kind), weight.cast(kind), steps, sides, taps, groups)
    return made if bias is None else made + bias.reshape((-1, *[1] * n))


def _cut_off(tensor: Tensor, sides: Widths) -> tuple[Tensor, Widths]:
    """Return it without what negative widths of its last axes cut off, and the widths that are left to add."""
    if all(one >= 0 for pair in sides for one in pair):
        return tensor, sides
    lead = [(0, 0)] * (tensor.ndim - len(sides))
    made = pad(tensor, [*lead, *((min(a, 0), min(b, 0)) for a, b in sides)])
    return made, [(max(a, 0), max(b, 0)) for a, b in sides]


def _check_conv(tensor: Tensor, weight: Tensor, groups: int, n: int) -> None:
    """Refuse a weight that does not fit over `n` axes."""
    if n < 1 or tensor.ndim != n + 2:
        raise ValueError(
            f"conv of {list(tensor.shape)} with weight {list(weight.shape)}: (N, C, …) and (outputs, C / groups, …) of equal rank"
        )
    if (
        whole_number(groups, "a count of groups") < 1
        or weight.shape[0] % groups != 0
        or weight.shape[1] * groups != tensor.shape[1]
    ):
        raise ValueError(
            f"conv of {list(tensor.shape)} with weight {list(weight.shape)} in {groups} groups: it takes {weight.shape[1] * groups} channels"
        )


def _conv(tensor: Tensor, weight: Tensor, steps: list[int], sides: Widths, taps: list[int], groups: int) -> Tensor:
    """Return the convolution of two tensors of one dtype that have been checked."""
    kernel = [number_of(size, "a convolution's weight") for size in weight.shape[2:]]
    padded = add_edges(tensor, [(0, 0), (0, 0), *sides])
    x = _window_view(padded, kernel, steps, taps)
    n = len(kernel)
    outputs = x.shape[2 : 2 + n]
    batch, channels = tensor.shape[0], tensor.shape[1]
    each = number_of(weight.shape[0], "conv") // groups
    x = x.reshape((batch, groups, 1, channels // groups, *outputs, *kernel))
    w = weight.reshape((1, groups, each, channels // groups, *[1] * n, *kernel))
    made = contract(x, w, [3, *range(4 + n, 4 + 2 * n)])
    made = made.reshape((batch, weight.shape[0], *outputs))
    rule = partial(_conv_rule, steps, sides, taps, groups)
    return made._with_rule(rule, tensor, weight) if made.dtype.is_float else made


def _window_view(tensor: Tensor, kernel: Sequence[int], steps: Sequence[int], taps: Sequence[int]) -> Tensor:
    """Return the windows over the last axes: (N, C, outputs…, taps…)."""
    n, lead = len(kernel), tensor.ndim - len(kernel)
    for i, (size, length) in enumerate(zip(kernel, tensor.shape[lead:], strict=True)):
        if number_of(length, "a window") < taps[i] * (size - 1) + 1:
            raise ValueError(
                f"windows of {list(kernel)} (dilation {list(taps)}) over {list(tensor.shape)}: larger than axis {lead + i}"
            )
    made = tensor
    for i in range(n):
        made = windows_along(made, lead + 2 * i, kernel[i], steps[i], taps[i])
    return made.permute([*range(lead), *(lead + 2 * i for i in range(n)), *(lead + 2 * i + 1 for i in range(n))])


def conv1d(tensor: Tensor, weight: Tensor, bias: Tensor | None = None, **how: Any) -> Tensor:
    """Return the convolution of (N, C, L); see `conv`."""
    _check_rank(weight, 3)
    return tensor.conv(weight, bias, **how)


def conv2d(tensor: Tensor, weight: Tensor, bias: Tensor | None = None, **how: Any) -> Tensor:
    """Return the convolution of (N, C, H, W); see `conv`."""
    _check_rank(weight, 4)
    return tensor.conv(weight, bias, **how)


def conv3d(tensor: Tensor, weight: Tensor, bias: Tensor | None = None, **how: Any) -> Tensor:
    """Return the convolution of (N, C, D, H, W); see `conv`."""
    _check_rank(weight, 5)
    return tensor.conv(weight, bias, **how)


def _check_rank(weight: Tensor, rank: int) -> None:
    """Refuse a weight of another number of axes."""
    if weight.ndim != rank:
        raise ValueError(f"conv{rank - 2}d with a weight of {list(weight.shape)}: {rank} axes")


def conv_transpose(
    tensor: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: PerAxis = 1,
    padding: PerAxis | Sequence[tuple[int, int]] = 0,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the transposed convolution of (N, C, …) with weight (C, outputs / groups, …): the gradient of `conv`
    by its input.
    """
    n = weight.ndim - 2
    if (
        n < 1
        or tensor.ndim != n + 2
        or weight.shape[0] != tensor.shape[1]
        or groups < 1
        or tensor.shape[1] % groups != 0
    ):
        raise ValueError(
            f"conv_transpose of {list(tensor.shape)} with weight {list(weight.shape)} in {groups} groups: they do not fit"
        )
    steps, taps = per_axis(stride, n, "stride"), per_axis(dilation, n, "dilation")
    more = per_axis(output_padding, n, "output_padding")
    kernel = [number_of(size, "a convolution's weight") for size in weight.shape[2:]]
    sides = widths(padding, kernel, steps, taps)
    lengths = [number_of(size, "conv_transpose") for size in tensor.shape[2:]]
    whole = [(length - 1) * step + tap * (size - 1) + 1 - a - b + extra
             for length, step, tap, size, (a, b), extra in zip(lengths, steps, taps, kernel, sides, more, strict=True)]  # fmt: skip
    kind = dtypes.promote(tensor.dtype, weight.dtype)
    made = _conv_back(tensor.cast(kind), weight.cast(kind), whole, steps, sides, taps, groups)
    return made if bias is None else made + bias.reshape((-1, *[1] * n))


def _conv_back(
    tensor: Tensor, weight: Tensor, whole: Sequence[Int], steps: list[int], sides: Widths, taps: list[int], groups: int
) -> Tensor:
    """Return a convolution's gradient by its input of sizes `whole`: zeros put between, then the convolution with
    the mirrored weight.
    """
    n = len(steps)
    spaced = tensor
    for i in range(n):
        spaced = _spaced(spaced, 2 + i, steps[i])
    kernel = [number_of(size, "a convolution's weight") for size in weight.shape[2:]]
    edges: Widths = []
    for i in range(n):
        reach = taps[i] * (kernel[i] - 1)
        before = reach - sides[i][0]
        after = number_of(whole[i], "conv") + reach - number_of(spaced.shape[2 + i], "conv") - before
        edges.append((before, after))
    outputs, each = weight.shape[0], weight.shape[1]
    grouped = weight.flip(tuple(range(2, 2 + n))).reshape((groups, outputs // groups, each, *kernel)).transpose(1, 2)
    mirrored = grouped.reshape((each * groups, outputs // groups, *kernel))
    padded = spaced.pad([(0, 0), (0, 0), *edges])
    return _conv(padded, mirrored, [1] * n, [(0, 0)] * n, taps, groups)


def _spaced(tensor: Tensor, axis: int, step: int) -> Tensor:
    """Return it with step - 1 zeros between neighbours along an axis."""
    if step == 1 or tensor.shape[axis] == 0:
        return tensor
    size = number_of(tensor.shape[axis], "zeros between")
    edges = [(0, step - 1) if i == axis + 1 else (0, 0) for i in range(tensor.ndim + 1)]
    made = add_edges(tensor.unsqueeze(axis + 1), edges)
    return cut(made.flatten(axis, axis + 1), axis, 0, (size - 1) * step + 1)


# pooling


def pooled(
    tensor: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: PerAxis,
    dilation: PerAxis,
    *,
    ceil: bool,
    value: Scalar,
    beyond: Scalar,
) -> tuple[Tensor, list[int]]:
    """Return (…, outputs…, taps…) of the last axes, edges filled with `value`, what `ceil` adds with `beyond`; and
    the axes of the taps.
    """
    n = len(kernel) if is_list(kernel) else 2
    sizes = per_axis(kernel, n, "kernel")
    steps = sizes if stride is None else per_axis(stride, n, "stride")
    taps = per_axis(dilation, n, "dilation")
    if tensor.ndim < n:
        raise ValueError(f"pooling of {list(tensor.shape)} by {sizes}: {n} axes at least")
    sides, lead = widths(padding, sizes, steps, taps), [(0, 0)] * (tensor.ndim - n)
    padded = add_edges(tensor, [*lead, *sides], value)
    if ceil:
        more = [(0, _ceil_extra(number_of(length, "pooling"), after, size, step, tap))
                for (_, after), length, size, step, tap in zip(sides, padded.shape[-n:], sizes, steps, taps, strict=True)]  # fmt: skip
        padded = add_edges(padded, [*lead, *more], beyond)
    made = _window_view(padded, sizes, steps, taps)
    return made, list(range(made.ndim - n, made.ndim))


def _ceil_extra(length: int, after: int, size: int, step: int, tap: int) -> int:
    """Return how much to add for one more, partly filled window; none that would start in the edge behind the
    input.
    """
    reach = tap * (size - 1) + 1
    count = -(-(length - reach) // step) + 1
    if (count - 1) * step >= length - after:
        count -= 1
    return max((count - 1) * step + reach - length, 0)


def max_pool(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    *,
    ceil: bool = False,
) -> Tensor:
    """Return the greatest of each window over the last axes (two for a single number); `stride` is the kernel
    unless given. The gradient of a window goes to the first of its greatest elements, to its last NaN if there is one.
    """
    least = tensor.dtype.least
    windows, axes = pooled(tensor, kernel, stride, padding, dilation, ceil=ceil, value=least, beyond=least)
    made = windows.amax(axes)
    if not made.dtype.is_float:
        return made

    rule = partial(_max_pool_rule, tuple(axes), partial(_inside, tensor, kernel, stride, padding, dilation, ceil))
    return made._with_rule(rule, windows)


def _inside(
    tensor: Tensor, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis, dilation: PerAxis, ceil: bool, n: int
) -> Tensor | None:
    """Return which elements of the windows over `n` axes are no edges; None for all."""
    if padding in (0, "valid") and not ceil:
        return None
    ones = tensor._constant(True, dtypes.bool_, (1,) * (tensor.ndim - n) + tensor.shape[-n:])
    return pooled(ones, kernel, stride, padding, dilation, ceil=ceil, value=False, beyond=False)[0]


def max_pool_taps(
    tensor: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    *,
    ceil: bool = False,
) -> Tensor:
    """Return the number, within its window, of the element that `max_pool` takes: the first of the greatest, the last
    NaN if there is one.
    """
    least = tensor.dtype.least
    windows, axes = pooled(tensor, kernel, stride, padding, dilation, ceil=ceil, value=least, beyond=least)
    result, n = windows.amax(axes, keepdims=True), len(axes)
    rank = _ranks(windows, axes, result, _inside(tensor, kernel, stride, padding, dilation, ceil, n)).amin(axes)
    return (rank < 0).where(-1 - rank, rank)


def _ranks(windows: Tensor, axes: Sequence[int], result: Tensor, inside: Tensor | None) -> Tensor:
    """Return numbers of which the least in each window is at the element that is taken; -1 less a place at NaN."""
    taps = total(windows.shape[axis] for axis in axes)
    places = windows._counted(taps).reshape(tuple(size if i in axes else 1 for i, size in enumerate(windows.shape)))
    hit = windows.eq(result)
    hit = hit if inside is None else hit.logical_and(inside)
    return windows.isnan().where(-1 - places, hit.where(places, taps))


def _max_pool_rule(
    axes: tuple[int, ...], inside: Callable[[int], Tensor | None], gradient: Tensor, result: Tensor, windows: Tensor
) -> tuple[Tensor]:
    kept = (*result.shape, *[1] * len(axes))
    ranks = _ranks(windows, axes, result.reshape(kept), inside(len(axes)))
    return (ranks.eq(ranks.amin(axes, keepdims=True)).where(gradient.reshape(kept), 0),)


def avg_pool(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    *,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Tensor:
    """Return the mean of each window; without `count_padding`, of its elements that are not padding. With a `divisor`
    it is the sum, divided by that.
    """
    made, axes = pooled(in_statistics(tensor), kernel, stride, padding, 1, ceil=ceil, value=0, beyond=0)
    summed = made.sum(axes)
    if divisor is not None:
        if divisor == 0:
            raise ValueError("avg_pool with a divisor of 0")
        return narrowed(over_count(summed, divisor), tensor)
    if count_padding and not ceil:
        count = math.prod(number_of(made.shape[axis], "pooling") for axis in axes)
        return narrowed(over_count(summed, count), tensor)
    n = len(axes)
    ones = tensor._constant(1.0, summed.dtype, (1,) * (tensor.ndim - n) + tensor.shape[-n:])
    counted, axes = pooled(ones, kernel, stride, padding, 1, ceil=ceil, value=float(count_padding), beyond=0.0)
    return narrowed(summed / counted.sum(axes), tensor)


def lp_pool(
    tensor: Tensor, order: float, kernel: PerAxis = 2, stride: PerAxis | None = None, *, ceil: bool = False
) -> Tensor:
    """Return the norm of that order of each window."""
    powers = widened(tensor).abs().pow(order)
    made, axes = pooled(powers, kernel, stride, 0, 1, ceil=ceil, value=0, beyond=0)
    return narrowed(flat_root(made.sum(axes), order), tensor)


def per_axis(value: PerAxis, n: int, what: str) -> list[int]:
    """Return one positive number for each of `n` axes."""
    made = list(value) if is_list(value) else [value]
    made = made * n if len(made) == 1 else made
    if len(made) != n or any(
        not isinstance(one, (int, np.integer)) or one < (what == "output_padding" and -1) + (what != "output_padding")
        for one in made
    ):
        raise ValueError(
            f"{what} of {value}: one whole number for all {n} axes or one for each, at least {int(what != 'output_padding')}"
        )
    return [whole_number(one, what) for one in made]


def widths(
    padding: PerAxis | str | Sequence[tuple[int, int]],
    kernel: list[int],
    steps: list[int],
    taps: list[int],
    *,
    cutting: bool = False,
) -> Widths:
    """Return padding as (before, after) for each axis, negative ones only where they are `cutting`."""
    n = len(kernel)
    if padding == "valid":
        return [(0, 0)] * n
    if padding == "same":
        if any(step != 1 for step in steps):
            raise ValueError(f'padding "same" with a stride of {steps}: only with a stride of 1')
        return [
            (tap * (size - 1) // 2, tap * (size - 1) - tap * (size - 1) // 2)
            for tap, size in zip(taps, kernel, strict=True)
        ]
    if isinstance(padding, str):
        raise ValueError(f'padding {padding!r}: a whole number, pairs, "same" or "valid"')  # noqa: TRY004
    given: list[Any] = list(padding) if is_list(padding) else [padding]
    given = given * n if len(given) == 1 else given
    if len(given) == 2 * n and not any(map(is_list, given)):
        # (before, after) of the last axis come first
        given = [(given[i], given[i + 1]) for i in reversed(range(0, 2 * n, 2))]
    if len(given) != n:
        raise ValueError(f"padding of {padding} for {n} axes: one for all or one for each")
    pairs = [tuple(one) if is_list(one) else (one, one) for one in given]
    made: Widths = [(whole_number(a, "padding"), whole_number(b, "padding")) for a, b in pairs]
    if not cutting and any(one < 0 for pair in made for one in pair):
        raise ValueError(f"padding of {padding}: none negative")
    return made


def _conv_rule(
    steps: list[int],
    sides: Widths,
    taps: list[int],
    groups: int,
    gradient: Tensor,
    _result: Tensor,
    x: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor]:
    by_input = _conv_back(gradient, weight, x.shape[2:], steps, sides, taps, groups)
    n = len(steps)
    kernel = [number_of(size, "conv") for size in weight.shape[2:]]
    windows = _window_view(add_edges(x, [(0, 0), (0, 0), *sides]), kernel, steps, taps)
    batch, channels, outputs = x.shape[0], x.shape[1], windows.shape[2 : 2 + n]
    each = number_of(weight.shape[0], "conv") // groups
    left = gradient.reshape((batch, groups, each, 1, *outputs, *[1] * n))
    right = windows.reshape((batch, groups, 1, channels // groups, *outputs, *kernel))
    by_weight = contract(left, right, [0, *range(4, 4 + n)], weight.dtype)
    return by_input, by_weight.reshape(weight.shape)
