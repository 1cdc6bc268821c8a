"""A graph compiled: what stays behind of it."""

import gc

import numpy as np
import pytest

from ringup.compiler.compile import compile_graph
from ringup.compiler.tensor import Tensor


def values(*shape):
    return Tensor(np.ones(shape, np.float32))


GRAPHS = {
    "product": lambda: (values(70, 40) @ values(40, 90)).relu(),
    "softmax": lambda: values(9, 300).softmax(1),
    "convolution": lambda: values(1, 8, 12, 12).conv2d(values(8, 8, 3, 3), padding=1).gelu(),
    "attention": lambda: values(1, 40, 16).scaled_dot_product_attention(values(1, 50, 16), values(1, 50, 16)),
    "matrix units": lambda: values(64, 64).cast("float16") @ values(64, 64).cast("float16"),
    "running sum": lambda: values(5, 3000).cumsum(1),
    "order": lambda: values(5, 300).argsort(1),
    "whole numbers": lambda: (values(50).cast("int64") // 7 % 5).sort(0)[0],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_waits_for_the_collector(name):
    """Thousands of instructions in a cycle would cost every user a twentieth of the time, and hold the graph's memory
    until then.
    """
    node = GRAPHS[name]().node
    gc.collect()
    gc.disable()
    try:
        compile_graph([node])
        assert gc.collect() == 0
    finally:
        gc.enable()
