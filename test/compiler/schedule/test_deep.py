"""Contractions of few results and a great depth are cut along it: into which parts, and which are left whole."""

import numpy as np
import pytest

from ringup.compiler.graph import Op
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Tensor, gradient, order


def tensor(*shape, kind=np.float32):
    return Tensor(np.zeros(shape, kind))


def kernels(*tensors):
    return plan(order.prepared([one.node for one in tensors])).kernels


def parts(made):
    """Return how many results a graph's first kernel has for each of the last one's, 1 where it is the only one."""
    found = kernels(made)
    return int(np.prod(found[0].shape)) // int(np.prod(made.shape)) if len(found) > 1 else 1


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (lambda: tensor(16, 65536) @ tensor(65536, 16), 128),
        (lambda: tensor(64, 4096) @ tensor(4096, 64) + tensor(64), 8),
        (lambda: tensor(64, 3001) @ tensor(3001, 64), 11),  # no divisor: filled up with zeros
        (lambda: tensor(64, 3001, kind=np.int32) @ tensor(3001, 64, kind=np.int32), 11),
        (lambda: tensor(3, 16, 4096) @ tensor(3, 4096, 16), 16),
        (lambda: tensor(16, 600) @ tensor(600, 16), 1),  # too little is saved
        (lambda: tensor(512, 4096) @ tensor(4096, 512), 1),  # tiles enough
        (lambda: tensor(4, 4096) @ tensor(4096, 64), 1),  # no tile: groups share rows instead
        (lambda: tensor(8, 64).scaled_dot_product_attention(tensor(4096, 64), tensor(4096, 32)), 1),
    ],
)
def test_so_many_parts(made, count):
    assert parts(made()) == count


def test_the_gradient_by_a_convolutions_weights_is_cut_by_images_and_rows():
    x, weight = tensor(4, 16, 28, 28), tensor(32, 16, 3, 3)
    made = (x.conv2d(weight, padding=1) * tensor(4, 32, 28, 28)).sum()
    first, second = kernels(*gradient(made, [weight]))
    assert [len(one.folds) for one in (first, second)] == [1, 1]
    assert first.root.op is Op.CONTIGUOUS
    assert int(np.prod(first.shape)) == 8 * 32 * 16 * 9
