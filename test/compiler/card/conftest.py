"""Fixtures of kernels on a virtual card, in strict mode: what the card computes beside what the NumPy judge says."""

import numpy as np
import numpy_graph
import pytest

import ringup
from ringup.compiler.graph.nodes import buffer
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device
from ringup.silicon.shader.rdna.interpreter.engine import Interpreter


class Bench:
    """A card and the judge beside it."""

    def __init__(self, device):
        self.device = device
        self.judge = numpy_graph

    def buffer(self, values, dtype):
        """Return a BUFFER node that holds an array."""
        return buffer(dtype, values.shape, "", np.ascontiguousarray(values).reshape(-1).view(np.uint8).tobytes())

    def computed(self, nodes, sizes=None):
        """Return the arrays that the card computes for nodes, flat."""
        found = self.device.evaluate(nodes, sizes or {})
        return [
            np.frombuffer(memory.read(), self.judge.numpy_dtype(node.dtype))
            for memory, node in zip(found, nodes, strict=True)
        ]

    def both(self, nodes, sizes=None):
        """Return (what the card computes, what the judge does) for each node, flat."""
        wanted = [np.ascontiguousarray(one).reshape(-1) for one in self.judge.evaluate(nodes, sizes)]
        return list(zip(self.computed(nodes, sizes), wanted, strict=True))


@pytest.fixture(scope="session")
def bench():
    """One card for all tests; each kernel is compiled and translated to host code once."""
    with ringup.open("virtual:navi31") as card:
        yield Bench(Device(card))


@pytest.fixture(scope="session")
def small():
    """The same with the reference interpreter for an engine: for few waves that takes less time than a translation."""
    with ringup.open("virtual:navi31", transport={"engine": Interpreter()}) as card:
        yield Bench(Device(card))


@pytest.fixture(autouse=True)
def evaluator(request):
    """Tensors are computed by the card that the test asks for."""
    made = request.getfixturevalue("small" if "small" in request.fixturenames else "bench").device
    with device(made):
        yield made
