"""Steps of optimisers are assignments in the parameters' own memory; groups, state and files as PyTorch has them."""

import numpy as np
import pytest

from ringup import nn, optim
from ringup.compiler.graph.nodes import Op
from ringup.compiler.schedule.signature import of_graph
from ringup.compiler.tensor import Size, Tensor, device, manual_seed
from ringup.compiler.tensor.order import storage_of
from ringup.errors import CompileError
from ringup.optim import SGD, Adam, AdamW

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
    with optim.deferred():
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


def test_the_rate_is_set_by_either_word():
    for make in (lambda p: SGD(p, 0.5), lambda p: SGD(p, lr=0.5), lambda p: SGD(p, rate=0.5)):
        w = Tensor([1.0], requires_grad=True)
        optimiser = make([w])
        w.sum().backward()
        optimiser.step()
        assert w.tolist() == [0.5]
        optimiser.set_rate(0.25)
        optimiser.step()
        assert w.tolist() == [0.25]
        optimiser.param_groups[0]["lr"] = 0.125
        optimiser.step()
        assert w.tolist() == [0.125]


def loss_of(parameters):
    return (Tensor(X) @ parameters[0]).tanh().square().mean()


@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (
            lambda p: SGD(p, 0.1, momentum=0.9, dampening=0.1),
            lambda o: optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=9),
        ),
        (lambda p: AdamW(p), lambda o: optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=9)),
        # five of RAdam's steps leave the squares out
        (lambda p: optim.RAdam(p), lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9)),
        (lambda p: optim.NAdam(p), lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9)),
        (lambda p: optim.LAMB(p), lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9)),
        (lambda p: optim.Adagrad(p, lr_decay=0.1), lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9)),
    ],
    ids=["SGD", "AdamW", "RAdam", "NAdam", "LAMB", "Adagrad"],
)
def test_later_steps_and_other_rates_compile_nothing(make, schedule, evaluator):
    w = Tensor(START.astype(np.float32), requires_grad=True)
    optimiser = make([w])
    changing = schedule(optimiser)
    for _ in range(8):
        optimiser.zero_grad()
        loss = loss_of([w])
        loss.backward()
        optimiser.step()
        changing.step()
    assert len(evaluator.calls) == 8
    # graphs are compiled once for each signature
    assert len({of_graph(nodes)[0] for nodes in evaluator.calls}) == 1


def weights_after(look, steps=10):
    """Train a network with a norm that keeps statistics, `look(step, loss, logits)` at the end of each turn; return
    its weights.
    """
    manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    criterion, optimiser = nn.CrossEntropyLoss(), SGD(model.parameters(), momentum=0.9)
    for step in range(steps):
        optimiser.zero_grad()
        logits = model(Tensor((X + step).astype(np.float32)))
        loss = criterion(logits, Tensor(np.arange(6) % 2))
        loss.backward()
        optimiser.step()
        look(step, loss, logits)
    return np.concatenate([one.numpy().ravel() for one in model.parameters()])


LOOKS = {
    "at the loss of each step": lambda step, loss, logits: loss.item(),
    "at that of each tenth": lambda step, loss, logits: loss.item() if step % 10 == 9 else None,
    "at the logits": lambda step, loss, logits: logits.numpy(),
    "never": lambda step, loss, logits: None,
}


@pytest.mark.parametrize("look", LOOKS)
def test_each_turn_of_a_loop_is_the_same_graph_whatever_it_looks_at(look, evaluator):
    weights_after(LOOKS[look])
    signatures = [of_graph(nodes)[0] for nodes in evaluator.calls]
    # one evaluation for each step; a look computes nothing
    assert len(signatures) == 10
    assert len(set(signatures)) == 1


def test_a_total_that_grows_is_a_graph_of_its_own(evaluator):
    """A running total is not part of a step, and reads losses that are there."""
    total = []
    weights_after(lambda step, loss, logits: total.append(total.pop() + loss.detach() if total else loss.detach()), 4)
    assert len({of_graph(nodes)[0] for nodes in evaluator.calls}) == 1
    each = []
    weights_after(lambda step, loss, logits: each.append(loss.item()), 4)
    np.testing.assert_allclose(total[0].item(), sum(each), rtol=1e-6)


def test_a_loss_that_is_looked_at_before_the_step_makes_two_graphs(evaluator):
    w = Tensor(START.astype(np.float32), requires_grad=True)
    optimiser = AdamW([w])
    for _ in range(6):
        optimiser.zero_grad()
        loss = loss_of([w])
        loss.item()
        loss.backward()
        optimiser.step()
    assert len(evaluator.calls) == 12
    assert len({of_graph(nodes)[0] for nodes in evaluator.calls}) == 2


def test_gradients_of_several_batches_are_computed_batch_by_batch(evaluator):
    """Where `realize` follows each backward, the graphs of a round do not grow with its batches."""
    w = Tensor(START, requires_grad=True)
    optimiser = SGD([w], 0.1)
    for _ in range(2):
        optimiser.zero_grad()
        for _ in range(5):
            loss = loss_of([w])
            loss.backward()
            optimiser.realize(loss)
        optimiser.step()
    # a first batch, one of those that add to it, the step itself
    assert len({of_graph(nodes)[0] for nodes in evaluator.calls}) == 3
    np.testing.assert_allclose(w.numpy(), reference_of_five(), rtol=1e-5)


def reference_of_five():
    w = START
    for _ in range(2):
        w = w - 0.1 * 5 * slope(w)
    return w


def test_deferred_steps_compute_nothing_and_give_the_same_weights(evaluator):
    plain = weights_after(lambda *_: None, 3)
    evaluator.calls.clear()
    with optim.deferred():
        seen = []
        weights = weights_after(lambda *_: seen.append(len(evaluator.calls)), 3)
    assert set(seen) == {0}
    np.testing.assert_allclose(weights, plain, rtol=1e-5, atol=1e-6)


def test_a_step_without_a_card_or_with_open_sizes_computes_nothing(evaluator):
    n = Size("n", 1, 6)
    for home, rows in ((None, Tensor(X)), (evaluator, Tensor(X)[:n])):
        w = Tensor(START, requires_grad=True)
        with device(home):
            (rows @ w).sum().backward()
            SGD([w], 0.1).step()
        assert w.node.op is Op.AFTER
    assert not evaluator.calls
    np.testing.assert_allclose(w.numpy(n=4), START - 0.1 * X[:4].sum(0)[:, None], rtol=1e-5)


def test_what_reads_weights_before_a_step_keeps_its_value():
    w = Tensor(START, requires_grad=True)
    loss, old = loss_of([w]), w * 1
    loss.backward()
    SGD([w], 0.1).step()
    np.testing.assert_allclose(old.numpy(), START)
    np.testing.assert_allclose(w.grad.numpy(), slope(START), rtol=1e-5)
    np.testing.assert_allclose(w.numpy(), START - 0.1 * slope(START), rtol=1e-5)


def test_groups_have_options_of_their_own():
    first, second = (Tensor([1.0], requires_grad=True) for _ in range(2))
    optimiser = SGD([{"params": [first]}, {"params": second, "lr": 0.5, "weight_decay": 0.5}], lr=0.25)
    (first + second).sum().backward()
    optimiser.step()
    assert first.tolist() == [0.75]
    assert second.tolist() == [1 - 0.5 * 1.5]
    third = Tensor([1.0], requires_grad=True)
    optimiser.add_param_group({"params": [third]})
    assert [group["lr"] for group in optimiser.param_groups] == [0.25, 0.5, 0.25]
    assert [id(one) for one in optimiser.parameters] == [id(first), id(second), id(third)]
    named = SGD([("weight", first), ("bias", second)])
    assert [id(one) for one in named.parameters] == [id(first), id(second)]


def test_only_parameters_with_a_gradient_are_stepped():
    first, second = (Tensor([1.0], requires_grad=True) for _ in range(2))
    optimiser = Adam([first, second], 0.5)
    first.sum().backward()
    optimiser.step()
    assert first.tolist() == pytest.approx([0.5])
    assert second.tolist() == [1.0]
    assert list(optimiser.state) == [first]


def test_a_gradient_is_forgotten_or_made_zero():
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimiser = SGD([w])
    w.sum().backward()
    optimiser.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0, 0]
    optimiser.zero_grad()
    assert w.grad is None


def test_a_step_with_a_closure_returns_its_loss():
    w = Tensor([2.0], requires_grad=True)
    optimiser = SGD([w], 0.25)

    def closure():
        optimiser.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss

    assert optimiser.step(closure).item() == 4
    assert w.tolist() == [1.0]


STATES = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "NAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adadelta": {},
    "LAMB": {},
}


def trained(w, optimiser, steps):
    for _ in range(steps):
        optimiser.zero_grad()
        loss_of([w]).backward()
        optimiser.step()
    return w.numpy()


@pytest.mark.parametrize("through", ["dict", "file"])
@pytest.mark.parametrize("name", STATES)
def test_training_goes_on_from_a_state(name, through, tmp_path):
    make = getattr(optim, name)
    w = Tensor(START, requires_grad=True)
    optimiser = make([w], lr=0.03, **STATES[name])
    middle = trained(w, optimiser, 3)
    again = Tensor(middle, requires_grad=True)
    following = make([again], lr=0.5)
    if through == "file":
        optimiser.save(tmp_path / "state.safetensors")
        following.load(tmp_path / "state.safetensors")
    else:
        following.load_state_dict(optimiser.state_dict())
    assert following.param_groups[0]["lr"] == 0.03
    expected = trained(w, optimiser, 2)
    np.testing.assert_allclose(trained(again, following, 2), expected, rtol=1e-12)


def test_a_state_is_laid_out_as_pytorchs():
    w = Tensor(START, requires_grad=True)
    optimiser = Adam([w], amsgrad=True)
    trained(w, optimiser, 1)
    found = optimiser.state_dict()
    assert list(found["state"]) == [0]
    assert set(found["state"][0]) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
    assert found["param_groups"][0]["params"] == [0]
    # arrays, and steps as PyTorch keeps them
    arrays = {name: np.ones((3, 2)) for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}
    found["state"] = {0: {"step": np.array(9.0, np.float32), **arrays}}
    optimiser.load_state_dict(found)
    assert optimiser.state[w]["step"] == 9
    assert optimiser.state[w]["exp_avg"].tolist() == [[1, 1]] * 3


def test_a_state_that_does_not_fit_is_refused(tmp_path):
    w, b = Tensor(START, requires_grad=True), Tensor([1.0], requires_grad=True)
    optimiser = Adam([w])
    trained(w, optimiser, 1)
    with pytest.raises(ValueError, match=r"groups of \[1\] parameters, this optimiser has \[2\]"):
        Adam([w, b]).load_state_dict(optimiser.state_dict())
    with pytest.raises(ValueError, match=r"exp_avg of shape \[3, 2\] is kept for a parameter of \[1\]"):
        Adam([b]).load_state_dict(optimiser.state_dict())
    optim.optimizer.save_safetensors({"w": w}, tmp_path / "weights")
    with pytest.raises(CompileError, match=r"holds no state of an optimiser"):
        optimiser.load(tmp_path / "weights")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda w: SGD([Tensor([1.0])]), ValueError, "requires_grad=True"),
        (lambda w: SGD([w], nesterov=True), ValueError, "nesterov needs a momentum"),
        (lambda w: SGD([w], momentum=0.9, dampening=0.1, nesterov=True), ValueError, "no dampening"),
        (lambda w: SGD([]), ValueError, "at least one"),
        (lambda w: SGD(w), ValueError, "a list of parameters"),
        (lambda w: SGD([w], lr=-1.0), ValueError, "lr of -1.0: a number, not negative"),
        (lambda w: Adam([w], betas=(0.9, 1.0)), ValueError, "betas of"),
        (lambda w: SGD([1.0]), TypeError, "takes tensors, not float"),
        (lambda w: SGD([{"params": [w]}, {"params": [w]}]), ValueError, "stands in two groups"),
        (lambda w: SGD([{"params": [w]}, w]), TypeError, "groups of parameters are dicts"),
        (lambda w: optim.Muon([w]), ValueError, r"steps matrices, not a parameter of \[1\]"),
        (lambda w: optim.Muon([Tensor(START, requires_grad=True)], adjust_lr_fn="x"), ValueError, "match_rms_adamw"),
    ],
)
def test_what_cannot_be_stepped_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(Tensor([1.0], requires_grad=True))


def test_an_optimiser_is_shown_with_its_groups():
    optimiser = SGD(
        [{"params": Tensor([1.0], requires_grad=True)}, {"params": Tensor([1.0], requires_grad=True), "lr": 0.5}]
    )
    group = "    dampening: 0.0\n    lr: {}\n    maximize: False\n    momentum: 0.0\n    nesterov: False\n    weight_decay: 0.0\n"
    expected = f"SGD (\nParameter Group 0\n{group.format(0.001)}Parameter Group 1\n{group.format(0.5)})"
    assert repr(optimiser) == expected


def test_complex_parameters_step_as_their_parts_do():
    """PyTorch 2.14: SGD(lr=0.1, momentum=0.9) on abs(w).square().sum(), two steps."""
    weight = Tensor([1 + 2j], requires_grad=True)
    made = SGD([weight], lr=0.1, momentum=0.9)
    for _ in range(2):
        made.zero_grad()
        weight.abs().square().sum().backward()
        made.step()
    assert weight.tolist() == [pytest.approx(0.46 + 0.92j)]
    with pytest.raises(TypeError, match="Adam takes real parameters: view_as_real"):
        Adam([Tensor([1j], requires_grad=True)])
