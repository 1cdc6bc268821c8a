"""Compiled graphs on a card with caches that can hold stale data. Every launch, copy and kept stream acquires and
releases what it must.
"""

import numpy as np
import pytest

import ringup
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, elementwise, reduce
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import Tensor, device
from ringup.silicon import card as virtual


@pytest.fixture(params=["navi31", "navi48"])
def cached(request):
    """A card with caches as the device of tensors. At the end it may have seen no stale read."""
    radeon = virtual(request.param, vram_bytes=1 << 30, caches=True)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        made = Device(card)
        with device(made):
            yield made
    assert radeon.log.find("stale", "gl") == []
    assert radeon.violations == []


def test_rounds_of_kernels_that_use_each_others_results_are_right(bench, cached):
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((20, 70)).astype(np.float32)
        a = bench.buffer(x, dtypes.float32)
        nodes = [
            elementwise(Op.DIV, a, a),
            reduce(Op.ADD, a, (1,)),
            Tensor(x).softmax(1).node,
            (Tensor(x) @ Tensor(x.T.copy())).node,
        ]
        for memory, node in zip(cached.evaluate(nodes, {}), nodes, strict=True):
            (wanted,) = bench.judge.evaluate([node])
            found = np.frombuffer(memory.read(), bench.judge.numpy_dtype(node.dtype))
            np.testing.assert_allclose(found, np.ascontiguousarray(wanted).reshape(-1), rtol=2e-5, atol=1e-5)


def test_values_that_change_in_place_are_read_anew(cached):
    weights, wanted = Tensor(np.zeros(256, np.float32)), np.zeros(256, np.float32)
    for step in range(4):
        gradient = np.arange(256, dtype=np.float32) * (step + 1)
        weights.assign(weights - Tensor(gradient) * 0.5)
        wanted = wanted - gradient * 0.5
        assert weights.numpy().tolist() == wanted.tolist()
