"""Spectra of sliding windows are sums of definition, as PyTorch lays them out, and go back to the signal. PyTorch 2.14
gave the same values for the options here, gradients too.
"""

import numpy as np
import pytest

import ringup
from ringup import Tensor, gradient

DRAW = np.random.default_rng(5)


def spectra(signal, size, step, window, *, centred=True, mode="reflect"):
    """Return (batch, size, windows) in f64, from the definition."""
    signal = np.asarray(signal, np.complex128)
    if centred:
        signal = np.pad(signal, ((0, 0), (size // 2, size // 2)), mode)
    count = 1 + (signal.shape[1] - size) // step
    before = (size - len(window)) // 2
    window = np.pad(window, (before, size - len(window) - before))
    turns = np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)
    frames = [turns @ (signal[:, t * step : t * step + size] * window).T for t in range(count)]
    return np.stack(frames, 2).transpose(1, 0, 2)


@pytest.mark.parametrize(
    ("size", "step", "width"), [(8, 2, 8), (8, 3, 5), (16, None, 16), (12, 4, 7), (5, 1, 5), (6, 6, 6), (7, 2, 4)]
)
def test_spectra_are_those_of_the_definition(size, step, width):
    signal, window = DRAW.normal(size=(2, 40)).astype("float32"), DRAW.uniform(0.5, 1, size=width).astype("float32")
    found = ringup.stft(Tensor(signal), size, step, width, Tensor(window))
    wanted = spectra(signal, size, step or size // 4, window)
    assert found.shape == (2, size // 2 + 1, wanted.shape[2])
    np.testing.assert_allclose(found.numpy(), wanted[:, : size // 2 + 1], atol=2e-5)
    whole = ringup.stft(Tensor(signal), size, step, width, Tensor(window), onesided=False)
    np.testing.assert_allclose(whole.numpy(), wanted, atol=2e-5)
    plain = ringup.stft(Tensor(signal[0]), size, step, width, center=False, normalized=True)
    wanted = spectra(signal[:1], size, step or size // 4, np.ones(width), centred=False) / np.sqrt(size)
    np.testing.assert_allclose(plain.numpy(), wanted[0, : size // 2 + 1], atol=2e-5)


def test_words_of_padding_and_of_pairs():
    signal = Tensor(DRAW.normal(size=(1, 20)).astype("float32"))
    for mode, numpys in (("constant", "constant"), ("replicate", "edge"), ("circular", "wrap")):
        found = ringup.stft(signal, n_fft=8, hop_length=2, pad_mode=mode, return_complex=True)
        wanted = spectra(signal.numpy(), 8, 2, np.ones(8), mode=numpys)
        np.testing.assert_allclose(found.numpy(), wanted[:, :5], atol=2e-5)
    pairs = ringup.stft(signal, 8, return_complex=False)
    assert pairs.shape == (1, 5, 11, 2)
    np.testing.assert_array_equal(pairs.view_as_complex().numpy(), ringup.stft(signal, 8).numpy())


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("normalized", [False, True])
def test_a_signal_comes_back(kind, normalized):
    signal = DRAW.normal(size=(3, 41)).astype(kind)
    if kind.startswith("complex"):
        signal += 1j * DRAW.normal(size=(3, 41))
    is_complex = kind.startswith("complex")
    real = kind.replace("complex64", "float32").replace("complex128", "float64")
    window = ringup.hann_window(9, dtype=real)
    options = {"window": window, "win_length": 9, "normalized": normalized}
    made = ringup.stft(Tensor(signal), 12, 3, **options)
    assert made.shape[1] == (12 if is_complex else 7)
    back = ringup.istft(made, 12, 3, **options, length=41, return_complex=is_complex)
    assert back.dtype == kind
    np.testing.assert_allclose(back.numpy(), signal, atol=1e-5 if "32" in real else 1e-12)
    # without a length the padding is taken away: what lies behind the last window's middle is not known
    one = ringup.istft(made[0], 12, 3, **options, return_complex=is_complex)
    np.testing.assert_allclose(one.numpy(), signal[0, :39], atol=1e-5)
    with pytest.raises(ValueError, match="elements lie where the windows are 0"):
        ringup.istft(made, 12, 3, **options, length=50, return_complex=is_complex)


def test_a_signal_may_be_longer_than_its_windows():
    signal = DRAW.normal(size=(2, 41)).astype("float32")
    made = ringup.istft(ringup.stft(Tensor(signal), 12, 3), 12, 3, length=50).numpy()
    np.testing.assert_allclose(made[:, :41], signal, atol=1e-5)
    # mirrored padding that the windows hold, and zeros behind them
    np.testing.assert_allclose(made[:, 41:45], signal[:, 36:40][:, ::-1], atol=1e-5)
    assert made.shape == (2, 50)
    assert not made[:, 45:].any()


def test_a_step_may_be_longer_than_a_window_of_ones():
    signal = DRAW.normal(size=24).astype("float32")
    made = ringup.stft(Tensor(signal), 4, 4, center=False)
    np.testing.assert_allclose(ringup.istft(made, 4, 4, center=False).numpy(), signal, atol=1e-6)
    with pytest.raises(ValueError, match="elements lie where the windows are 0"):
        ringup.istft(ringup.stft(Tensor(signal), 4, 6, center=False), 4, 6, center=False)
    with pytest.raises(ValueError, match="elements lie where the windows are 0"):
        ringup.istft(made, 4, 4, window=ringup.hann_window(4), center=False)


def test_gradients_pass_both_ways():
    """Of |stft|^2, by the theorem of Parseval for windows that do not overlap."""
    signal = Tensor(DRAW.normal(size=24).astype("float32"), requires_grad=True)
    made = ringup.stft(signal, 8, 8, center=False, onesided=False)
    (found,) = gradient((made.abs() ** 2).sum(), [signal])
    np.testing.assert_allclose(found.numpy(), 16 * signal.numpy(), atol=1e-4)
    back = ringup.istft(ringup.stft(signal, 8, 2), 8, 2, length=24)
    (found,) = gradient((back * Tensor.arange(24)).sum(), [signal])
    np.testing.assert_allclose(found.numpy(), np.arange(24), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_fft": 64}, "stft of 64 elements, padding included, with n_fft 65"),
        ({"hop_length": 0}, "hop_length 0"),
        ({"win_length": 9}, "win_length 9"),
        ({"window": Tensor.ones(5)}, r"a window of shape \[8\]"),
        ({"window": Tensor.ones(8, dtype="complex64"), "onesided": True}, "onesided=True"),
    ],
)
def test_what_is_no_transform_is_refused(options, said):
    signal = Tensor.zeros(64) if options.get("n_fft") == 64 else Tensor.zeros(20)
    if "n_fft" in options:
        options = {"n_fft": 65, "center": False}
    with pytest.raises(ValueError, match=said):
        ringup.stft(signal, **{"n_fft": 8, **options})


def test_spectra_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"a tensor \(length\) or \(batch, length\)"):
        ringup.stft(Tensor.zeros(2, 3, 20), 8)
    with pytest.raises(ValueError, match="complex spectra"):
        ringup.istft(Tensor.zeros(5, 4), 8)
    with pytest.raises(ValueError, match="5 frequencies, 8 of two sides"):
        ringup.istft(Tensor.zeros(6, 4, dtype="complex64"), 8)
    with pytest.raises(ValueError, match="of one side of spectra"):
        ringup.istft(Tensor.zeros(5, 4, dtype="complex64"), 8, return_complex=True)
    with pytest.raises(ValueError, match="a complex window"):
        ringup.istft(Tensor.zeros(8, 4, dtype="complex64"), 8, window=Tensor.ones(8, dtype="complex64"))


def test_of_two_sides_a_real_signal_reads_the_first():
    spectra_ = Tensor(
        (DRAW.normal(size=(8, 5)) + 1j * DRAW.normal(size=(8, 5))).astype("complex64"), requires_grad=True
    )
    whole, half = ringup.istft(spectra_, 8, onesided=False), ringup.istft(spectra_[:5], 8)
    np.testing.assert_array_equal(whole.numpy(), half.numpy())
    (found,) = gradient(whole.sum(), [spectra_])
    assert not found.numpy()[5:].any()
