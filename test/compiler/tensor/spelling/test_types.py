"""Element types equal their names and the types of NumPy, PyTorch and Python, and are given as any of them."""

import numpy as np
import pytest

from ringup import finfo, iinfo
from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor


class dtype:
    """A type as PyTorch has it: an object of a class `dtype` that is written with the module's name."""

    def __init__(self, name):
        self.name_in_torch = name

    def __repr__(self):
        return f"torch.{self.name_in_torch}"


NAMES = {
    "float32": ["float32", "float", "torch.float", "torch.float32", np.float32, np.dtype("f4"), dtype("float32")],
    "float64": ["double", float, np.float64, np.dtype(float), dtype("float64")],
    "float16": ["half", np.float16, dtype("float16")],
    "bfloat16": ["bfloat16", dtype("bfloat16")],
    "float8_e4m3": ["float8_e4m3fn", dtype("float8_e4m3fn")],
    "int64": ["long", int, np.int64, np.dtype("i8"), dtype("int64")],
    "int32": ["int", "torch.int", np.int32],
    "int16": ["short", np.int16],
    "uint8": ["uint8", np.uint8, dtype("uint8")],
    "complex64": ["complex64", "cfloat", "torch.cfloat", np.complex64, dtype("complex64")],
    "complex128": ["cdouble", "complex", complex, np.complex128, np.dtype(complex), dtype("complex128")],
    "bool": ["bool", "bool_", bool, np.bool_, np.dtype(bool), dtype("bool")],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_equal_to_what_names_it(name):
    kind = dtypes.BY_NAME[name]
    for one in NAMES[name]:
        assert kind == one
        assert one in [kind]
        assert [other for other in dtypes.EVERY if other == one] == [kind]
        assert Tensor([0, 1]).cast(one).dtype is kind
        assert Tensor.zeros(2, dtype=one).dtype is kind


def test_numpy_types_are_equal_from_their_side_too():
    assert np.float32 == dtypes.float32
    assert np.dtype("float32") == dtypes.float32
    assert np.dtype("float32") != dtypes.float64


@pytest.mark.parametrize("other", [None, 3, bytes, "complex32", np.datetime64, object(), Tensor])
def test_what_names_no_type(other):
    assert dtypes.float32 != other
    with pytest.raises(ValueError, match="there is no element type"):
        Tensor([1]).cast(other)


def test_a_type_is_a_key_of_its_own():
    assert {dtypes.float32: 1}.get("float32") is None


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_limits_of_floats_are_numpys(name):
    kind, limits = dtypes.BY_NAME[name], np.finfo(name)
    for word in ("max", "min", "eps", "smallest_normal"):
        assert getattr(kind, word) == float(getattr(limits, word)), word
        assert getattr(finfo(kind), word) == float(getattr(limits, word)), word
    assert finfo(name).tiny == float(limits.tiny)
    assert finfo(Tensor.zeros(1, dtype=name)).bits == limits.bits


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_the_limits_of_integers_are_numpys(name):
    kind, limits = dtypes.BY_NAME[name], np.iinfo(name)
    assert (kind.min, kind.max, iinfo(name).min, iinfo(kind).max) == (limits.min, limits.max) * 2
    assert iinfo(name).bits == limits.bits
    with pytest.raises(AttributeError, match=f"{name} has no eps: it is no float type"):
        _ = kind.eps


def test_limits_are_of_types_that_have_them():
    # the OCP's 8-bit formats, and bfloat16's 7 stored bits
    assert (finfo("float8_e4m3").max, finfo("float8_e5m2").max, finfo("bfloat16").eps) == (448.0, 57344.0, 2**-7)
    with pytest.raises(TypeError, match="finfo of int32: float types only"):
        finfo("int32")
    with pytest.raises(TypeError, match="iinfo of bool: integer types only"):
        iinfo(bool)


def test_types_have_pytorchs_properties():
    assert [dtypes.bfloat16.is_floating_point, dtypes.int8.is_floating_point] == [True, False]
    assert [dtypes.bfloat16.itemsize, dtypes.int64.itemsize] == [2, 8]
