"""The methods of `Tensor` are the functions of the topic modules. They are documented, and they work for subclasses of
`Tensor`.
"""

import inspect

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, gradient


class Weight(Tensor):
    """A subclass that a user could write."""


def weight(*shape):
    return Weight(np.ones(shape, np.float32))


def values(*shape):
    return Tensor(np.ones(shape, np.float32))


RESULTS = {
    "made from nothing": lambda: Weight.zeros(3),
    "random": lambda: Weight.randn(3),
    "a number to the left": lambda: 2 - weight(3),
    "where": lambda: (weight(3) > 0).where(values(3), 0),
    "a part": lambda: weight(3, 3)[1:, [0, 2]],
    "product": lambda: weight(3, 4) @ values(4, 5),
    "convolution": lambda: weight(1, 2, 5, 5).conv2d(values(2, 2, 3, 3), values(2)),
    "attention": lambda: weight(1, 3, 4).scaled_dot_product_attention(values(1, 3, 4), values(1, 3, 4), values(3, 3)),
    "loss": lambda: weight(3, 4).cross_entropy(values(3, 4)),
    "gradient": lambda: gradient((x := weight(3)).exp().sum(), [x])[0],
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_the_class_of_the_tensor(name):
    assert type(RESULTS[name]()) is Weight


def test_every_method_says_what_it_does():
    public = [name for name in dir(Tensor) if not name.startswith("_") and name not in ("grad", "requires_grad")]
    assert len(public) > 200
    assert [name for name in public if not inspect.getdoc(inspect.getattr_static(Tensor, name))] == []


def test_helpers_are_functions_of_their_modules():
    assert [name for name in vars(Tensor) if name.startswith("_") and not name.startswith("__")] == []


def test_a_tensor_holds_nothing_but_its_slots():
    assert not hasattr(values(3), "__dict__")
