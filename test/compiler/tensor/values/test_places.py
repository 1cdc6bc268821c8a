"""Places and classes given as tensors: negative ones, what lies outside, and the checks that find it."""

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, checked, gradient

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_negative_places_count_from_the_end_in_every_operation(kind):
    x = Tensor(X)
    places = np.array([-1, 0, -3, 2])
    at = Tensor(places.astype(kind))
    # NumPy counts them so
    np.testing.assert_array_equal(x.take(at, 0).numpy(), X.take(places, 0))
    np.testing.assert_array_equal(x.take(at).numpy(), X.take(places))
    np.testing.assert_array_equal(x.index_select(0, at).numpy(), X[places])
    np.testing.assert_array_equal(x.embedding(at).numpy(), X[places])
    np.testing.assert_array_equal(x[at].numpy(), X[places])
    np.testing.assert_array_equal(x[:, at].numpy(), X[:, places])
    rows = np.array([[-1, 0, 1, -2]])
    wanted = np.take_along_axis(X, rows, 0)
    np.testing.assert_array_equal(x.gather(0, Tensor(rows.astype(kind))).numpy(), wanted)
    np.testing.assert_array_equal(x.take_along_axis(Tensor(rows.astype(kind)), 0).numpy(), wanted)
    put = np.array(X)
    np.put_along_axis(put, rows, 99.0, 0)
    np.testing.assert_array_equal(x.scatter(0, Tensor(rows.astype(kind)), 99.0).numpy(), put)


def test_narrow_places_reach_into_long_axes():
    x = np.arange(300, dtype=np.int32)
    assert Tensor(x).take(Tensor([-1, -128, 127], "int8")).tolist() == [299, 172, 127]
    assert Tensor(x).take(Tensor([255, 0], "uint8")).tolist() == [255, 0]


@pytest.mark.parametrize("place", [3, 7, -4, -100, 2**31 - 1, -(2**31)])
def test_what_lies_outside_reads_0_and_is_not_written(place):
    x, at = Tensor(X), Tensor([place], "int32")
    assert not x.take(at, 0).numpy().any()
    assert not x[at].numpy().any()
    np.testing.assert_array_equal(x.scatter(0, at.reshape(1, 1).expand((1, 4)), 5.0).numpy(), X)
    t = Tensor(X)
    t[at] = 7.0
    np.testing.assert_array_equal(t.numpy(), X)
    (back,) = gradient(x.take(at, 0).sum(), [x])
    assert not back.numpy().any()


def test_a_class_outside_is_no_class():
    assert Tensor([0, 3, -1]).one_hot(3).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    scores = Tensor(X)
    lost = scores.cross_entropy(Tensor([1, 4, -1]), reduction="none")
    assert lost.tolist()[1:] == [0.0, 0.0]
    assert lost.tolist()[0] > 0


CHECKED = {
    "take: 3 lies outside of -3 to 2": lambda x: x.take(Tensor([0, 3]), 0),
    "take: -13 lies outside of -12 to 11": lambda x: x.take(Tensor([-13])),
    "gather: -4 lies outside of -3 to 2": lambda x: x.gather(0, Tensor([[-4]])),
    "take_along_axis: 4 lies outside of -4 to 3": lambda x: x.take_along_axis(Tensor([[4]]), 1),
    "index_select: 9 lies outside of -4 to 3": lambda x: x.index_select(1, Tensor([9])),
    "embedding: 200 lies outside of 0 to 2": lambda x: x.embedding(Tensor([200], "uint8")),
    "index: 3 lies outside of -3 to 2": lambda x: x[Tensor([3])],
    "index: 5 lies outside of -4 to 3": lambda x: x[Tensor([0, 1]), Tensor([0, 5])],
    "scatter: 3 lies outside of -3 to 2": lambda x: x.scatter(0, Tensor([[3]]), 1.0),
    "scatter: -9 lies outside of -3 to 2": lambda x: x.scatter_add(0, Tensor([[-9]]), Tensor([[1.0]])),
    "one_hot: 5 lies outside of 0 to 4": lambda x: Tensor([1, 5]).one_hot(5),
    "one_hot: -1 lies outside of 0 to 4": lambda x: Tensor([1, -1]).one_hot(5),
    "cross_entropy: 4 lies outside of 0 to 3": lambda x: x.cross_entropy(Tensor([0, 4, 1])),
    "nll_loss: -2 lies outside of 0 to 3": lambda x: x.nll_loss(Tensor([0, -2, 1])),
}


@pytest.mark.parametrize("message", CHECKED)
def test_a_check_names_the_operation_the_place_and_the_bound(message):
    # the graph is made outside: what is evaluated inside counts
    made = CHECKED[message](Tensor(X))
    with checked(), pytest.raises(IndexError, match=message):
        made.numpy()
    # the tensor is as it was, and outside of the block nothing is checked
    made.numpy()


def test_checks_let_pass_what_lies_inside():
    x = Tensor(X)
    with checked():
        np.testing.assert_array_equal(x.take(Tensor([2, -3]), 0).numpy(), X[[2, -3]])
        np.testing.assert_array_equal(x.take(Tensor([], "int32"), 0).numpy(), X[[]])
        assert x.cross_entropy(Tensor([0, -100, 1]), ignore=-100).item() > 0
        np.testing.assert_array_equal(x.sort(1, descending=True)[0].numpy(), X[:, ::-1])


def test_nothing_is_computed_for_checks_outside_of_the_block(evaluator):
    x = Tensor(X)
    x.take(Tensor([7]), 0).numpy()
    (asked,) = evaluator.calls
    assert len(asked) == 1
    with checked():
        x.take(Tensor([1]), 0).numpy()
    assert len(evaluator.calls[1]) == 3


def test_a_check_holds_for_places_that_are_computed():
    x, at = Tensor(X), Tensor([1, 2])
    with checked():
        np.testing.assert_array_equal(x.take(at * 1, 0).numpy(), X[[1, 2]])
        with pytest.raises(IndexError, match="take: 4 lies outside"):
            x.take(at * 2, 0).numpy()


def test_an_assignment_is_done_once_though_its_check_fails():
    t = Tensor(X)
    t.realize()
    with checked():
        t[Tensor([0, 3])] += 1.0
        with pytest.raises(IndexError, match="index: 3 lies outside"):
            t.realize()
        first = t.numpy()
    wanted = np.array(X)
    wanted[0] += 1
    np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(t.numpy(), wanted)


def test_a_check_follows_a_graph_over_memory_that_is_written_in_between():
    table, at = Tensor(X), Tensor([5])
    table.realize(at)
    rows = table.take(at, 0)
    table.assign(table + 1)
    with checked(), pytest.raises(IndexError, match="take: 5 lies outside"):
        rows.realize(table)
