"""Complex tensors: making them, their parts, operators, sums, places, assignment. Values are NumPy's."""

import operator

import numpy as np
import pytest

import ringup
from ringup import Tensor, complex64, complex128
from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Source

DRAW = np.random.default_rng(11)


def numbers(*shape, kind="complex64"):
    return (DRAW.normal(size=shape) + 1j * DRAW.normal(size=shape)).astype(kind)


def close(found, wanted):
    """Compare with an array, by some units in the last place of the greatest element."""
    made = found.numpy()
    assert made.dtype == wanted.dtype
    assert made.shape == wanted.shape
    unit = np.finfo(made.dtype).eps
    np.testing.assert_allclose(made, wanted, rtol=16 * unit, atol=8 * unit * np.abs(wanted).max(initial=0))


def test_a_list_a_number_and_an_array_make_complex_tensors():
    assert Tensor([1 + 2j, 3]).dtype is complex64
    assert Tensor([1 + 2j, 3]).tolist() == [1 + 2j, 3]
    assert Tensor(2j).item() == 2j
    assert Tensor([1, 2.5], "complex128").tolist() == [1, 2.5]
    assert Tensor(numbers(2, 3, kind="complex128")).dtype is complex128
    assert Tensor.full((2,), 1 - 1j).tolist() == [1 - 1j, 1 - 1j]
    assert Tensor.zeros(2, dtype="complex64").tolist() == [0, 0]
    assert Tensor([1 + 1j]).full_like(3j).tolist() == [3j]
    assert complex(Tensor([1 + 2j])) == 1 + 2j
    assert str(Tensor([1 + 2j])) == "Tensor([1.+2.j], shape=[1], dtype=complex64)"
    assert f"{Tensor(1.5 + 0.25j):.1f}" == "1.5+0.2j"
    array = numbers(3).astype(">c8")
    np.testing.assert_array_equal(Tensor(array).numpy(), array)


def test_complex_numbers_come_from_parts_and_go_to_parts():
    real, imag = DRAW.normal(size=(2, 3)).astype(np.float32), DRAW.normal(size=3).astype(np.float32)
    made = ringup.complex(Tensor(real), Tensor(imag))
    np.testing.assert_array_equal(made.numpy(), real + 1j * imag)
    np.testing.assert_array_equal(made.real.numpy(), real)
    np.testing.assert_array_equal(made.imag.numpy(), np.broadcast_to(imag, (2, 3)))
    np.testing.assert_array_equal(made.conj().numpy(), np.conj(real + 1j * imag))
    pairs = np.stack([real, np.broadcast_to(imag, (2, 3))], -1)
    np.testing.assert_array_equal(made.view_as_real().numpy(), pairs)
    np.testing.assert_array_equal(Tensor(pairs).view_as_complex().numpy(), made.numpy())
    np.testing.assert_array_equal(made.view("float32").numpy(), made.numpy().view(np.float32))
    close(ringup.polar(Tensor(abs(real)), Tensor(imag)), (abs(real) * np.exp(1j * imag)).astype(np.complex64))
    assert made.is_complex()
    assert not made.real.is_complex()
    assert not made.is_floating_point()
    assert Tensor([1, 2]).imag.tolist() == [0, 0]
    assert Tensor([-2.0, 3.0]).angle().tolist() == [np.float32(np.pi), 0]


KINDS = ["bool", "int8", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_beside_complex_numbers(kind):
    wide = complex128 if kind in ("float64", "complex128") else complex64
    one = Tensor([1], dtype=kind)
    assert (one + Tensor([1j])).dtype is wide
    assert (one * 1j).dtype is wide
    assert (1j - one).dtype is wide
    assert (one + Tensor([1j], "complex128")).dtype is complex128
    assert dtypes.promote(complex64, one.dtype) is wide


def test_numbers_of_python_are_weak():
    for number in (True, 2, 2.5, 2j):
        assert (Tensor([1j]) * number).dtype is complex64
        assert (Tensor([1j], complex128) / number).dtype is complex128


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_operators_are_numpys(kind):
    a, b = numbers(4, 5, kind=kind), numbers(5, kind=kind)
    real = DRAW.normal(size=(4, 1)).astype(a.real.dtype)
    for way in (operator.add, operator.sub, operator.mul, operator.truediv):
        close(way(Tensor(a), Tensor(b)), way(a, b))
        close(way(Tensor(a), Tensor(real)), way(a, real))
        close(way(Tensor(real), Tensor(a)), way(real, a))
        close(way(Tensor(a), 2 - 1j), way(a, 2 - 1j))
        close(way(3.0, Tensor(a)), way(3.0, a))
        close(way(a, Tensor(b)), way(a, b))
    close(-Tensor(a), -a)
    close(Tensor(a) ** 3, a**3)
    close(Tensor(a) ** -2, a**-2)
    close(abs(Tensor(a)), abs(a))
    close(Tensor(a).lerp(Tensor(a) * 2, 0.5), a * a.real.dtype.type(1.5))
    c = a.copy()
    c[1, 2] += 1j
    np.testing.assert_array_equal((Tensor(a) == Tensor(c)).numpy(), a == c)
    np.testing.assert_array_equal((Tensor(a) != Tensor(c)).numpy(), a != c)
    assert (Tensor([1 + 0j, 1j]) == 1).tolist() == [True, False]
    assert Tensor([0j, 1j, 1 + 0j]).bool().tolist() == [False, True, True]


def test_division_neither_overflows_nor_vanishes_on_the_way():
    big, small = np.complex64(3e38 + 1e38j), np.complex64(1e-40 + 2e-40j)
    for divisor in (big, small):
        found = (Tensor([divisor]) / Tensor([divisor])).numpy()
        np.testing.assert_allclose(found, [1], rtol=1e-4)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((Tensor([1 + 2j]) / Tensor([0j])).numpy(), [complex(np.inf, np.inf)])


def test_a_real_factor_leaves_infinities_where_they_are():
    """As the array API standard has it; NumPy multiplies the zero part too."""
    found = (Tensor([complex(np.inf, 1)]) * 2.0).numpy()
    assert found.tolist() == [complex(np.inf, 2)]


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_sums_products_and_statistics_are_numpys(kind):
    a = numbers(3, 7, kind=kind)
    t = Tensor(a)
    for axis in (None, 0, 1):
        for name in ("sum", "mean", "prod"):
            close(getattr(t, name)(axis), np.asarray(getattr(a, name)(axis)))
        close(t.var(axis, correction=0), np.asarray(a.var(axis)))
        close(t.std(axis, correction=1), np.asarray(a.std(axis, ddof=1)))
    for axis in (0, 1):
        close(t.cumsum(axis), a.cumsum(axis))
        close(t.cumprod(axis), a.cumprod(axis))
    close(t.norm(), np.asarray(np.linalg.norm(a)))
    close(t.norm(1, 1), np.abs(a).sum(1))
    close(t.prod(1, keepdims=True), a.prod(1, keepdims=True))
    assert Tensor.zeros(2, 0, dtype=kind).prod(1).tolist() == [1, 1]
    assert t.any().item()
    assert not Tensor([0j, 0j]).any().item()
    assert Tensor([0j, 1j]).count_nonzero().item() == 1
    assert t.isclose(t + 1e-9).all().item()
    assert not t.allclose(t + 1).item()


def test_covariances_are_numpys():
    a = numbers(3, 9, kind="complex128")
    close(Tensor(a).cov(), np.cov(a))
    close(Tensor(a).cov(correction=0, aweights=np.arange(9)), np.cov(a, ddof=0, aweights=np.arange(9)))
    close(Tensor(a).corrcoef(), np.corrcoef(a))
    close(Tensor(a).trapezoid(), np.trapezoid(a))


def test_convolutions_are_numpys():
    a, kernel = numbers(9, kind="complex128"), numbers(3, kind="complex128")
    found = Tensor(a).reshape(1, 1, 9).conv1d(Tensor(kernel).reshape(1, 1, 3))
    close(found.reshape(7), np.convolve(a, kernel[::-1], "valid"))
    assert Tensor(a).linear(Tensor(numbers(4, 9, kind="complex128"))).shape == (4,)


def test_long_products_are_numpys():
    a = np.exp(1j * DRAW.normal(size=(2, 200)))
    close(Tensor(a).prod(1), a.prod(1))
    close(Tensor(a).cumprod(1), a.cumprod(1))


def test_matrix_products_are_numpys():
    a, b = numbers(2, 4, 5), numbers(5, 3)
    close(Tensor(a) @ Tensor(b), a @ b)
    close(Tensor(a) @ Tensor(b[:, 0].copy()), a @ b[:, 0])
    close(Tensor(a.real.copy()) @ Tensor(b), a.real @ b)
    close(Tensor(b).H, b.conj().T)
    close(Tensor(a).mH, a.conj().swapaxes(1, 2))
    close(Tensor(a[0]).vdot(Tensor(a[1])), np.asarray(np.vdot(a[0], a[1])))
    close(Tensor(a[0]).vecdot(Tensor(a[1])), np.vecdot(a[0], a[1]))
    close(Tensor(a[0]).einsum("ij,jk->ik", Tensor(b)), a[0] @ b)
    close(Tensor(a[0]).outer(Tensor(b)), np.outer(a[0], b))
    close(Tensor(a[0]).kron(Tensor(b)), np.kron(a[0], b))
    with pytest.raises(ValueError, match="mH takes stacks"):
        _ = Tensor(a).H


def test_movement_and_places_are_numpys():
    a = numbers(4, 6)
    t, places = Tensor(a), np.array([[0, 2], [3, 3]])
    for found, wanted in (
        (t.T, a.T),
        (t.reshape(3, 8).flip(0), a.reshape(3, 8)[::-1]),
        (t[1:3, ::2], a[1:3, ::2]),
        (t[[0, 3], 1], a[[0, 3], 1]),
        (t.pad([(1, 0), (0, 2)]), np.pad(a, [(1, 0), (0, 2)])),
        (t.pad([(1, 0), (0, 2)], 2 - 1j), np.pad(a, [(1, 0), (0, 2)], constant_values=2 - 1j)),
        (t.cat(t * 1j, axis=1), np.concatenate([a, a * np.complex64(1j)], 1)),
        (t.stack(t), np.stack([a, a])),
        (t.take(Tensor(places), 0), a.take(places, 0)),
        (t.tril(), np.tril(a)),
        (t.roll(1, 0), np.roll(a, 1, 0)),
        (t.expand(2, 4, 6), np.broadcast_to(a, (2, 4, 6))),
        (t.diagonal(), a.diagonal()),
        ((t.real > 0).where(t, 0), np.where(a.real > 0, a, 0)),
        ((t.real > 0).where(1j, 0.5), np.where(a.real > 0, 1j, 0.5).astype(np.complex64)),
        (t.masked_fill(t.real > 0, 1j), np.where(a.real > 0, np.complex64(1j), a)),
    ):
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert np.argwhere(a.real > 0).tolist() == (t.real > 0).nonzero().tolist()
    each = np.ones((3, 6), np.complex64) * np.complex64(1 + 1j)
    want = a.copy()
    np.add.at(want, [0, 0, 2], each)
    close(t.index_add(0, Tensor([0, 0, 2]), Tensor(each)), want)


def test_assignment_reaches_parts_and_the_whole():
    a = numbers(3, 4)
    t = Tensor(a)
    t[1] = 2j
    a[1] = 2j
    t[:, 1:3] *= 1 + 1j
    a[:, 1:3] *= 1 + 1j
    t.real = 1.5
    a.real = 1.5
    t.imag = Tensor([1.0, 2.0, 3.0, 4.0])
    a.imag = [1, 2, 3, 4]
    part = t.real
    part[2, 1:] = [7.0, 8.0, 9.0]
    a.real[2, 1:] = [7, 8, 9]
    t.imag[:2] += 0.5
    a.imag[:2] += 0.5
    t.T.flip(0).real[0] = -1.0
    a.T[::-1].real[0] = -1
    close(t.real, a.real)
    t.reshape(12)[5] = -1
    a.reshape(12)[5] = -1
    close(t, a)
    t *= t
    close(t, a * a)
    t[t.real > 0] = 0
    assert (t.real <= 0).all().item()
    with pytest.raises(TypeError, match="assign to the imaginary part of real numbers"):
        Tensor([1.0]).imag[0] = 1
    with pytest.raises(TypeError, match="imaginary"):
        Tensor([1.0, 2.0])[0:1] = Tensor([1j])
    with pytest.raises(TypeError, match="complex and does not fit float32"):
        Tensor([1.0, 2.0])[0] = 1j
    real = Tensor([1.0])
    with pytest.raises(TypeError, match="does not go into a tensor of float32 in place"):
        real *= 1j


@pytest.mark.parametrize(
    "what",
    [
        lambda t: t < t, lambda t: t >= 1, lambda t: t.maximum(t), lambda t: t.max(), lambda t: t.argmax(), lambda t: t.sort(),
        lambda t: t.argsort(), lambda t: t.floor(), lambda t: t // 2, lambda t: t % 2, lambda t: t.trunc(), lambda t: t.clip(0, 1),
        lambda t: t & t, lambda t: ~t, lambda t: t << 1, lambda t: t.softmax(), lambda t: t.relu(), lambda t: t.cummax(),
        lambda t: t.median(), lambda t: t.topk(1), lambda t: t.float(), lambda t: t.int(), lambda t: t.atan2(t), lambda t: t.erf(),
        lambda t: t.copysign(t), lambda t: t.signbit(), lambda t: t.logaddexp(t), lambda t: t.fmod(2), lambda t: t.cbrt(),
        lambda t: t.hypot(t), lambda t: t.bitcast("int64"), lambda t: Tensor(t, "float32"), lambda t: t.gelu(),
        lambda t: t.quantile(0.5), lambda t: t.to("float64"), lambda t: t.round().floor(),
        lambda t: t.scatter_reduce(0, Tensor([0, 1]), t, "amax"), lambda t: t.logsumexp(), lambda t: t.frac(),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_a_type_error(what):
    with pytest.raises(TypeError, match=r"complex|imaginary"):
        what(Tensor([1 + 2j, 3j]))


def test_numbers_that_fit_no_real_type_are_refused():
    for wrong in (
        lambda: Tensor(1j, "float32"),
        lambda: Tensor([1j], "int32"),
        lambda: Tensor.full((2,), 1j, "float64"),
    ):
        with pytest.raises(TypeError, match="complex"):
            wrong()
    with pytest.raises(ValueError, match="does not fit complex64"):
        Tensor(1e300j, "complex64")


def test_dlpack_and_the_buffer_protocol_hand_complex_numbers_over():
    for kind in ("complex64", "complex128"):
        a = numbers(3, 2, kind=kind)
        np.testing.assert_array_equal(np.from_dlpack(Tensor(a)), a)
        np.testing.assert_array_equal(Tensor.from_dlpack(a.T).numpy(), a.T)
        assert np.asarray(Tensor(a)).dtype == kind


def test_limits_are_those_of_the_parts():
    assert ringup.finfo("complex64").max == np.finfo(np.complex64).max
    assert complex128.eps == np.finfo(np.float64).eps
    assert complex64.size_bytes == 8
    assert complex64.part is dtypes.float32


def test_safetensors_keep_complex64(tmp_path):
    a = numbers(2, 3)
    ringup.save_safetensors({"x": Tensor(a)}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(ringup.load(tmp_path / "x.safetensors")["x"].numpy(), a)
    with pytest.raises(TypeError, match="no complex128"):
        ringup.save_safetensors({"x": Tensor([1j], "complex128")}, tmp_path / "y.safetensors")


def test_numpy_files_hold_complex_numbers(tmp_path):
    a = numbers(2, 3, kind="complex128")
    np.savez(tmp_path / "x.npz", a=a, b=a.astype(">c8"))
    found = ringup.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(found["a"].numpy(), a)
    np.testing.assert_array_equal(found["b"].numpy(), a.astype("complex64"))


def test_random_complex_numbers_have_variance_1_and_independent_parts():
    z = Tensor.randn(20000, dtype="complex64", source=Source(3)).numpy()
    assert z.dtype == np.complex64
    assert np.abs(z).std() == pytest.approx(np.sqrt(1 - np.pi / 4), rel=0.03)
    assert (np.abs(z) ** 2).mean() == pytest.approx(1, rel=0.03)
    assert abs((z.real * z.imag).mean()) < 0.02
    z = Tensor.rand(2000, dtype="complex128", source=Source(4)).numpy()
    assert (z.real >= 0).all()
    assert (z.imag < 1).all()
    assert z.mean() == pytest.approx(0.5 + 0.5j, abs=0.03)
    assert Tensor([1j]).randn_like().dtype is complex64
