"""Statistics, comparison within a tolerance, norms and distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.complex_numbers.parts import each
from ringup.compiler.tensor.conversions import UNSIGNED, narrowed, widened
from ringup.compiler.tensor.core import Axes, Core, number_of
from ringup.compiler.tensor.movement import cut
from ringup.compiler.tensor.reductions import corrected, drop_axes, in_statistics

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


def var_mean(
    tensor: Tensor, axis: Axes = None, *, correction: float | None = None, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean along axes."""
    axis, correction = corrected(axis, correction)
    return tensor.var(axis, correction=correction, keepdims=keepdims), tensor.mean(axis, keepdims=keepdims)


def std_mean(
    tensor: Tensor, axis: Axes = None, *, correction: float | None = None, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean along axes."""
    axis, correction = corrected(axis, correction)
    return tensor.std(axis, correction=correction, keepdims=keepdims), tensor.mean(axis, keepdims=keepdims)


def nansum(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the sum along axes of the elements that are not NaN."""
    return tensor.isnan().where(tensor.full_like(0), tensor).sum(axis, keepdims=keepdims)


def nanmean(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the mean along axes of the elements that are not NaN; NaN where all are."""
    if not tensor.dtype.is_inexact:
        return tensor.mean(axis, keepdims=keepdims)
    x = in_statistics(tensor)
    count = (~x.isnan()).sum(axis, keepdims=keepdims).cast(x.dtype)
    if x.dtype.is_complex:
        return nansum(x, axis, keepdims=keepdims) / count
    return narrowed(nansum(x, axis, keepdims=keepdims) / count, tensor)


def nan_to_num(tensor: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Return it with NaN and the infinities replaced, these by the greatest and the least finite number unless
    given.
    """
    if tensor.dtype.is_complex:
        return each(tensor, lambda part: nan_to_num(part, nan, posinf, neginf))
    if not tensor.dtype.is_float:
        return tensor
    most = float(tensor.dtype.max)
    made = tensor.isnan().where(tensor.full_like(nan), tensor)
    if tensor.dtype is dtypes.float8_e4m3:
        return made
    made = tensor.eq(math.inf).where(tensor.full_like(most if posinf is None else posinf), made)
    return tensor.eq(-math.inf).where(tensor.full_like(-most if neginf is None else neginf), made)


def isclose(tensor: Tensor, other: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Tensor:
    """Return where it is within `atol + rtol |other|` of another, infinities only where they are equal; NaN is close to
    NaN with `equal_nan`.
    """
    if not rtol >= 0 or not atol >= 0:
        raise ValueError(f"isclose within {rtol} and {atol}: tolerances of 0 or more")
    fitted = tensor._fit(other)
    exact = fitted[0].eq(fitted[1])
    x, y = (in_statistics(one) for one in fitted)
    apart = (x - y).abs()
    if fitted[0].dtype.is_integer:
        # the difference of integers of any size fits the unsigned type
        more = fitted[0].maximum(fitted[1]) - fitted[0].minimum(fitted[1])
        apart = more.bitcast(UNSIGNED[more.dtype.bits]).cast(y.dtype)
    made = (apart <= y.abs() * rtol + atol).logical_and(y.isfinite()).logical_or(exact)
    return made.logical_or(x.isnan() & y.isnan()) if equal_nan else made


def allclose(tensor: Tensor, other: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Tensor:
    """Return whether all elements are close to another's, as `isclose` has it, as a bool tensor."""
    return isclose(tensor, other, rtol, atol, equal_nan=equal_nan).all()


def equal(tensor: Tensor, other: Any) -> bool:
    """Return whether shapes and all elements are equal; it computes them."""
    y = tensor._lift(other, weak=False)
    return tensor.shape == y.shape and bool(tensor.eq(y).all())


def hypot(tensor: Tensor, other: Any) -> Tensor:
    """Return sqrt(x^2 + y^2) without overflow; infinite beside an infinity, also for NaN."""
    first, second = tensor._fit(other)
    x, y = widened(first), widened(second)
    a, b = x.abs(), y.abs()
    most, least = a.maximum(b), a.minimum(b)
    share = most.eq(0).where(0.0, least / most)
    infinite = x.isinf().logical_or(y.isinf())
    made = infinite.where(math.inf, most * (share * share + 1).sqrt())._with_rule(_hypot_rule, x, y)
    return narrowed(made, first)


def _hypot_rule(gradient: Tensor, result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return gradient * (x / result), gradient * (y / result)


def quantile(
    tensor: Tensor,
    q: float | Sequence[float] | Tensor,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """Return the q-th quantile (0 to 1) along an axis, of all elements for None, NaN where there is one. Several are
    along a new first axis; a tensor of them is computed first.

    `interpolation` between neighbours: linear, lower, higher, nearest, midpoint.
    """
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"quantile has no interpolation {interpolation!r}; there are {', '.join(INTERPOLATIONS)}")
    wanted: Any = q.tolist() if isinstance(q, Core) else q
    if isinstance(wanted, (list, tuple)):
        parts = [quantile(tensor, one, axis, keepdims=keepdims, interpolation=interpolation) for one in wanted]
        return parts[0].stack(*parts[1:])
    part = float(wanted)
    if axis is None:
        found = quantile(tensor.flatten(), part, 0, interpolation=interpolation)
        return found.reshape((1,) * tensor.ndim) if keepdims else found
    if not 0 <= part <= 1:
        raise ValueError(f"the quantile {part}: 0 to 1")
    if tensor._is_one(axis):
        return cast("Tensor", tensor._as_one(quantile, part, 0))
    at = tensor._axis(axis)
    size = number_of(tensor.shape[at], "quantile")
    if size == 0:
        raise ValueError(f"quantile of {list(tensor.shape)} along axis {axis}: nothing is there")
    x = in_statistics(tensor.sort(at)[0])
    place = part * (size - 1)
    low, high = math.floor(place), math.ceil(place)
    low, high = {"lower": (low, low), "higher": (high, high), "nearest": (round(place),) * 2}.get(
        interpolation, (low, high)
    )
    first, second, last = (cut(x, at, i, i + 1) for i in (low, high, size - 1))
    weight = 0.5 if interpolation == "midpoint" else place - low
    made = first if low == high else first + (second - first) * weight
    made = narrowed(last.isnan().where(last, made), tensor)
    return made if keepdims else drop_axes(made, (at,))


# norms and distances


def normalize(tensor: Tensor, order: float = 2, axis: int = 1, *, eps: float = 1e-12) -> Tensor:
    """Return it divided by its norm along an axis, by `eps` where the norm is less."""
    x = widened(tensor)
    return narrowed(x / x.norm(order, axis, keepdims=True).maximum(eps), tensor)


def cosine_similarity(tensor: Tensor, other: Any, axis: int = 1, *, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between two tensors along an axis; norms count as `eps` at least."""
    x, y = (widened(one) for one in tensor._fit(other))
    norms = x.norm(2, axis).maximum(eps) * y.norm(2, axis).maximum(eps)
    return narrowed((x * y).sum(axis) / norms, tensor)


def cdist(tensor: Tensor, other: Any, order: float = 2, compute_mode: str | None = None) -> Tensor:
    """Return the distance of every row of (…, P, M) from every row of another's (…, R, M), as (…, P, R). It is that of
    the differences whatever PyTorch's `compute_mode` says.
    """
    y = tensor._lift(other, weak=False)
    if tensor.ndim < 2 or y.ndim < 2 or tensor.shape[-1] != y.shape[-1]:
        raise ValueError(f"cdist of {list(tensor.shape)} and {list(y.shape)}: (…, P, M) and (…, R, M)")
    return (tensor.unsqueeze(-2) - y.unsqueeze(-3)).norm(order, -1)


def dist(tensor: Tensor, other: Any, order: float = 2) -> Tensor:
    """Return the norm of the difference of two tensors."""
    return tensor.sub(other).norm(order)
