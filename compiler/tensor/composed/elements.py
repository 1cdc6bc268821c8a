"""More functions of single elements and of places, under the names of PyTorch and NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor import elementwise, functions, indexing, movement, sorting
from ringup.compiler.tensor.complex_numbers.parts import each as each_part
from ringup.compiler.tensor.composed.parts import with_masked
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import Axes, Core, broadcast_shapes, is_list, number_of, whole_number
from ringup.compiler.tensor.memory import put
from ringup.compiler.tensor.reductions import in_statistics, places_along

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


# of single elements


def clamp_min(tensor: Tensor, low: Any) -> Tensor:
    """Return it held to `low` at least."""
    return elementwise.clip(tensor, low)


def clamp_max(tensor: Tensor, high: Any) -> Tensor:
    """Return it held to `high` at most."""
    return elementwise.clip(tensor, None, high)


def frac(tensor: Tensor) -> Tensor:
    """Return what is left of it after its whole part."""
    return tensor - tensor.trunc()


def deg2rad(tensor: Tensor) -> Tensor:
    """Return degrees as radians."""
    return tensor * (math.pi / 180)


def rad2deg(tensor: Tensor) -> Tensor:
    """Return radians as degrees."""
    return tensor * (180 / math.pi)


def logit(tensor: Tensor, eps: float | None = None) -> Tensor:
    """Return log(x / (1 - x)), x held between `eps` and 1 - `eps` if it is given."""
    x = widened(tensor)
    if eps is not None:
        # an eps above a half is a bound for all
        x = x.clip(eps, 1 - eps) if eps <= 0.5 else (x < eps).where(eps, 1 - eps)
    return narrowed(x.log() - (-x).log1p(), tensor)


def sinc(tensor: Tensor) -> Tensor:
    """Return sin(pi x) / (pi x), 1 at 0."""
    x = in_statistics(tensor) * math.pi if tensor.dtype.is_complex else widened(tensor) * math.pi
    zero = x.eq(0)
    return narrowed(zero.where(1.0, x.sin() / zero.where(1.0, x)), tensor)


def fmax(tensor: Tensor, other: Any) -> Tensor:
    """Return the greater of the two, the other one where one is NaN."""
    x, y = tensor._fit(other)
    return x.isnan().where(y, y.isnan().where(x, x.maximum(y)))


def fmin(tensor: Tensor, other: Any) -> Tensor:
    """Return the lesser of the two, the other one where one is NaN."""
    x, y = tensor._fit(other)
    return x.isnan().where(y, y.isnan().where(x, x.minimum(y)))


def logaddexp2(tensor: Tensor, other: Any) -> Tensor:
    """Return log2(2^x + 2^y) without overflow."""
    x, y = tensor._fit(other)
    return functions.logaddexp(x * math.log(2), y * math.log(2)) * (1 / math.log(2))


def heaviside(tensor: Tensor, values: Any) -> Tensor:
    """Return 0 below 0, 1 above, and `values` at 0."""
    x, y = tensor._fit(values)
    return x.eq(0).where(y, x.isnan().where(x, (x > 0).cast(x.dtype)))


def xlogy(tensor: Tensor, other: Any) -> Tensor:
    """Return x log(y), 0 where x is 0 and y is not NaN."""
    x, y = tensor._fit(other)
    nothing = x.eq(0) & ~y.isnan()
    return nothing.where(0.0, x * nothing.where(1.0, y).log())


def float_power(tensor: Tensor, other: Any) -> Tensor:
    """Return the power in f64, or complex128 where one of the two is complex."""
    # a number fits the wide type, whatever the tensor's is
    y = (tensor if tensor.dtype.is_complex else tensor.cast(dtypes.float64))._lift(other)
    kind = dtypes.complex128 if tensor.dtype.is_complex or y.dtype.is_complex else dtypes.float64
    return elementwise.power(tensor.cast(kind), y.cast(kind))


def prelu(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return x above 0, `weight` x below; several weights are for the channels, axis 1."""
    w = weight if weight.numel() == 1 or tensor.ndim < 2 else weight.reshape((1, -1, *[1] * (tensor.ndim - 2)))
    return (tensor > 0).where(tensor, tensor * w)


def softmin(tensor: Tensor, axis: int = -1) -> Tensor:
    """Return the softmax of minus x along an axis."""
    return (-tensor).softmax(axis)


def glu(tensor: Tensor, axis: int = -1) -> Tensor:
    """Return the first half along an axis times the sigmoid of the second."""
    at = tensor._axis(axis)
    size = number_of(tensor.shape[at], "glu")
    if size % 2:
        raise ValueError(f"glu of {list(tensor.shape)} along axis {axis}: two equal halves")
    return movement.cut(tensor, at, 0, size // 2) * movement.cut(tensor, at, size // 2, size).sigmoid()


def threshold(tensor: Tensor, limit: float, value: float) -> Tensor:
    """Return x above `limit`, `value` elsewhere, and NaN where x is."""
    return (tensor <= limit).where(tensor.full_like(value), tensor)


def cross(tensor: Tensor, other: Any, axis: int = -1) -> Tensor:
    """Return the vector product of vectors of 3 along an axis."""
    x, y = tensor._fit(other)
    at = x._axis(axis)
    if x.shape[at] != 3:
        raise ValueError(f"cross of {list(x.shape)} along axis {axis}: vectors of 3")
    ahead, behind = (movement.roll(one, -1, at) for one in (x, y)), (movement.roll(one, -2, at) for one in (y, x))
    (a, b), (c, d) = tuple(ahead), tuple(behind)
    return a * c - b * d


def nanmax(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the greatest along axes of the elements that are not NaN, NaN where all are."""
    if not tensor.dtype.is_float:
        return tensor.amax(axis, keepdims=keepdims)
    made = tensor.isnan().where(tensor.full_like(-math.inf), tensor).amax(axis, keepdims=keepdims)
    return tensor.isnan().all(axis, keepdims=keepdims).where(math.nan, made)


def nanmin(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the least along axes of the elements that are not NaN, NaN where all are."""
    if not tensor.dtype.is_float:
        return tensor.amin(axis, keepdims=keepdims)
    return -nanmax(-tensor, axis, keepdims=keepdims)


def percentile(
    tensor: Tensor, q: Any, axis: int | None = None, *, keepdims: bool = False, interpolation: str = "linear"
) -> Tensor:
    """Return quantiles in hundredths; see `quantile`."""
    wanted = q.tolist() if isinstance(q, Core) and hasattr(q, "tolist") else q
    shares = [one / 100 for one in wanted] if is_list(wanted) else wanted / 100
    return tensor.quantile(shares, axis, keepdims=keepdims, interpolation=interpolation)


def isposinf(tensor: Tensor) -> Tensor:
    """Return where it is infinity."""
    return tensor.isinf() & (tensor > 0)


def isneginf(tensor: Tensor) -> Tensor:
    """Return where it is minus infinity."""
    return tensor.isinf() & (tensor < 0)


# of places


def squeeze(tensor: Tensor, dim: Axes = None, *, axis: Axes = None) -> Tensor:
    """Return it without axes of size 1: all of them, or those named. One that is not 1 stays, along `axis` it is an
    error, as NumPy has it.
    """
    if axis is not None or dim is None:
        return movement.squeeze(tensor, axis)
    return movement.squeeze(tensor, [one for one in tensor._axes(dim) if tensor.shape[one] == 1])


def flip(tensor: Tensor, *axes: Any) -> Tensor:
    """Return it with axes reversed, all of them if none is named."""
    return movement.flip(tensor, axes[0] if len(axes) == 1 else axes or None)


def transpose(tensor: Tensor, first: Any = None, second: int | None = None) -> Tensor:
    """Return it with two axes swapped; with NumPy's tuple of all axes in that order, and without any with all of them
    in the reverse order.
    """
    if first is None:
        return movement.permute(tensor, tuple(range(tensor.ndim))[::-1])
    if isinstance(first, (tuple, list)) and second is None:
        return movement.permute(tensor, first)
    if second is None:
        raise TypeError(f"transpose of axis {first} alone: two axes, all of them in a tuple, or none")
    return movement.transpose(tensor, first, second)


def repeat(tensor: Tensor, *counts: Any, axis: int | None = None) -> Tensor:
    """Return it repeated whole along each axis; more counts than axes put new ones in front. Along `axis` it is
    NumPy's: each element repeated in place.
    """
    if axis is not None:
        return repeat_interleave(tensor, counts[0] if len(counts) == 1 else counts, axis)
    return movement.repeat(tensor, *counts)


def fliplr(tensor: Tensor) -> Tensor:
    """Return it with its second axis reversed."""
    return movement.flip(tensor, 1)


def flipud(tensor: Tensor) -> Tensor:
    """Return it with its first axis reversed."""
    return movement.flip(tensor, 0)


def rot90(tensor: Tensor, count: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Return it turned by a quarter `count` times, from the first of two axes to the second."""
    first, second = axes
    if tensor._axis(first) == tensor._axis(second):
        raise ValueError(f"rot90 of {list(tensor.shape)} between axes {first} and {second}: two axes")
    count = whole_number(count, "a count") % 4
    if count == 2:
        return movement.flip(tensor, (first, second))
    if count == 1:
        return movement.flip(movement.transpose(tensor, first, second), first)
    return movement.flip(movement.transpose(tensor, first, second), second) if count else tensor


def diff(tensor: Tensor, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return the differences of neighbours along an axis, those of the differences and so on `n` times. What stands
    before and behind the elements comes in first: tensors, or numbers.
    """
    if whole_number(n, "a count") < 0:
        raise ValueError(f"diff {n} times: 0 or more")
    if n == 0:
        return tensor
    at = tensor._axis(axis)
    edge = tuple(1 if i == at else size for i, size in enumerate(tensor.shape))
    around = [None if one is None else tensor._lift(one) for one in (prepend, append)]
    parts = [one if one is None or one.shape else one.expand(edge) for one in (around[0], tensor, around[1])]
    first, *rest = (one for one in parts if one is not None)
    made = movement.cat(first, *rest, axis=at)
    for _ in range(n):
        made = sorting.diff(made, axis)
    return made


def tensor_split(tensor: Tensor, sections: int | Sequence[int] | Tensor, axis: int = 0) -> list[Tensor]:
    """Return pieces along an axis: as many as a number says, whose sizes differ by 1 at most, or from one place of a
    list to the next. A tensor of these is computed first.
    """
    if isinstance(sections, Core):
        sections = cast("int | list[int]", sections.tolist())
    size = number_of(tensor.shape[tensor._axis(axis)], "tensor_split")
    if not is_list(sections):
        count = whole_number(sections, "a count")
        if count < 1:
            raise ValueError(f"tensor_split into {count} pieces: give 1 or more")
        return movement.split(tensor, [size // count + (i < size % count) for i in range(count)], axis)
    ends = [0, *(range(size)[:one].stop for one in sections), size]
    return [tensor.narrow(axis, min(a, b), max(b - a, 0)) for a, b in pairwise(ends)]


def repeat_interleave(tensor: Tensor, count: Any, axis: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Return each element repeated in place along `axis`, of the flattened tensor for None. Counts of their own, for
    each element, are computed first; `output_size` is what they add up to, which nothing needs to know.
    """
    if isinstance(count, Core):
        count = cast("Tensor", count).tolist()
    if not is_list(count):
        return movement.repeat_interleave(tensor, count, axis)
    if axis is None:
        return repeat_interleave(tensor.flatten(), count, 0)
    counts = np.asarray(count)
    size = number_of(tensor.shape[tensor._axis(axis)], "repeat_interleave")
    if counts.shape != (size,) or counts.min(initial=0) < 0:
        raise ValueError(f"repeat_interleave of {size} by counts {counts.tolist()}: one for each, none negative")
    return tensor.index_select(axis, np.repeat(np.arange(size), counts))


def masked_scatter(tensor: Tensor, mask: Tensor, source: Any) -> Tensor:
    """Return it with the elements of `source`, in order, where a mask is true."""
    values = indexing.of_its_kind(tensor, source, "masked_scatter").flatten()
    shape = broadcast_shapes(tensor.shape, mask.shape)
    return with_masked(tensor.expand(shape), tensor._of(mask._node).expand(shape), values)


def fill_diagonal_in_place(tensor: Tensor, value: Any) -> Tensor:
    """Set the diagonal of a matrix to a value, in place."""
    rows, columns = places_along(tensor, tensor.ndim - 2), places_along(tensor, tensor.ndim - 1)
    return put(tensor, tensor.masked_fill(rows.eq(columns), value))


def stride(tensor: Tensor, axis: int | None = None) -> Any:
    """Return how many elements apart neighbours along each axis lie, in row-major order; that of one axis if given."""
    made: list[Int] = []
    step: Int = 1
    for size in reversed(tensor.shape):
        made.insert(0, step)
        step = step * size
    return tuple(made) if axis is None else made[tensor._axis(axis)]


# of rows


def cov(
    tensor: Tensor,
    *,
    correction: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    rowvar: bool = True,
    bias: bool = False,
) -> Tensor:
    """Return the covariances of variables, the rows, over observations, the columns (the other way round without
    `rowvar`); of one variable its variance. `fweights` counts how often each observation was made, `aweights` are
    weights. Sums are divided by the count less `correction`: 1 unless given, 0 for `bias`.
    """
    correction = int(not bias) if correction is None else correction
    tensor = tensor.mT if not rowvar and tensor.ndim == 2 else tensor
    if tensor.ndim > 2:
        raise ValueError(f"cov of {list(tensor.shape)}: variables, observations")
    x = in_statistics(tensor if tensor.ndim > 1 else tensor.reshape((1, -1)))
    for one in (fweights, aweights):
        if one is not None and np.shape(one) != x.shape[1:]:
            raise ValueError(f"cov of {list(x.shape)} with weights {list(np.shape(one))}: one for each observation")
    counts, weights = (
        None if one is None else x._lift(one, weak=False).cast(x.dtype.part) for one in (fweights, aweights)
    )
    each = counts if weights is None else weights if counts is None else counts * weights
    if each is None:
        apart = x - x.mean(1, keepdims=True)
        made = apart.matmul(apart.mH) / max(number_of(x.shape[1], "cov") - correction, 0)
    else:
        whole = each.sum()
        apart = x - (x * each).sum(1, keepdims=True) / whole
        below = whole - correction * (1 if weights is None else (each * weights).sum() / whole)
        made = (apart * each).matmul(apart.mH) / below.maximum(0)
    return narrowed(made.reshape(()) if x.shape[0] == 1 else made, tensor)


def corrcoef(tensor: Tensor, *, rowvar: bool = True) -> Tensor:
    """Return the correlations of variables, the rows (the columns without `rowvar`), held between -1 and 1, each part
    of complex ones.
    """
    made = cov(tensor, rowvar=rowvar)
    if not made.shape:
        return made / made
    size = made.diagonal().real.sqrt()
    made = made / size.unsqueeze(1) / size.unsqueeze(0)
    return each_part(made, lambda part: part.clip(-1, 1)) if made.dtype.is_complex else made.clip(-1, 1)


def histc(tensor: Tensor, bins: int = 100, low: float = 0.0, high: float = 0.0) -> Tensor:
    """Return how many elements are in each of `bins` parts of equal width from `low` to `high`, both included; of the
    least and the greatest element, which are computed, if they are equal.
    """
    if low == high and tensor.numel():
        low, high = float(tensor.amin()), float(tensor.amax())
    low, high = (low - 1.0, high + 1.0) if low == high else (low, high)
    width = high - low
    x = widened(tensor).flatten()
    place = ((x - low) * (bins / width)).floor().int().minimum(bins - 1)
    inside = (x >= low) & (x <= high)
    return inside.where(place, bins).bincount(size=bins).cast(tensor.dtype)
