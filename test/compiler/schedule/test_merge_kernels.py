"""Joining kernels: which roots become one kernel, what they may use of each other, and what is not stored at all."""

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op
from ringup.compiler.schedule.kernel import memory_of
from ringup.compiler.schedule.merge_kernels import MAX_ROOTS
from ringup.compiler.schedule.order import plan
from ringup.compiler.schedule.signature import of_kernel
from ringup.compiler.schedule.views import squeezed
from ringup.compiler.tensor import Tensor, gradient, order
from ringup.compiler.tensor.realize import device
from ringup.optim import SGD, AdamW, deferred


class Nowhere:
    """Returns memory of zeros for every request."""

    def evaluate(self, nodes, sizes):
        return [bytearray(int(np.prod(one.shape, dtype=int)) * one.dtype.size_bytes) for one in nodes]


def tensor(*shape, kind=np.float32):
    return Tensor(np.zeros(shape, kind))


def planned(*tensors):
    return plan(order.prepared(list(dict.fromkeys(one.node for one in tensors if one.node.op is not Op.BUFFER))))


def roots(*tensors):
    """Return how many roots each kernel has."""
    return [len(one.roots) for one in planned(*tensors).kernels]


def state(*shape):
    made = tensor(*shape)
    made.assign(made + 0.0)
    with device(Nowhere()):
        made.realize()
    return made


BIG = (128, 128)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # Roots that read the same data are one kernel, if they read it at the same places.
        (lambda x: [x * 2, x.exp(), x + 1], [3]),
        (lambda x: [x * 2, x.flip(0) + 1], [1, 1]),
        (lambda x: [x * 2, tensor(*BIG) + 1], [1, 1]),
        (lambda x: [x.sum(1), x.amax(1), (x * x).sum(1)], [3]),
        (lambda x: [x.sum(1), x.sum(0)], [1, 1]),
        (lambda x: [x.sum(1), x.sum(1, keepdims=True) * 2], [2]),
        (lambda x: [x.softmax(-1), x.softmax(-1) * 2], [2]),
        # Small tensors need not share anything, whatever else has their shape.
        (lambda x: [tensor(2, 4) + 1, tensor(8) + 1, tensor(8, 1) * 2], [2, 1]),
        # A product and the work on its result are one kernel, if that work is little.
        (lambda x: [y := x @ tensor(*BIG), y + x], [2]),
        (lambda x: [y := x @ tensor(*BIG), (y / x).sqrt().exp() / y], [1, 1]),
        (lambda x: [x @ tensor(*BIG), x @ tensor(*BIG)], [1, 1]),
        # A kernel between two roots separates them.
        (lambda x: [y := x.exp(), z := y @ tensor(*BIG), (y * z).exp()], [1, 1, 1]),
        # A request to lie in memory separates them as well.
        (lambda x: [y := (x + 1).contiguous(), y * 2], [1, 1]),
    ],
)
def test_kernels_have_the_expected_number_of_roots(made, expected):
    assert roots(*made(tensor(*BIG))) == expected


@pytest.mark.parametrize("made", [lambda p: SGD(p, momentum=0.9), AdamW], ids=["momentum", "AdamW"])
def test_a_step_of_an_optimiser_is_one_kernel_a_parameter(made):
    parameters = [Tensor(np.zeros(size, np.float32), requires_grad=True) for size in (20000, 30000)]
    optimiser = made(parameters)
    with device(Nowhere()):
        optimiser.realize()
        for one in parameters:
            one.grad = tensor(*one.shape)
        with deferred():
            optimiser.step()
        found = planned(*parameters, *optimiser.memory())
    kept = [one for one in found.kernels if one.shape != ()]
    assert [len(one.roots) for one in kept] == ([2, 2] if isinstance(optimiser, SGD) else [3, 3])
    # The bias corrections are data.
    assert len(found.kernels) == len(kept)
    # Each memory is read once, in its state before the step.
    for one in kept:
        assert len({memory_of(node) for node in one.inputs}) == len(one.inputs)


def test_a_gradient_that_only_its_optimiser_uses_is_not_stored():
    weight = Tensor(np.zeros((64, 48), np.float32), requires_grad=True)
    optimiser = SGD([weight], momentum=0.9)
    with device(Nowhere()):
        optimiser.realize()
        loss = (tensor(32, 64) @ weight).square().sum()
        loss.backward()
        with deferred():
            optimiser.step()
        last = planned(weight, *optimiser.memory()).kernels[-1]
    assert [one.op for one in last.roots] == [Op.STORE, Op.STORE]
    assert last.folds


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        # Each thread reads its own element before it writes it.
        (lambda x: x * 2, [2]),
        # A thread reads another thread's element.
        (lambda x: x.flip(0) * 2, [1, 1]),
        # The maximum reads all elements of a column.
        (lambda x: x * x.amax(0), [1, 2]),
    ],
)
def test_what_is_overwritten_is_read_at_the_very_places_or_by_another_kernel_before(reads, expected):
    x = state(*BIG)
    before = reads(x)
    x.assign(x + 1)
    found = planned(before, x).kernels
    assert [len(one.roots) for one in found] == expected
    assert found[-1].roots[-1].op is Op.STORE


@pytest.mark.parametrize(
    ("write", "read", "expected"),
    [
        (slice(None), lambda x: x * 2, [2]),
        (slice(None), lambda x: x.permute(1, 0) * 2, [1, 1]),
        # Only a part is written; the rest is older.
        (slice(64, None), lambda x: x[64:] * 2, [1, 1]),
    ],
)
def test_what_was_written_is_used_at_the_very_places_or_by_another_kernel_behind(write, read, expected):
    x = state(*BIG)
    if write == slice(None):
        x.assign(x + 1)
    else:
        x[write] = x[write] + 1
    found = planned(x, read(x)).kernels
    assert [len(one.roots) for one in found] == expected
    assert found[0].roots[0].op is Op.STORE


def test_roots_are_no_more_than_a_kernel_has_room_for():
    x = tensor(*BIG)
    assert roots(*(x * float(i) for i in range(MAX_ROOTS + 2))) == [MAX_ROOTS, 2]


def test_kernels_that_differ_in_which_values_are_stored_are_not_the_same():
    x = tensor(*BIG)
    y = x.exp()
    marks = [of_kernel(one)[0] for many in ([y, y * 2], [y + 1, y * 2]) for one in planned(*many).kernels]
    assert marks[0] != marks[1]
    again = tensor(*BIG).exp()
    assert of_kernel(planned(again, again * 2).kernels[0])[0] == marks[0]


def test_the_running_means_of_a_norm_and_the_norm_take_two_kernels():
    x, mean, variance = tensor(4, 8, 10, 10), state(8), state(8)
    middle = x.mean((0, 2, 3))
    apart = x - middle.reshape(1, 8, 1, 1)
    spread = (apart * apart).mean((0, 2, 3))
    mean.assign(mean * 0.9 + middle * 0.1)
    variance.assign(variance * 0.9 + spread * 0.1)
    normal = apart * (spread.reshape(1, 8, 1, 1) + 1e-5).rsqrt()
    assert len(planned(normal, mean, variance).kernels) == 2


def test_gradients_by_the_weights_of_a_norm_are_one_walk_over_what_they_are_made_of():
    x, weight, bias = tensor(64, 512), tensor(512), tensor(512)
    made = x.layer_norm(weight, bias) * tensor(64, 512)
    found = planned(*gradient(made.sum(), [weight, bias])).kernels
    (both,) = [one for one in found if squeezed(one.shape) == (512,)]
    assert len(both.roots) == 2
    assert len({tuple(one.variables.values()) for one in both.folds}) == 1


@pytest.mark.parametrize(
    "read", [lambda x: x.flip(0), lambda x: x.permute(1, 0), lambda x: x.roll(1, 1)], ids=["flip", "turn", "roll"]
)
def test_what_is_read_together_does_not_excuse_a_place_that_another_thread_overwrites(read):
    x, shared = state(*BIG), tensor(*BIG)
    before = read(x) + shared
    x.assign(x + shared)
    assert roots(before, x) == [1, 1]


def test_parts_of_one_memory_are_stored_by_kernels_one_after_the_other():
    x, shared = state(192, 128), tensor(64, 128)
    x[:64] = shared * 2
    x[32:96] = shared + 1
    assert roots(x) == [1, 1]


def test_what_was_written_through_a_view_is_read_behind_it():
    x, shared = state(*BIG), tensor(*BIG)
    x.permute(1, 0).assign(shared + 1)
    assert roots(x, x * shared) == [1, 1]
