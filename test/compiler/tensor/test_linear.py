"""Contractions and convolutions give what NumPy and plain loops give. Their graphs have the form that kernels
look for.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import MOVEMENT, Op
from ringup.compiler.tensor import Tensor

RNG = np.random.default_rng(0)


def normal(*shape, kind="float64"):
    return RNG.normal(size=shape).astype(kind)


SHAPES = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
          ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((1, 1), (1, 1)), ((3, 0), (0, 2))]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul_of_every_rank(a, b):
    x, y = normal(*a), normal(*b)
    for found in (Tensor(x) @ Tensor(y), Tensor(x) @ y, x @ Tensor(y)):
        np.testing.assert_allclose(found.numpy(), x @ y, atol=1e-12)
    if len(a) <= 2 and len(b) <= 2:
        np.testing.assert_allclose(Tensor(x).dot(Tensor(y)).numpy(), np.dot(x, y), atol=1e-12)
    np.testing.assert_allclose(Tensor(x).outer(Tensor(y)).numpy(), np.outer(x, y))


@pytest.mark.parametrize(
    ("kind", "wide"),
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float8_e4m3", "float32"),
        ("int8", "int32"),
        ("uint8", "uint32"),
    ],
)
def test_narrow_products_are_casts_feeding_a_mul_feeding_a_sum(kind, wide):
    x, y = (
        Tensor(RNG.integers(0, 4, (3, 300 if "8_" not in kind else 20)).astype(np.float32)).cast(kind),
        Tensor(RNG.integers(0, 4, (300 if "8_" not in kind else 20, 2)).astype(np.float32)).cast(kind),
    )
    made = x @ y
    assert made.dtype is (x.dtype if x.dtype.is_float else dtypes.BY_NAME[wide])
    reduction = next(node for node in made.node.ordered() if node.op is Op.REDUCE)
    assert reduction.arg[0] is Op.ADD
    assert reduction.dtype is dtypes.BY_NAME[wide]
    product = reduction.sources[0]
    assert product.op is Op.MUL
    for cast in product.sources:
        assert cast.op is Op.CAST
        assert cast.sources[0].op is Op.EXPAND
        assert cast.sources[0].dtype is x.dtype
    exact = x.float().numpy() @ y.float().numpy()
    np.testing.assert_allclose(made.float().numpy(), exact, rtol=2.0**-3 if "8_" in kind else 2.0**-8)
    np.testing.assert_array_equal(x.matmul(y, "float32").numpy(), exact) if x.dtype.is_float else None


FORMULAS = ["ij,jk->ik", "ij,jk", "ij,kj->ik", "bij,bjk->bik", "i,j->ij", "ij->ji", "ij->i", "ij->", "ii->i", "ii", "ij,ij->",
    "ij,ij->ij", "bhqd,bhkd->bhqk",
            "ijk,jil->kl", "i,i", "...ij,...jk->...ik", "b...,b...->...", "ij,jk,kl->il", "iij,j->i", "a,ab,abc->abc"]  # fmt: skip


@pytest.mark.parametrize("formula", FORMULAS)
def test_einsum(formula):
    sizes = dict(zip("abcdhijklq", (2, 3, 2, 4, 2, 3, 4, 2, 5, 3), strict=True))
    arrays = []
    for term in formula.split("->")[0].split(","):
        shape = [sizes[one] for one in term.replace("...", "")]
        at = term.find("...")
        arrays.append(normal(*(shape if at < 0 else [*shape[:at], 2, 3, *shape[at:]])))
    first, *others = (Tensor(one) for one in arrays)
    np.testing.assert_allclose(first.einsum(formula, *others).numpy(), np.einsum(formula, *arrays), atol=1e-10)


def test_tensordot_inner_linear():
    x, y = normal(2, 3, 4), normal(4, 3, 5)
    np.testing.assert_allclose(
        Tensor(x).tensordot(Tensor(y), ([1, 2], [1, 0])).numpy(), np.tensordot(x, y, ([1, 2], [1, 0]))
    )
    np.testing.assert_allclose(Tensor(x).tensordot(Tensor(normal(4, 2)), 1).shape, (2, 3, 2))
    np.testing.assert_allclose(Tensor(x).dot(Tensor(normal(2, 4, 5))).shape, (2, 3, 2, 5))
    np.testing.assert_allclose(Tensor(x).inner(Tensor(x)).numpy(), np.inner(x, x))
    w, b = normal(5, 4), normal(5)
    np.testing.assert_allclose(Tensor(x).linear(Tensor(w), Tensor(b)).numpy(), x @ w.T + b)


def conv(x, w, stride, padding, dilation, groups):
    """Return the convolution by its definition."""
    n = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    outputs = [(x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    made = np.zeros((x.shape[0], w.shape[0], *outputs))
    each, inputs = w.shape[0] // groups, w.shape[1]
    for place in itertools.product(*map(range, outputs)):
        at = tuple(
            slice(o * s, o * s + d * (k - 1) + 1, d)
            for o, s, d, k in zip(place, stride, dilation, w.shape[2:], strict=True)
        )
        window = x[(slice(None), slice(None), *at)]
        for g in range(groups):
            part = window[:, g * inputs : (g + 1) * inputs].reshape(x.shape[0], -1)
            made[(slice(None), slice(g * each, (g + 1) * each), *place)] = (
                part @ w[g * each : (g + 1) * each].reshape(each, -1).T
            )
    return made


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_convolutions_are_their_definition(data):
    n = data.draw(st.integers(1, 3))
    pick = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(n)]  # noqa: E731
    groups, kernel, stride, dilation, sides = (
        data.draw(st.integers(1, 2)),
        pick(1, 3),
        pick(1, 3),
        pick(1, 2),
        pick(0, 2),
    )
    lengths = [
        max(length, d * (k - 1) + 1 - 2 * s)
        for length, d, k, s in zip(pick(1, 7), dilation, kernel, sides, strict=True)
    ]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, w = rng.normal(size=(2, 2 * groups, *lengths)), rng.normal(size=(3 * groups, 2, *kernel))
    expected = conv(x, w, stride, [(s, s) for s in sides], dilation, groups)
    found = Tensor(x).conv(Tensor(w), stride=stride, padding=sides, dilation=dilation, groups=groups)
    (contraction,) = [node for node in found.node.ordered() if node.op is Op.REDUCE]
    assert contraction.arg[0] is Op.ADD
    assert contraction.sources[0].op is Op.MUL
    assert {node.op for node in found.node.ordered()} <= MOVEMENT | {Op.BUFFER, Op.MUL, Op.REDUCE}
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_transposed_convolutions_are_the_adjoint(data):
    n = data.draw(st.integers(1, 2))
    pick = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(n)]  # noqa: E731
    groups, kernel, stride, dilation, lengths = (
        data.draw(st.integers(1, 2)),
        pick(1, 3),
        pick(1, 3),
        pick(1, 2),
        pick(1, 5),
    )
    sides = [data.draw(st.integers(0, d * (k - 1))) for d, k in zip(dilation, kernel, strict=True)]
    more = [data.draw(st.integers(0, s - 1)) for s in stride]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    y, w = rng.normal(size=(2, 2 * groups, *lengths)), rng.normal(size=(2 * groups, 3, *kernel))
    whole = [
        (length - 1) * s + d * (k - 1) + 1 - 2 * p + m
        for length, s, d, k, p, m in zip(lengths, stride, dilation, kernel, sides, more, strict=True)
    ]
    if min(whole) < 1:
        return
    found = (
        Tensor(y)
        .conv_transpose(Tensor(w), stride=stride, padding=sides, output_padding=more, dilation=dilation, groups=groups)
        .numpy()
    )
    assert found.shape == (2, 3 * groups, *whole)
    x = rng.normal(size=found.shape)
    forward = conv(x, w, stride, [(p, p) for p in sides], dilation, groups)
    cut = forward[tuple(slice(size) for size in y.shape)]
    np.testing.assert_allclose((found * x).sum(), (cut * y).sum(), atol=1e-9)


def test_convolution_padding_bias_and_refusals():
    x, w, b = normal(1, 2, 6, 7), normal(4, 2, 3, 3), normal(4)
    expected = conv(x, w, (1, 1), [(1, 1), (1, 1)], (1, 1), 1)
    np.testing.assert_allclose(
        Tensor(x).conv2d(Tensor(w), Tensor(b), padding="same").numpy(), expected + b[:, None, None]
    )
    np.testing.assert_allclose(Tensor(x).conv(Tensor(w), padding="valid").numpy(), expected[..., 1:-1, 1:-1])
    np.testing.assert_allclose(
        Tensor(x).conv(Tensor(w), padding=((2, 0), (0, 1))).numpy(), conv(x, w, (1, 1), [(2, 0), (0, 1)], (1, 1), 1)
    )
    assert Tensor(normal(1, 2, 9)).conv1d(Tensor(normal(3, 2, 3))).shape == (1, 3, 7)
    assert Tensor(normal(1, 1, 4, 4, 4)).conv3d(Tensor(normal(2, 1, 2, 2, 2))).shape == (1, 2, 3, 3, 3)
    for wrong, match in (
        (lambda: Tensor(x).conv(Tensor(normal(4, 3, 3, 3))), "it takes 3 channels"),
        (lambda: Tensor(x).conv(Tensor(normal(4, 2, 3))), "of equal rank"),
        (lambda: Tensor(x).conv(Tensor(normal(4, 2, 9, 9))), "larger than axis 2"),
        (lambda: Tensor(x).conv(Tensor(w), stride=0), "stride of 0"),
        (lambda: Tensor(x).conv(Tensor(w), padding="odd"), '"same" or "valid"'),
        (lambda: Tensor(x).conv(Tensor(w), padding=(1, 2, 3)), "one for all or one for each"),
        (lambda: Tensor(x) @ Tensor(x), "7 columns meet 6 rows"),
        (lambda: Tensor(1.0) @ Tensor(x), "at least one axis"),
        (lambda: Tensor(x).einsum("ij->i"), "does not name the axes"),
        (lambda: Tensor(x).einsum("abcd,ab->e", Tensor(x)), "does not name|in no operand"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()


def pooled(x, size, step, pad, fill, function, dilation=1):
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=fill)
    reach = dilation * (size - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), (2, 3))[
        :, :, ::step, ::step, ::dilation, ::dilation
    ]
    return function(windows, axis=(-2, -1))


@pytest.mark.parametrize(("size", "step", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (1, 1, 0)])
def test_pooling(size, step, pad):
    x = normal(2, 3, 9, 9)
    np.testing.assert_array_equal(
        Tensor(x).max_pool(size, step, pad).numpy(), pooled(x, size, step, pad, -np.inf, np.max)
    )
    np.testing.assert_allclose(Tensor(x).avg_pool(size, step, pad).numpy(), pooled(x, size, step, pad, 0, np.mean))
    counts = pooled(np.ones_like(x), size, step, pad, 0, np.sum)
    np.testing.assert_allclose(
        Tensor(x).avg_pool(size, step, pad, count_padding=False).numpy(), pooled(x, size, step, pad, 0, np.sum) / counts
    )
    np.testing.assert_allclose(
        Tensor(x).lp_pool(3, size, step).numpy(), pooled(np.abs(x) ** 3, size, step, 0, 0, np.sum) ** (1 / 3)
    )
    n = RNG.integers(-9, 9, (1, 1, 9, 9)).astype(np.int32)
    np.testing.assert_array_equal(
        Tensor(n).max_pool(size, step, pad).numpy(), pooled(n, size, step, pad, np.iinfo(np.int32).min, np.max)
    )


def test_pooling_rounded_up():
    x = normal(1, 1, 5, 5)
    wide = np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=-np.inf)
    np.testing.assert_array_equal(Tensor(x).max_pool(2, ceil=True).numpy(), pooled(wide, 2, 2, 0, 0, np.max))
    zero = np.where(np.isinf(wide), 0, wide)
    counts = pooled(np.isfinite(wide).astype(float), 2, 2, 0, 0, np.sum)
    np.testing.assert_allclose(Tensor(x).avg_pool(2, ceil=True).numpy(), pooled(zero, 2, 2, 0, 0, np.sum) / counts)
    assert Tensor(normal(1, 1, 4)).max_pool((2,), 3, 1, ceil=True).shape == (1, 1, 2)
    np.testing.assert_array_equal(Tensor(x).max_pool(2, 1, 0, 2).numpy(), pooled(x, 2, 1, 0, 0, np.max, 2))


def test_interpolation():
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    np.testing.assert_array_equal(Tensor(x).interpolate((6, 8)).numpy(), x.repeat(2, 2).repeat(2, 3))
    np.testing.assert_array_equal(Tensor(x).interpolate((3, 2)).numpy(), x[..., ::2])
    np.testing.assert_array_equal(Tensor(x).interpolate((5, 3)).numpy(), x[:, :, [0, 0, 1, 1, 2]][..., [0, 1, 2]])
    line = np.array([[0.0, 10.0, 20.0]], np.float32)
    np.testing.assert_allclose(
        Tensor(line).interpolate((5,), "linear", align_corners=True).numpy(), [[0, 5, 10, 15, 20]]
    )
    at = np.clip((np.arange(7) + 0.5) * 3 / 7 - 0.5, 0, 2)
    np.testing.assert_allclose(
        Tensor(line).interpolate((7,), "linear").numpy(), [np.interp(at, [0, 1, 2], line[0])], rtol=1e-6
    )
    with pytest.raises(ValueError, match="no mode 'lanczos'"):
        Tensor(x).interpolate((2, 2), "lanczos")
