"""Windows are SciPy's, in both forms, and rounded once."""

import numpy as np
import pytest
from scipy import signal

import ringup

NAMES = ["hann", "hamming", "blackman", "bartlett", "kaiser"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_windows_are_scipys(name, periodic, kind):
    for length in (1, 2, 3, 8, 33):
        wanted = signal.get_window(("kaiser", 12.0) if name == "kaiser" else name, length, fftbins=periodic)
        found = getattr(ringup, f"{name}_window")(length, periodic, dtype=kind)
        assert found.dtype == kind
        np.testing.assert_allclose(
            found.numpy(), wanted, rtol=0, atol=4 * np.finfo(kind).eps if kind == "float64" else np.finfo(kind).eps / 2
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_window_of_no_places_is_empty_and_others_are_refused(name):
    window = getattr(ringup, f"{name}_window")
    assert window(0).shape == (0,)
    with pytest.raises(ValueError, match="a window of -1 places: none or more"):
        window(-1)
    with pytest.raises(TypeError, match="a window of int32"):
        window(4, dtype="int32")


def test_options_of_shape():
    np.testing.assert_allclose(ringup.hamming_window(4, alpha=0.6, beta=0.4).numpy(), [0.2, 0.6, 1, 0.6], atol=1e-7)
    flat = ringup.kaiser_window(5, periodic=False, beta=0.0, requires_grad=True)
    assert flat.requires_grad
    assert flat.tolist() == [1, 1, 1, 1, 1]
