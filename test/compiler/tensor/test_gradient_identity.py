"""A gradient is taken by a tensor, not by its value: what is equal, viewed, copied, looked at or detached keeps a
gradient of its own, and a line computes the same whatever else is alive.
"""

import gc
import weakref

import numpy as np
import pytest

from ringup.compiler.graph import nodes
from ringup.compiler.tensor import Tensor, custom_gradient, gradient, history, no_grad


def slopes(loss, *targets):
    return [one.tolist() for one in gradient(loss, list(targets))]


def test_equal_constants_have_gradients_of_their_own():
    w, b = Tensor.zeros(2), Tensor.zeros(2)
    assert slopes((Tensor([3.0, 4.0]) * w + b).sum(), w, b) == [[3, 4], [1, 1]]
    one, other = Tensor(2.0), Tensor(2.0)
    assert slopes(one * one * other, one, other) == [8, 4]


def test_equal_expressions_have_gradients_of_their_own():
    x = Tensor(3.0)
    h, k = x * 2, x * 2
    assert slopes(h * k, h, k, x) == [6, 6, 24]


ALIASES = {
    "clone": lambda x: x.clone(),
    "reshape to the same shape": lambda x: x.reshape(2, 3),
    "reshape": lambda x: x.reshape(6),
    "permute that changes nothing": lambda x: x.permute(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "all of it": lambda x: x[:],
    "expand to the same shape": lambda x: x.expand(2, 3),
    "contiguous": lambda x: x.contiguous(),
    "flatten": lambda x: x.flatten(),
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_view_or_copy_is_another_target_than_what_it_shows(name):
    x = Tensor(np.arange(6.0).reshape(2, 3))
    h = ALIASES[name](x)
    by_h, by_x = gradient((h * h).sum() + 10 * x.sum(), [h, x])
    assert sorted(by_h.flatten().tolist()) == [0, 2, 4, 6, 8, 10]
    assert by_x.tolist() == [[10, 12, 14], [16, 18, 20]]


def test_a_gradient_by_a_view_is_found_behind_further_views():
    x = Tensor(np.arange(6.0))
    h = x.reshape(2, 3)
    k = h.reshape(3, 2).permute(1, 0).permute(1, 0).reshape(6)
    assert slopes((k * k).sum(), h) == [[[0, 2, 4], [6, 8, 10]]]


def test_a_line_computes_the_same_whatever_else_is_alive():
    x = Tensor([0.0, 1.0])
    before = slopes(x.maximum(0).sum(), x)
    relu = x.relu()
    # PyTorch 2.14: maximum shares a tie, relu's slope at 0 is 0
    assert slopes(x.maximum(0).sum(), x) == before == [[0.5, 1.0]]
    assert slopes(relu.sum(), x) == [[0, 1]]


def test_looking_at_a_value_leaves_its_gradient():
    x = Tensor([3.0])
    y = x * x
    z = y.sum()
    assert (y.tolist(), z.item()) == ([9], 9)
    assert slopes(z, x, y) == [[6], [1]]
    assert slopes(y.sum() * z, x) == [[2 * 9 * 6]]
    # constants that were looked at too
    w, b = Tensor.zeros(2), Tensor.zeros(2)
    loss = (Tensor([3.0, 4.0]) * w + b).sum()
    assert w.realize(b).tolist() == [0, 0]
    assert slopes(loss, w, b) == [[3, 4], [1, 1]]
    assert slopes((Tensor([3.0, 4.0]) * w + b).sum(), w, b) == [[3, 4], [1, 1]]


def test_equal_tensors_that_were_computed_together_are_written_one_by_one():
    w, b = Tensor.zeros(2), Tensor.zeros(2)
    w.realize(b)
    w += 1
    b[0] = 5
    assert (w.tolist(), b.tolist()) == ([1, 1], [5, 0])


def test_what_goes_through_rounding_or_detach_is_zero_beside_other_targets():
    x = Tensor([1.6])
    for q, expected in ((x.round(), 4.0), (x.detach(), 3.2), (x.floor(), 2.0)):
        by_q, by_x = gradient((q * q).sum(), [q, x])
        assert by_q.item() == pytest.approx(expected)
        assert by_x.tolist() == [0]
    # PyTorch 2.14: the slope of rounding is 0
    assert slopes(x.round().sum(), x) == [[0]]
    with pytest.raises(ValueError, match="through what has no gradient"):
        gradient(x.detach().sum(), [x])
    with pytest.raises(ValueError, match="does not depend on the target"):
        gradient((x * 2).sum(), [x, Tensor([1.6])])


def test_backward_reaches_rounding_as_zero_and_not_what_is_detached():
    x, y = Tensor([1.6], requires_grad=True), Tensor([2.0], requires_grad=True)
    (x.round() + y.detach() * 3).sum().backward()
    assert x.grad.tolist() == [0]
    assert y.grad is None


def test_a_value_looked_at_keeps_only_what_a_target_may_need():
    """The graph of a value goes when no tensor is left that it could be differentiated by, or when the value goes."""
    x, rest = Tensor(np.ones(4)), len(history.PAST)
    y = (x * 2).realize()
    memory = y.node.arg
    assert history.made_of(y.node) is not None
    del x
    gc.collect()
    assert history.made_of(y.node) is None
    assert memory is y.node.arg
    x = Tensor(np.ones(4))
    y = (x * 2).realize()
    del y
    gc.collect()
    assert len(x._pasts) == 0
    assert len(history.PAST) <= rest + 1


def test_long_chains_of_states_give_their_memory_back_and_say_so():
    step = Tensor(np.ones(3))
    state = Tensor(np.zeros(3))
    for _ in range(history.MAX_GENERATIONS):
        state = (state + step).realize()
    assert slopes(state.sum(), step) == [[history.MAX_GENERATIONS] * 3]
    state = (state + step).realize()
    gc.collect()
    assert len(step._pasts) == 0
    with pytest.raises(
        ValueError, match=r"computed long ago, .* make the target with requires_grad=True, or detach\(\)"
    ):
        gradient(state.sum(), [step])
    # what was made of it since is another matter
    assert slopes((state * step).sum(), state) == [[1, 1, 1]]
    assert slopes((state.detach() * step).sum(), step) == [[history.MAX_GENERATIONS + 1] * 3]
    wanted, state = Tensor(np.ones(3), requires_grad=True), Tensor(np.zeros(3))
    for _ in range(history.MAX_GENERATIONS + 5):
        state = (state + wanted).realize()
    state.sum().backward()
    assert wanted.grad.tolist() == [history.MAX_GENERATIONS + 5] * 3


def test_graphs_that_hold_much_memory_of_dead_tensors_are_not_kept(monkeypatch):
    monkeypatch.setattr(history, "MAX_HELD_BYTES", 100)
    x, scale = Tensor(np.ones(100)), Tensor(2.0, "float64")
    kept = (x * scale).realize()
    assert slopes(kept.sum(), scale) == [100]
    gone = (Tensor(np.ones(100)) * scale).realize()
    with pytest.raises(ValueError, match="not kept"):
        gradient(gone.sum(), [scale])


def test_no_gradient_passes_what_was_made_without_gradients():
    """Computed yet or not; what was made before the block keeps its gradient, whatever is looked at inside."""
    x = Tensor([3.0])
    before = x * x
    with no_grad():
        seen, unseen, shape = (x * x).realize(), x * x, x.reshape(1, 1)
        assert before.item() == 9
    assert slopes((x * (seen + unseen + shape)).sum(), x) == [[21]]
    assert slopes(before.sum(), x) == [[6]]
    for one, wrong in ((seen, "was made without it"), (unseen, "has no gradient"), (shape, "has no gradient")):
        with pytest.raises(ValueError, match=wrong):
            gradient(one.sum(), [x])


def test_no_gradient_passes_functions_with_rules_of_their_own_in_a_block_without_gradients():
    x = Tensor([3.0])
    tripled = custom_gradient(lambda x: x * 3, lambda gradient, result, x: gradient * 3)
    with no_grad():
        made = x.relu() + tripled(x) + x.softmax()
    assert slopes((x * made).sum(), x) == [[13]]


def test_assignment_without_gradients_goes_on_with_the_same_target():
    w = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        w.grad = None
        (w * w).sum().backward()
        with no_grad():
            w -= 0.25 * w.grad
            w[0] += 1
            w.detach()[1:].mul_(2)
    assert w.tolist() == [1.75, 2.0]
    (w * 3).sum().backward()
    assert w.grad.tolist() == [3 + 3, 4 + 3]


def test_gradients_are_switched_on_and_off():
    x = Tensor([3.0])
    assert history.is_grad_enabled()
    with history.inference_mode():
        assert not history.is_grad_enabled()
        with history.enable_grad():
            inside = x * x
        with history.set_grad_enabled(True):
            again = x * x
        assert not history.is_grad_enabled()
    assert slopes((inside + again).sum(), x) == [[12]]
    history.set_grad_enabled(False)
    try:
        assert not history.is_grad_enabled()
    finally:
        history.set_grad_enabled(True)

    @no_grad()
    def frozen(x):
        return x * x

    assert slopes((x * frozen(x)).sum(), x) == [[9]]
    assert slopes((x * frozen(x)).sum(), x) == [[9]]


def test_a_copy_of_a_state_that_is_overwritten_is_made_of_nothing_else():
    t = Tensor([1.0, 2.0])
    t.realize()
    t += 1
    old = t.clone()
    t += 1
    old.realize(t)
    # a copy that counts as made of itself is looked through without end
    assert (old * 2).tolist() == [4.0, 6.0]
    assert t.tolist() == [3.0, 4.0]


def test_a_function_may_have_a_gradient_of_its_own():
    clipped = custom_gradient(lambda x: x.clip(-1, 1), lambda gradient, result, x: gradient)
    x, w = Tensor([-3.0, 0.5, 2.0]), Tensor([1.0, 2.0, 3.0])
    assert clipped(x).tolist() == [-1, 0.5, 1]
    assert slopes((clipped(x) * w).sum(), x) == [[1, 2, 3]]
    # another use of the same value is not touched
    assert slopes((x.clip(-1, 1) * w).sum(), x) == [[0, 2, 0]]

    def scaled(x, by, power=1):
        """Return a product."""
        return x * by**power

    product = custom_gradient(scaled, lambda gradient, result, x, by: (gradient * 10, None))
    assert product.__doc__ == "Return a product."
    assert product(x, w, power=2).tolist() == [-3, 2, 18]
    assert slopes(product(x, w, power=2).sum(), x) == [[10, 10, 10]]
    same = custom_gradient(lambda x: x, lambda gradient, result, x: gradient * -1)
    assert slopes(same(x).sum() + x.sum(), x) == [[0, 0, 0]]


def test_mistakes_in_a_gradient_of_ones_own_are_named():
    x = Tensor([1.0, 2.0])

    def double(x):
        return x * 2

    with pytest.raises(ValueError, match="the gradient of double gave 2 gradients for 1 tensors"):
        gradient(custom_gradient(double, lambda gradient, result, x: (gradient, gradient))(x).sum(), [x])
    with pytest.raises(ValueError, match=r"the gradient of double gave one of shape \[\] for a tensor of \[2\]"):
        gradient(custom_gradient(double, lambda gradient, result, x: gradient.sum())(x).sum(), [x])
    with pytest.raises(TypeError, match="double got no tensor"):
        custom_gradient(double, lambda gradient, result, x: gradient)(3.0)


def test_what_a_graph_means_is_found_once():
    """Passes ask again and again; the shared nodes live as long as the graph does."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    graph = (x * 2 + 1).node
    first = weakref.ref(nodes.shared([graph])[0])
    gc.collect()
    assert nodes.shared([graph])[0] is first()
    del graph
    gc.collect()
    assert first() is None
