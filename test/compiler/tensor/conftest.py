"""Fixtures of the tensor language's tests: everything here is computed by the NumPy judge."""

import numpy_graph
import pytest

from ringup.compiler.tensor import device


@pytest.fixture(autouse=True)
def evaluator():
    """The judge, as the evaluator of the test; `calls` has the nodes it was asked for."""
    made = numpy_graph.NumpyEvaluator()
    with device(made):
        yield made
