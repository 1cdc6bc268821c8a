"""The NumPy reference computes everything here."""

import numpy_graph
import pytest

from ringup.compiler.tensor import device


@pytest.fixture(autouse=True)
def evaluator():
    """Compute with the NumPy reference."""
    with device(numpy_graph.NumpyEvaluator()):
        yield
