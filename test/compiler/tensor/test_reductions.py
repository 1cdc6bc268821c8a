"""Reductions, running reductions and sorting give NumPy's results, over types, axes and edge values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringup.compiler.graph import nodes
from ringup.compiler.schedule import rewrite
from ringup.compiler.tensor import Tensor, sorting

AXES = [None, 0, 1, -1, (0, 1), (0, 2), (0, 1, 2), ()]
KINDS = ["float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool"]


def values(kind, shape=(3, 4, 5), seed=0):
    rng = np.random.default_rng(seed)
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return (
        rng.normal(0, 2, shape).astype(kind)
        if kind[0] == "f"
        else rng.integers(0 if kind[0] == "u" else -9, 10, shape).astype(kind)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_sums_and_extremes(kind, axis):
    x = values(kind)
    t = Tensor(x)
    for keep in (False, True):
        for name in ("sum", "prod", "max", "min", "any", "all"):
            found = getattr(t, name)(axis, keepdims=keep).numpy()
            wide = x.astype(np.float64) if kind in ("float16", "float32") and name in ("sum", "prod") else x
            expected = getattr(np, name)(wide, axis=axis, keepdims=keep)
            if kind in ("int8", "uint8", "bool", "int32") and name == "prod":
                # NumPy wraps around there.
                expected = expected.astype(found.dtype)
            assert found.shape == expected.shape
            tolerance = {"float16": 2e-3, "float32": 1e-6}.get(kind, 1e-12)
            np.testing.assert_allclose(
                found.astype(np.float64),
                expected.astype(np.float64),
                rtol=tolerance,
                atol=tolerance if name == "sum" else 0,
            )
        np.testing.assert_array_equal(
            t.count_nonzero(axis, keepdims=keep).numpy(),
            np.count_nonzero(x, axis, keepdims=keep) if axis != () else (x != 0),
        )


@pytest.mark.parametrize("kind", ["float32", "float64", "int32"])
@pytest.mark.parametrize("axis", [one for one in AXES if one != ()], ids=str)
def test_statistics(kind, axis):
    x = values(kind)
    t, wide = Tensor(x), x.astype(np.float64)
    rtol = 1e-5 if kind != "float64" else 1e-12
    np.testing.assert_allclose(t.mean(axis).numpy(), wide.mean(axis), rtol=rtol, atol=1e-6)
    for correction in (0, 1):
        np.testing.assert_allclose(
            t.var(axis, correction=correction).numpy(), wide.var(axis, ddof=correction), rtol=rtol
        )
        np.testing.assert_allclose(
            t.std(axis, correction=correction, keepdims=True).numpy(),
            wide.std(axis, ddof=correction, keepdims=True),
            rtol=rtol,
        )
    for order in (0, 1, 2, 3, np.inf, -np.inf):
        expected = {0: (wide != 0).sum(axis), np.inf: np.abs(wide).max(axis), -np.inf: np.abs(wide).min(axis)}.get(
            order
        )
        expected = (np.abs(wide) ** order).sum(axis) ** (1 / order) if expected is None else expected
        np.testing.assert_allclose(t.norm(order, axis).numpy(), expected, rtol=1e-5)
    raised = np.exp(wide - wide.max(axis, keepdims=True))
    np.testing.assert_allclose(t.logsumexp(axis).numpy(), np.log(raised.sum(axis)) + wide.max(axis), rtol=1e-5)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_softmax(kind):
    x = values(kind) * 10
    wide = x.astype(np.float64)
    for axis in (0, 1, -1):
        raised = np.exp(wide - wide.max(axis, keepdims=True))
        expected = raised / raised.sum(axis, keepdims=True)
        # |x| / 2 ulp.
        rtol = {"float32": 1e-5, "float64": 2e-14, "float16": 1e-3}[kind]
        np.testing.assert_allclose(
            Tensor(x).softmax(axis).numpy(), expected, rtol=rtol, atol=6e-8 if kind == "float16" else 0
        )
        np.testing.assert_allclose(Tensor(x).log_softmax(axis).numpy(), np.log(expected), rtol=rtol * 4, atol=rtol)
    large = Tensor(np.array([1e30, -1e30, 1e30], kind if kind != "float16" else "float32"))
    assert large.softmax().tolist() == [0.5, 0, 0.5]
    assert np.isnan(Tensor([np.nan, 1.0]).softmax().numpy()).all()


def test_a_reduction_of_nothing():
    t = Tensor(np.zeros((0, 3), np.float32))
    assert t.sum(0).tolist() == [0, 0, 0]
    assert t.prod(0).tolist() == [1, 1, 1]
    assert t.any(0).tolist() == [False] * 3
    assert t.all(0).tolist() == [True] * 3
    assert np.isnan(t.mean(0).numpy()).all()
    assert t.amax(1).tolist() == []
    assert t.sum(1).tolist() == []
    for name in ("max", "min", "argmax"):
        with pytest.raises(ValueError, match=r"of \[0, 3\] along axis 0: nothing there"):
            getattr(t, name)(0)
    # PyTorch 2.14
    assert t.softmax(0).shape == t.log_softmax(1).shape == (0, 3)
    assert t.logsumexp(0).tolist() == [-np.inf] * 3
    assert Tensor([[], []]).logsumexp(1).tolist() == [-np.inf] * 2


def test_argmax_takes_the_first_of_equals_and_nan_as_numpy_does():
    x = np.array(
        [[1, 3, 3, 2], [0, 0, 0, 0], [np.nan, 9, np.nan, 1], [-np.inf] * 4, [1, np.nan, np.inf, 0]], np.float32
    )
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(Tensor(x).argmax(axis).numpy(), np.argmax(x, axis))
        np.testing.assert_array_equal(Tensor(x).argmin(axis).numpy(), np.argmin(x, axis))
    assert Tensor(x).argmax(1, keepdims=True).shape == (5, 1)
    assert Tensor(x).argmax(keepdims=True).shape == (1, 1)
    np.testing.assert_array_equal(Tensor(x[:2]).amax(1).numpy(), [3, 0])
    assert np.isnan(Tensor(x).max().item())
    for kind in ("int8", "uint8", "int64", "bool"):
        y = values(kind, (4, 6))
        np.testing.assert_array_equal(Tensor(y).argmax(1).numpy(), np.argmax(y, 1))


def test_sums_of_narrow_floats_are_kept_in_f32():
    x = np.full(5000, 0.1, np.float16)
    # f16 alone would stop at 256.
    assert abs(Tensor(x).sum().item() - 5000 * float(np.float16(0.1))) < 0.5
    assert Tensor(np.full(4096, 1, np.float32)).cast("bfloat16").sum().float().item() == 4096
    assert Tensor(np.full(300, 100, np.int8)).sum().item() == 30000


@pytest.mark.parametrize("size", [1, 2, 7, 33, 512, 513, 1000, 3000])
def test_running_reductions_of_any_length(size):
    x = values("float64", (2, size), 3)
    for axis, y in ((1, x), (0, x.T.copy())):
        t = Tensor(y)
        np.testing.assert_allclose(t.cumsum(axis).numpy(), np.cumsum(y, axis), atol=1e-10)
        np.testing.assert_array_equal(t.cummax(axis=axis).numpy(), np.maximum.accumulate(y, axis))
        np.testing.assert_array_equal(t.cummin(axis=axis).numpy(), np.minimum.accumulate(y, axis))
        near_one = 1 + y / 1000
        np.testing.assert_allclose(Tensor(near_one).cumprod(axis).numpy(), np.cumprod(near_one, axis), rtol=1e-10)
    n = np.arange(size, dtype=np.int8)
    np.testing.assert_array_equal(Tensor(n).cumsum().numpy(), np.cumsum(n, dtype=np.int32))
    np.testing.assert_allclose(Tensor(x).logcumsumexp(1).numpy(), np.logaddexp.accumulate(x, 1), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(Tensor(x).diff(1).numpy(), np.diff(x, axis=1))


def test_running_reductions_pass_nan_on_only_forward():
    found = Tensor([1.0, np.nan, 3.0]).cumsum().numpy()
    assert found[0] == 1
    assert np.isnan(found[1:]).all()
    assert Tensor([np.inf, 1.0]).cumsum().tolist() == [np.inf, np.inf]
    assert np.isnan(Tensor([1.0, np.nan, 3.0]).cummax().numpy()).tolist() == [False, True, True]


SORTED = ["float32", "float64", "float16", "int8", "int32", "uint32", "int64", "uint8", "bool"]


def order(x, axis, *, descending):
    """Return NumPy's stable order. Descending order keeps equal elements in place and puts NaN first."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    places = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - places, axis)


@pytest.mark.parametrize("kind", SORTED)
@pytest.mark.parametrize("block", [4096, 8])
def test_sorting_is_stable_with_nan_last(kind, block, monkeypatch):
    monkeypatch.setattr(sorting, "BLOCK", block)
    x = values(kind, (3, 37), 4)
    if kind[0] == "f":
        x[0, ::5], x[1, ::7], x[2, ::4], x[2, 1::4], x[1, 1], x[1, 2] = np.nan, np.inf, 0.0, -0.0, -np.inf, -np.nan
    for axis, y in ((1, x), (0, x.T.copy())):
        for falling in (False, True):
            expected = order(y, axis, descending=falling)
            found, places = Tensor(y).sort(axis, descending=falling)
            np.testing.assert_array_equal(places.numpy(), expected)
            np.testing.assert_array_equal(found.numpy(), np.take_along_axis(y, expected, axis))
    best, places = Tensor(x).topk(5, 1)
    np.testing.assert_array_equal(places.numpy(), order(x, 1, descending=True)[:, :5])
    np.testing.assert_array_equal(best.numpy(), np.take_along_axis(x, places.numpy(), 1))
    np.testing.assert_array_equal(Tensor(x).topk(5, 1, largest=False)[1].numpy(), order(x, 1, descending=False)[:, :5])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 10**6), st.sampled_from([2, 8, 32]))
def test_merging_sorts_rows_of_any_length(size, seed, most):
    """The schedule turns a row that no group can sort into such merges."""
    x = np.random.default_rng(seed).integers(-3, 4, (2, size)).astype(np.int32)
    x[:, :2] = np.iinfo(np.int32).max
    before = rewrite.SORTED_BYTES
    rewrite.SORTED_BYTES = 4 * most
    try:
        (made,) = rewrite.rewritten([nodes.sort(Tensor(x).node, 1)])
    finally:
        rewrite.SORTED_BYTES = before
    assert all(node.arg[1] == most for node in made.ordered() if node.op is nodes.Op.SORT and size > most)
    np.testing.assert_array_equal(Tensor._of(made).numpy(), np.sort(x, 1))


def test_a_long_row():
    x = values("float32", (5000,), 6)
    np.testing.assert_array_equal(Tensor(x).argsort().numpy(), np.argsort(x, kind="stable"))


def test_median():
    for size in (1, 4, 5):
        x = values("float32", (3, size), 7)
        np.testing.assert_allclose(Tensor(x).median(axis=1).numpy(), np.median(x, 1), rtol=1e-6)
    assert np.isnan(Tensor([1.0, np.nan]).median().item())
    assert Tensor([3, 1, 2, 9]).median(axis=None).item() == 2.5
    with pytest.raises(ValueError, match="topk of 9"):
        Tensor([1, 2]).topk(9)
    assert Tensor(np.zeros((2, 0))).sort()[0].shape == (2, 0)


@pytest.mark.parametrize(
    "name",
    ["sum", "prod", "amax", "amin", "mean", "logsumexp", "softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"],
)
@pytest.mark.parametrize("axis", [0, -1])
def test_a_tensor_without_axes_counts_as_one_of_one_element(name, axis):
    # PyTorch 2.14 allows dim 0 and -1 of a scalar
    x = Tensor(3.0)
    found = getattr(x, name)(axis)
    assert found.shape == ()
    assert found.item() == {"softmax": 1, "log_softmax": 0}.get(name, 3)
    assert Tensor(3.0).argmax(axis).item() == 0
    with pytest.raises(IndexError, match="axis 1 of a tensor of shape"):
        getattr(x, name)(1)
