"""Windows for spectra, by PyTorch's names. `periodic`: one period, so that the window's next place would be its first;
otherwise it ends as it begins, as NumPy's windows do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import DTypeLike, as_dtype, whole_number
from ringup.compiler.tensor.familiar import to
from ringup.compiler.tensor.tensor import Tensor


def _made(
    window_length: int, shape: Callable[[Any], Any], dtype: DTypeLike | None, device: object, *, periodic: bool,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Return a window; `shape` gives it for places from -1 to 1, in f64, so that it is rounded once."""
    count = whole_number(window_length, "the length of a window")
    if count < 0:
        raise ValueError(f"a window of {count} places: none or more")
    kind = dtypes.float32 if dtype is None else as_dtype(dtype)
    if not kind.is_float:
        raise TypeError(f"a window of {kind}: a type of real numbers with fractions")
    places = np.linspace(-1, 1, count + 1)[:-1] if periodic and count > 1 else np.linspace(-1, 1, count)
    values = shape(places) if count > 1 else np.ones(count)
    made = to(Tensor(values, dtype="float64").cast(kind), device)
    return made.requires_grad_() if requires_grad else made


def _cosines(*factors: float) -> Callable[[Any], Any]:
    """Return a sum of cosines: one turn between -1 and 1 for the second factor, two for the third."""
    return lambda places: sum(factor * np.cos(i * np.pi * places) for i, factor in enumerate(factors))


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return Hann's window: a raised cosine, 0 at its ends."""
    return _made(window_length, _cosines(0.5, 0.5), dtype, device, periodic=periodic, requires_grad=requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: DTypeLike | None = None, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return Hamming's window: alpha, and a cosine of height beta."""
    return _made(window_length, _cosines(alpha, beta), dtype, device, periodic=periodic, requires_grad=requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return Blackman's window, a sum of two cosines."""
    shape = _cosines(0.42, 0.5, 0.08)
    return _made(window_length, shape, dtype, device, periodic=periodic, requires_grad=requires_grad)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a triangle, 0 at its ends."""
    return _made(
        window_length, lambda places: 1 - np.abs(places), dtype, device, periodic=periodic, requires_grad=requires_grad
    )


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DTypeLike | None = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return Kaiser's window: a Bessel function of half a circle of height beta."""

    def shape(places: Any) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - places**2, 0))) / np.i0(beta)

    return _made(window_length, shape, dtype, device, periodic=periodic, requires_grad=requires_grad)
