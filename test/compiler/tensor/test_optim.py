"""Optimisers compute the loops of their papers, in the parameters' own memory."""

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import SGD, Adam, AdamW, Tensor, manual_seed
from ringup.compiler.tensor.order import storage_of

STEPS = 4
X = np.random.default_rng(0).normal(size=(6, 3))
START = np.random.default_rng(1).normal(size=(3, 2))


def slope(w):
    """The gradient of mean(tanh(X w)^2)."""
    y = np.tanh(X @ w)
    return X.T @ (2 * y * (1 - y * y)) / y.size


def reference(rule):
    w, state = START.copy(), {}
    for step in range(1, STEPS + 1):
        w = rule(w, slope(w), state, step)
    return w


def sgd(momentum=0.0, nesterov=False, decay=0.0):
    def rule(w, g, state, _step):
        g = g + decay * w
        state["v"] = momentum * state.get("v", 0) + g
        return w - 0.1 * (g + momentum * state["v"] if nesterov else state["v"])

    return rule


def adam(decay=0.0, decoupled=True):
    def rule(w, g, state, step):
        g = g if decoupled else g + decay * w
        state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
        state["s"] = 0.999 * state.get("s", 0) + 0.001 * g * g
        w = w * (1 - 0.1 * decay) if decoupled else w
        return w - 0.1 * (state["m"] / (1 - 0.9**step)) / (np.sqrt(state["s"] / (1 - 0.999**step)) + 1e-8)

    return rule


CASES = [
    (lambda p: SGD(p, 0.1), sgd()),
    (lambda p: SGD(p, 0.1, momentum=0.9), sgd(0.9)),
    (lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.05), sgd(0.9, True, 0.05)),
    (lambda p: Adam(p, 0.1), adam()),
    (lambda p: Adam(p, 0.1, weight_decay=0.05), adam(0.05, False)),
    (lambda p: AdamW(p, 0.1, weight_decay=0.05), adam(0.05)),
]


@pytest.mark.parametrize("every", [1, STEPS], ids=["each step computed", "all steps in one"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_steps(case, every):
    make, rule = CASES[case]
    w = Tensor(START, requires_grad=True)
    optimiser = make([w])
    memory = storage_of(w.node)
    for step in range(STEPS):
        optimiser.zero_grad()
        loss = (Tensor(X) @ w).tanh().square().mean()
        loss.backward()
        optimiser.step()
        if step == 0:
            assert w.node.op is Op.AFTER
            assert storage_of(w.node) is memory
        if (step + 1) % every == 0:
            optimiser.realize(loss)
    np.testing.assert_allclose(w.numpy(), reference(rule), rtol=1e-5)


def test_a_small_network_learns(evaluator):
    manual_seed(3)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(64, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    parameters = [
        Tensor.kaiming_uniform(16, 2).requires_grad_(),
        Tensor.zeros(16).requires_grad_(),
        Tensor.kaiming_uniform(2, 16).requires_grad_(),
        Tensor.zeros(2).requires_grad_(),
    ]
    optimiser = AdamW(parameters, 0.02)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        h = Tensor(x).linear(*parameters[:2]).relu()
        logits = h.linear(*parameters[2:])
        loss = logits.cross_entropy(Tensor(y))
        loss.backward()
        optimiser.step()
        optimiser.realize(loss)
        losses.append(loss.item())
    assert losses[-1] < 0.35 < 0.6 < losses[0]
    sizes = [len(call) for call in evaluator.calls[-6:]]
    # Every step asks for the same number of nodes.
    assert len(set(sizes)) == 1


def test_the_rate_is_data():
    w = Tensor([1.0], requires_grad=True)
    optimiser = SGD([w], 0.5)
    w.sum().backward()
    optimiser.set_rate(0.25)
    optimiser.step()
    assert w.tolist() == [0.75]
    with pytest.raises(ValueError, match="requires_grad=True"):
        SGD([Tensor([1.0])])
    with pytest.raises(ValueError, match="nesterov needs a momentum"):
        SGD([w], nesterov=True)
