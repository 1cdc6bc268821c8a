"""`print` shows values and computes them, `repr` shows those that are there; one element is a Python number."""

import math

import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Size, Tensor, device
from ringup.compiler.tensor.spelling.text import decoded
from ringup.errors import CompileError

NUMBERS = np.array([[1.0, 2.5], [-3.0, 1 / 3]], np.float32)


def test_print_computes_and_shows_values_shape_and_type():
    # the numbers as NumPy writes them
    assert str(Tensor(NUMBERS) * 2) == (
        "Tensor([[ 2.    ,  5.    ],\n        [-6.    ,  0.6667]], shape=[2, 2], dtype=float32)"
    )
    assert str(Tensor([1, 2]) + 1) == "Tensor([2, 3], shape=[2], dtype=int32)"
    assert str(Tensor([1, 2]) > 1) == "Tensor([False,  True], shape=[2], dtype=bool)"
    assert str(Tensor.zeros(0, 2)) == "Tensor([], shape=[0, 2], dtype=float32)"
    assert str(Tensor(2.5)) == "Tensor(2.5, shape=[], dtype=float32)"


def test_many_values_are_shortened():
    text = str(Tensor.arange(5000))
    assert text == "Tensor([   0,    1,    2, ..., 4997, 4998, 4999], shape=[5000], dtype=int32)"


def test_repr_computes_nothing(evaluator):
    made = Tensor(NUMBERS) * 2
    assert repr(made) == "<Tensor [2, 2] float32, not computed: mul>"
    assert evaluator.calls == []
    made.realize()
    assert repr(made) == str(made)
    assert repr(Tensor([1, 2])) == "Tensor([1, 2], shape=[2], dtype=int32)"
    assert repr(Tensor(7)) == "Tensor(7, shape=[], dtype=int32)"


def test_a_tensor_that_nothing_can_compute_says_why():
    n = Size("n", 1, 9)
    assert str(Tensor.arange(n)) == "<Tensor [n] int32, not computed: its sizes are open, which numpy() takes by name>"
    with device(None):
        assert str(Tensor([1]) + 1).startswith(
            "<Tensor [1] int32, not computed: a tensor is to be computed and no card"
        )
        assert str(Tensor([1])) == "Tensor([1], shape=[1], dtype=int32)"


def test_repr_of_what_cannot_be_read_any_more():
    class Lost:
        def read(self):
            raise CompileError("these bytes are gone")

    made = Tensor([1, 2])
    made.node.arg.data = Lost()
    assert repr(made) == "<Tensor [2] int32, computed, but it cannot be read: these bytes are gone>"


def test_repr_does_not_read_what_is_large():
    class Large:
        def read(self):
            raise AssertionError("read")

    made = Tensor.empty(1 << 23, dtype="float32")
    made.node.arg.data = Large()
    assert repr(made) == "<Tensor [8388608] float32, computed>"


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3", "float8_e5m2"])
def test_types_that_numpy_lacks_are_shown_by_value(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = dtypes.BY_NAME[name]
    bits = np.arange(1 << kind.bits, dtype=f"u{kind.size_bytes}")
    wanted = bits.view(getattr(ml_dtypes, kind.numpy)).astype(np.float32)
    np.testing.assert_array_equal(decoded(memoryview(bits).cast("B"), kind, bits.shape), wanted)


def test_one_element_is_a_number():
    x = Tensor(NUMBERS)
    assert float(x.sum()) == pytest.approx(0.5 + 1 / 3)
    assert int(Tensor([-2.75])) == -2
    assert complex(Tensor(1.5)) == 1.5
    assert bool(x[0, 0] > 0) is True
    assert bool(Tensor([[0]])) is False
    assert f"{x.mean():.3f}|{Tensor(7):>4d}|{Tensor(0.25):%}" == "0.208|   7|25.000000%"
    assert f"{x[0]}" == str(x[0])
    assert ["a", "b", "c"][Tensor([2])] == "c"
    assert list(range(Tensor(3))) == [0, 1, 2]
    assert math.floor(float(Tensor(2.5))) == 2
    assert round(Tensor([1.26]), 1).tolist() == [pytest.approx(1.3)]


def test_elements_are_found():
    assert 2.5 in Tensor(NUMBERS)
    assert 2.25 not in Tensor(NUMBERS)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (bool, r"the truth of a tensor of shape \[2, 2\]: only one element has it; there is any\(\) or all\(\)"),
        (float, r"float\(\) of a tensor of shape \[2, 2\]: only one element has it; there is tolist\(\)"),
        (lambda t: f"{t:.3f}", r"a format of a tensor of shape \[2, 2\]: only one element has it"),
        (lambda t: [1, 2][t], "a tensor of float32 is no whole number"),
    ],
)
def test_several_elements_are_no_number(ask, message):
    with pytest.raises(TypeError, match=message):
        ask(Tensor(NUMBERS))
