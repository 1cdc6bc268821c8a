"""Arrays of the namespace: made, copied, placed, indexed by masks; what only the host can count."""

import math

import numpy as np
import numpy_graph
import pytest

import ringup.array_api as xp


def test_asarray_takes_the_standards_inputs():
    assert (xp.asarray(1).dtype, xp.asarray(2.0).dtype, xp.asarray(True).dtype) == (xp.int32, xp.float32, xp.bool)
    assert xp.asarray([[1, 2], [3, 4]]).shape == (2, 2)
    assert xp.asarray(np.array([1.0])).dtype == xp.float64
    assert xp.asarray(np.float64("nan")).dtype == xp.float64
    assert xp.asarray(memoryview(b"ab")).tolist() == [97, 98]
    assert xp.asarray([1, 2], dtype=xp.float64).dtype == xp.float64
    parts = [xp.asarray(1.0), 2.0]
    assert xp.asarray(parts).tolist() == [1.0, 2.0]
    assert xp.asarray([parts, [3.0, xp.asarray(4.0)]]).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_numbers_past_the_default_types_have_wider_ones():
    assert (xp.asarray(1 << 40).dtype, xp.asarray(1e39).dtype, xp.asarray([[1.0], [-1e39]]).dtype) == (
        xp.int64,
        xp.float64,
        xp.float64,
    )
    assert xp.asarray([1.0, math.inf, math.nan]).dtype == xp.float32
    with pytest.raises(ValueError, match="does not fit float32"):
        xp.asarray(1e39, dtype=xp.float32)


def test_the_sign_of_nan_is_kept():
    assert bool(xp.signbit(xp.asarray(math.copysign(math.nan, -1))))
    assert not bool(xp.signbit(xp.asarray(math.nan, dtype=xp.float64)))


def test_copy_says_whether_an_array_is_shared():
    x = xp.asarray([1.0, 2.0])
    assert xp.asarray(x) is x
    assert xp.asarray(x, dtype=xp.float32, copy=False) is x
    own = xp.asarray(x, copy=True)
    own[0] = 9.0
    assert (x.tolist(), own.tolist()) == ([1.0, 2.0], [9.0, 2.0])
    with pytest.raises(ValueError, match="copy=False: it has to be copied"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="asarray of list with copy=False"):
        xp.asarray([1.0], copy=False)
    assert xp.astype(x, xp.float32, copy=False) is x


@pytest.mark.parametrize(
    "same",
    [
        xp.positive,
        xp.abs,
        xp.floor,
        xp.real,
        xp.conj,
        lambda x: xp.clip(x),
        lambda x: xp.astype(x, x.dtype),
        lambda x: xp.concat([x]),
        lambda x: xp.roll(x, 0),
        lambda x: xp.reshape(x, (2,), copy=True),
        lambda x: xp.tile(x, (1,)),
        lambda x: xp.diff(x, n=0),
    ],
)
def test_a_result_that_equals_its_argument_is_an_array_of_its_own(same):
    x = xp.asarray([1, 2], dtype=xp.uint8)
    made = same(x)
    made[0] = 7
    assert (x.tolist(), made.tolist()) == ([1, 2], [7, 2])


def test_one_of_two_operands_is_an_array():
    assert xp.subtract(1, xp.asarray([3.0])).tolist() == [-2.0]
    with pytest.raises(TypeError, match="int and float: one of two operands is an array"):
        xp.add(1, 2.0)
    with pytest.raises(TypeError, match="list is no operand: an array or a number of Python; asarray"):
        xp.add(xp.asarray([1.0]), [2.0])
    with pytest.raises(TypeError, match="stack of list: an array of this namespace"):
        xp.stack([[1.0]])


def test_floor_divide_gives_the_standards_zeros_and_infinities():
    x = xp.asarray([-0.0, math.inf, -math.inf, 1.0, -1.0, 7.0, 0.0, 1.0])
    y = xp.asarray([1.0, 1.0, 1.0, -math.inf, math.inf, -2.0, 0.0, 0.0])
    # "Special cases" of floor_divide in the standard
    wanted = [-0.0, math.inf, -math.inf, -0.0, -0.0, -4.0, math.nan, math.inf]
    found = xp.floor_divide(x, y).numpy()
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[:6]), np.signbit(wanted[:6]))


def test_the_imaginary_part_of_a_real_number_is_0():
    assert xp.imag(xp.asarray([1.0, math.inf])).tolist() == [0.0, 0.0]


def test_variance_without_freedom_is_nan():
    # "If M - correction is less than or equal to 0, the variance must be NaN"
    x = xp.asarray([[1.0, 2.0], [3.0, 5.0]])
    assert np.isnan(xp.var(x, axis=0, correction=2).numpy()).all()
    assert np.isnan(xp.std(x, correction=4.5).numpy())


# masks


def test_a_mask_leaves_its_elements():
    x = xp.reshape(xp.arange(12), (3, 4))
    assert x[x > 8].tolist() == [9, 10, 11]
    assert x[xp.asarray([True, False, True])].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert x[x > 99].shape == (0,)


def test_a_mask_without_axes_leaves_all_or_nothing():
    x = xp.asarray(3.0)
    assert (x[x > 1].tolist(), x[x > 5].shape) == ([3.0], (0,))
    row = xp.asarray([1, 2])
    assert row[xp.asarray(True)].tolist() == [[1, 2]]


def test_a_mask_without_elements_fits_any_axis():
    # "... must equal the size of the corresponding dimension in A or be 0"
    assert xp.zeros((0, 3))[xp.zeros((0, 0), dtype=xp.bool)].shape == (0,)
    with pytest.raises(IndexError, match=r"a mask of shape \[2\] at axis 0 of a tensor of shape \[3\]"):
        xp.arange(3)[xp.asarray([True, False])]


def test_an_assignment_through_a_mask_writes_its_elements():
    x = xp.reshape(xp.arange(6), (2, 3))
    x[x > 3] = 0
    assert x.tolist() == [[0, 1, 2], [3, 0, 0]]
    x[x == 0] = xp.asarray([7, 8, 9])
    assert x.tolist() == [[7, 1, 2], [3, 8, 9]]
    x[xp.asarray([False, True])] = xp.asarray([4, 5, 6])
    assert x.tolist() == [[7, 1, 2], [4, 5, 6]]
    part = x[0]
    part[part > 6] = -1
    assert x.tolist() == [[-1, 1, 2], [4, 5, 6]]
    with pytest.raises(IndexError, match=r"a mask of shape \[3\] for a tensor of shape \[2, 3\]"):
        x[xp.asarray([True, False, True])] = 0


def test_an_assignment_of_one_value_through_a_mask_reads_nothing_on_the_host(evaluator):
    x = xp.asarray([1.0, -2.0, 3.0])
    mask = x < 0
    x[mask] = 0.0
    assert evaluator.calls == []
    assert x.tolist() == [1.0, 0.0, 3.0]


def test_bounds_of_slices_may_be_arrays():
    x = xp.arange(5)
    assert x[x[1] : x[3]].tolist() == [1, 2]
    with pytest.raises(TypeError, match="a tensor of float32 is no whole number"):
        x[xp.asarray(1.0) :]


# what only the host can count


def test_every_nan_is_a_value_of_its_own():
    found = xp.unique_all(xp.asarray([math.nan, 1.0, math.nan, 1.0]))
    np.testing.assert_array_equal(found.values.numpy(), [1.0, math.nan, math.nan])
    assert (found.counts.tolist(), found.indices.tolist()) == ([2, 1, 1], [1, 0, 2])
    assert found.inverse_indices.tolist() == [1, 0, 2, 0]


def test_isin_may_be_turned_around():
    x = xp.asarray([1, 2, 3])
    assert xp.isin(x, xp.asarray([3, 1]), invert=True).tolist() == [False, True, False]
    assert xp.isin(x, xp.asarray([], dtype=xp.int32), invert=True).tolist() == [True] * 3
    assert xp.isin(xp.asarray([math.nan]), xp.asarray([math.nan])).tolist() == [False]


def test_searchsorted_has_nan_last():
    x = xp.asarray([1.0, 2.0, math.nan])
    # NumPy's searchsorted
    assert xp.searchsorted(x, xp.asarray([math.nan, math.inf, 2.0])).tolist() == [2, 2, 1]
    assert xp.searchsorted(x, xp.asarray([math.nan, 1.5]), side="right").tolist() == [3, 1]
    assert int(xp.searchsorted(x, 1.5)) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xp.nonzero(xp.asarray(1)), "nonzero of an array without axes"),
        (lambda: xp.take(xp.ones((2, 2)), xp.asarray([0])), r"take of \[2, 2\] without an axis"),
        (lambda: xp.cumulative_sum(xp.ones((2, 2))), r"cumulative_sum of \[2, 2\] without an axis"),
        (lambda: xp.searchsorted(xp.ones(2), xp.ones(2), side="middle"), "on side 'middle': left or right"),
        (lambda: xp.searchsorted(xp.ones((2, 2)), xp.ones(2)), r"searchsorted in \[2, 2\]"),
        (lambda: xp.expand_dims(xp.ones(2), (0, 0)), "a place comes twice"),
        (lambda: xp.repeat(xp.ones(2), xp.asarray([1, -1])), "counts that are negative"),
        (lambda: xp.matrix_transpose(xp.ones(2)), "two axes at least"),
        (lambda: xp.squeeze(xp.ones((2, 1)), 0), r"squeeze of axis 0 of \[2, 1\]"),
        (lambda: xp.linalg.outer(xp.ones((2, 1)), xp.ones(2)), "outer of"),
        (lambda: xp.linalg.cross(xp.ones(2), xp.ones(2)), "cross of .* three elements each"),
        (lambda: xp.vecdot(xp.ones(2), xp.ones(3)), "sizes differ"),
        (lambda: xp.vecdot(xp.ones(2), xp.ones(2), axis=0), "vecdot along axis 0"),
        (lambda: xp.diff(xp.ones(2), n=-1), "diff of order -1"),
    ],
)
def test_what_the_standard_forbids_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_several_axes_are_put_in():
    assert xp.expand_dims(xp.ones((2, 3)), (0, -1)).shape == (1, 2, 3, 1)


def test_products_keep_the_type_of_narrow_integers():
    x = xp.asarray([[1, 2], [3, 4]], dtype=xp.int8)
    assert (xp.matmul(x, x).dtype, xp.vecdot(x, x).dtype, xp.tensordot(x, x).dtype) == (xp.int8,) * 3
    assert xp.matmul(x, x).tolist() == [[7, 10], [15, 22]]


# devices


def test_an_array_is_made_on_a_device(evaluator):
    other = numpy_graph.NumpyEvaluator()
    made = xp.full(2, 1.5, device=other)
    assert (len(other.calls), len(evaluator.calls)) == (1, 0)
    assert made.node.arg.home is other
    assert xp.asarray([1.0, 2.0], device=other).node.arg.home is other
    assert xp.add(made, 1).tolist() == [2.5, 2.5]


def test_to_device_moves_and_knows_no_streams(evaluator):
    x = xp.asarray([1.0, 2.0])
    assert x.to_device(evaluator) is x
    with pytest.raises(ValueError, match="to_device with stream 1"):
        x.to_device(evaluator, stream=1)


# DLPack


def test_dlpack_goes_both_ways():
    x = xp.asarray([1.0, 2.0])
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]
    assert xp.from_dlpack(np.array([3, 4])).dtype == xp.int64
    assert xp.from_dlpack(x) is x
    own = xp.from_dlpack(x, copy=True)
    own[0] = 5.0
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match="copy=False: the bytes of the host are copied to the card"):
        xp.from_dlpack(np.array([3, 4]), copy=False)
