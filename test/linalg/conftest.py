"""Fixtures of the linear algebra's tests: the NumPy reference computes everything here."""

import numpy_graph
import pytest

from ringup.compiler.tensor import device


@pytest.fixture(autouse=True)
def evaluator():
    """Make the NumPy reference compute the test's tensors."""
    with device(made := numpy_graph.NumpyEvaluator()):
        yield made
