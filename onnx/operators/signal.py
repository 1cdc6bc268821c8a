"""Signals: Fourier transforms as products with matrices of roots of unity, and the weights of mel bands.

Complex numbers are pairs along a last axis of 2.
"""

from __future__ import annotations

import math

import numpy as np

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import FLOAT, Array, dtype_of, known_size, numbers


def _fitted(x: Tensor, axis: int, length: int) -> Tensor:
    """Return it cut, or padded with zeros, to a length along an axis."""
    size = known_size(x.shape[axis], "a Fourier transform")
    if size > length:
        return x.shrink([(0, length) if i == axis else None for i in range(x.ndim)])
    return x.pad([(0, length - size) if i == axis else (0, 0) for i in range(x.ndim)])


def transformed(x: Tensor, axis: int, length: int, *, inverse: bool = False, onesided: bool = False) -> Tensor:
    """Return the discrete Fourier transform along an axis of (…, 1) real or (…, 2) complex numbers, as complex ones.

    The inverse of a half spectrum (`onesided`) is real, (…, 1).
    """
    kind: DType = x.dtype
    half = length // 2 + 1
    if inverse and onesided:
        x = _mirrored(x, axis, length)
    x = _fitted(x, axis, length)
    count = half if onesided and not inverse else length
    angles = np.outer(np.arange(length), np.arange(count)) % length * (2 * np.pi / length)
    cosines = Tensor(np.cos(angles)).cast(kind)
    sines = Tensor(np.sin(angles) * (1 if inverse else -1)).cast(kind)
    moved = x.movedim(axis, -1)
    real = moved[..., 0, :]
    parts = [real.matmul(cosines), real.matmul(sines)]
    if moved.shape[-2] == 2:
        imaginary = moved[..., 1, :]
        parts = [parts[0] - imaginary.matmul(sines), parts[1] + imaginary.matmul(cosines)]
    made = Tensor.stack(parts[:1] if inverse and onesided else parts, axis=-1)
    made = made / length if inverse else made
    return made.movedim(-2, axis)


def _mirrored(x: Tensor, axis: int, length: int) -> Tensor:
    """Return the whole spectrum of a real signal from its first half."""
    half = length // 2 + 1
    x = _fitted(x, axis, half)
    bounds = [(1, length - half + 1) if i == axis else None for i in range(x.ndim)]
    mirrored = x.shrink(bounds).flip(axis)
    sign = Tensor(np.array([1.0, -1.0][: known_size(x.shape[-1], "")])).cast(x.dtype)
    return Tensor.cat([x, mirrored * sign], axis=axis)


def dft(node: Node, x: Tensor, length: Array | None = None, axis: Array | None = None) -> Tensor:
    """Return the discrete Fourier transform along an axis."""
    at = (node.get("axis", 1) if node.opset < 20 else -2 if axis is None else numbers(axis)[0]) % x.ndim
    inverse, onesided = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    size = known_size(x.shape[at], str(node))
    if length is not None:
        size = numbers(length)[0]
    elif inverse and onesided:
        size = 2 * (size - 1)
    return transformed(x, at, size, inverse=inverse, onesided=onesided)


def stft(node: Node, x: Tensor, step: Array, window: Tensor | None = None, length: Array | None = None) -> Tensor:
    """Return the Fourier transforms of frames of a signal (batch, length, 1 or 2), each times a window."""
    size = known_size(window.shape[0], str(node)) if length is None and window is not None else numbers(length)[0]  # type: ignore[arg-type]
    signal = x.unsqueeze(-1) if x.ndim == 2 else x
    # (batch, frames, 1 or 2, size)
    frames = signal.unfold(1, size, numbers(step)[0])
    if window is not None:
        frames = frames * window.cast(x.dtype)
    return transformed(frames.mT, 2, size, onesided=bool(node.get("onesided", 1)))


def mel_weights(node: Node, bands: Array, size: Array, rate: Array, low: Array, high: Array) -> Tensor:
    """Return the matrix (spectrum, bands) of triangles that are evenly spread on the mel scale."""
    count, length, samples = (numbers(one)[0] for one in (bands, size, rate))
    first, last = (2595 * math.log10(1 + float(one.reshape(-1)[0]) / 700) for one in (low, high))
    mel = np.arange(count + 2) * ((last - first) / (count + 2)) + first
    edges = np.floor((length + 1) * (700 * (10 ** (mel / 2595) - 1)) / samples).astype(np.int64)
    made = np.zeros((length // 2 + 1, count))
    for i in range(count):
        start, top, end = edges[i : i + 3]
        if top == start:
            made[top, i] = 1
        else:
            made[start : top + 1, i] = (np.arange(start, top + 1) - start) / (top - start)
        if end != top:
            made[top:end, i] = (end - np.arange(top, end)) / (end - top)
    return Tensor(made).cast(dtype_of(node.get("output_datatype", FLOAT), str(node)))


ROWS = (
    Row("DFT", dft, since=17, host=(1, 2)),
    Row("STFT", stft, since=17, host=(1, 3)),
    Row("MelWeightMatrix", mel_weights, since=17, host=(0, 1, 2, 3, 4)),
)
