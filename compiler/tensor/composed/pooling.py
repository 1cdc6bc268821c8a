"""Pooling over a stated number of axes: windows with the places of their greatest elements, and parts of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor import convolution, indexing
from ringup.compiler.tensor.convolution import PerAxis, per_axis, widths
from ringup.compiler.tensor.core import is_list, number_of, total, whole_number
from ringup.compiler.tensor.movement import cut

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


class Pooled(NamedTuple):
    """The greatest of each window, and their places in the plane of the last axes made one."""

    values: Tensor
    indices: Tensor


def _for(n: int, kernel: PerAxis) -> PerAxis:
    """Return the sizes of windows over a number of axes."""
    return kernel if is_list(kernel) else [whole_number(kernel, "a kernel")] * n


# the greatest of windows


def max_pool(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    *,
    ceil: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the greatest of each window over the last axes (two for a single number); `stride` is the kernel unless
    given. The gradient of a window goes to the first of its greatest elements, to its last NaN if there is one.

    With `return_indices` it is (values, indices): that element's place in the plane of the last axes, int32.
    """
    made = convolution.max_pool(tensor, kernel, stride, padding, dilation, ceil=ceil)
    if not return_indices:
        return made
    n = len(kernel) if is_list(kernel) else 2
    sizes, taps = per_axis(kernel, n, "kernel"), per_axis(dilation, n, "dilation")
    steps = sizes if stride is None else per_axis(stride, n, "stride")
    sides = widths(padding, sizes, steps, taps)
    rest = convolution.max_pool_taps(tensor, kernel, stride, padding, dilation, ceil=ceil)
    place, spread = rest * 0, 1
    # from the last axis on: the tap along it, and how far apart neighbours of the plane lie
    for i in reversed(range(n)):
        axis = tensor.ndim - n + i
        starts = rest._counted(made.shape[axis]) * steps[i] - sides[i][0]
        starts = starts.reshape(tuple(-1 if j == axis else 1 for j in range(tensor.ndim)))
        place = place + (starts + rest % sizes[i] * taps[i]) * spread
        rest, spread = rest // sizes[i], spread * number_of(tensor.shape[axis], "max_pool")
    return Pooled(made, place)


def max_pool1d(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    *,
    ceil: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the greatest of each window over the last axis; see `max_pool`."""
    return max_pool(tensor, _for(1, kernel), stride, padding, dilation, ceil=ceil, return_indices=return_indices)


def max_pool3d(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    *,
    ceil: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the greatest of each window over the last three axes; see `max_pool`."""
    return max_pool(tensor, _for(3, kernel), stride, padding, dilation, ceil=ceil, return_indices=return_indices)


def max_unpool(
    tensor: Tensor,
    indices: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[Int] | None = None,
) -> Tensor:
    """Return zeros with the elements that `max_pool` took at the places they came from: the least plane that they come
    from, or one of `output_size`, less than a stride larger or smaller.
    """
    n = len(kernel) if is_list(kernel) else 2
    sizes = per_axis(kernel, n, "kernel")
    steps = sizes if stride is None else per_axis(stride, n, "stride")
    sides = widths(padding, sizes, steps, [1] * n)
    if indices.shape != tensor.shape or tensor.ndim < n:
        raise ValueError(f"max_unpool of {list(tensor.shape)} by places {list(indices.shape)}: the same shape")
    lead = tensor.shape[:-n]
    lengths = zip(tensor.shape[-n:], sizes, steps, sides, strict=True)
    plane = [(number_of(one, "max_unpool") - 1) * step + size - a - b for one, size, step, (a, b) in lengths]
    if output_size is not None:
        wanted = [whole_number(one, "a size") for one in output_size[-n:]]
        if len(wanted) != n or any(abs(a - b) >= step for a, b, step in zip(wanted, plane, steps, strict=True)):
            raise ValueError(f"max_unpool to {list(output_size)}: less than {steps} from {plane}")
        plane = wanted
    room = tensor._constant(0, tensor.dtype, (*lead, total(plane)))
    flat = (*lead, total(tensor.shape[-n:]))
    return indexing.scatter(room, -1, indices.reshape(flat), tensor.reshape(flat)).reshape((*lead, *plane))


def max_unpool1d(
    tensor: Tensor,
    indices: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[Int] | None = None,
) -> Tensor:
    """Return what `max_pool1d` took at the places it came from; see `max_unpool`."""
    return max_unpool(tensor, indices, _for(1, kernel), stride, padding, output_size)


def max_unpool3d(
    tensor: Tensor,
    indices: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[Int] | None = None,
) -> Tensor:
    """Return what `max_pool3d` took at the places it came from; see `max_unpool`."""
    return max_unpool(tensor, indices, _for(3, kernel), stride, padding, output_size)


# the mean of windows


def avg_pool1d(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    *,
    ceil: bool = False,
    count_padding: bool = True,
) -> Tensor:
    """Return the mean of each window over the last axis; see `avg_pool`."""
    return convolution.avg_pool(tensor, _for(1, kernel), stride, padding, ceil=ceil, count_padding=count_padding)


def avg_pool3d(
    tensor: Tensor,
    kernel: PerAxis = 2,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    *,
    ceil: bool = False,
    count_padding: bool = True,
) -> Tensor:
    """Return the mean of each window over the last three axes; see `avg_pool`."""
    return convolution.avg_pool(tensor, _for(3, kernel), stride, padding, ceil=ceil, count_padding=count_padding)


# parts of axes


def _parts(tensor: Tensor, sizes: int | Sequence[int | None], n: int) -> list[tuple[int, int]]:
    """Return the length of each of the last `n` axes and the number of its parts, checked."""
    wanted: list[int | None] = list(sizes) if is_list(sizes) else [whole_number(sizes, "a size")] * n
    if len(wanted) != n or tensor.ndim < n:
        raise ValueError(f"adaptive pooling to {sizes} over {n} axes: one size for all or one for each")
    lengths = [number_of(size, "adaptive pooling") for size in tensor.shape[-n:]]
    made = [
        (size, size if one is None else whole_number(one, "a size")) for size, one in zip(lengths, wanted, strict=True)
    ]
    for size, count in made:
        if count < 0 or (count and not size):
            raise ValueError(f"adaptive pooling of an axis of {size} to {count} parts: each part has an element")
    return made


def _ends(size: int, count: int) -> list[tuple[int, int]]:
    """Return where each part of an axis begins and ends: part i of k at i s / k, rounded down, to (i + 1) s / k,
    rounded up.
    """
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def adaptive_avg_pool(tensor: Tensor, sizes: int | Sequence[int | None], n: int) -> Tensor:
    """Return the means of as many parts as stated of each of the last `n` axes; None keeps an axis."""
    made = tensor
    for axis, (size, count) in enumerate(_parts(tensor, sizes, n), tensor.ndim - n):
        if count == size:
            continue
        if count == 0:
            made = cut(made, axis, 0, 0)
        elif size % count == 0:
            parts = made.unflatten(axis, (count, size // count))
            made = parts.mean(axis + 1)
        else:
            first, *rest = (
                cut(made, axis, start, stop).mean(axis, keepdims=True) for start, stop in _ends(size, count)
            )
            made = first.cat(*rest, axis=axis)
    return made


def adaptive_max_pool(
    tensor: Tensor, sizes: int | Sequence[int | None], n: int, *, return_indices: bool = False
) -> Any:
    """Return the greatest of as many parts as stated of each of the last `n` axes; None keeps an axis. Gradients and
    `return_indices` are `max_pool`'s.
    """
    parts = _parts(tensor, sizes, n)
    # parts of one length are windows side by side; of others the last element is repeated
    taken: list[list[int]] = []
    made, kernel = tensor, []
    for axis, (size, count) in enumerate(parts, tensor.ndim - n):
        ends = _ends(size, count)
        longest = max((stop - start for start, stop in ends), default=1)
        taken.append([min(start + i, stop - 1) for start, stop in ends for i in range(longest)])
        kernel.append(longest)
        if len(taken[-1]) != size or not count:
            made = made.index_select(axis, tensor._from_array(np.array(taken[-1], np.int32)))
    if not all(count for _, count in parts):
        return Pooled(made, made.cast(dtypes.int32)) if return_indices else made
    pooled = max_pool(made, kernel, return_indices=return_indices)
    if not return_indices or all(len(one) == size for one, (size, _) in zip(taken, parts, strict=True)):
        return pooled
    rest, spread, place = pooled.indices, 1, pooled.indices * 0
    for one, (size, _) in zip(reversed(taken), reversed(parts), strict=True):
        along = tensor._from_array(np.array(one, np.int32)).take(rest % len(one))
        place, rest, spread = place + along * spread, rest // len(one), spread * size
    return Pooled(pooled.values, place)


def adaptive_avg_pool1d(tensor: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of that many parts of the last axis."""
    return adaptive_avg_pool(tensor, output_size, 1)


def adaptive_avg_pool2d(tensor: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of that many parts of each of the last two axes."""
    return adaptive_avg_pool(tensor, output_size, 2)


def adaptive_avg_pool3d(tensor: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of that many parts of each of the last three axes."""
    return adaptive_avg_pool(tensor, output_size, 3)


def adaptive_max_pool1d(
    tensor: Tensor, output_size: int | Sequence[int | None], *, return_indices: bool = False
) -> Any:
    """Return the greatest of that many parts of the last axis; see `adaptive_max_pool`."""
    return adaptive_max_pool(tensor, output_size, 1, return_indices=return_indices)


def adaptive_max_pool2d(
    tensor: Tensor, output_size: int | Sequence[int | None], *, return_indices: bool = False
) -> Any:
    """Return the greatest of that many parts of each of the last two axes."""
    return adaptive_max_pool(tensor, output_size, 2, return_indices=return_indices)


def adaptive_max_pool3d(
    tensor: Tensor, output_size: int | Sequence[int | None], *, return_indices: bool = False
) -> Any:
    """Return the greatest of that many parts of each of the last three axes."""
    return adaptive_max_pool(tensor, output_size, 3, return_indices=return_indices)
