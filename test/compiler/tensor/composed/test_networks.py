"""Norms that take PyTorch's shape first, pooling over a stated number of axes, gradients asked for by assignment, and
copies.
"""

import copy

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor

X = Tensor([[1.0, 2, 4], [0, 0, 3]])


def test_norms_take_a_shape_first():
    weight, bias = Tensor([1.0, 2, 3]), Tensor([0.0, 0, 1])
    # PyTorch 2.14
    wanted = [[-1.06904137, -0.53452057, 5.00890541], [-0.70710498, -1.41420996, 5.24263000]]
    for found in (
        X.layer_norm((3,), weight, bias),
        X.layer_norm(3, weight, bias, 1e-5),
        X.layer_norm(normalized_shape=[3], weight=weight, bias=bias),
        X.layer_norm(weight, bias),
        X.layer_norm(weight=weight, bias=bias, axes=-1),
    ):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-6)
    wanted = [[0.37796444, 0.75592887, 1.51185775], [0, 0, 1.73205042]]
    for found in (X.rms_norm((3,)), X.rms_norm(3, None, 1e-6), X.rms_norm(), X.rms_norm(dim=1)):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-6)
    np.testing.assert_allclose(X.layer_norm((2, 3)).numpy(), X.layer_norm(axes=(0, 1)).numpy())


def test_norms_of_a_shape_that_is_not_there():
    with pytest.raises(ValueError, match=r"a norm over 4 of \[2, 3\]: the sizes of its last axes, a weight, or None"):
        X.layer_norm(4)
    with pytest.raises(TypeError, match="a norm takes 3 arguments by position after a shape, not 4"):
        X.layer_norm((3,), None, None, 1e-5, 7)


def test_pooling_over_one_axis_and_three():
    c = Tensor.arange(16).float().reshape(1, 2, 8)
    # PyTorch 2.14
    assert c.max_pool1d(3).tolist() == [[[2, 5], [10, 13]]]
    assert c.avg_pool1d(kernel_size=2, stride=3).tolist() == [[[0.5, 3.5, 6.5], [8.5, 11.5, 14.5]]]
    cube = c.reshape(1, 1, 2, 2, 4)
    assert cube.max_pool3d(2).tolist() == [[[[[13, 15]]]]]
    assert cube.avg_pool3d(2).tolist() == [[[[[6.5, 8.5]]]]]
    assert c.max_pool2d(2).shape == (1, 1, 4)


def test_a_gradient_is_asked_for_by_assignment():
    weight = Tensor([1.0, 2.0])
    weight.requires_grad = True
    (weight * weight).sum().backward()
    assert weight.grad.tolist() == [2, 4]
    weight.requires_grad = False
    assert not weight.requires_grad
    with pytest.raises(TypeError, match="only floats and complex numbers have one"):
        Tensor([1]).requires_grad = True


def test_copies_do_not_change_with_the_original():
    weight = Tensor([1.0, 2.0], requires_grad=True)
    shallow, deep = copy.copy(weight), copy.deepcopy({"a": weight, "b": weight})
    weight.data = Tensor([5.0, 6.0])
    assert (shallow.tolist(), deep["a"].tolist()) == ([1, 2], [1, 2])
    assert deep["a"] is deep["b"]
    assert deep["a"].requires_grad
    (deep["a"] * 3).sum().backward()
    assert (deep["a"].grad.tolist(), weight.grad) == ([3, 3], None)
