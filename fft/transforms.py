"""Transforms along one axis and along several, of complex and of real numbers.

`n` or `s` cuts an axis or extends it by zeros. `norm`: "backward" divides the inverse by the length, "forward" the
transform itself, "ortho" each by the root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import number_of, whole_number
from ringup.compiler.tensor.spelling.binding import Binding
from ringup.compiler.tensor.tensor import Tensor
from ringup.fft.steps import transform

Function = TypeVar("Function", bound=Callable[..., Tensor])
# the power of the length that a transform and an inverse are divided by
NORMS = {"backward": (0.0, 1.0), "ortho": (0.5, 0.5), "forward": (1.0, 0.0)}


def spelled(function: Function) -> Function:
    """Make a function understand PyTorch's words too: `dim` for `axis` and `axes`."""
    made: Function = Binding(cast("Any", function), function.__name__, "", None).wrapped()
    return made


def _scale(length: int, norm: str | None, *, inverse: bool) -> float:
    wanted = "backward" if norm is None else norm
    if wanted not in NORMS:
        raise ValueError(f"there is no norm {norm!r}; there are {', '.join(NORMS)}")
    power = NORMS[wanted][inverse]
    return 1.0 if power == 0 else 1 / length if power == 1 else 1 / math.sqrt(length)


def _operand(x: Any, what: str, *, real: bool = False) -> Tensor:
    """Return a tensor in a type that transforms are computed in: f32, f64, complex64, complex128."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} of {type(x).__name__}: a tensor")
    if not x.ndim:
        raise ValueError(f"{what} of a tensor of shape []: one axis at least")
    if x.dtype.is_complex:
        if real:
            raise TypeError(f"{what} of {x.dtype}: real numbers, of which half of the results are conjugates")
        return x
    return x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)


def _fitted(x: Tensor, n: int | None, axis: int, what: str) -> Tensor:
    """Return it with the axis last and of n elements: cut, or with zeros behind."""
    moved = x.movedim(axis, -1)
    have = number_of(moved.shape[-1], what)
    length = have if n is None else whole_number(n, f"the length of {what}")
    if length < 1:
        raise ValueError(f"{what} of {length} elements: at least one")
    if length < have:
        return moved[..., :length]
    return moved if length == have else moved.pad([*[(0, 0)] * (moved.ndim - 1), (0, length - have)])


def _along(x: Tensor, n: int | None, axis: int, norm: str | None, what: str, *, inverse: bool) -> Tensor:
    moved = _fitted(x, n, axis, what)
    scale = _scale(number_of(moved.shape[-1], what), norm, inverse=inverse)
    return transform(moved, 1 if inverse else -1, scale).movedim(-1, axis)


def _first_half(made: Tensor, axis: int) -> Tensor:
    """Return the results 0 to n // 2 along an axis."""
    moved = made.movedim(axis, -1)
    return moved[..., : number_of(moved.shape[-1], "a transform") // 2 + 1].movedim(-1, axis)


@spelled
def fft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the discrete Fourier transform along an axis."""
    return _along(_operand(x, "fft"), n, axis, norm, "fft", inverse=False)


@spelled
def ifft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the inverse transform along an axis."""
    return _along(_operand(x, "ifft"), n, axis, norm, "ifft", inverse=True)


@spelled
def rfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the transform of real numbers: its first n // 2 + 1 results, of which the others are conjugates."""
    return _first_half(_along(_operand(x, "rfft", real=True), n, axis, norm, "rfft", inverse=False), axis)


def _to_real(x: Tensor, n: int | None, axis: int, scale_of: Any, sign: int, what: str) -> Tensor:
    """Return the real transform of the first half of a spectrum; the other half is its conjugate."""
    length = 2 * (number_of(x.movedim(axis, -1).shape[-1], what) - 1) if n is None else whole_number(n, "a length")
    if length < 1:
        raise ValueError(f"{what} of {length} results: at least one")
    half = _fitted(x, length // 2 + 1, axis, what)
    mirrored = half[..., 1 : (length + 1) // 2].flip(-1).conj()
    whole = half.cat(mirrored, axis=-1) if length > 2 else half[..., :length]
    return transform(whole, sign, scale_of(length), real=True).movedim(-1, axis)


@spelled
def irfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the n real numbers (2 (m - 1) unless given, for m of x) whose transform begins with x."""
    return _to_real(_operand(x, "irfft"), n, axis, lambda length: _scale(length, norm, inverse=True), 1, "irfft")


@spelled
def hfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return the real transform of n numbers of which x is the first half and the others are conjugates."""
    return _to_real(_operand(x, "hfft"), n, axis, lambda length: _scale(length, norm, inverse=False), -1, "hfft")


@spelled
def ihfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Return what `hfft` makes of real numbers turned back: the first n // 2 + 1 results of the inverse transform."""
    return _first_half(_along(_operand(x, "ihfft", real=True), n, axis, norm, "ihfft", inverse=True), axis)


def _axes(x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, what: str) -> list[tuple[int, int | None]]:
    """Return axes with their lengths, None for those that they have."""
    if axes is None:
        count = x.ndim if s is None else len(s)
        axes = range(-count, 0)
    found = [x._axis(axis) for axis in axes]
    if s is not None and len(s) != len(found):
        raise ValueError(f"{what} of lengths {list(s)} along axes {list(axes)}: as many of both")
    if s is None:
        return [(axis, None) for axis in found]
    # -1 stands for all of an axis
    return [(axis, number_of(x.shape[axis], what) if n == -1 else n) for axis, n in zip(found, s, strict=True)]


@spelled
def fftn(
    x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """Return the transform along several axes, all unless given."""
    made = _operand(x, "fftn")
    for axis, n in _axes(made, s, axes, "fftn"):
        made = fft(made, n, axis, norm)
    return _complex(made)


@spelled
def ifftn(
    x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """Return the inverse transform along several axes, all unless given."""
    made = _operand(x, "ifftn")
    for axis, n in _axes(made, s, axes, "ifftn"):
        made = ifft(made, n, axis, norm)
    return _complex(made)


def _complex(x: Tensor) -> Tensor:
    """Return it as complex numbers, which it is unless no axis was transformed."""
    return x if x.dtype.is_complex else x.cast(dtypes.WITH_PARTS[x.dtype])


@spelled
def rfftn(
    x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """Return the transform of real numbers along several axes: half of its results along the last one."""
    made = _operand(x, "rfftn", real=True)
    *others, (last, n) = _axes(made, s, axes, "rfftn")
    made = rfft(made, n, last, norm)
    for axis, count in others:
        made = fft(made, count, axis, norm)
    return made


@spelled
def irfftn(
    x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """Return the real numbers whose transform along several axes begins with x along the last one."""
    made = _operand(x, "irfftn")
    *others, (last, n) = _axes(made, s, axes, "irfftn")
    for axis, count in others:
        made = ifft(made, count, axis, norm)
    return irfft(made, n, last, norm)


@spelled
def fft2(x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Tensor:
    """Return the transform along two axes, the last ones unless given."""
    return fftn(x, s, axes, norm)


@spelled
def ifft2(x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Tensor:
    """Return the inverse transform along two axes, the last ones unless given."""
    return ifftn(x, s, axes, norm)


@spelled
def rfft2(x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Tensor:
    """Return the transform of real numbers along two axes, the last ones unless given."""
    return rfftn(x, s, axes, norm)


@spelled
def irfft2(
    x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """Return the real numbers whose transform along two axes begins with x along the last one."""
    return irfftn(x, s, axes, norm)
