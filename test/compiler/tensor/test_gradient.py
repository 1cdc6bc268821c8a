"""Gradients, of second order too, agree with finite differences and with another framework (HIPS autograd)."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import Tensor, gradient, no_grad

ROOT = Path(__file__).resolve().parents[3]
RNG = np.random.default_rng(2)


def spread(*shape, low=-2.0, high=2.0):
    """Return values of which no two are equal and none is near a whole number or a half, so that none is near a
    kink.
    """
    count = math.prod(shape)
    return RNG.permutation(np.linspace(low, high, count + 2)[1:-1] + 0.003).reshape(shape)


def check(function, *arrays, second=True, tolerance=1e-6):
    """Compare gradients, and those of a sum of them, with central differences."""
    weights = None

    def loss(*tensors):
        nonlocal weights
        made = function(*tensors)
        weights = np.random.default_rng(1).normal(size=made.shape) if weights is None else weights
        return (made * Tensor(weights)).sum()

    def slopes(*tensors):
        return gradient(loss(*tensors), list(tensors))

    def numbers(function, order):
        step = 1e-6 if order == 1 else 1e-5
        for place, array in enumerate(arrays):
            made = np.zeros_like(array)
            for at in np.ndindex(array.shape):
                values = []
                for sign in (1, -1):
                    moved = [one.copy() for one in arrays]
                    moved[place][at] += sign * step
                    values.append(function(*(Tensor(one) for one in moved)).item())
                made[at] = (values[0] - values[1]) / (2 * step)
            yield made

    tensors = [Tensor(one) for one in arrays]
    for found, expected in zip(slopes(*tensors), numbers(loss, 1), strict=True):
        assert found.dtype.name == "float64"
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
    if not second:
        return
    mixed = [np.random.default_rng(3).normal(size=one.shape) for one in arrays]

    def slope_sum(*tensors):
        total = Tensor(0.0, "float64")
        for one, weight in zip(slopes(*tensors), mixed, strict=True):
            total = total + (one * Tensor(weight)).sum()
        return total

    try:
        found_again = gradient(slope_sum(*tensors), tensors)
    except ValueError as error:
        assert "does not depend" in str(error)  # noqa: PT017  # linear in a target: its second derivative is nothing
        return
    for found, expected in zip(found_again, numbers(slope_sum, 2), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance * 50, atol=tolerance * 50)


UNARY = ["__neg__", "__abs__", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos",
    "tan", "asin", "acos", "atan",
         "sinh", "cosh", "tanh", "asinh", "atanh", "erf", "erfc", "sigmoid", "softplus", "silu", "mish", "gelu", "quick_gelu", "elu",
         "selu", "logsigmoid",
         "softsign", "square", "cbrt", "relu", "leaky_relu", "hardswish", "sign", "floor", "softshrink", "tanhshrink"]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions(name):
    positive = name in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "reciprocal", "cbrt")
    inside = name in ("asin", "acos", "atanh")
    x = spread(5, low=0.3 if positive else -0.9 if inside else -1.9, high=0.9 if inside else 1.9)
    if name in ("sign", "floor"):
        with pytest.raises(ValueError, match="does not depend"):
            gradient(getattr(Tensor(x), name)().sum(), [Tensor(x)])
        return
    check(lambda t: getattr(t, name)(), x)


def test_acosh_and_tanh_gelu():
    check(lambda t: t.acosh(), spread(4, low=1.2, high=4))
    check(lambda t: t.gelu("tanh"), spread(4))


X, Y = spread(2, 3), spread(2, 3) + 0.0123
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 0.5),
    "mod": lambda a, b: a % (b * b + 0.7),
    "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b),
    "pow": lambda a, b: (a * a + 0.3) ** b,
    "atan2": lambda a, b: a.atan2(b),
    "where": lambda a, b: (a > 0.1).where(a * b, b.sin()),
    "lerp": lambda a, b: a.lerp(b, 0.3),
    "copysign": lambda a, b: a.copysign(b) * b,
    "logaddexp": lambda a, b: a.logaddexp(b),
    "clip": lambda a, b: a.clip(-0.55, 0.8) * b,
    "spread": lambda a, b: (a[:1] + b[:, :1]).sin(),
    "number": lambda a, b: 2**a + b**3 + 1 / (a * a + 1) - 3,
    "cat": lambda a, b: a.cat(b, axis=1).sin(),
    "stack": lambda a, b: a.stack(b).square(),
    "matmul": lambda a, b: a @ b.T,
    "outer": lambda a, b: a.outer(b),
    "einsum": lambda a, b: a.einsum("ij,kj,ij->ki", b, a),
    "vector": lambda a, b: a[0] @ b.T,
}


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name):
    check(BINARY[name], X, Y)


ONE = {
    "sum": lambda t: t.sum(1) ** 2,
    "mean": lambda t: t.mean() ** 2,
    "prod": lambda t: t.prod(1),
    "max": lambda t: t.amax(0) * t.amin(1).sum(),
    "var": lambda t: t.var(0),
    "std": lambda t: t.std(),
    "norm": lambda t: t.norm(3) + t.norm(),
    "softmax": lambda t: t.softmax(),
    "log_softmax": lambda t: t.log_softmax(0),
    "logsumexp": lambda t: t.logsumexp(0),
    "cumsum": lambda t: t.cumsum(1).sin(),
    "cumprod": lambda t: t.cumprod(1),
    "cummax": lambda t: t.cummax(axis=1) ** 2,
    "logcumsumexp": lambda t: t.logcumsumexp(1) * Tensor([[1.0, -2.0, 3.0], [-1.0, 0.0, 2.0]], "float64"),
    "logcumsumexp twice": lambda t: t.logcumsumexp(0).logcumsumexp(1).sin(),
    "sort": lambda t: t.sort(1)[0] * Tensor([1.0, 2.0, 4.0], "float64"),
    "median": lambda t: t.median(axis=1),
    "reshape": lambda t: t.reshape(3, 2).T.flip(0) ** 2,
    "pad": lambda t: t.pad(1).square(),
    "reflect": lambda t: t.pad(((0, 0), (2, 1)), mode="reflect").square(),
    "slice": lambda t: t[:, ::-2] ** 2,
    "index": lambda t: t[[0, 1, 0], [2, 2, 2]] ** 2,
    "take": lambda t: t.take([[2, 0], [2, 2]], 1).exp(),
    "roll": lambda t: t.roll(1, 1) * t,
    "expand": lambda t: t.expand(4, 2, 3).sin(),
    "diagonal": lambda t: t.diagonal() ** 2,
    "tril": lambda t: (t @ t.T).tril(),
    "unfold": lambda t: t.unfold(1, 2) ** 2,
    "scatter_add": lambda t: t.scatter_add(1, [[0, 0, 2], [1, 1, 1]], t * t),
    "scatter_max": lambda t: t.scatter_reduce(1, [[0, 0, 2], [1, 1, 1]], t.flip(1) * 1.3, "max") ** 2,
    "scatter_mul": lambda t: t.scatter_reduce(1, [[0, 1, 2], [1, 0, 2]], t + 3, "mul"),
    "layer_norm": lambda t: t.layer_norm(),
    "rms_norm": lambda t: t.rms_norm(),
    "max_pool": lambda t: t.reshape(1, 1, 2, 3).max_pool(2, 1),
    "avg_pool": lambda t: t.reshape(1, 1, 2, 3).avg_pool(2, 1, 1) ** 2,
    "interpolate": lambda t: t.interpolate((5,), "linear") ** 2,
    "setitem": lambda t: put(t * t),
    "detach": lambda t: t * t.detach().sin() - t.detach(),
    "view of f64": lambda t: t.contiguous().square(),
}


def put(t):
    t[0, 1:] = t[1, :2] * 3
    t[[1, 0], [0, 2]] = 7
    return t


@pytest.mark.parametrize("name", [one for one in ONE if one != "detach"])
def test_one_operand(name):
    check(ONE[name], X)


def test_detached_values_are_constants():
    t = Tensor(X)
    (found,) = gradient((t * t.detach().sin() - t.detach()).sum(), [t])
    np.testing.assert_allclose(found.numpy(), np.sin(X))


def test_scattered_values_where_the_last_one_stays():
    check(lambda t, u: t.scatter(1, [[0, 0, 2], [1, 1, 1]], u * u), X, Y)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (2, 1, 1, 2), (3, 0, 1, 1)]
)
def test_convolution(stride, padding, dilation, groups):
    x, w = spread(1, 2, 5, 4), spread(2, 2 // groups, 2, 2)
    check(
        lambda a, b: a.conv(b, stride=stride, padding=padding, dilation=dilation, groups=groups).square(),
        x,
        w,
        tolerance=1e-5,
    )
    check(lambda a,
    b: a.conv_transpose(b.permute(1, 0, 2, 3) if groups == 1 else b, stride=stride, padding=min(padding, 1), dilation=dilation,
    groups=groups),
          x, w, tolerance=1e-5, second=False)  # fmt: skip


def test_attention_and_losses():
    q, k, v = (spread(1, 2, 3, 4) for _ in range(3))
    check(lambda a, b, c: a.scaled_dot_product_attention(b, c, causal=True), q, k, v, second=False)
    check(
        lambda a, b: a.scaled_dot_product_attention(b, b, grouped=True),
        spread(1, 4, 2, 3),
        spread(1, 2, 3, 3),
        second=False,
    )
    x = spread(3, 4)
    check(lambda t: t.cross_entropy(Tensor([1, 0, 3])), x)
    check(lambda t: t.cross_entropy(Tensor([1, 0, 3]), ignore=0, smoothing=0.1), x)
    check(lambda t: t.bce_with_logits_loss(Tensor((x > 0).astype(np.float64))), x)
    check(lambda t: t.sigmoid().bce_loss(Tensor((x > 0).astype(np.float64))), x)
    check(lambda t: t.huber_loss(Tensor(x * 0.1), delta=0.7), x)
    check(lambda t, w, b: t.group_norm(2, w, b), spread(2, 6), spread(6), spread(6))
    check(lambda t, w, b: t.batch_norm(weight=w, bias=b), spread(4, 3), spread(3), spread(3), tolerance=1e-5)
    check(lambda t: t.embedding(Tensor([0, 2, 2])).square(), x)


def test_kinks():
    def slope(function, x):
        t = Tensor(x, "float64")
        return gradient(function(t).sum(), [t])[0].tolist()

    assert slope(lambda t: t.relu(), [-1.0, 0.0, 2.0]) == [0, 0, 1]
    assert slope(abs, [-1.0, 0.0, 2.0]) == [-1, 0, 1]
    assert slope(lambda t: t.maximum(Tensor([1.0, 1.0])), [1.0, 2.0]) == [0.5, 1]
    assert slope(lambda t: t.max(), [3.0, 3.0, 1.0]) == [0.5, 0.5, 0]
    assert slope(lambda t: t.prod(), [2.0, 0.0, 5.0]) == [0, 10, 0]
    assert slope(lambda t: t.prod(), [0.0, 0.0, 5.0]) == [0, 0, 0]


@pytest.fixture
def framework(monkeypatch):
    """Return the package autograd. Tests that run in the checkout have a folder of that name on their path."""
    monkeypatch.setattr(sys, "path", [one for one in sys.path if Path(one or ".").resolve() != ROOT])
    return pytest.importorskip("autograd", reason="a reference framework, of the dev dependencies")


def test_another_framework_agrees(framework):
    autograd, anp = framework, framework.numpy
    w1, w2, x = spread(4, 6), spread(6, 3) + 0.1, spread(5, 4)

    def theirs(a, b):
        h = anp.tanh(anp.dot(x, a))
        s = anp.dot(h / anp.sqrt(anp.mean(h**2, axis=1, keepdims=True) + 1e-6), b)
        s = s - anp.log(anp.sum(anp.exp(s), axis=1, keepdims=True))
        return -anp.sum(s[anp.arange(5), [0, 1, 2, 0, 1]]) + anp.sum(anp.sin(a) ** 2) * 0.1

    def ours(a, b):
        h = (Tensor(x) @ a).tanh()
        s = h.rms_norm() @ b
        return s.cross_entropy(Tensor([0, 1, 2, 0, 1]), reduction="sum") + (a.sin() ** 2).sum() * 0.1

    a, b = Tensor(w1, requires_grad=True), Tensor(w2, requires_grad=True)
    ours(a, b).backward()
    for place, one in enumerate((a, b)):
        np.testing.assert_allclose(one.grad.numpy(), autograd.grad(theirs, place)(w1, w2), rtol=1e-9)
    twice = autograd.elementwise_grad(lambda one: anp.sum(autograd.grad(theirs, 0)(one, w2) ** 2))(w1)
    (first,) = gradient(ours(a, b), [a])
    np.testing.assert_allclose(gradient((first**2).sum(), [a])[0].numpy(), twice, rtol=1e-8)


def test_the_gradient_of_a_narrow_matmul_is_contractions_in_f32():
    a, b = Tensor(spread(4, 8)).cast("float16"), Tensor(spread(8, 4)).cast("float16")
    for found in gradient((a @ b).float().sum(), [a, b]):
        assert found.dtype.name == "float16"
        sums = [node for node in found.node.ordered() if node.op is Op.REDUCE and node.sources[0].op is Op.MUL]
        assert all(
            cast.op is Op.CAST and cast.sources[0].dtype.name == "float16"
            for node in sums
            for cast in node.sources[0].sources
        )
        assert len(sums) == 1


def test_backward_adds_up_in_every_leaf():
    a, b, c = (
        Tensor([1.0, 2.0], requires_grad=True),
        Tensor([3.0, 4.0], requires_grad=True),
        Tensor([0.0], requires_grad=True),
    )
    (a * b).sum().backward()
    (a * 2).sum().backward()
    assert a.grad.tolist() == [5, 6]
    assert b.grad.tolist() == [1, 2]
    assert c.grad is None
    with pytest.raises(ValueError, match="depends on no tensor made with requires_grad=True"):
        Tensor([1.0]).sum().backward()
    a.requires_grad_(False)
    (a * b).sum().backward()
    assert a.grad.tolist() == [5, 6]
    # Two parameters of equal values.
    same, other = Tensor.zeros(2).requires_grad_(), Tensor.zeros(2).requires_grad_()
    (same * 2 + other * 3).sum().backward()
    assert same.grad.tolist() == [2, 2]
    assert other.grad.tolist() == [3, 3]


def test_gradients_pass_through_what_was_computed_meanwhile():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    h = (x * x).realize()
    loss = (h * 3).sum()
    assert loss.item() == 42
    loss.backward()
    assert x.grad.tolist() == [6, 12, 18]
    assert gradient((h * 2).sum(), [h])[0].tolist() == [2, 2, 2]
    with no_grad():
        k = (x * x).realize()
    with pytest.raises(ValueError, match="does not depend"):
        gradient(k.sum(), [x])


def test_backward_after_its_parameters_changed_is_refused():
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    w.assign(w.detach() * 2)
    w.realize()
    assert loss.item() == 5
    with pytest.raises(ValueError, match="assigned to and computed since"):
        loss.backward()
    (w * w).sum().backward()
    assert w.grad.tolist() == [4, 8]


def test_what_has_no_gradient_is_refused():
    x = Tensor([1.0, 2.0])
    for wrong, error, match in (
        (lambda: gradient(x * 2, [x]), ValueError, "a loss is one number"),
        (lambda: gradient(x.sum(), [Tensor([1])]), TypeError, "only floats and complex numbers have one"),
        (lambda: gradient(x.int().sum(), [x]), TypeError, "only floats and complex numbers have one"),
        (lambda: gradient(x.sum(), [Tensor([3.0])]), ValueError, "does not depend on the target"),
        (lambda: gradient((x > 1).float().sum(), [x]), ValueError, "does not depend"),
        (lambda: Tensor([1], requires_grad=True), TypeError, "only floats"),
        (lambda: gradient(x * 2, [x], Tensor([1.0])), ValueError, "for a tensor of shape"),
    ):
        with pytest.raises(error, match=match):
            wrong()
    assert gradient(x * 2, [x], Tensor([1.0, 10.0]))[0].tolist() == [2, 20]
