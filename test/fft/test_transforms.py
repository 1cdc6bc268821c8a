"""Transforms are NumPy's, of every length, along every axis, in every norm. Their gradients are PyTorch's."""

import math

import numpy as np
import pytest
from on_cores import Cores

from ringup import Tensor, fft, gradient
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Size, device
from ringup.compiler.tensor.order import prepared
from ringup.fft import tables

DRAW = np.random.default_rng(17)
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 17, 31, 60, 64, 66, 97, 100, 127, 128, 131, 210, 256, 262, 360, 521, 1000, 1024)
# units in the last place of the root of the mean square, for each factor 2 of the length
UNITS = 1.5


def numbers(*shape, kind="complex64"):
    return (DRAW.normal(size=shape) + 1j * DRAW.normal(size=shape)).astype(kind)


def near(found, wanted, length):
    """Compare with a more exact array: no error exceeds some units in the last place of the typical size."""
    made = found.numpy()
    assert made.shape == wanted.shape
    unit = np.finfo(made.dtype).eps / 2
    bound = unit * (2 + UNITS * math.log2(length)) * max(np.sqrt((np.abs(wanted) ** 2).mean()), 1e-30)
    assert np.abs(made - wanted).max() <= bound


@pytest.mark.parametrize("length", LENGTHS)
def test_every_length_is_numpys(length):
    z = numbers(2, length)
    wide = z.astype(np.complex128)
    near(fft.fft(Tensor(z)), np.fft.fft(wide), length)
    near(fft.ifft(Tensor(z)), np.fft.ifft(wide), length)
    near(fft.rfft(Tensor(z.real.copy())), np.fft.rfft(wide.real), length)
    near(fft.irfft(Tensor(z[:, : length // 2 + 1]), length), np.fft.irfft(wide[:, : length // 2 + 1], length), length)
    near(fft.hfft(Tensor(z[:, : length // 2 + 1]), length), np.fft.hfft(wide[:, : length // 2 + 1], length), length)
    near(fft.ihfft(Tensor(z.real.copy())), np.fft.ihfft(wide.real), length)


@pytest.mark.parametrize("length", [7, 64, 131, 256])
def test_f64_is_as_exact_as_numpy(length):
    z = numbers(2, length, kind="complex128")
    unit = np.finfo(np.float64).eps * np.sqrt(length) * (4 + 4 * math.log2(length))
    assert np.abs(fft.fft(Tensor(z)).numpy() - np.fft.fft(z)).max() <= unit
    assert fft.fft(Tensor(z)).numpy().dtype == np.complex128
    assert fft.irfft(fft.rfft(Tensor(z.real.copy())), length).numpy().dtype == np.float64


def test_lengths_axes_and_norms_are_numpys():
    z = numbers(4, 6, 5)
    for norm in (None, "backward", "ortho", "forward"):
        for axis in (0, 1, -1):
            for n in (None, 3, 9):
                for name in ("fft", "ifft", "irfft", "hfft"):
                    found = getattr(fft, name)(Tensor(z), n, axis, norm)
                    near(found, getattr(np.fft, name)(z.astype(np.complex128), n, axis, norm), 16)
                for name in ("rfft", "ihfft"):
                    found = getattr(fft, name)(Tensor(z.real.copy()), n=n, dim=axis, norm=norm)
                    near(found, getattr(np.fft, name)(z.real.astype(np.float64), n, axis, norm), 16)


@pytest.mark.parametrize(
    ("s", "axes"), [(None, None), ((3, 8), (0, 2)), (None, (1, 0)), ((4, -1), (-1, 0)), ((2, 2, 7), None), (None, (2,))]
)
def test_several_axes_are_numpys(s, axes):
    z = numbers(4, 6, 5)
    if s is not None and axes is None:
        axes = (-3, -2, -1)
    lengths = None if s is None else [z.shape[axis] if n == -1 else n for n, axis in zip(s, axes, strict=True)]
    for name in ("fftn", "ifftn", "irfftn"):
        wanted = getattr(np.fft, name)(z.astype(np.complex128), lengths, axes)
        near(getattr(fft, name)(Tensor(z), s, axes), wanted, 128)
    near(fft.rfftn(Tensor(z.real.copy()), s, axes), np.fft.rfftn(z.real.astype(np.float64), lengths, axes), 128)


def test_two_axes_are_numpys():
    z = numbers(2, 6, 10)
    wide = z.astype(np.complex128)
    near(fft.fft2(Tensor(z), norm="ortho"), np.fft.fft2(wide, norm="ortho"), 60)
    near(fft.ifft2(Tensor(z), dim=(0, 1)), np.fft.ifft2(wide, axes=(0, 1)), 60)
    near(fft.rfft2(Tensor(z.real.copy())), np.fft.rfft2(wide.real), 60)
    near(fft.irfft2(Tensor(z), s=(6, 19)), np.fft.irfft2(wide, s=(6, 19)), 60)


def test_frequencies_and_shifts_are_numpys():
    for n in (1, 2, 5, 8):
        np.testing.assert_allclose(fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(fft.rfftfreq(n, dtype="float64").numpy(), np.fft.rfftfreq(n))
    x = np.arange(30).reshape(5, 6)
    for axes in (None, 0, (1,), (0, 1)):
        np.testing.assert_array_equal(fft.fftshift(Tensor(x), axes).numpy(), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(fft.ifftshift(Tensor(x), dim=axes).numpy(), np.fft.ifftshift(x, axes))


def test_other_types_are_computed_in_f32():
    x = np.arange(8)
    for kind in ("int8", "bool", "float16", "bfloat16", "int64"):
        found = fft.fft(Tensor(x).cast(kind))
        assert found.dtype == "complex64"
        near(found, np.fft.fft((x > 0) if kind == "bool" else x), 8)


def test_batches_may_have_sizes_known_later():
    z = numbers(5, 12)
    n = Size("n", 1, 8)
    part = Tensor(np.concatenate([z, z[:3]]))[:n]
    near_numpy = fft.fft(part).numpy(n=5)
    np.testing.assert_allclose(near_numpy, np.fft.fft(z), rtol=1e-4, atol=1e-5)
    assert fft.fft(Tensor(z[:0])).numpy().shape == (0, 12)


# PyTorch 2.14, f64: gradients of sum(re * (1, 2, …)) + sum(im^2), of sum(y * (1, 2, …)) + sum(y^3) for real results
VALUES = np.array([0.5 + 1.25j, -1.5 + 0.75j, 0.25 - 0.5j, 2.0 - 1.0j, 0.125 + 0.5j, -0.75j])
GRADIENTS = {
    "fft": [21+15j, -12-5.196152423j, -2.25-1.732050808j, -3-12j, -3.75+1.732050808j, 6+5.196152423j],
    "ifft": [8.5732141+2.5j, -2.724744871+2.121320344j, -1.099744871+0.7071067812j, -1.224744871-2j, -1.349744871-0.7071067812j,
             0.2752551286-2.121320344j],
    "fft of reals": [21.0, -12.0, -2.25, -3.0, -3.75, 6.0],
    "rfft": [10.0, -8.0, 2.875, -2.0, 2.125, 1.0],
    "rfft5": [6.0, -4.871516994, -4.065983006, 4.684016994, 3.253483006, 0.0],
    "irfft": [6.0109375, -1.09+3.415183537j, -1.3740625+1.22638192j, -0.7675+0.572792528j, -1.06+0.9324196962j, -0.5675],
    "irfft7": [5.010204082, -0.7551020408+2.979582621j, -1.681122449+0.766861144j, -1.329081633-0.3686953011j, 0, 0],
    "hfft": [565.9375, -100+306.7231646j, -384.0625-163.7638192j, 222.5-161.0154253j, -70+604.250803j, -72.5],
    "ihfft": [1.666666667, -0.7083333333, 0.4270833333, -0.3333333333, 0.40625, -0.4583333333],
    "fft2": [21+15j, -13.5-0.2320508076j, 7.5+3.232050808j, -9-12j, 0.75-1.5j, -0.75-1.5j],
    "rfft2": [10.0, -4.25, 6.25, -4.0, -0.625, -1.375],
    "irfft2": [4.990722656, -1.1640625+1.22265625j, -0.3520507812, -1.87109375, -0.544921875+0.3046875j, -0.05859375],
    "fft8": [4.5+0.3125j, -0.6875-1.113356781j, -0.46875-0.5625j, -0.25-0.4258567812j, -0.5+0.125j, -0.75-0.01164321881j],
}  # fmt: skip
MAKE = {
    "fft": fft.fft, "ifft": lambda z: fft.ifft(z, norm="ortho"), "fft of reals": fft.fft, "rfft": fft.rfft,
    "rfft5": lambda x: fft.rfft(x, 5), "irfft": fft.irfft, "irfft7": lambda z: fft.irfft(z, 7), "hfft": fft.hfft, "ihfft": fft.ihfft,
    "fft2": lambda z: fft.fft2(z.reshape(2, 3)), "rfft2": lambda x: fft.rfft2(x.reshape(2, 3)),
    "irfft2": lambda z: fft.irfft2(z.reshape(2, 3)), "fft8": lambda z: fft.fft(z, 8, norm="forward"),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKE)
def test_gradients_are_pytorchs(name):
    real = not np.iscomplexobj(np.array(GRADIENTS[name])) and name != "hfft"
    x = Tensor(VALUES.real.copy() if real else VALUES)
    y = MAKE[name](x)
    weights = Tensor(np.arange(1.0, y.numel() + 1).reshape(y.shape))
    loss = (y.real * weights).sum() + (y.imag.square().sum() if y.is_complex() else (y**3).sum())
    np.testing.assert_allclose(gradient(loss, [x])[0].numpy(), GRADIENTS[name], rtol=1e-8, atol=1e-8)


def test_the_gradient_of_a_transform_is_a_transform():
    """So it takes as few kernels as the transform itself."""
    z = Tensor(numbers(4, 256))
    made = fft.fft(z)
    (found,) = gradient((made.real * Tensor(np.ones((4, 256), np.float32))).sum(), [z])
    assert len(plan(prepared([found.node])).kernels) <= 3


@pytest.mark.parametrize(("length", "kernels"), [(64, 1), (1024, 2), (4096, 2), (1 << 18, 3), (1031, 5)])
def test_a_transform_takes_few_kernels(length, kernels):
    made = fft.fft(Tensor(np.zeros((1, length), np.complex64)))
    planned = plan(prepared([made.node]))
    assert len(planned.kernels) == kernels
    # no more than two results lie between
    assert planned.arena_bytes <= 2 * 8 * tables.good_length(2 * length)


def test_the_virtual_cores_compute_what_numpy_does():
    z = numbers(2, 96)
    for found, wanted in ((fft.fft, np.fft.fft), (fft.ifft, np.fft.ifft)):
        with device(Cores()):
            near(found(Tensor(z)), wanted(z.astype(np.complex128)), 96)
    with device(Cores()):
        near(fft.irfft(fft.rfft(Tensor(z.real.copy()))), z.real.astype(np.float64), 96)


def test_radices_are_few_and_near_each_other():
    assert tables.radices(1024) == (32, 32)
    assert tables.radices(1000) == (40, 25)
    assert tables.radices(1 << 18) == (64, 64, 64)
    assert tables.radices(127) == (127,)
    for length in range(1, 600):
        assert math.prod(tables.radices(length)) == length
        assert all(one <= tables.MAX_RADIX or one in tables.primes(length) for one in tables.radices(length))


def test_roots_of_unity_are_rounded_once():
    n = 1031
    places = np.arange(-5 * n, 5 * n, 7)
    angles = (places % n).astype(np.longdouble) * (2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) / n)
    found = tables.turned(places, n)
    assert np.abs(found.real - np.cos(angles)).max() < 2.3e-16
    assert np.abs(found.imag - np.sin(angles)).max() < 2.3e-16


def test_what_cannot_be_transformed_is_said():
    z = Tensor(numbers(3, 4))
    for wrong, error, said in (
        (lambda: fft.rfft(z), TypeError, "rfft of complex64: real numbers"),
        (lambda: fft.fft(z, 0), ValueError, "fft of 0 elements"),
        (lambda: fft.irfft(z, 0), ValueError, "irfft of 0 results"),
        (lambda: fft.fft(z, norm="both"), ValueError, "there is no norm 'both'"),
        (lambda: fft.fft(Tensor(1.0)), ValueError, "one axis at least"),
        (lambda: fft.fft([1, 2]), TypeError, "fft of list: a tensor"),
        (lambda: fft.fftn(z, (2,), (0, 1)), ValueError, "as many of both"),
        (lambda: fft.fft(z, axis=2), IndexError, "axis 2"),
        (lambda: fft.fft(z, axes=1), TypeError, "takes no 'axes'"),
        (lambda: fft.fft(z[:, : Size("m", 1, 4)]), ValueError, "needs a size known now"),
    ):
        with pytest.raises(error, match=said):
            wrong()
