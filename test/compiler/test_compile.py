"""A graph compiled: what stays behind of it, and what becomes of kernels with more code than branches reach over."""

import gc

import numpy as np
import pytest

from ringup.compiler import compile as compiler
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
    """Thousands of instructions in a cycle would cost every user a twentieth of the time, and hold the graph's memory until then."""
    node = GRAPHS[name]().node
    gc.collect()
    gc.disable()
    try:
        compile_graph([node])
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_loop_longer_than_branches_reach_takes_a_shape_of_less_code(monkeypatch):
    x = values(3, 210, 2)
    for _ in range(12):
        x = (x.abs() + 1.5).log().sin().exp() / 3
    node = (x + 1).cumsum(1).node
    tried = []
    one = compiler._compiled

    def noted(kernel, signature, target, choice, passes):
        tried.append((choice, None))
        step = one(kernel, signature, target, choice, passes)
        tried[-1] = (choice, len(step.binary.code))
        return step

    monkeypatch.setattr(compiler, "_compiled", noted)
    compile_graph([node])
    assert tried[0] == (None, None)
    assert tried[-1][0] is not None
    assert tried[-1][1] > 0
