"""Axes folded to one value, running sums, differences."""

from __future__ import annotations

from ringup.array_api.arguments import Axis, Real
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import movement
from ringup.compiler.tensor.core import total, whole_number
from ringup.compiler.tensor.reductions import sum_dtype
from ringup.compiler.tensor.tensor import Tensor


def sum(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum along axes; narrow integers are summed in 32 bits."""
    return x.sum(axis, keepdims=keepdims, dtype=dtype)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the product along axes; narrow integers are multiplied in 32 bits."""
    return x.prod(axis, keepdims=keepdims, dtype=dtype)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the greatest along axes, NaN if there is one."""
    return x.amax(axis, keepdims=keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the least along axes, NaN if there is one."""
    return x.amin(axis, keepdims=keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the mean along axes."""
    return x.mean(axis, keepdims=keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: Real = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance along axes, divided by the count less `correction`; NaN where that is not above 0."""
    count = total(x.shape[one] for one in x._axes(axis))
    if isinstance(count, int) and count <= correction:
        return x.mean(axis, keepdims=keepdims).full_like(float("nan"))
    return x.var(axis, correction=correction, keepdims=keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: Real = 0.0, keepdims: bool = False) -> Tensor:
    """Return the square root of the variance."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether no element along axes is 0."""
    return x.all(axis, keepdims=keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along axes is not 0."""
    return x.any(axis, keepdims=keepdims)


# running sums and differences


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the running sum along an axis, after a 0 with `include_initial`."""
    at = _only_axis(x, axis, "cumulative_sum")
    return _after(_summed(x, dtype).cumsum(at), at, 0, include_initial, dtype)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the running product along an axis, after a 1 with `include_initial`."""
    at = _only_axis(x, axis, "cumulative_prod")
    return _after(_summed(x, dtype).cumprod(at), at, 1, include_initial, dtype)


def _only_axis(x: Tensor, axis: int | None, what: str) -> int:
    if axis is None and x.ndim != 1:
        raise ValueError(f"{what} of {list(x.shape)} without an axis: an array of one axis only")
    return 0 if axis is None else x._axis(axis)


def _summed(x: Tensor, dtype: DType | None) -> Tensor:
    """Return elements in the type that they are summed in."""
    return x.cast(sum_dtype(x) if dtype is None else dtype)


def _after(x: Tensor, axis: int, first: int, wanted: bool, dtype: DType | None) -> Tensor:
    """Return running values in the type asked for, after the value of no element if it is wanted."""
    made = x if dtype is None else x.cast(dtype)
    if not wanted:
        return made
    start = made._constant(first, made.dtype, tuple(1 if i == axis else size for i, size in enumerate(made.shape)))
    return movement.cat(start, made, axis=axis)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the differences of neighbours along an axis, `n` times over, after other arrays are joined to its
    ends.
    """
    if whole_number(n, "a count") < 0:
        raise ValueError(f"diff of order {n}: 0 at least")
    at = x._axis(axis)
    parts = [one for one in (prepend, x, append) if one is not None]
    made: Tensor = movement.cat(*parts, axis=at) if len(parts) > 1 else x
    for _ in range(n):
        made = _differences(made, at)
    return made.clone() if made is x else made


def _differences(x: Tensor, axis: int) -> Tensor:
    if x.dtype is dtypes.bool_:
        lead = (slice(None),) * axis
        return x[(*lead, slice(1, None))].ne(x[(*lead, slice(None, -1))])
    return x.diff(axis=axis)
