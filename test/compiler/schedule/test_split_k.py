"""Contractions of few results and a great depth are cut along the depth. Tests check the number of parts, and which
contractions stay whole.
"""

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Tensor, gradient, order


def tensor(*shape, kind=np.float32):
    return Tensor(np.zeros(shape, kind))


def kernels(*tensors):
    return plan(order.prepared([one.node for one in tensors])).kernels


def parts(made):
    """Return how many results a graph's first kernel has for each result of the last one; 1 if it is the only
    kernel.
    """
    found = kernels(made)
    return int(np.prod(found[0].shape)) // int(np.prod(made.shape)) if len(found) > 1 else 1


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (lambda: tensor(16, 65536) @ tensor(65536, 16), 128),
        (lambda: tensor(64, 8192) @ tensor(8192, 64) + tensor(64), 8),
        # There is no divisor, so the depth is padded with zeros.
        (lambda: tensor(64, 6007) @ tensor(6007, 64), 12),
        (lambda: tensor(64, 6007, kind=np.int32) @ tensor(6007, 64, kind=np.int32), 12),
        (lambda: tensor(3, 16, 8192) @ tensor(3, 8192, 16), 32),
        # The cut would save too little.
        (lambda: tensor(16, 4000) @ tensor(4000, 16), 1),
        # There are enough tiles.
        (lambda: tensor(512, 8192) @ tensor(8192, 512), 1),
        # There is no tile: groups share rows instead.
        (lambda: tensor(4, 8192) @ tensor(8192, 64), 1),
        (lambda: tensor(8, 64).scaled_dot_product_attention(tensor(8192, 64), tensor(8192, 32)), 1),
    ],
)
def test_a_contraction_is_cut_into_the_expected_number_of_parts(made, count):
    assert parts(made()) == count


def test_the_gradient_by_a_convolutions_weights_is_cut_by_images_and_rows():
    x, weight = tensor(16, 16, 28, 28), tensor(32, 16, 3, 3)
    made = (x.conv2d(weight, padding=1) * tensor(16, 32, 28, 28)).sum()
    first, second = kernels(*gradient(made, [weight]))
    assert [len(one.folds) for one in (first, second)] == [1, 1]
    assert first.root.op is Op.CONTIGUOUS
    assert int(np.prod(first.shape)) == 8 * 32 * 16 * 9
