"""Tensors from nothing: constants, ranges, random numbers, initial weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, cast

import numpy as np

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Shape
from ringup.compiler.tensor import random
from ringup.compiler.tensor.core import DTypeLike, as_dtype, as_shape, number_of, whole_number
from ringup.compiler.tensor.memory import Memory
from ringup.compiler.tensor.random import Source


class Creation(Memory):
    """Constructors."""

    __slots__ = ()

    @classmethod
    def full(cls, shape: Sequence[Int], value: Scalar, dtype: DTypeLike | None = None) -> Self:
        """Return a tensor of one value everywhere; of its type unless said."""
        value = cast("Scalar", value.item()) if isinstance(value, np.generic) else value
        return cls._constant(
            value, dtypes.of_scalar(value) if dtype is None else as_dtype(dtype), as_shape([tuple(shape)])
        )

    @classmethod
    def zeros(cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32) -> Self:
        """Return zeros."""
        return cls._constant(0, as_dtype(dtype), as_shape(sizes))

    @classmethod
    def ones(cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32) -> Self:
        """Return ones."""
        return cls._constant(1, as_dtype(dtype), as_shape(sizes))

    @classmethod
    def empty(cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32) -> Self:
        """Return memory of its own with nothing written in it; what reading it before writing gives is not said."""
        made = cls._of(nodes.buffer(as_dtype(dtype), as_shape(sizes)))
        made._owns = True
        return made

    def full_like(self, value: Scalar, dtype: DTypeLike | None = None) -> Self:
        """Return a tensor of this shape (and type unless said) of one value."""
        return self._constant(value, self.dtype if dtype is None else as_dtype(dtype), self.shape)

    def zeros_like(self, dtype: DTypeLike | None = None) -> Self:
        """Return zeros of this shape."""
        return self.full_like(0, dtype)

    def ones_like(self, dtype: DTypeLike | None = None) -> Self:
        """Return ones of this shape."""
        return self.full_like(1, dtype)

    @classmethod
    def arange(
        cls, start: Scalar | Int, stop: Scalar | Int | None = None, step: Scalar = 1, dtype: DTypeLike | None = None
    ) -> Self:
        """Return start, start + step, … before `stop` (from 0 for one argument); int32 of integers, f32 else, unless
        said.
        """
        first, last = (cast("Scalar", one.item()) if isinstance(one, np.generic) else one
                       for one in ((0, start) if stop is None else (start, stop)))  # fmt: skip
        step = cast("Scalar", step.item()) if isinstance(step, np.generic) else step
        if step == 0:
            raise ValueError("arange with a step of 0")
        if not all(math.isfinite(one) for one in (first, last, step) if isinstance(one, float)):
            raise ValueError(f"arange from {first} to {last} in steps of {step}: it ends nowhere")
        floats = any(isinstance(one, float) for one in (first, last, step))
        kind = as_dtype(dtype) if dtype is not None else dtypes.float32 if floats else dtypes.int32
        if isinstance(first, index.Expr) or isinstance(last, index.Expr):
            count = (
                -(-(cast("Int", last) - cast("Int", first)) // cast("int", step))
                if step == 1
                else (cast("Int", last) - cast("Int", first) + cast("int", step) - 1) // cast("int", step)
            )
        else:
            count = max(math.ceil((last - first) / step), 0)
        wide = (
            kind
            if kind in (dtypes.int64, dtypes.float64)
            else dtypes.int32
            if not floats
            else dtypes.float64
            if kind is dtypes.float64
            else dtypes.float32
        )
        counted = cls._counted(count, dtypes.int64 if wide in (dtypes.int64, dtypes.float64) else dtypes.int32)
        made = counted.cast(wide) if wide.is_float else counted
        if step != 1:
            made = made * made._constant(step, made.dtype)
        if isinstance(first, index.Expr) or first != 0:
            made = made + (first if isinstance(first, index.Expr) else made._constant(first, made.dtype))
        return made.cast(kind)

    @classmethod
    def linspace(cls, start: float, stop: float, count: int, dtype: DTypeLike = dtypes.float32) -> Self:
        """Return `count` numbers from `start` to `stop`, both included, evenly spread."""
        count = whole_number(count, "a count")
        if count < 0:
            raise ValueError(f"linspace of {count} numbers")
        kind = as_dtype(dtype)
        places = cls._counted(count)
        wide = places.cast(dtypes.float64 if kind is dtypes.float64 else dtypes.float32)
        made = wide * ((stop - start) / max(count - 1, 1)) + start
        return places.eq(count - 1).where(float(stop), made).cast(kind) if count > 1 else made.cast(kind)

    @classmethod
    def eye(cls, rows: int, columns: int | None = None, dtype: DTypeLike = dtypes.float32) -> Self:
        """Return a matrix of ones on the diagonal, zeros elsewhere."""
        down = cls._counted(rows).reshape((rows, 1))
        across = cls._counted(rows if columns is None else columns).reshape((1, -1))
        return down.eq(across).cast(as_dtype(dtype))

    # random numbers

    @classmethod
    def rand(cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None) -> Self:
        """Return numbers evenly spread over [0, 1)."""
        kind = _float(dtype, "rand")
        first, second = random.words(cls, as_shape(sizes), source)
        return random.unit(first, second, kind)

    @classmethod
    def uniform(
        cls,
        *sizes: Int | Sequence[Int],
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike = dtypes.float32,
        source: Source | None = None,
    ) -> Self:
        """Return numbers evenly spread over [low, high)."""
        kind = _float(dtype, "uniform")
        wide = kind if kind is dtypes.float64 else dtypes.float32
        return (cls.rand(*sizes, dtype=wide, source=source) * (high - low) + low).cast(kind)

    @classmethod
    def randn(
        cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
    ) -> Self:
        """Return normally distributed numbers of mean 0 and variance 1."""
        kind = _float(dtype, "randn")
        first, second = random.words(cls, as_shape(sizes), source)
        return random.normal(first, second, kind)

    @classmethod
    def normal(
        cls,
        *sizes: Int | Sequence[Int],
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike = dtypes.float32,
        source: Source | None = None,
    ) -> Self:
        """Return normally distributed numbers of that mean and standard deviation."""
        return (cls.randn(*sizes, dtype=dtype, source=source) * std + mean).cast(as_dtype(dtype))

    @classmethod
    def randint(
        cls,
        *sizes: Int | Sequence[Int],
        low: int = 0,
        high: int,
        dtype: DTypeLike = dtypes.int32,
        source: Source | None = None,
    ) -> Self:
        """Return integers from `low` to before `high`."""
        kind = as_dtype(dtype)
        if not kind.is_integer or low >= high or low < kind.least or high - 1 > kind.greatest:
            raise ValueError(
                f"randint from {low} to before {high} as {kind}: an integer type that holds them, low below high"
            )
        first, second = random.words(cls, as_shape(sizes), source)
        return random.integers(first, second, low, high, kind)

    @classmethod
    def randperm(cls, count: int, source: Source | None = None) -> Self:
        """Return 0 … count - 1 in random order, int32."""
        return random.words(cls, as_shape((count,)), source)[0].argsort(0)

    permutation = randperm

    def bernoulli(self, source: Source | None = None) -> Self:
        """Return 1 with this probability each, else 0, in this type."""
        return (self.rand(self.shape, source=source) < self).cast(self.dtype)

    def dropout(self, rate: float = 0.5, *, training: bool = True, source: Source | None = None) -> Self:
        """Return it with elements put to 0 at that rate and the others made larger for it; itself outside of
        training.
        """
        if not 0 <= rate <= 1:
            raise ValueError(f"dropout at a rate of {rate}: 0 to 1")
        if not training or rate == 0:
            return self
        if rate == 1:
            return self * 0
        return (self.rand(self.shape, source=source) >= rate).where(self * (1 / (1 - rate)), 0)

    @classmethod
    def kaiming_uniform(
        cls,
        *sizes: Int | Sequence[Int],
        slope: float = 0.0,
        dtype: DTypeLike = dtypes.float32,
        source: Source | None = None,
    ) -> Self:
        """Return initial weights (outputs, inputs, …) for relu and its like (He and others, 2015), evenly spread."""
        bound = math.sqrt(6 / ((1 + slope * slope) * _fans(as_shape(sizes))[0]))
        return cls.uniform(*sizes, low=-bound, high=bound, dtype=dtype, source=source)

    @classmethod
    def kaiming_normal(
        cls,
        *sizes: Int | Sequence[Int],
        slope: float = 0.0,
        dtype: DTypeLike = dtypes.float32,
        source: Source | None = None,
    ) -> Self:
        """Return initial weights for relu and its like, normally distributed."""
        return cls.normal(
            *sizes, std=math.sqrt(2 / ((1 + slope * slope) * _fans(as_shape(sizes))[0])), dtype=dtype, source=source
        )

    @classmethod
    def xavier_uniform(
        cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
    ) -> Self:
        """Return initial weights for symmetric activations (Glorot and Bengio, 2010), evenly spread."""
        bound = math.sqrt(6 / sum(_fans(as_shape(sizes))))
        return cls.uniform(*sizes, low=-bound, high=bound, dtype=dtype, source=source)

    @classmethod
    def xavier_normal(
        cls, *sizes: Int | Sequence[Int], dtype: DTypeLike = dtypes.float32, source: Source | None = None
    ) -> Self:
        """Return initial weights for symmetric activations, normally distributed."""
        return cls.normal(*sizes, std=math.sqrt(2 / sum(_fans(as_shape(sizes)))), dtype=dtype, source=source)


def _float(dtype: DTypeLike, what: str) -> dtypes.DType:
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
