"""Gradients, and functions with a gradient of their own, as PyTorch has them; the values follow from calculus."""

import gc
import math
from weakref import ref

import numpy as np
import pytest

import ringup
from ringup import Tensor, autograd


def values(tensors):
    return [None if one is None else one.tolist() for one in tensors]


X, Y = Tensor([1.0, 2.0]), Tensor([3.0, -1.0])


def test_gradients_of_several_outputs_are_added():
    assert values(autograd.grad((X * Y).sum(), X)) == [[3, -1]]
    assert values(autograd.grad([(X * Y).sum(), X.square().sum()], [X, Y])) == [[5, 3], [1, 2]]
    assert values(autograd.grad(X * Y, (X,), grad_outputs=Tensor([10.0, 100.0]))) == [[30, -100]]
    assert values(autograd.grad([X * Y, X.sum()], X, [Tensor([1.0, 1.0]), None])) == [[4, 0]]


def test_an_input_that_nothing_depends_on_is_refused_or_none_or_zeros():
    z, n = Tensor([1.0]), Tensor([1])
    with pytest.raises(ValueError, match="does not depend on the target"):
        autograd.grad(X.sum(), [X, z])
    assert values(autograd.grad(X.sum(), [X, z], allow_unused=True)) == [[1, 1], None]
    assert values(autograd.grad((X * n).sum(), [n, X], allow_unused=True)) == [None, [1, 1]]
    assert values(autograd.grad(X.sum(), [z], materialize_grads=True)) == [[0]]


def test_only_a_graph_that_was_asked_for_has_gradients():
    (slope,) = autograd.grad((X**3).sum(), X, create_graph=True)
    assert values(autograd.grad(slope.sum(), X)) == [[6, 12]]
    (flat,) = autograd.grad((X**3).sum(), X)
    with pytest.raises(ValueError, match="has no gradient"):
        autograd.grad(flat.sum(), X)


def test_wrong_seeds_are_refused():
    with pytest.raises(ValueError, match=r"an output of shape \[2\] is not one number"):
        autograd.grad(X * Y, X)
    with pytest.raises(ValueError, match=r"a gradient of shape \[1\] for an output of \[2\]"):
        autograd.grad(X * Y, X, Tensor([1.0]))
    with pytest.raises(ValueError, match="2 gradients for 1 outputs"):
        autograd.grad(X * Y, X, [X, X])
    with pytest.raises(TypeError, match="inputs are tensors, and float is none"):
        autograd.grad(X.sum(), [1.0])


def test_backward_of_several_tensors():
    w = Tensor([1.0, 2.0], requires_grad=True)
    autograd.backward([w.sum(), w * w], [None, Tensor([1.0, 10.0])])
    assert w.grad.tolist() == [1 + 2, 1 + 40]


class Exponential(autograd.Function):
    @staticmethod
    def forward(ctx, x, base):
        result = x.exp() * base
        ctx.save_for_backward(result)
        ctx.base = base
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        # twice what it should be, to tell it from the gradient of `forward`
        return gradient * result * 2, None


def test_a_function_has_the_gradient_that_it_says():
    x = Tensor([0.0, 1.0], requires_grad=True)
    made = Exponential.apply(x, 3.0)
    np.testing.assert_allclose(made.numpy(), [3, 3 * math.e], rtol=1e-6)
    made.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [6, 6 * math.e], rtol=1e-6)
    # through the saved result: the second derivative is the rule of the rule
    (slope,) = autograd.grad(Exponential.apply(x, 1.0).sum(), x, create_graph=True)
    np.testing.assert_allclose(autograd.grad(slope.sum(), x)[0].numpy(), [4, 4 * math.e], rtol=1e-6)


def test_a_function_of_several_results_gets_all_their_gradients():
    class Split(autograd.Function):
        @staticmethod
        def forward(x, y, shift):
            return x * y, x + y, (x > 0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:2])
            ctx.mark_non_differentiable(output[2])

        @staticmethod
        def backward(ctx, product, total, _):
            x, y = ctx.saved_tensors
            return product * y + total, product * x + total, None

    product, total, signs = Split.apply(X, Y, 5)
    assert signs.tolist() == [True, True]
    assert values(autograd.grad((product * 10 + total).sum(), [X, Y])) == [[31, -9], [11, 21]]
    assert values(autograd.grad(total.sum(), [X, Y])) == [[1, 1], [1, 1]]


def test_mistakes_of_a_function_are_named():
    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with pytest.raises(ValueError, match=r"Wrong\.backward gave 1 gradients for 2 arguments"):
        autograd.grad(Wrong.apply(X, Y).sum(), X)
    Wrong.backward = staticmethod(lambda ctx, gradient: (gradient.sum(), gradient))
    with pytest.raises(ValueError, match=r"a gradient of shape \[\] for a tensor of \[2\]"):
        autograd.grad(Wrong.apply(X, Y).sum(), X)
    with pytest.raises(NotImplementedError, match="forward is missing"):
        autograd.Function.apply(X)


def test_a_function_keeps_nothing_alive():
    x = Tensor([1.0])
    made = Exponential.apply(x, 1.0)
    gone = ref(made), ref(x)
    del made, x
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_matrices_of_derivatives():
    f = autograd.functional
    assert f.jacobian(lambda x: x**2, X).tolist() == [[2, 0], [0, 4]]
    rows = f.jacobian(lambda x, y: (x * y, x.sum()), (X, Y))
    assert [values(row) for row in rows] == [[[[3, 0], [0, -1]], [[1, 0], [0, 2]]], [[1, 1], [0, 0]]]
    assert f.hessian(lambda x: (x**3).sum(), X).tolist() == [[6, 0], [0, 12]]
    mixed = f.hessian(lambda x, y: (x * y).sum(), (X, Y))
    assert [values(row) for row in mixed] == [
        [[[0, 0], [0, 0]], [[1, 0], [0, 1]]],
        [[[1, 0], [0, 1]], [[0, 0], [0, 0]]],
    ]
    made, slopes = f.vjp(lambda x: x**2, X, Tensor([1.0, 10.0]))
    assert (made.tolist(), slopes.tolist()) == ([1, 4], [2, 40])
    made, product = f.jvp(lambda x: x.prod() * x, X, Tensor([1.0, 0.0]))
    # x0^2 x1 and x0 x1^2 by x0
    assert (made.tolist(), product.tolist()) == ([2, 4], [4, 4])
    with pytest.raises(ValueError, match="returns one number"):
        f.hessian(lambda x: x, X)


def test_the_root_package_has_it():
    assert ringup.autograd is autograd


def test_a_function_of_complex_numbers():
    class Squared(autograd.Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, gradient):
            (z,) = ctx.saved_tensors
            return gradient * (z * 2).conj()

    z = Tensor(np.array([1 + 2j, -3j], np.complex64))
    wanted = autograd.grad((z * z).abs().sum(), z)
    np.testing.assert_allclose(autograd.grad(Squared.apply(z).abs().sum(), z)[0].numpy(), wanted[0].numpy(), rtol=1e-6)
