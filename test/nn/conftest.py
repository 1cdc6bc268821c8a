"""Fixtures of the layers' tests: the NumPy reference computes everything here."""

import numpy_graph
import pytest

from ringup.compiler.tensor import device


@pytest.fixture(autouse=True)
def evaluator():
    """The NumPy reference as the test's evaluator. `calls` lists the nodes it was asked for."""
    made = numpy_graph.NumpyEvaluator()
    with device(made):
        yield made
