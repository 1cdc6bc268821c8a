"""Spectra of windows that slide along a signal, with PyTorch's words and layouts: `ringup.stft`, `ringup.istft`."""

from __future__ import annotations

import math

from ringup.compiler.tensor.core import number_of, whole_number
from ringup.compiler.tensor.tensor import Tensor
from ringup.fft.transforms import fft, ifft, irfft, rfft

# of the sums of squared windows: what is smaller is a place that no window covers. Source: PyTorch's SpectralOps.cpp
LEAST_COVER = 1e-11


def _settings(
    what: str, n_fft: int, hop_length: int | None, win_length: int | None, window: Tensor | None
) -> tuple[int, int, Tensor | None]:
    """Return the length of a transform, the step between them, and the window, centred in that length."""
    size = whole_number(n_fft, "n_fft")
    step = size // 4 if hop_length is None else whole_number(hop_length, "hop_length")
    width = size if win_length is None else whole_number(win_length, "win_length")
    if size < 1 or step < 1 or not 0 < width <= size:
        raise ValueError(
            f"{what} of n_fft {size}, hop_length {step}, win_length {width}: a step of 1 or more, and a window within n_fft"
        )
    if window is not None and (not isinstance(window, Tensor) or window.shape != (width,)):
        raise ValueError(f"{what}: a window of shape [{width}], the window's length, not {window!r:.80}")
    before = (size - width) // 2
    if window is None:
        window = Tensor.ones(width) if width < size else None
    return size, step, window if window is None or width == size else window.pad([(before, size - width - before)])


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """Return the spectra (…, frequencies, windows) of a signal (length) or of several (batch, length).

    A window begins every `hop_length` elements (n_fft / 4). `center`: the signal is padded, so that window t lies about
    element t hop_length. `onesided`, which a real signal is by default: frequencies 0 to n_fft / 2 only. `normalized`
    divides by the root of n_fft. `return_complex=False` gives pairs (real, imaginary) along a last axis.
    """
    if not isinstance(input, Tensor) or input.ndim not in (1, 2):
        raise ValueError(f"stft of {input!r:.80}: a tensor (length) or (batch, length)")
    size, step, window = _settings("stft", n_fft, hop_length, win_length, window)
    is_real = not (input.dtype.is_complex or (window is not None and window.dtype.is_complex))
    if onesided and not is_real:
        raise ValueError("stft with onesided=True: of complex numbers, the other half is not made of the first")
    signal = input.unsqueeze(0) if input.ndim == 1 else input
    if center:
        signal = signal.pad([(0, 0), (size // 2, size // 2)], mode=pad_mode)
    length = number_of(signal.shape[1], "stft")
    if length < size:
        raise ValueError(f"stft of {length} elements, padding included, with n_fft {size}: at least as many")
    frames = signal.unfold(1, size, step)
    if window is not None:
        frames = frames * window
    norm = "ortho" if normalized else "backward"
    one_side = is_real and (onesided is None or onesided)
    made = (rfft if one_side else fft)(frames, norm=norm).transpose(1, 2)
    made = made if input.ndim == 2 else made.squeeze(0)
    return made.view_as_real() if return_complex is not None and not return_complex else made


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Return the signal, (length) or (batch, length), whose spectra `stft` made: the one that is nearest to them by
    least squares. The arguments are those of `stft`.

    `length` cuts the signal or extends it by zeros. ValueError where elements lie in no window.
    """
    if not isinstance(input, Tensor) or input.ndim not in (2, 3) or not input.dtype.is_complex:
        raise ValueError(f"istft of {input!r:.80}: complex spectra (frequencies, windows), or a batch of them")
    size, step, window = _settings("istft", n_fft, hop_length, win_length, window)
    spectra = (input.unsqueeze(0) if input.ndim == 2 else input).transpose(1, 2)
    windows, rows = number_of(spectra.shape[1], "istft"), number_of(spectra.shape[2], "istft")
    one_side = rows != size if onesided is None else onesided
    if rows != (size // 2 + 1 if one_side else size) or not windows:
        raise ValueError(
            f"istft of {list(input.shape)} with n_fft {size}: {size // 2 + 1} frequencies, {size} of two sides, and a window"
        )
    if one_side and return_complex:
        raise ValueError("istft with return_complex=True: of one side of spectra, the signal is real")
    if window is not None and window.dtype.is_complex and not return_complex:
        raise ValueError("istft with a complex window: the signal is complex, return_complex=True")
    norm = "ortho" if normalized else "backward"
    # a real signal's other half is conjugate to the first, which alone is read
    frames = ifft(spectra, norm=norm) if return_complex else irfft(spectra[..., : size // 2 + 1], size, norm=norm)
    weight = Tensor.ones(size, dtype=frames.real.dtype if frames.dtype.is_complex else frames.dtype)
    if window is not None:
        weight = window
    cover = _overlapped((weight * weight).expand((1, windows, size)), step)
    made = _overlapped(frames * weight, step)
    first = size // 2 if center else 0
    whole = number_of(made.shape[1], "istft")
    last = whole - first if length is None else min(first + whole_number(length, "length"), whole)
    if last <= first:
        raise ValueError(f"istft of {windows} windows: no element is left, padding taken away")
    made, cover = made[:, first:last], cover[:, first:last]
    least = float(cover.abs().min())
    if not least > LEAST_COVER:
        raise ValueError(
            f"istft with hop_length {step}: elements lie where the windows are 0 (their squares' least sum is {least:.3g})"
        )
    made = made / cover
    if length is not None and first + length > last:
        made = made.pad([(0, 0), (0, first + length - last)])
    return made if input.ndim == 3 else made.squeeze(0)


def _overlapped(frames: Tensor, step: int) -> Tensor:
    """Return frames (batch, count, size), each `step` further on than the one before, added up."""
    batch, count, size = (number_of(one, "istft") for one in frames.shape)
    parts = math.ceil(size / step)
    made = frames.pad([(0, 0), (0, 0), (0, parts * step - size)]).reshape((batch, count, parts, step))
    # part k of every frame belongs k steps further on: rows that are one longer than they are read move by one each
    made = (
        made.transpose(1, 2).pad([(0, 0), (0, 0), (0, parts), (0, 0)]).reshape((batch, parts * (count + parts), step))
    )
    made = made[:, : parts * (count + parts - 1)].reshape((batch, parts, count + parts - 1, step)).sum(1)
    return made.reshape((batch, (count + parts - 1) * step))[:, : (count - 1) * step + size]
