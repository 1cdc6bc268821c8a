"""Functions under NumPy's names, beside NumPy."""

import math

import numpy as np
import pytest

import ringup

RANDOM = np.random.default_rng(7)
NAN = np.array([[1.0, math.nan, 3.0], [math.nan, math.nan, math.nan], [4.0, -2.0, math.nan]])
LINE = np.array([0.0, 0.0, 3.0, 0.0, 5.0, 0.0])
GRID = RANDOM.normal(size=(4, 6))
CUBE = np.arange(24).reshape(2, 3, 4)
POINTS = np.array([1.0, 2.0, 4.0, 8.0])
# function of the module, called with the module: the same is asked of both
CASES = {
    "append": lambda np: np.append([[1, 2]], [[3, 4]], axis=0),
    "append flat": lambda np: np.append([[1, 2]], [3.5]),
    "delete": lambda np: np.delete(CUBE, [0, -1], axis=2),
    "delete one": lambda np: np.delete(CUBE, 1, axis=1),
    "delete a slice, flat": lambda np: np.delete(CUBE, slice(1, 20, 2)),
    "delete by a mask": lambda np: np.delete(GRID, [True, False, False, True], 0),
    "insert one": lambda np: np.insert(CUBE, 1, 99, axis=1),
    "insert a row": lambda np: np.insert(GRID, 2, GRID[0] * 10, axis=0),
    "insert a column": lambda np: np.insert(GRID, 2, GRID[:, 0] * 10, axis=1),
    "insert several places": lambda np: np.insert([1, 2, 3, 4], [3, 0, 4], [7, 8, 9]),
    "insert several at one": lambda np: np.insert([1, 2, 3], 1, [7, 8]),
    "insert at the end": lambda np: np.insert([1, 2, 3], 3, 7),
    "resize": lambda np: np.resize([1, 2, 3], (2, 4)),
    "resize smaller": lambda np: np.resize(CUBE, 5),
    "trim_zeros": lambda np: np.trim_zeros(LINE),
    "trim_zeros front": lambda np: np.trim_zeros(LINE, "f"),
    "trim_zeros of zeros": lambda np: np.trim_zeros(LINE * 0),
    "hsplit": lambda np: np.hsplit(GRID, 3)[1],
    "hsplit of a line": lambda np: np.hsplit(LINE, [2, 5])[1],
    "vsplit": lambda np: np.vsplit(GRID, 2)[1],
    "dsplit": lambda np: np.dsplit(CUBE, [1, 3])[1],
    "rollaxis": lambda np: np.rollaxis(CUBE, 2),
    "rollaxis back": lambda np: np.rollaxis(CUBE, 0, 3),
    "rollaxis middle": lambda np: np.rollaxis(CUBE, 0, 2),
    "permute_dims": lambda np: np.permute_dims(CUBE, (2, 0, 1)),
    "matrix_transpose": lambda np: np.matrix_transpose(CUBE),
    "unstack": lambda np: np.unstack(CUBE, axis=1)[2],
    "broadcast_arrays": lambda np: np.broadcast_arrays([[1], [2]], [3, 4, 5])[0],
    "identity": lambda np: np.identity(3),
    "tri": lambda np: np.tri(3, 5, 1),
    "tri by name": lambda np: np.tri(N=3, M=2, k=-1),
    "indices": lambda np: np.indices((2, 3)),
    "fromfunction": lambda np: np.fromfunction(lambda i, j: i * 10 + j, (2, 3)),
    "ix_": lambda np: CUBE[0][np.ix_([0, 2], [1, 3])] if np is not ringup else np.tensor(CUBE)[0][np.ix_([0, 2], [1, 3])],
    "flatnonzero": lambda np: np.flatnonzero(LINE),
    "unravel_index": lambda np: np.stack(list(np.unravel_index([22, 41, 5], (7, 6)))),
    "ravel_multi_index": lambda np: np.ravel_multi_index(([3, 6, 6], [4, 5, 1]), (7, 6)),
    "average": lambda np: np.average(GRID, axis=1),
    "average of integers": lambda np: np.average([1, 2, 4]),
    "average with weights": lambda np: np.average(GRID, axis=0, weights=[1, 2, 3, 4]),
    "average with weights of all": lambda np: np.average(GRID, weights=abs(GRID), returned=True)[0],
    "the weights of an average": lambda np: np.average(GRID, axis=0, weights=[1, 2, 3, 4], returned=True)[1],
    "divmod": lambda np: np.divmod([7, -7], 2)[0],
    "what divmod leaves": lambda np: np.divmod([7, -7], 2)[1],
    "modf": lambda np: np.modf([1.75, -1.75, math.inf])[0],
    "modf, before the point": lambda np: np.modf([1.75, -1.75, math.inf])[1],
    "geomspace": lambda np: np.geomspace(1, 1000, 7),
    "geomspace below 0": lambda np: np.geomspace(-2.0, -16.0, 4, endpoint=False),
    "interp": lambda np: np.interp([0.0, 1.0, 1.5, 2, 7, 8, 9, math.nan], POINTS, POINTS**2),
    "interp with ends": lambda np: np.interp([0.0, 1.0, 8.0, 9.0], POINTS, POINTS**2, left=-1, right=-2),
    "digitize": lambda np: np.digitize([0.5, 1, 3, 8, 9], POINTS),
    "digitize right": lambda np: np.digitize([0.5, 1, 3, 8, 9], POINTS, right=True),
    "digitize falling": lambda np: np.digitize([0.5, 1, 3, 8, 9], POINTS[::-1].copy()),
    "digitize falling right": lambda np: np.digitize([0.5, 1, 3, 8, 9], POINTS[::-1].copy(), right=True),
    "convolve": lambda np: np.convolve(LINE, [1.0, 2.0, 4.0]),
    "convolve same": lambda np: np.convolve(LINE, [1.0, 2.0, 4.0, 8.0], "same"),
    "convolve valid": lambda np: np.convolve([1.0, 2.0], LINE, "valid"),
    "convolve integers": lambda np: np.convolve([1, 2, 3], [0, 1]),
    "correlate": lambda np: np.correlate(LINE, [1.0, 2.0, 4.0], "full"),
    "correlate same": lambda np: np.correlate(LINE, [1.0, 2.0, 4.0, 8.0], "same"),
    "correlate valid": lambda np: np.correlate(LINE, [1.0, 2.0]),
    "correlate with a longer one": lambda np: np.correlate([1.0, 2.0], LINE[:5], "same"),
    "polyval": lambda np: np.polyval([3.0, 0, 1], GRID),
    "vander": lambda np: np.vander([1.0, 2, 3]),
    "vander increasing": lambda np: np.vander([1, 2, 3], N=5, increasing=True),
    "nanprod": lambda np: np.nanprod(NAN, axis=1),
    "nancumsum": lambda np: np.nancumsum(NAN, axis=0),
    "nancumprod flat": lambda np: np.nancumprod(NAN),
    "nanvar": lambda np: np.nanvar(NAN, axis=1),
    "nanvar of all": lambda np: np.nanvar(NAN, ddof=1, keepdims=True),
    "nanstd": lambda np: np.nanstd(NAN, axis=0),
    "nanargmax": lambda np: np.nanargmax(NAN[::2], axis=1),
    "nanargmin, axes kept": lambda np: np.nanargmin(NAN[::2], axis=1, keepdims=True),
    "nanargmin": lambda np: np.nanargmin(NAN),
    "union1d": lambda np: np.union1d([3, 1, 1], [2, 3]),
    "intersect1d": lambda np: np.intersect1d([3, 1, 1, 5], [5, 1, 2]),
    "setdiff1d": lambda np: np.setdiff1d([3, 1, 1, 5], [5, 2]),
    "setxor1d": lambda np: np.setxor1d([3, 1, 1, 5], [5, 2]),
    "compress": lambda np: np.compress([True, False, True], CUBE, axis=1),
    "hanning": lambda np: np.hanning(7),
    "hamming": lambda np: np.hamming(6),
    "blackman": lambda np: np.blackman(5),
    "bartlett": lambda np: np.bartlett(6),
    "bartlett of one": lambda np: np.bartlett(1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_numpys_values(name):
    wanted = np.asarray(CASES[name](np))
    made = CASES[name](ringup)
    assert made.shape == wanted.shape
    assert (made.dtype.kind in ("int", "uint")) == (wanted.dtype.kind in "iu"), (made.dtype, wanted.dtype)
    np.testing.assert_allclose(made.numpy(), wanted, rtol=2e-6, atol=2e-6)


def test_shapes_and_types():
    assert ringup.shape([[1, 2]]) == (1, 2)
    assert ringup.ndim([[1, 2]]) == 2
    assert [ringup.isscalar(one) for one in (3, "a", np.float32(1), [1], ringup.tensor(1))] == [True] * 3 + [False] * 2
    assert ringup.broadcast_shapes((2, 1), 3, (1, 3)) == (2, 3)
    assert ringup.promote_types("int8", np.uint8) == "int16"
    # PyTorch 2.14 and NumPy: a number takes the type of those beside it
    assert ringup.result_type(ringup.tensor([1], dtype="int8"), 3) == "int8"
    assert ringup.result_type(ringup.tensor([1.0], dtype="float16"), 3.5) == "float16"
    assert ringup.result_type(ringup.tensor([1], dtype="int8"), 3.5) == "float32"
    assert ringup.result_type("int32", "int64", 2) == "int64"
    assert ringup.result_type(1, 2.0) == "float32"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ringup.delete([1, 2], 2), IndexError, "place 2 of an axis of 2"),
        (lambda: ringup.insert([1, 2], -3, 0), IndexError, "place -3 of an axis of 2"),
        (lambda: ringup.delete([1, 2], [True]), ValueError, r"a mask of shape \[1\] for an axis of 2"),
        (lambda: ringup.hsplit([1, 2, 3], 2), ValueError, "into 2 parts: they are not equal"),
        (lambda: ringup.vsplit([1, 2, 3], 3), ValueError, "vsplit of \\[3\\]: 2 axes at least"),
        (lambda: ringup.convolve([1, 2], [3], "all"), ValueError, "a mode of 'all'; there are full, same, valid"),
        (lambda: ringup.interp([1.0], [1.0, 2.0], [1.0]), ValueError, "two lines of equal length"),
        (lambda: ringup.average([[1, 2]], weights=[1, 2]), ValueError, "one for each place of one axis"),
        (lambda: ringup.geomspace(0, 1), ValueError, "numbers of one sign, not 0"),
        (lambda: ringup.broadcast_shapes((2,), (3,)), ValueError, "do not broadcast"),
        (lambda: ringup.ravel_multi_index(([1],), (2, 3)), ValueError, "along 1 axes of a shape of 2"),
        (lambda: ringup.result_type(), ValueError, "result_type of nothing"),
    ],
)
def test_what_a_function_cannot_take_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_places_of_narrow_types_count_in_wider_ones():
    found = ringup.unravel_index(ringup.Tensor([7, 250], dtype="uint8"), (3, 1000))
    assert [one.tolist() for one in found] == [one.tolist() for one in np.unravel_index([7, 250], (3, 1000))]
    assert found[0].dtype.name == "int32"
    with pytest.raises(TypeError, match="unravel_index of float32"):
        ringup.unravel_index(ringup.Tensor([1.0]), (3,))
