"""Views and joins give NumPy's results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringup.compiler.graph import index
from ringup.compiler.graph.nodes import MOVEMENT, Op
from ringup.compiler.tensor import Tensor, meshgrid
from ringup.compiler.tensor.movement import windows_along

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
T = Tensor(X)


def same(tensor, array):
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_shapes_change_without_copies():
    for made, expected in (
        (T.reshape(4, -1), X.reshape(4, -1)),
        (T.reshape((6, 4)), X.reshape(6, 4)),
        (T.flatten(), X.reshape(-1)),
        (T.flatten(1), X.reshape(2, 12)),
        (T.unflatten(2, (2, -1)), X.reshape(2, 3, 2, 2)),
        (T.unsqueeze(1), X[:, None]),
        (T.unsqueeze(-1).squeeze(-1), X),
        (T.unsqueeze(0).unsqueeze(2).squeeze(), X),
        (T.permute(2, 0, 1), X.transpose(2, 0, 1)),
        (T.permute(2, 0, 1).permute(1, 2, 0), X),
        (T.transpose(0, 2), X.swapaxes(0, 2)),
        (T.T, X.T),
        (T.mT, X.swapaxes(-1, -2)),
        (T.movedim(0, -1), np.moveaxis(X, 0, -1)),
        (T.movedim((0, 1), (2, 0)), np.moveaxis(X, (0, 1), (2, 0))),
        (T[:1].expand(5, 3, 4), np.broadcast_to(X[:1], (5, 3, 4))),
        (T.expand(2, -1, -1, -1), np.broadcast_to(X, (2, 2, 3, 4))),
        (T.shrink(((0, 1), None, (1, 3))), X[:1, :, 1:3]),
        (T.flip(1), np.flip(X, 1)),
        (T.flip((0, -1)), np.flip(X, (0, -1))),
        (T.flip(), np.flip(X)),
        (Tensor(5).reshape(1, 1), np.full((1, 1), 5)),
        (Tensor(5).flatten(), np.full(1, 5)),
    ):
        same(made, expected)
        ops = {node.op for node in made.node.ordered()} - {Op.BUFFER, Op.CONST}
        assert ops <= MOVEMENT


def test_padding_of_every_mode():
    for widths in (((1, 2), (0, 1), (2, 0)), ((0, 0), (2, 2), (3, 3))):
        same(T.pad(widths), np.pad(X, widths))
        same(T.pad(widths, -1), np.pad(X, widths, constant_values=-1))
        same(T.pad(widths, mode="replicate"), np.pad(X, widths, mode="edge"))
        same(T.pad(((0, 0), *widths[1:]), mode="reflect"), np.pad(X, ((0, 0), *widths[1:]), mode="reflect"))
        same(T.pad(widths, mode="circular"), np.pad(X, widths, mode="wrap"))
    same(T.pad(1), np.pad(X, 1))
    same(T.pad((None, (-1, 1), -1)), np.pad(X[:, 1:, 1:3], ((0, 0), (0, 1), (0, 0))))
    same(Tensor([1, 2]).pad(1, 3.9), [3, 1, 2, 3])


def test_joining_and_taking_apart():
    same(T.cat(T, T, axis=1), np.concatenate([X, X, X], 1))
    same(T.cat(T[:, :0], axis=1), X)
    same(T.stack(T, axis=-1), np.stack([X, X], -1))
    assert Tensor([1]).cat(Tensor([1.5])).dtype.name == "float32"
    for found, expected in (
        (T.split(2, 2), np.split(X, [2], 2)),
        (T.split([1, 3], 2), np.split(X, [1], 2)),
        (T.chunk(2, 1), np.split(X, [2], 1)),
        (T.chunk(5, 1), np.split(X, [1, 2], 1)),
    ):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)


def test_repeats_and_turns():
    same(T.repeat(2, 1, 3), np.tile(X, (2, 1, 3)))
    same(T.repeat(2, 1, 1, 2), np.tile(X, (2, 1, 1, 2)))
    same(T.tile(2), np.tile(X, 2))
    same(T.repeat_interleave(3, 1), np.repeat(X, 3, 1))
    same(T.repeat_interleave(2), np.repeat(X, 2))
    for by in (0, 1, -1, 5, -7):
        same(T.roll(by, 2), np.roll(X, by, 2))
        same(T.roll(by), np.roll(X, by))
    same(T.roll((1, -2), (0, 2)), np.roll(X, (1, -2), (0, 2)))


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1)])
def test_diagonals_and_triangles(shape):
    x = np.arange(shape[0] * shape[1]).reshape(shape)
    for offset in range(-5, 6):
        same(Tensor(x).diagonal(offset), np.diagonal(x, offset))
        same(Tensor(x).tril(offset), np.tril(x, offset))
        same(Tensor(x).triu(offset), np.triu(x, offset))
    same(T.diagonal(1, 0, 2), np.diagonal(X, 1, 0, 2))
    same(T.diagonal(-1, 2, 1), np.diagonal(X, -1, 2, 1))


def test_a_triangle_keeps_nan_out():
    x = np.full((2, 2), np.nan)
    same(Tensor(x).tril(), np.array([[np.nan, 0], [np.nan, np.nan]]))


def test_meshgrid():
    a, b = np.arange(3), np.arange(4)
    for indexing in ("ij", "xy"):
        for found, expected in zip(
            meshgrid(Tensor(a), Tensor(b), indexing=indexing), np.meshgrid(a, b, indexing=indexing), strict=True
        ):
            same(found, expected)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_windows_are_output_times_stride_plus_tap_times_dilation(length, size, step, dilation):
    if dilation * (size - 1) + 1 > length:
        return
    x = np.arange(length * 2).reshape(2, length)
    count = (length - dilation * (size - 1) - 1) // step + 1
    expected = np.stack([x[:, o * step : o * step + dilation * (size - 1) + 1 : dilation] for o in range(count)], 1)
    made = windows_along(Tensor(x), 1, size, step, dilation)
    same(made, expected)
    same(windows_along(Tensor(x.T), 0, size, step, dilation), expected.transpose(1, 2, 0))


def through(node, place):
    """Return, as an index expression, the place in the source of the element at `place` of a view of views."""
    while node.op in MOVEMENT:
        (source,) = node.sources
        if node.op is Op.RESHAPE:
            flat = sum((one * index.product(node.shape[i + 1 :]) for i, one in enumerate(place)), 0)
            place = []
            for size in reversed(source.shape):
                place.insert(0, flat % size if size != 1 else 0)
                flat = flat // size
        elif node.op is Op.PERMUTE:
            place = [place[node.arg.index(axis)] for axis in range(len(place))]
        elif node.op is Op.EXPAND:
            place = [0 if size == 1 else one for size, one in zip(source.shape, place, strict=True)]
        elif node.op is Op.SHRINK:
            place = [one + start for one, (start, _) in zip(place, node.arg, strict=True)]
        else:
            raise AssertionError(node)
        node = source
    return place


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 40), st.integers(1, 7), st.integers(1, 5), st.integers(1, 4))
def test_the_index_of_a_window_simplifies_to_that_very_sum(length, size, step, dilation):
    count = (length - dilation * (size - 1) - 1) // step + 1
    if count < 1:
        return
    made = windows_along(Tensor(np.zeros((3, length))), 1, size, step, dilation)
    if any(node.op is Op.PAD for node in made.node.ordered()):
        # A stride over one tap that does not divide the length: the graph pads, then takes the first of each.
        return
    row, o, k = index.variable("row", 0, 2), index.variable("o", 0, count - 1), index.variable("k", 0, size - 1)
    assert through(made.node, [row, o, k]) == [row, o * step + k * dilation]


def test_unfold_is_a_view():
    made = T.unfold(2, 2, 1)
    same(made, np.lib.stride_tricks.sliding_window_view(X, 2, 2))
    assert {node.op for node in made.node.ordered()} <= MOVEMENT | {Op.BUFFER}


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (lambda: T.reshape(5, 5), ValueError, r"\[2, 3, 4\] \(24 elements\) does not reshape to \[5, 5\] \(25\)"),
        (lambda: T.reshape(-1, -1), ValueError, "one -1 at most"),
        (lambda: T.reshape(7, -1), ValueError, "no whole number for -1"),
        (lambda: T.reshape(0, -1), ValueError, "does not reshape|size of 0"),
        (lambda: T.permute(0, 0, 1), ValueError, "every axis once"),
        (lambda: T.permute(0, 1), ValueError, "every axis once"),
        (lambda: T.expand(3, 3, 4), ValueError, "does not expand"),
        (lambda: T.squeeze(axis=0), ValueError, "it is 2, not 1"),
        (lambda: T.sum(3), IndexError, r"axis 3 of a tensor of shape \[2, 3, 4\]: there are 3"),
        (lambda: T.sum((0, 0)), ValueError, "one comes twice"),
        (lambda: T.sum("x"), TypeError, "an axis is a whole number"),
        (lambda: T.cat(T.T), ValueError, "the other axes differ"),
        (lambda: T.cat(T, axis=5), IndexError, "axis 5"),
        (lambda: T.stack(T.T), ValueError, "shapes differ"),
        (
            lambda: T + Tensor(np.ones(5)),
            ValueError,
            r"shapes \[2, 3, 4\] and \[5\] do not broadcast: axis -1 is (4 and 5|5 and 4)",
        ),
        (lambda: T.pad(1, mode="odd"), ValueError, "no padding 'odd'"),
        (lambda: T.pad(5, mode="reflect"), ValueError, "at most"),
        (lambda: T.shrink(((0, 5), None, None)), IndexError, "outside of it"),
        (lambda: T.split([1, 1], 2), ValueError, "they make 2"),
        (lambda: T.split(0), ValueError, "1 or more"),
        (lambda: T.repeat(2), ValueError, "a count for each axis"),
        (lambda: T.reshape(2.5, -1), TypeError, "whole numbers"),
        (lambda: T.unfold(2, 9), ValueError, "windows of 9"),
        (lambda: T.movedim(0, (1, 2)), ValueError, "as many"),
        (lambda: len(Tensor(1)), TypeError, "no length"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(wrong, error, match):
    with pytest.raises(error, match=match):
        wrong()


@pytest.mark.parametrize(
    ("mode", "widths", "expected"),
    [
        ("reflect", (-1, 2), [1, 2, 3, 4, 3, 2]),
        ("reflect", (3, -4), [3, 2, 1, 0]),
        ("reflect", (-3, 3), [3, 4, 3, 2, 1]),
        ("replicate", (2, -1), [0, 0, 0, 1, 2, 3]),
        ("replicate", (3, -4), [0, 0, 0, 0]),
        ("replicate", (-3, 3), [3, 4, 4, 4, 4]),
        ("circular", (-1, 2), [1, 2, 3, 4, 1, 2]),
        ("circular", (2, -1), [2, 3, 0, 1, 2, 3]),
        ("circular", (3, -2), [0, 1, 2, 0, 1, 2]),
    ],
)
def test_edges_of_cut_tensors_are_made_of_what_is_cut_off_too_but_in_a_circle(mode, widths, expected):
    # PyTorch 2.14
    assert Tensor(np.arange(5.0)).pad(widths, mode=mode).tolist() == expected
    assert Tensor(np.arange(5.0)).pad(padding=widths, mode=mode).tolist() == expected


def test_roll_by_one_shift_in_a_tuple_is_of_the_flattened_tensor():
    # PyTorch 2.14
    assert Tensor(np.arange(6.0).reshape(2, 3)).roll((1,)).tolist() == [[5, 0, 1], [2, 3, 4]]


@pytest.mark.parametrize("name", ["max", "min", "cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, -1])
def test_an_extreme_of_a_tensor_without_axes_is_itself_at_place_0(name, dim):
    # PyTorch 2.14
    values, indices = getattr(Tensor(3.0), name)(dim)
    assert (values.item(), indices.item(), values.shape, indices.shape) == (3, 0, (), ())
