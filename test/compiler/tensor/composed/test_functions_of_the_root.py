"""The root package gives the functions of tensors under PyTorch's and NumPy's names."""

import math
from pathlib import Path

import numpy as np
import pytest

import ringup
from ringup import Tensor
from ringup.compiler.tensor.composed import functions

ROOT = Path(__file__).parents[4]
NAMES = ringup._FUNCTIONS.split()
# what the module itself uses
USED = {
    "annotations",
    "builtins",
    "math",
    "dtypes",
    "nodes",
    "DType",
    "DTypeLike",
    "as_dtype",
    "Any",
    "Callable",
    "Tensor",
    "_typed",
}


def test_the_list_of_names_is_that_of_the_module():
    assert sorted(set(vars(functions)) - USED - {one for one in vars(functions) if one.startswith("__")}) == NAMES
    assert set(NAMES) < set(ringup.__all__)


def test_no_name_is_that_of_a_package():
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert packages >= {"nn", "optim", "linalg", "drivers"}
    assert not packages & set(NAMES)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if callable(getattr(Tensor, name, None))
        and name not in ("bool", "int", "float", "long", "short", "half", "double", "cfloat", "cdouble")
    ],
)
def test_a_function_is_the_method(name):
    assert getattr(ringup, name) == getattr(Tensor, name)


def test_functions_take_lists_arrays_and_words():
    assert ringup.sum([[1, 2], [3, 4]], dim=1).tolist() == [3, 7]
    assert ringup.max(np.array([[1, 5], [7, 2]]), dim=1).indices.tolist() == [1, 0]
    assert ringup.tril(ringup.ones(2, 2, dtype=ringup.long)).tolist() == [[1, 0], [1, 1]]
    assert ringup.full((2,), ringup.pi).tolist() == [pytest.approx(math.pi)] * 2
    assert ringup.is_tensor(ringup.zeros(1))
    assert not ringup.is_tensor([0])
    with pytest.raises(TypeError, match=r"Tensor.tril takes no 'diag' \(did you mean 'diagonal'\?\)"):
        ringup.tril(ringup.ones(2, 2), diag=1)


def test_parts_are_functions_too():
    z = ringup.tensor([1 + 2j])
    assert (ringup.real(z).item(), ringup.imag(z).item()) == (1, 2)
    assert ringup.conj(z).item() == 1 - 2j


def test_pytorchs_names_of_types_are_types():
    assert (ringup.long, ringup.int, ringup.short) == ("int64", "int32", "int16")
    assert (ringup.cfloat, ringup.cdouble) == ("complex64", "complex128")
    assert (ringup.double, ringup.float, ringup.half, ringup.bool) == ("float64", "float32", "float16", "bool")


def test_packages_are_there_without_an_import_of_their_own():
    assert ringup.linalg.inv(ringup.tensor([[2.0]])).tolist() == [[0.5]]


def test_shapes_broadcast():
    # PyTorch 2.14
    assert ringup.broadcast_shapes((3, 1), 4, (1,)) == (3, 4)
    assert ringup.broadcast_shapes() == ringup.broadcast_shapes(()) == ()
    with pytest.raises(ValueError, match="do not broadcast"):
        ringup.broadcast_shapes((2,), (3,))


def test_small_words_of_pytorch():
    made = ringup.arange(6).reshape(2, 3)
    assert (made.stride(), made.stride(0), made.stride(-1)) == ((3, 1), 3, 1)
    assert ringup.adjoint(ringup.tensor([[1 + 2j, 3]])).tolist() == [[1 - 2j], [3]]
    assert ringup.conj_physical(ringup.tensor([1j])).tolist() == [-1j]
    assert [ringup.is_nonzero(ringup.tensor(one)) for one in (0.0, [2], [False])] == [False, True, False]
    assert ringup.nonzero_static(ringup.tensor([0, 3, 0, 4]), size=3).tolist() == [[1], [3], [-1]]
    assert ringup.get_default_dtype() == "float32"


def test_bytes_and_arrays_become_tensors():
    data = np.arange(6, dtype=np.int16).tobytes()
    assert ringup.frombuffer(data, "int16").tolist() == [0, 1, 2, 3, 4, 5]
    assert ringup.frombuffer(bytearray(data), ringup.short, count=2, offset=4).tolist() == [2, 3]
    with pytest.raises(ValueError, match="12 bytes from byte 0 on are not 7 elements of int16"):
        ringup.frombuffer(data, "int16", 7)
    with pytest.raises(ValueError, match="11 bytes from byte 1 on are not 5 elements of int16"):
        ringup.frombuffer(data, "int16", offset=1)
    x = ringup.tensor([1.0])
    assert ringup.asarray(x) is x
    assert ringup.asarray(x, copy=True) is not x
    assert ringup.as_tensor([1], dtype="int8").dtype == "int8"
    with pytest.raises(ValueError, match="without a copy"):
        ringup.asarray([1], copy=False)


def test_pytorchs_older_constructors():
    assert ringup.LongTensor([[1, 2]]).dtype == "int64"
    assert ringup.FloatTensor([1, 2]).tolist() == [1.0, 2.0]
    assert (ringup.ByteTensor(2, 3).shape, ringup.BoolTensor(3).dtype, ringup.HalfTensor().shape) == (
        (2, 3),
        "bool",
        (0,),
    )


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_grids_are_made_of_a_list_too(indexing):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])
    wanted = np.meshgrid(x, y, indexing=indexing)
    for made in (
        ringup.meshgrid([Tensor(x), Tensor(y)], indexing=indexing),
        ringup.meshgrid(Tensor(x), Tensor(y), indexing=indexing),
    ):
        for one, other in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)
