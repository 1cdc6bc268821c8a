"""A user's mistake gives one clear error where it is made. No count or size other than a whole number reaches a
graph.
"""

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor

X = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
WHOLE = Tensor(np.arange(3, dtype=np.int32))
IMAGE, TAPS = Tensor(np.zeros((1, 1, 4, 4), np.float32)), Tensor(np.zeros((1, 1, 2, 2), np.float32))

COUNTS = {
    "one_hot": WHOLE.one_hot,
    "linspace": lambda n: Tensor.linspace(0, 1, n),
    "eye": Tensor.eye,
    "randperm": Tensor.randperm,
    "topk": X.topk,
    "split": X.split,
    "chunk": X.chunk,
    "repeat": lambda n: X.repeat(n, 1),
    "repeat_interleave": X.repeat_interleave,
    "roll": lambda n: X.roll(n, 0),
    "roll of all": X.roll,
    "unfold": lambda n: X.unfold(0, n, 1),
    "steps of unfold": lambda n: X.unfold(0, 1, n),
    "diagonal": X.diagonal,
    "pad": X.pad,
    "pad by pairs": lambda n: X.pad([(n, 0), (0, 0)]),
    "stride": lambda n: IMAGE.conv2d(TAPS, stride=n),
    "padding": lambda n: IMAGE.conv2d(TAPS, padding=n),
    "dilation": lambda n: IMAGE.conv2d(TAPS, dilation=n),
    "groups": lambda n: IMAGE.conv2d(TAPS, groups=n),
    "pool": IMAGE.max_pool2d,
    "interpolate": lambda n: IMAGE.interpolate((n, n)),
}


@pytest.mark.parametrize("value", [2.5, "a", None, np.float32(2)], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_is_no_whole_number(name, value):
    with pytest.raises((TypeError, ValueError), match="whole number") as found:
        COUNTS[name](value)
    assert repr(value) in str(found.value) or str(value) in str(found.value)


@pytest.mark.parametrize(
    "name", ["one_hot", "linspace", "eye", "randperm", "topk", "chunk", "repeat", "unfold", "groups"]
)
def test_a_count_below_zero(name):
    with pytest.raises(ValueError, match="-1"):
        COUNTS[name](-1)


@pytest.mark.parametrize("name", COUNTS)
def test_numbers_of_numpy_count_like_those_of_python(name):
    one, other = COUNTS[name](1), COUNTS[name](np.int64(1))
    one, other = (made if isinstance(made, (list, tuple)) else [made] for made in (one, other))
    assert [part.shape for part in one] == [part.shape for part in other]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ((1 << 31) - 1, "int32"), (1 << 31, "int64"), (-(1 << 31), "int32"), (-(1 << 31) - 1, "int64"), ((1 << 63) - 1, "int64"),
        (-(1 << 63), "int64"), (1 << 63, "uint64"), ((1 << 64) - 1, "uint64"),
    ],
)  # fmt: skip
def test_a_python_integer_takes_a_type_that_holds_it(value, kind):
    for made in (Tensor(value), Tensor.full((2,), value)):
        assert made.dtype.name == kind
        assert made.node.ordered()[0].arg == value


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_an_integer_of_more_than_64_bits(value):
    with pytest.raises(ValueError, match=f"{value} does not fit 64 bits"):
        Tensor(value)
    with pytest.raises(ValueError, match=f"{value} does not fit 64 bits"):
        Tensor.full((2,), value)


def test_ranges_of_numpy_numbers():
    quarter = np.float32(0.25)
    for made, wanted in (
        (Tensor.arange(0, 1, quarter), np.arange(0, 1, 0.25, np.float32)),
        (Tensor.arange(np.float32(2.5)), np.arange(2.5, dtype=np.float32)),
        (Tensor.arange(np.int64(3)), np.arange(3, dtype=np.int32)),
        (Tensor.full((2,), np.int64(3)), np.full(2, 3, np.int32)),
    ):
        found = made.numpy()
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("ends", [(0, np.inf), (np.nan,), (0, 3, np.inf), (-np.inf, 0)])
def test_a_range_without_an_end(ends):
    with pytest.raises(ValueError, match="it ends nowhere"):
        Tensor.arange(*ends)


def test_what_is_no_dlpack_object_and_copies_that_are_not_wanted():
    with pytest.raises(TypeError, match="int is no DLPack object"):
        Tensor.from_dlpack(3)
    with pytest.raises(BufferError, match="a copy"):
        X.__dlpack__(copy=False)
    with pytest.raises(ValueError, match="a copy"):
        X.__array__(copy=False)


@pytest.mark.parametrize("key", [[slice(0, 2), [0, 1]], [[0, 1], [2]], [1.5]], ids=repr)
def test_a_list_that_is_no_array_of_places_is_no_index(key):
    with pytest.raises(IndexError, match="is no index: numbers, slices"):
        X[key]
