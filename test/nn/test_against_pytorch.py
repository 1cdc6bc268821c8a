"""Layers, losses and functions compute PyTorch's outputs, gradients and buffers from the same weights.

The values in test/data/torch are PyTorch 2.14's, in f64 (test/support/torch_values.py).
"""

import json
from pathlib import Path

import layer_cases
import numpy as np
import pytest

from ringup import Tensor, nn

FOLDER = Path(__file__).resolve().parents[1] / "data/torch"


def tensor(array, wanted=False):
    array = np.asarray(array)
    return Tensor(array.astype(np.float64) if array.dtype.kind == "f" else array, requires_grad=wanted)


# PyTorch's factor of 1/6 is an f32
TOLERANCES = {"Hardsigmoid": 1e-7}


def compared(cases, name, case):
    expected = json.loads((FOLDER / f"{name}.txt").read_text())[case]
    found = layer_cases.run(nn, tensor, cases[case])
    # the same names of parameters and buffers too
    assert list(found) == list(expected)
    tolerance = TOLERANCES.get(case, 1e-9)
    for part, values in expected.items():
        np.testing.assert_allclose(found[part], values, rtol=tolerance, atol=1e-10, err_msg=part)


@pytest.mark.parametrize("case", layer_cases.LAYERS)
def test_a_layer_is_as_pytorchs(case):
    compared(layer_cases.LAYERS, "layers", case)


@pytest.mark.parametrize("case", layer_cases.LOSSES)
def test_a_loss_is_as_pytorchs(case):
    compared(layer_cases.LOSSES, "losses", case)


@pytest.mark.parametrize("case", layer_cases.FUNCTIONS)
def test_a_function_is_as_pytorchs(case):
    compared(layer_cases.FUNCTIONS, "functions", case)
