"""Fixtures of the transforms' tests: the NumPy reference computes everything here."""

import numpy_graph
import pytest

from ringup.compiler.tensor import device


@pytest.fixture(autouse=True)
def evaluator():
    """The NumPy reference as the test's evaluator."""
    with device(numpy_graph.NumpyEvaluator()):
        yield
