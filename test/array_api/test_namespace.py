"""The namespace itself: its names and signatures, data types, what it says of itself."""

import inspect
import itertools

import array_api_cases
import array_api_strict as strict
import pytest

import ringup
import ringup.array_api as xp
from ringup import Tensor
from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import device

# of array-api-strict: its own, and the extensions, which have tests of their own
NOT_HERE = {"linalg", "fft", "Device", "ArrayAPIStrictFlags", "__version__"}


@pytest.fixture(autouse=True)
def newest():
    strict.set_array_api_strict_flags(api_version=xp.__array_api_version__)
    yield
    strict.reset_array_api_strict_flags()


def standard():
    """Return the names of the standard, as array-api-strict has them."""
    own = {name for name in strict.__all__ if "array_api_strict" in name or "Strict" in name}
    return sorted(set(strict.__all__) - NOT_HERE - own)


@pytest.mark.parametrize("name", standard())
def test_every_name_of_the_standard_is_there(name):
    assert hasattr(xp, name)


@pytest.mark.parametrize("name", [name for name in standard() if inspect.isfunction(getattr(strict, name))])
def test_parameters_are_the_standards(name):
    ours, theirs = (inspect.signature(getattr(one, name)).parameters.values() for one in (xp, strict))
    assert [(one.name, one.kind) for one in ours] == [(one.name, one.kind) for one in theirs]


def test_the_namespace_is_found_from_an_array_and_from_ringup():
    assert Tensor([1.0]).__array_namespace__() is xp is ringup.array_api
    assert Tensor([1.0]).__array_namespace__(api_version="2022.12") is xp
    with pytest.raises(ValueError, match=r"no version 2020.01 of the array API standard; there are 2021.12"):
        Tensor([1.0]).__array_namespace__(api_version="2020.01")


def kind(namespace, name):
    return getattr(namespace, name)


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in itertools.product(array_api_cases.ALL, repeat=2) if array_api_cases.promotes(*pair)],
)
def test_types_promote_as_the_standard_says(first, second):
    wanted = str(strict.result_type(kind(strict, first), kind(strict, second))).rpartition(".")[2]
    assert xp.result_type(kind(xp, first), kind(xp, second)) == wanted
    assert (xp.ones(2, dtype=kind(xp, first)) + xp.ones(2, dtype=kind(xp, second))).dtype == wanted
    assert xp.can_cast(kind(xp, first), kind(xp, second)) is (wanted == second)


def test_numbers_of_python_take_the_arrays_type():
    assert xp.result_type(xp.float32, 1, 2.0) is xp.float32
    assert xp.result_type(xp.asarray([1], dtype=xp.int8), 3) is xp.int8
    assert xp.result_type(xp.int8, 1.5) is xp.float32
    with pytest.raises(ValueError, match="result_type of numbers alone"):
        xp.result_type(1, 2.0)
    with pytest.raises(TypeError, match="'int8' is no data type of this namespace"):
        xp.result_type("int8")


@pytest.mark.parametrize("name", array_api_cases.ALL)
def test_kinds_of_types_are_the_standards(name):
    for one in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    ):
        assert xp.isdtype(kind(xp, name), one) is strict.isdtype(kind(strict, name), one)
    assert xp.isdtype(kind(xp, name), ("bool", "numeric"))
    assert xp.isdtype(kind(xp, name), (xp.float64, kind(xp, name)))
    assert xp.isdtype(kind(xp, name), xp.float64) is (name == "float64")


def test_an_unknown_kind_of_types_is_named():
    with pytest.raises(ValueError, match=r"no kind of data types 'float'; there are bool, signed integer"):
        xp.isdtype(xp.int8, "float")
    with pytest.raises(ValueError, match=r"no kind of data types 'float'"):
        xp.__array_namespace_info__().dtypes(kind="float")


@pytest.mark.parametrize("name", array_api_cases.NUMBERS)
def test_limits_of_types_are_numpys(name):
    if name in array_api_cases.FLOATS:
        ours, theirs = xp.finfo(kind(xp, name)), strict.finfo(kind(strict, name))
        fields = ("bits", "eps", "max", "min", "smallest_normal")
    else:
        ours, theirs = xp.iinfo(xp.ones(1, dtype=kind(xp, name))), strict.iinfo(kind(strict, name))
        fields = ("bits", "max", "min")
    assert [getattr(ours, field) for field in fields] == [getattr(theirs, field) for field in fields]
    assert ours.dtype == name


def test_narrow_floats_have_limits_too():
    # IEEE 754 binary16, bfloat16
    assert (xp.finfo(xp.float16).max, xp.finfo(xp.bfloat16).eps) == (65504.0, 2.0**-7)
    assert xp.isdtype(xp.bfloat16, "real floating")


def test_limits_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="finfo of int8: floating-point types only"):
        xp.finfo(xp.int8)
    with pytest.raises(TypeError, match="iinfo of bool: integer types only"):
        xp.iinfo(xp.bool)


def test_the_namespace_describes_itself(evaluator):
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}
    assert info.default_device() is evaluator
    assert info.devices() == (evaluator,)
    assert info.default_dtypes() == {
        "real floating": xp.float32,
        "complex floating": xp.complex64,
        "integral": xp.int32,
        "indexing": xp.int32,
    }
    numbers = [one.name for one in dtypes.ALL if one.name in array_api_cases.ALL]
    assert list(info.dtypes()) == [*numbers, "complex64", "complex128"]
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", "float32", "float64"]
    assert list(info.dtypes(kind="complex floating")) == ["complex64", "complex128"]


def test_without_a_chosen_device_there_is_no_default():
    with device(None):
        info = xp.__array_namespace_info__()
        assert (info.default_device(), info.devices()) == (None, (None,))


def test_complex_numbers_are_numbers_of_their_own_kind():
    assert xp.isdtype(xp.complex64, "complex floating")
    assert xp.isdtype(xp.complex128, "numeric")
    assert not xp.isdtype(xp.complex64, ("real floating", "integral"))
    assert xp.result_type(xp.float64, xp.complex64) == xp.complex128
    assert xp.result_type(xp.float32, 1j) == xp.complex64
    assert xp.finfo(xp.complex128).eps == xp.finfo(xp.float64).eps
    assert xp.asarray(1j).dtype == xp.complex64
    assert xp.asarray([1j, 1e300]).dtype == xp.complex128
    z = xp.linspace(0, 1 + 2j, 3)
    assert xp.imag(z).tolist() == [0, 1, 2]
    assert xp.conj(z).tolist() == [0, 0.5 - 1j, 1 - 2j]
    assert xp.vecdot(z, z).tolist() == pytest.approx(6.25)


def test_transforms_are_those_of_the_package():
    x = xp.asarray([1.0, 2.0, 3.0, 4.0])
    assert xp.fft.fft(x).tolist() == [10, -2 + 2j, -2, -2 - 2j]
    assert xp.fft.irfft(xp.fft.rfft(x)).tolist() == [1, 2, 3, 4]
    assert xp.fft.fftfreq(4, dtype=xp.float64).dtype == xp.float64
    with pytest.raises(TypeError):
        xp.fft.fft(x, 4)


def test_linear_algebra_has_every_name_of_the_standard():
    assert [name for name in (*strict.linalg.__all__, "eig", "eigvals") if not hasattr(xp.linalg, name)] == []


@pytest.mark.parametrize("name", strict.fft.__all__)
def test_transforms_have_the_standards_parameters(name):
    ours, theirs = (inspect.signature(getattr(one, name)).parameters.values() for one in (xp.fft, strict.fft))
    assert [(one.name, one.kind) for one in ours] == [(one.name, one.kind) for one in theirs]


def test_linear_algebra_has_the_standards_parameters():
    for name in sorted(set(strict.linalg.__all__) - {"eig", "eigvals"}):
        ours, theirs = (inspect.signature(getattr(one.linalg, name)).parameters.values() for one in (xp, strict))
        assert [(one.name, one.kind) for one in ours] == [(one.name, one.kind) for one in theirs]


def test_linear_algebra_is_that_of_tensors():
    x = xp.asarray([[4.0, 2.0], [2.0, 3.0]])
    found = xp.linalg
    # by hand
    assert found.det(x).item() == pytest.approx(8)
    assert found.cholesky(x, upper=True).numpy()[0].tolist() == [2.0, 1.0]
    assert found.solve(x, xp.asarray([8.0, 8.0])).numpy() == pytest.approx([1, 2])
    assert (found.inv(x) @ x).numpy() == pytest.approx(found.matrix_power(x, 0).numpy(), abs=1e-6)
    assert found.pinv(x).numpy() == pytest.approx(found.inv(x).numpy(), abs=1e-6)
    assert found.svdvals(x).numpy() == pytest.approx(found.eigvalsh(x).numpy()[::-1])
    assert found.matrix_norm(x, ord=2).item() == pytest.approx(found.svd(x).S[0].item())
    assert (found.matrix_rank(x).item(), found.slogdet(x).sign.item()) == (2, 1)
    assert found.eigh(x).eigenvectors.shape == found.qr(x).Q.shape == (2, 2)
