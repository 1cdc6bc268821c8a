"""Frequencies of a transform's results, and their order."""

from __future__ import annotations

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import Axes, DTypeLike, number_of, whole_number
from ringup.compiler.tensor.tensor import Tensor
from ringup.fft.transforms import spelled


def fftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike = dtypes.float32) -> Tensor:
    """Return the frequencies of the results of `fft`: 0, 1, … and then the negative ones, over n d."""
    count = whole_number(n, "a length")
    places = Tensor.arange(count)
    return ((places < (count + 1) // 2).where(places, places - count)).cast(dtype) / (count * d)


def rfftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike = dtypes.float32) -> Tensor:
    """Return the frequencies of the results of `rfft`: 0, 1, …, n // 2, over n d."""
    count = whole_number(n, "a length")
    return Tensor.arange(count // 2 + 1).cast(dtype) / (count * d)


@spelled
def fftshift(x: Tensor, axes: Axes = None) -> Tensor:
    """Return it with frequency 0 in the middle of axes."""
    return _rolled(x, axes, 1)


@spelled
def ifftshift(x: Tensor, axes: Axes = None) -> Tensor:
    """Return it with frequency 0 in front again: what undoes `fftshift`."""
    return _rolled(x, axes, -1)


def _rolled(x: Tensor, axes: Axes, way: int) -> Tensor:
    made = x
    for axis in x._axes(axes):
        half = number_of(x.shape[axis], "a shift") // 2
        made = made.roll(way * half, axis)
    return made
