"""NumPy's functions of numbers: means, interpolation, polynomials, sets, what passes over NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.composed.numpy_shapes import as_tensor_of
from ringup.compiler.tensor.core import Axes, number_of
from ringup.compiler.tensor.tensor import Tensor


def average(a: Any, axis: Axes = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """Return the mean, weighted if weights are given: of the array's shape, or one for each place of the axis. With
    `returned`, also the sum of the weights.
    """
    tensor = as_tensor_of(a)
    wide = tensor if tensor.dtype.is_inexact else tensor.cast("float64" if tensor.dtype.bits > 16 else "float32")
    if weights is None:
        mean = wide.mean(axis, keepdims=keepdims)
        count = number_of(tensor.numel(), "average") / max(number_of(mean.numel(), "average"), 1)
        return (mean, mean.full_like(float(count))) if returned else mean
    shares = as_tensor_of(weights)
    if shares.shape != tensor.shape:
        if not isinstance(axis, int) or shares.ndim != 1 or shares.shape[0] != tensor.shape[tensor._axis(axis)]:
            raise ValueError(
                f"weights of shape {list(shares.shape)} for {list(tensor.shape)} along {axis}: of the same shape, or one"
                " for each place of one axis"
            )
        at = tensor._axis(axis)
        shares = shares.reshape(tuple(-1 if i == at else 1 for i in range(tensor.ndim))).expand(tensor.shape)
    whole = shares.cast(dtypes.promote(wide.dtype, shares.dtype)).sum(axis, keepdims=keepdims)
    mean = (wide * shares).sum(axis, keepdims=keepdims) / whole
    return (mean, whole) if returned else mean


def divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Return the floor of a quotient, and what is left."""
    first = as_tensor_of(x1)
    return first // x2, first % x2


def modf(x: Any) -> tuple[Tensor, Tensor]:
    """Return the parts behind and before the point, both with the sign of x."""
    tensor = as_tensor_of(x)
    wide = tensor if tensor.dtype.is_float else tensor.cast("float64" if tensor.dtype.bits > 16 else "float32")
    before = wide.trunc()
    return wide.isinf().where(wide.full_like(0), wide - before).copysign(wide), before


def geomspace(start: float, stop: float, num: int = 50, endpoint: bool = True) -> Tensor:
    """Return numbers whose quotients are equal, from `start` to `stop`."""
    if not start * stop > 0:
        raise ValueError(f"geomspace from {start} to {stop}: numbers of one sign, not 0")
    sign = math.copysign(1, start)
    inner = Tensor.linspace(math.log2(abs(start)), math.log2(abs(stop)), num if endpoint else num + 1, dtype="float64")
    made = (inner.exp2() * sign).cast("float32")
    # the ends are exact
    places = Tensor.arange(num if endpoint else num + 1)
    made = (places == 0).where(start, made)
    return (places == num - 1).where(stop, made) if endpoint and num > 1 else made[:num]


def interp(x: Any, xp: Any, fp: Any, left: float | None = None, right: float | None = None) -> Tensor:
    """Return values between points (xp, fp), whose xp rise, on straight lines; `left` and `right` beyond them, the
    outer values unless given.
    """
    at, known, values = as_tensor_of(x), as_tensor_of(xp), as_tensor_of(fp)
    if known.ndim != 1 or known.shape != values.shape or known.shape == (0,):
        raise ValueError(f"points of shapes {list(known.shape)} and {list(values.shape)}: two lines of equal length")
    kind = dtypes.promote(dtypes.promote(at.dtype, known.dtype), dtypes.promote(values.dtype, dtypes.float32))
    at, known, values = at.cast(kind), known.cast(kind), values.cast(kind)
    last = number_of(known.shape[0], "interp") - 1
    if last == 0:
        made = at * 0 + values[0]
    else:
        # the last of the points up to x begins the line
        place = (known.searchsorted(at, side="right") - 1).clip(0, last - 1)
        x0, x1, y0, y1 = (one.take(place + step) for one in (known, values) for step in (0, 1))
        made = y0 + (y1 - y0) / (x1 - x0) * (at - x0)
    made = (at >= known[last]).where(values[last], made)
    made = (at < known[0]).where(values[0] if left is None else left, made)
    made = (at > known[last]).where(values[last] if right is None else right, made)
    return at.isnan().where(math.nan, made)


def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    """Return which of the bins, whose edges rise or fall, a number lies in: before the first is 0."""
    edges = as_tensor_of(bins)
    count = number_of(edges.shape[0], "digitize")
    found = as_tensor_of(x)
    rising = edges.searchsorted(found, right=not right)
    if count < 2:
        return rising
    falling = count - edges.flip(0).searchsorted(found, right=not right)
    return (edges[0] <= edges[count - 1]).where(rising, falling)


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Return the convolution of two lines: all of it (full), as long as the longer one (same), or where they overlap
    whole (valid).
    """
    first, second = as_tensor_of(a), as_tensor_of(v)
    if first.ndim != 1 or second.ndim != 1 or not first.shape[0] or not second.shape[0]:
        raise ValueError(f"convolve of shapes {list(first.shape)} and {list(second.shape)}: two lines")
    if number_of(second.shape[0], "convolve") > number_of(first.shape[0], "convolve"):
        first, second = second, first
    n, m = number_of(first.shape[0], "convolve"), number_of(second.shape[0], "convolve")
    edges = {"full": (m - 1, m - 1), "same": ((m - 1) - (m - 1) // 2, (m - 1) // 2), "valid": (0, 0)}
    if mode not in edges:
        raise ValueError(f"a mode of {mode!r}; there are {', '.join(edges)}")
    kind = dtypes.promote(first.dtype, second.dtype)
    low, high = edges[mode]
    room = first.cast(kind).pad(((low, high),))
    count = n + low + high - m + 1
    taps = second.cast(kind).flip(0)
    return (room.unfold(0, m, 1)[:count] * taps).sum(-1).cast(kind)


def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Return the cross-correlation of two lines: the convolution with the second one turned around."""
    first, second = as_tensor_of(a), as_tensor_of(v)
    other = (second.conj() if second.dtype.is_complex else second).flip(0)
    made = convolve(first, other, mode)
    if mode == "same" and number_of(second.shape[0], "correlate") > number_of(first.shape[0], "correlate"):
        # NumPy exchanges the two, and the middle lies elsewhere where a count is even
        full = convolve(first, other, "full")
        n, m = number_of(first.shape[0], "correlate"), number_of(second.shape[0], "correlate")
        start = n // 2
        return full[start : start + m]
    return made


def polyval(p: Any, x: Any) -> Tensor:
    """Return the values of a polynomial; its highest coefficient comes first."""
    factors, at = as_tensor_of(p), as_tensor_of(x)
    made = at * 0
    for i in range(number_of(factors.shape[0], "polyval")):
        made = made * at + factors[i]
    return made


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """Return the powers of the elements of a line as rows, the highest first unless `increasing`."""
    line = as_tensor_of(x)
    if line.ndim != 1:
        raise ValueError(f"vander of {line.ndim} axes: one")
    count = number_of(line.shape[0], "vander") if N is None else N
    if count == 0:
        return line.unsqueeze(1)[:, :0]
    rows = [line.full_like(1)]
    for _ in range(count - 1):
        rows.append(rows[-1] * line)
    first, *rest = rows if increasing else reversed(rows)
    return first.stack(*rest, axis=1)


# over NaN


def _filled(a: Any, value: float) -> Tensor:
    tensor = as_tensor_of(a)
    return tensor.isnan().where(value, tensor) if tensor.dtype.is_inexact else tensor


def nanprod(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the product; NaN counts as 1."""
    return _filled(a, 1.0).prod(axis, keepdims=keepdims)


def nancumsum(a: Any, axis: int | None = None) -> Tensor:
    """Return running sums; NaN counts as 0. Flattened for None."""
    made = _filled(a, 0.0)
    return made.flatten().cumsum(0) if axis is None else made.cumsum(axis)


def nancumprod(a: Any, axis: int | None = None) -> Tensor:
    """Return running products; NaN counts as 1. Flattened for None."""
    made = _filled(a, 1.0)
    return made.flatten().cumprod(0) if axis is None else made.cumprod(axis)


def nanvar(a: Any, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """Return the variance of what is not NaN, divided by its count less `ddof`."""
    tensor = as_tensor_of(a)
    if not tensor.dtype.is_inexact:
        return tensor.var(axis, correction=ddof, keepdims=keepdims)
    known = tensor.isnan().logical_not()
    count = known.cast(tensor.dtype.part).sum(axis, keepdims=True)
    spread = known.where(tensor - _filled(tensor, 0.0).sum(axis, keepdims=True) / count, 0)
    squares = spread.abs().square().sum(axis, keepdims=keepdims)
    if not keepdims:
        count = count.reshape(squares.shape)
    return (count > ddof).where(squares / (count - ddof), math.nan)


def nanstd(a: Any, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation of what is not NaN; see `nanvar`."""
    return nanvar(a, axis, ddof, keepdims).sqrt()


def nanargmax(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the place of the greatest of what is not NaN; 0 where there is nothing else."""
    return _filled(a, -math.inf).argmax(axis, keepdims=keepdims)


def nanargmin(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the place of the least of what is not NaN; 0 where there is nothing else."""
    return _filled(a, math.inf).argmin(axis, keepdims=keepdims)


# sets, whose sizes are those of the values: they look at them


def union1d(ar1: Any, ar2: Any) -> Tensor:
    """Return the elements of either, in ascending order, each once."""
    found: Tensor = _joined(ar1, ar2).unique()
    return found


def intersect1d(ar1: Any, ar2: Any) -> Tensor:
    """Return the elements of both, in ascending order, each once."""
    first, second = as_tensor_of(ar1).flatten().unique(), as_tensor_of(ar2).flatten()
    found: Tensor = first[first.isin(second)]
    return found


def setdiff1d(ar1: Any, ar2: Any) -> Tensor:
    """Return the elements of the first that the second has not, in ascending order, each once."""
    first, second = as_tensor_of(ar1).flatten().unique(), as_tensor_of(ar2).flatten()
    found: Tensor = first[first.isin(second).logical_not()]
    return found


def setxor1d(ar1: Any, ar2: Any) -> Tensor:
    """Return the elements of one of the two, in ascending order, each once."""
    return union1d(setdiff1d(ar1, ar2), setdiff1d(ar2, ar1))


def _joined(ar1: Any, ar2: Any) -> Tensor:
    first, second = as_tensor_of(ar1).flatten(), as_tensor_of(ar2).flatten()
    kind = dtypes.promote(first.dtype, second.dtype)
    return first.cast(kind).cat(second.cast(kind))


def compress(condition: Any, a: Any, axis: int | None = None) -> Tensor:
    """Return the parts of an axis where a line of bools is true; of all elements for None. It looks at the bools."""
    tensor, mask = as_tensor_of(a), as_tensor_of(condition)
    if axis is None:
        tensor, axis = tensor.flatten(), 0
    return tensor.index_select(axis, mask.flatten().nonzero().flatten())


# windows


def _window(m: int, factors: Sequence[float]) -> Tensor:
    """Return a sum of cosines over m places, which begins and ends alike."""
    if m < 1:
        return Tensor.zeros(0)
    if m == 1:
        return Tensor.ones(1)
    turn = Tensor.arange(m).cast("float64") * (2 * math.pi / (m - 1))
    made = turn * 0
    for i, factor in enumerate(factors):
        made = made + (turn * i).cos() * factor
    return made.cast("float32")


def hanning(m: int) -> Tensor:
    """Return Hann's window of m places."""
    return _window(m, (0.5, -0.5))


def hamming(m: int) -> Tensor:
    """Return Hamming's window of m places."""
    return _window(m, (0.54, -0.46))


def blackman(m: int) -> Tensor:
    """Return Blackman's window of m places."""
    return _window(m, (0.42, -0.5, 0.08))


def bartlett(m: int) -> Tensor:
    """Return the triangle of m places, 0 at both ends."""
    if m < 2:
        return Tensor.ones(max(m, 0))
    places = Tensor.arange(m).cast("float32")
    return 1 - (places * (2 / (m - 1)) - 1).abs()
