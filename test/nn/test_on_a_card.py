"""Layers compute on a card, in f32, what PyTorch computes in f64 from the same weights."""

import json
from pathlib import Path

import layer_cases
import numpy as np
import pytest

import ringup
from ringup import Tensor, nn
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device

EXPECTED = json.loads((Path(__file__).resolve().parents[1] / "data/torch/layers.txt").read_text())


@pytest.fixture(scope="module")
def evaluator():
    """The evaluator of a virtual card, which lives for the module."""
    with ringup.open("virtual:navi31") as card:
        yield Device(card)
        assert card.device.violations == []


def tensor(array, wanted=False):
    array = np.asarray(array)
    return Tensor(array.astype(np.float32) if array.dtype.kind == "f" else array, requires_grad=wanted)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("case", layer_cases.LAYERS)
def test_a_layer_is_as_pytorchs_on_a_card(case, evaluator, monkeypatch):
    monkeypatch.setattr(nn.Module, "double", lambda self: self)
    with device(evaluator):
        found = layer_cases.run(nn, tensor, layer_cases.LAYERS[case])
    for part, values in EXPECTED[case].items():
        scale = max(np.abs(values).max(initial=0.0), 1.0)
        np.testing.assert_allclose(found[part], values, rtol=1e-4, atol=2e-5 * scale, err_msg=part)
