"""Fixtures of the tests of ONNX: the NumPy reference computes everything here."""

import numpy_graph
import pytest

from ringup.compiler.tensor import device
from ringup.onnx.library import library

# before a test module imports parts of it: where the checkout's root is on the path, this folder's name hides it
library()


@pytest.fixture
def evaluator():
    """The NumPy reference as the test's evaluator. `calls` lists the nodes it was asked for."""
    made = numpy_graph.NumpyEvaluator()
    with device(made):
        yield made
