"""Tensors from nothing: constants, ranges, random numbers, initial weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import Number, Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Shape
from ringup.compiler.tensor import random
from ringup.compiler.tensor.core import Core, DTypeLike, as_dtype, as_shape, number_of, whole_number
from ringup.compiler.tensor.random import Source

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def _plain(value: Any) -> Any:
    """Return a number of Python for one of NumPy, or for a tensor of one element, which is computed."""
    return cast("Any", value).item() if isinstance(value, (np.generic, Core)) else value


def full(cls: type[Tensor], shape: Int | Sequence[Int], value: Number, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor filled with one value, of the type of that value unless `dtype` is given; a ValueError where it
    does not fit.
    """
    value = _plain(value)
    kind = dtypes.of_scalar(value) if dtype is None else as_dtype(dtype)
    return cls._constant(dtypes.fitting(value, kind), kind, as_shape((shape,)))


def zeros(cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32) -> Tensor:
    """Return zeros."""
    return cls._constant(0, as_dtype(dtype), as_shape(sizes))


def ones(cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32) -> Tensor:
    """Return ones."""
    return cls._constant(1, as_dtype(dtype), as_shape(sizes))


def empty(cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32) -> Tensor:
    """Return memory of its own that nothing has been written to: before that, its elements may be anything."""
    made = cls._of(nodes.buffer(as_dtype(dtype), as_shape(sizes)))
    made._owns = True
    return made


def full_like(tensor: Tensor, value: Number, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of this shape (and type unless `dtype` is given) filled with one value; a ValueError where it
    does not fit.
    """
    value = _plain(value)
    kind = tensor.dtype if dtype is None else as_dtype(dtype)
    return tensor._constant(dtypes.fitting(value, kind), kind, tensor.shape)


def zeros_like(tensor: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros of this shape."""
    return tensor.full_like(0, dtype)


def ones_like(tensor: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return ones of this shape."""
    return tensor.full_like(1, dtype)


def arange(
    cls: type[Tensor],
    start: Scalar | Int,
    stop: Scalar | Int | None = None,
    step: Scalar = 1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return start, start + step, … before `stop` (from 0 for one argument). Unless given, the type is f32 where a
    float is among the three, and else int32, or int64 where the numbers do not fit that; a ValueError where they do not
    fit the type.
    """
    first, last = (_plain(one) for one in ((0, start) if stop is None else (start, stop)))
    step = _plain(step)
    if step == 0:
        raise ValueError("arange with a step of 0")
    if not all(math.isfinite(one) for one in (first, last, step) if isinstance(one, float)):
        raise ValueError(f"arange from {first} to {last} in steps of {step}: it ends nowhere")
    floats = any(isinstance(one, float) for one in (first, last, step))
    if isinstance(first, index.Expr) or isinstance(last, index.Expr):
        count = (
            -(-(cast("Int", last) - cast("Int", first)) // cast("int", step))
            if step == 1
            else (cast("Int", last) - cast("Int", first) + cast("int", step) - 1) // cast("int", step)
        )
    else:
        count = max(math.ceil((last - first) / step) if floats else int(-((first - last) // step)), 0)
    ends = _ends(first, count, step)
    kind = as_dtype(dtype) if dtype is not None else dtypes.float32 if floats else dtypes.of_range(*ends)
    if ends:
        dtypes.fitting(min(ends), kind)
        dtypes.fitting(max(ends), kind)
    if floats or kind.is_float:
        wide = dtypes.float64 if kind is dtypes.float64 or (kind.is_integer and kind.bits >= 32) else dtypes.float32
    else:
        # from 32 bits on, arithmetic that wraps ends at the right number
        wide = kind if kind.bits >= 32 else dtypes.int32
    large = kind in (dtypes.int64, dtypes.float64) or index.bounds(count)[1] >= 1 << 31
    made = cls._counted(count, dtypes.int64 if large else dtypes.int32).cast(wide)
    if step != 1:
        made = made * made._constant(step, made.dtype)
    # 0 times a negative step is -0.0
    if isinstance(first, index.Expr) or first != 0 or (wide.is_float and step < 0):
        made = made + (first if isinstance(first, index.Expr) else made._constant(first, made.dtype))
    return made.cast(kind)


def _ends(first: Scalar | Int, count: Int, step: Scalar) -> list[Scalar]:
    """Return the first and the last number of a range, those of the widest one where its ends are not known; nothing
    where it is empty.
    """
    low, high = (first, first) if isinstance(first, (int, float)) else index.bounds(first)
    most = index.bounds(count)[1] - 1
    return [] if most < 0 else [low, high, low + most * step, high + most * step]


def linspace(
    cls: type[Tensor],
    start: float,
    stop: float,
    count: int = 50,
    dtype: DTypeLike = dtypes.float32,
    *,
    endpoint: bool = True,
) -> Tensor:
    """Return `count` numbers from `start` to `stop`, both included, or without `stop` for `endpoint=False`, evenly
    spread; for integer types the floor of each.
    """
    if not endpoint:
        return cls.linspace(start, stop, whole_number(count, "a count") + 1, dtype)[:-1]
    count, start, stop = whole_number(count, "a count"), _plain(start), _plain(stop)
    if count < 0:
        raise ValueError(f"linspace of {count} numbers")
    kind = as_dtype(dtype)
    dtypes.fitting(start, kind)
    dtypes.fitting(stop, kind)
    places = cls._counted(count, dtypes.int64 if count >= 1 << 31 else dtypes.int32)
    wide = dtypes.float64 if kind is dtypes.float64 or (kind.is_integer and kind.bits >= 32) else dtypes.float32
    made = places.cast(wide) * ((stop - start) / max(count - 1, 1)) + float(start)
    made = (made.floor() if kind.is_integer else made).cast(kind)
    return places.eq(count - 1).where(made.full_like(stop), made) if count > 1 else made


def eye(
    cls: type[Tensor], rows: int, columns: int | None = None, dtype: DTypeLike = dtypes.float32, *, k: int = 0
) -> Tensor:
    """Return a matrix of ones on the diagonal, or on the k-th above it, zeros elsewhere."""
    down = cls._counted(rows).reshape((rows, 1)) + whole_number(k, "an offset")
    across = cls._counted(rows if columns is None else columns).reshape((1, -1))
    return down.eq(across).cast(as_dtype(dtype))


# random numbers


def rand(
    cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
) -> Tensor:
    """Return numbers evenly spread over [0, 1); of complex ones each part is."""
    if (kind := as_dtype(dtype)).is_complex:
        real, imag = (cls.rand(*sizes, dtype=kind.part, source=source) for _ in range(2))
        return real.complex(imag)
    kind = _float(dtype, "rand")
    first, second = random.words(cls, as_shape(sizes), source)
    return random.unit(first, second, kind)


def _ends_first(sizes: tuple[Any, ...], first: float, second: float) -> tuple[tuple[Any, ...], float, float]:
    """Return sizes and two parameters, which may stand in front of the sizes as one tuple."""
    if len(sizes) == 3 and isinstance(sizes[2], (tuple, list)):
        return sizes[2:], sizes[0], sizes[1]
    return sizes, first, second


def uniform(
    cls: type[Tensor],
    *sizes: Int | Sequence[Int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = dtypes.float32,
    source: Source | None = None,
) -> Tensor:
    """Return numbers evenly spread over [low, high); also `uniform(low, high, (2, 3))` as NumPy has it."""
    sizes, low, high = _ends_first(sizes, low, high)
    if not isinstance(low, Core) and not isinstance(high, Core) and low > high:
        raise ValueError(f"uniform from {low} to {high}: low is at most high")
    kind = _float(dtype, "uniform")
    wide = kind if kind is dtypes.float64 else dtypes.float32
    return (cls.rand(*sizes, dtype=wide, source=source) * (high - low) + low).cast(kind)


def randn(
    cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
) -> Tensor:
    """Return normally distributed numbers of mean 0 and variance 1; of complex ones each part has half of it."""
    if (kind := as_dtype(dtype)).is_complex:
        real, imag = (cls.randn(*sizes, dtype=kind.part, source=source) * math.sqrt(0.5) for _ in range(2))
        return real.complex(imag)
    kind = _float(dtype, "randn")
    first, second = random.words(cls, as_shape(sizes), source)
    return random.normal(first, second, kind)


def normal(
    cls: type[Tensor],
    *sizes: Int | Sequence[Int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DTypeLike = dtypes.float32,
    source: Source | None = None,
) -> Tensor:
    """Return normally distributed numbers of that mean and standard deviation; also `normal(mean, std, (2, 3))` as
    PyTorch and NumPy have it.
    """
    if 1 <= len(sizes) <= 2 and any(isinstance(one, Core) for one in sizes):
        return _normal_around(cls, sizes[0], sizes[1] if len(sizes) > 1 else std, source)
    sizes, mean, std = _ends_first(sizes, mean, std)
    if not isinstance(std, Core) and std < 0:
        raise ValueError(f"normal with a standard deviation of {std}: 0 or more")
    return (cls.randn(*sizes, dtype=dtype, source=source) * std + mean).cast(as_dtype(dtype))


def _normal_around(cls: type[Tensor], mean: Any, std: Any, source: Source | None) -> Tensor:
    """Return normally distributed numbers around each mean, of each standard deviation; they broadcast."""
    x, y = mean._fit(std) if isinstance(mean, Core) else reversed(std._fit(mean))
    kind = x.dtype if x.dtype.is_float else dtypes.float32
    made: Tensor = cls.randn(x.shape, dtype=kind, source=source) * y + x
    return made


def randint(
    cls: type[Tensor],
    *sizes: Int | Sequence[Int],
    low: int = 0,
    high: int | None = None,
    dtype: DTypeLike = dtypes.int32,
    source: Source | None = None,
) -> Tensor:
    """Return integers from `low` to before `high`; also `randint(low, high, (2, 3))` as PyTorch and NumPy have it."""
    if high is None:
        *ends, last = sizes if len(sizes) in (2, 3) else (None,)
        if not ends or not isinstance(last, (tuple, list)):
            raise TypeError("randint needs high: randint(2, 3, high=9), or randint(0, 9, (2, 3))")
        low, high = (0, *cast("list[int]", ends))[-2:]
        sizes = (last,)
    kind = as_dtype(dtype)
    # drawn as integers, which floats and bools hold where these are few enough
    drawn = kind if kind.is_integer else dtypes.of_range(low, high - 1)
    least, greatest = (-(1 << kind.mantissa_bits + 1), 1 << kind.mantissa_bits + 1) if kind.is_float else (0, 1)
    least, greatest = (int(kind.least), int(kind.greatest)) if kind.is_integer else (least, greatest)
    if low >= high or low < least or high - 1 > greatest:
        raise ValueError(f"randint from {low} to before {high} as {kind}: a type that holds them, low below high")
    first, second = random.words(cls, as_shape(sizes), source)
    return random.integers(first, second, low, high, drawn).cast(kind)


def randperm(cls: type[Tensor], count: int, source: Source | None = None) -> Tensor:
    """Return 0 … count - 1 in random order, int32."""
    return random.words(cls, as_shape((count,)), source)[0].argsort(0)


def bernoulli(tensor: Tensor, source: Source | None = None) -> Tensor:
    """Return 1 with the probability that each element states, else 0, in this type."""
    return (tensor.rand(tensor.shape, source=source) < tensor).cast(tensor.dtype)


def kaiming_uniform(
    cls: type[Tensor],
    *sizes: Int | Sequence[Int],
    slope: float = 0.0,
    dtype: DTypeLike = dtypes.float32,
    source: Source | None = None,
) -> Tensor:
    """Return initial weights (outputs, inputs, …) for relu and its like (He and others, 2015), evenly spread."""
    bound = math.sqrt(6 / ((1 + slope * slope) * _fans(as_shape(sizes))[0]))
    return cls.uniform(*sizes, low=-bound, high=bound, dtype=dtype, source=source)


def kaiming_normal(
    cls: type[Tensor],
    *sizes: Int | Sequence[Int],
    slope: float = 0.0,
    dtype: DTypeLike = dtypes.float32,
    source: Source | None = None,
) -> Tensor:
    """Return initial weights for relu and its like, normally distributed."""
    std = math.sqrt(2 / ((1 + slope * slope) * _fans(as_shape(sizes))[0]))
    return cls.normal(*sizes, std=std, dtype=dtype, source=source)


def xavier_uniform(
    cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
) -> Tensor:
    """Return initial weights for symmetric activations (Glorot and Bengio, 2010), evenly spread."""
    bound = math.sqrt(6 / sum(_fans(as_shape(sizes))))
    return cls.uniform(*sizes, low=-bound, high=bound, dtype=dtype, source=source)


def xavier_normal(
    cls: type[Tensor], *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
) -> Tensor:
    """Return initial weights for symmetric activations, normally distributed."""
    std = math.sqrt(2 / sum(_fans(as_shape(sizes))))
    return cls.normal(*sizes, std=std, dtype=dtype, source=source)


def _float(dtype: DTypeLike, what: str) -> dtypes.DType:
    """Return a dtype that has to be a float type."""
    kind = as_dtype(dtype)
    if not kind.is_float:
        raise TypeError(f"{what} of {kind}: a float type")
    return kind


def _fans(shape: Shape) -> tuple[int, int]:
    """Return how many inputs and outputs a weight (outputs, inputs, taps…) connects."""
    if len(shape) < 2:
        raise ValueError(f"initial weights of {list(shape)}: (outputs, inputs, …)")
    rest = math.prod(number_of(size, "weights") for size in shape[2:])
    return number_of(shape[1], "weights") * rest, number_of(shape[0], "weights") * rest
