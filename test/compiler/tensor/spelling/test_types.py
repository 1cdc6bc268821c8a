"""Element types equal their names and the types of NumPy, PyTorch and Python, and are given as any of them."""

import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor


class dtype:
    """A type as PyTorch has it: an object of a class `dtype` that is written with the module's name."""

    def __init__(self, name):
        self.name_in_torch = name

    def __repr__(self):
        return f"torch.{self.name_in_torch}"


NAMES = {
    "float32": ["float32", "torch.float32", np.float32, np.dtype("f4"), dtype("float32")],
    "float64": ["double", float, np.float64, np.dtype(float), dtype("float64")],
    "float16": ["half", np.float16, dtype("float16")],
    "bfloat16": ["bfloat16", dtype("bfloat16")],
    "float8_e4m3": ["float8_e4m3fn", dtype("float8_e4m3fn")],
    "int64": ["long", int, np.int64, np.dtype("i8"), dtype("int64")],
    "int16": ["short", np.int16],
    "uint8": ["uint8", np.uint8, dtype("uint8")],
    "bool": ["bool", "bool_", bool, np.bool_, np.dtype(bool), dtype("bool")],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_equal_to_what_names_it(name):
    kind = dtypes.BY_NAME[name]
    for one in NAMES[name]:
        assert kind == one
        assert one in [kind]
        assert [other for other in dtypes.ALL if other == one] == [kind]
        assert Tensor([0, 1]).cast(one).dtype is kind
        assert Tensor.zeros(2, dtype=one).dtype is kind


def test_numpy_types_are_equal_from_their_side_too():
    assert np.float32 == dtypes.float32
    assert np.dtype("float32") == dtypes.float32
    assert np.dtype("float32") != dtypes.float64


@pytest.mark.parametrize("other", [None, 3, complex, "float", "complex64", np.complex64, object(), Tensor])
def test_what_names_no_type(other):
    assert dtypes.float32 != other
    with pytest.raises(ValueError, match="there is no element type"):
        Tensor([1]).cast(other)


def test_a_type_is_a_key_of_its_own():
    assert {dtypes.float32: 1}.get("float32") is None
