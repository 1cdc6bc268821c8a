"""Fixtures of the tensor language's tests: everything here is computed by the NumPy judge."""

import importlib.util
import sys
from pathlib import Path

import pytest

from ringup.compiler.tensor import device

for name in (
    "numpy_graph",
    "random_graphs",
    "random_assignments",
):  # beside the folder, shared with the tests of kernels
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


@pytest.fixture(autouse=True)
def evaluator():
    """The judge, as the evaluator of the test; `calls` has the nodes it was asked for."""
    made = sys.modules["numpy_graph"].NumpyEvaluator()
    with device(made):
        yield made
