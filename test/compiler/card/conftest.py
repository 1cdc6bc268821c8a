"""Fixtures of kernels on a virtual card in strict mode. Tests compare the card's results with those of the NumPy
reference.
"""

import numpy as np
import numpy_graph
import pytest

import ringup
from ringup.compiler.graph.nodes import buffer
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device
from ringup.silicon.shader.amd.interpreter.engine import Interpreter


class Bench:
    """A card and the NumPy reference."""

    def __init__(self, device):
        self.device = device
        self.judge = numpy_graph

    def buffer(self, values, dtype):
        """Return a BUFFER node that holds an array."""
        return buffer(dtype, values.shape, "", np.ascontiguousarray(values).reshape(-1).view(np.uint8).tobytes())

    def computed(self, nodes, sizes=None):
        """Return the arrays that the card computes for nodes, flattened."""
        found = self.device.evaluate(nodes, sizes or {})
        return [
            np.frombuffer(memory.read(), self.judge.numpy_dtype(node.dtype))
            for memory, node in zip(found, nodes, strict=True)
        ]

    def both(self, nodes, sizes=None):
        """Return (the card's result, the reference's result) for each node, flattened."""
        wanted = [np.ascontiguousarray(one).reshape(-1) for one in self.judge.evaluate(nodes, sizes)]
        return list(zip(self.computed(nodes, sizes), wanted, strict=True))


def pytest_generate_tests(metafunc):
    """Under `--fuzz` tests run on navi48 and an MI300X too."""
    if "small" not in metafunc.fixturenames:
        found = ["navi31", *(pytest.param(one, marks=pytest.mark.fuzz) for one in ("navi48", "mi300x"))]
        metafunc.parametrize("chip_of_card", found, indirect=True)


@pytest.fixture(scope="session")
def chip_of_card(request):
    """The virtual card that computes the tensors."""
    return getattr(request, "param", "navi31")


@pytest.fixture(scope="session")
def bench(chip_of_card):
    """One card for all tests. Each kernel is compiled and translated to host code only once."""
    with ringup.open(f"virtual:{chip_of_card}") as card:
        yield Bench(Device(card))


@pytest.fixture(scope="session")
def small():
    """A `bench` on the reference interpreter. For few waves it takes less time than a translation."""
    with ringup.open("virtual:navi31", transport={"engine": Interpreter()}) as card:
        yield Bench(Device(card))


@pytest.fixture(autouse=True)
def evaluator(request, chip_of_card):
    """The card that the test uses computes the tensors."""
    made = request.getfixturevalue("small" if "small" in request.fixturenames else "bench").device
    with device(made):
        yield made
