"""Optimisers take PyTorch's steps. The values in test/data/torch are PyTorch 2.14's (test/support/torch_values.py)."""

import json
from pathlib import Path

import numpy as np
import optim_cases
import pytest

from ringup import Tensor, optim

EXPECTED = json.loads((Path(__file__).resolve().parents[1] / "data/torch/optimisers.txt").read_text())


def parameter(array, dtype, wanted=True):
    return Tensor(array, dtype, requires_grad=wanted)


def made_by(name, options):
    return lambda params: getattr(optim, name)(params, **options)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", optim_cases.OPTIMISERS)
def test_each_step_is_as_pytorch_takes_it(case, dtype):
    found = optim_cases.trajectory(parameter, made_by(*optim_cases.OPTIMISERS[case]), dtype)
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found, EXPECTED[case], rtol=tolerance, atol=tolerance / 10)


def gradients(w, b):
    """The gradients of mean(tanh(X w + b)^2)."""
    y = np.tanh(optim_cases.X @ w + b)
    slope = 2 * y * (1 - y * y) / y.size
    return optim_cases.X.T @ slope, slope.sum(0)


def loop(rule):
    """Return both parameters after each step of a rule (value, gradient, memory, step)."""
    values, memories, found = [optim_cases.W, optim_cases.B], [{}, {}], []
    for step in range(1, optim_cases.STEPS + 1):
        slopes = gradients(*values)
        values = [rule(*one, step) for one in zip(values, slopes, memories, strict=True)]
        found.append(np.concatenate([one.ravel() for one in values]))
    return found


def lion(value, gradient, memory, _step):
    mean = memory.get("mean", 0)
    memory["mean"] = 0.99 * mean + 0.01 * gradient
    return value * (1 - 0.02 * 0.3) - 0.02 * np.sign(0.9 * mean + 0.1 * gradient)


def lamb(value, gradient, memory, step):
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * gradient
    memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * gradient**2
    way = memory["m"] / (1 - 0.9**step) / (np.sqrt(memory["v"] / (1 - 0.999**step)) + 1e-6) + 0.1 * value
    return value - 0.05 * np.linalg.norm(value) / np.linalg.norm(way) * way


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda params: optim.Lion(params, lr=0.02, weight_decay=0.3), lion),
        (lambda params: optim.LAMB(params, lr=0.05, weight_decay=0.1), lamb),
    ],
    ids=["Lion", "LAMB"],
)
def test_what_pytorch_lacks_follows_its_paper(make, rule):
    found = optim_cases.trajectory(parameter, make, "float64")
    np.testing.assert_allclose(found, loop(rule), rtol=1e-9)


def muon(nesterov, adjust):
    def rule(value, gradient, memory, _step):
        memory["v"] = 0.95 * memory.get("v", 0) + 0.05 * gradient
        way = 0.05 * gradient + 0.95 * memory["v"] if nesterov else memory["v"]
        x = way.T if way.shape[0] > way.shape[1] else way
        x = x / np.linalg.norm(x)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        x = x.T if way.shape[0] > way.shape[1] else x
        size = 0.1 * (0.2 * np.sqrt(3) if adjust else np.sqrt(1.5))
        return value * (1 - 0.1 * 0.1) - size * x

    return rule


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", [None, "match_rms_adamw"])
def test_muon_makes_the_momentum_orthogonal(nesterov, adjust):
    w, rule, memory, value = parameter(optim_cases.W, "float64"), muon(nesterov, adjust), {}, optim_cases.W
    optimiser = optim.Muon([w], lr=0.1, nesterov=nesterov, adjust_lr_fn=adjust)
    for step in range(5):
        optimiser.zero_grad()
        ((Tensor(optim_cases.X) @ w).tanh() ** 2).mean().backward()
        optimiser.step()
        value = rule(value, gradients(value, 0)[0], memory, step)
        np.testing.assert_allclose(w.numpy(), value, rtol=1e-9)


def test_narrow_parameters_keep_their_state_in_f32():
    w = Tensor(optim_cases.W, "bfloat16", requires_grad=True)
    optimiser = optim.Adam([w], 0.05)
    w.square().sum().backward()
    optimiser.step()
    assert {one.dtype.name for one in optimiser.memory()} == {"float32"}
    assert w.dtype.name == "bfloat16"
    # the first step of Adam is the sign of the gradient, times lr
    start = Tensor(optim_cases.W, "bfloat16").float().numpy()
    np.testing.assert_allclose(w.float().numpy(), start - 0.05 * np.sign(start), atol=0.004)
