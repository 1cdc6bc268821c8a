"""The standard's extension for Fourier transforms: `ringup.fft`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ringup.fft as transforms
from ringup.array_api.arguments import placed
from ringup.array_api.types import DEFAULT_FLOAT
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.tensor import Tensor


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the discrete Fourier transform along an axis."""
    return transforms.fft(x, n, axis, norm)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the inverse transform along an axis."""
    return transforms.ifft(x, n, axis, norm)


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the transform along several axes, all unless given."""
    return transforms.fftn(x, s, axes, norm)


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the inverse transform along several axes, all unless given."""
    return transforms.ifftn(x, s, axes, norm)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the first half of the transform of real numbers."""
    return transforms.rfft(x, n, axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the real numbers whose transform begins with x."""
    return transforms.irfft(x, n, axis, norm)


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the transform of real numbers along several axes, half of it along the last one."""
    return transforms.rfftn(x, s, axes, norm)


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Return the real numbers whose transform along several axes begins with x along the last one."""
    return transforms.irfftn(x, s, axes, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the real transform of numbers of which x is the first half and the others are conjugates."""
    return transforms.hfft(x, n, axis, norm)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Return the first half of the inverse transform of real numbers."""
    return transforms.ihfft(x, n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return the frequencies of the results of `fft`, over n d."""
    return placed(transforms.fftfreq(n, d, dtype=dtype or DEFAULT_FLOAT), device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return the frequencies of the results of `rfft`, over n d."""
    return placed(transforms.rfftfreq(n, d, dtype=dtype or DEFAULT_FLOAT), device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return it with frequency 0 in the middle of axes."""
    return transforms.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return it with frequency 0 in front again."""
    return transforms.ifftshift(x, axes)
