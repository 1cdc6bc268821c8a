"""Cutting graphs into kernels: what is fused, what goes to memory, in which order kernels run and where results lie."""

from math import prod

import numpy as np
import pytest

from ringup.compiler.compile import compile_graph
from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.nodes import Op, shared
from ringup.compiler.schedule import cut
from ringup.compiler.schedule.cut import Cut
from ringup.compiler.schedule.estimate_work import HEAVY
from ringup.compiler.schedule.kernel import MAX_FOLDS, memory_of
from ringup.compiler.schedule.order import plan
from ringup.compiler.schedule.signature import of_graph, of_kernel
from ringup.compiler.tensor import Tensor, order
from ringup.compiler.tensor.gradients import gradient
from ringup.errors import CompileError


def tensor(*shape, kind=np.float32):
    return Tensor(np.zeros(shape, kind))


def kernels(*tensors):
    return plan(order.prepared([one.node for one in tensors])).kernels


def block(x, dim, heads):
    """A transformer block with weights of zeros."""
    batch, length, _ = x.shape
    inner = x.layer_norm()
    q, k, v = (
        (inner @ tensor(dim, dim)).reshape(batch, length, heads, dim // heads).permute(0, 2, 1, 3) for _ in range(3)
    )
    x = x + q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(batch, length, dim) @ tensor(dim, dim)
    hidden = (x.layer_norm() @ tensor(dim, 4 * dim) + tensor(4 * dim)).gelu()
    return x + hidden @ tensor(4 * dim, dim) + tensor(dim)


def shortcut(x, kernel, around):
    """A strided convolution and the shortcut around it."""
    return (x.conv2d(kernel, stride=2, padding=1) + x.conv2d(around, stride=2) * 0.5).relu()


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (lambda: tensor(64, 64) + tensor(64, 1) * 2, 1),
        (lambda: tensor(64, 64).softmax(-1), 1),
        (lambda: tensor(64, 64).softmax(0), 1),
        (lambda: tensor(64, 64).layer_norm(), 1),
        (lambda: tensor(64, 64).var(0), 1),
        (lambda: (tensor(64, 64) * 2).cumsum(1).relu(), 1),
        (lambda: tensor(64, 64).softmax(-1).cumsum(-1), 2),
        (lambda: tensor(64, 64).cumsum(0).cumprod(1), 2),
        (lambda: tensor(1 << 20).cumsum(0), 3),
        (lambda: tensor(64, 64).argsort(0), 1),
        (lambda: tensor(3, 9000).argsort(1, descending=True), 3),
        (lambda: tensor(3, 9000).topk(5, 1)[1], 3),
        (lambda: tensor(64, 64) @ tensor(64, 64) + tensor(64), 1),
        (lambda: (tensor(64, 64) @ tensor(64, 64)).softmax(-1), 2),
        (lambda: ((tensor(64, 64) @ tensor(64, 64)).gelu() @ tensor(64, 64)).relu(), 2),
        (lambda: tensor(1, 8, 16, 16).conv2d(tensor(8, 8, 3, 3), padding=1).relu().max_pool2d(2), 2),
        (lambda: tensor(2, 4, 32, 16).scaled_dot_product_attention(tensor(2, 4, 40, 16), tensor(2, 4, 40, 16)), 1),
        (
            lambda: tensor(2, 4, 32, 16).scaled_dot_product_attention(
                tensor(2, 4, 32, 16), tensor(2, 4, 32, 16), causal=True
            ),
            1,
        ),
        (lambda: block(tensor(1, 32, 64), 64, 4), 9),
        (lambda: tensor(100, 1000)[Tensor(np.zeros(7, np.int32))].sum(1), 1),
        # A product with one vector computes the norm in front of it again in every row. A product of many rows does
        # not.
        (lambda: tensor(1, 256).layer_norm() @ tensor(256, 1000), 1),
        (lambda: tensor(64, 256).layer_norm() @ tensor(256, 1000), 2),
        # A fold that is longer than the product's own is too much to repeat.
        (lambda: (tensor(1, 64) * tensor(6000).max()) @ tensor(64, 1000), 2),
        # Two products of the same rows and columns are one kernel, three are not.
        (lambda: (tensor(40, 64) @ tensor(64, 48)).silu() * (tensor(40, 24) @ tensor(24, 48)), 1),
        (lambda: tensor(40, 64) @ tensor(64, 48) + (tensor(48, 24) @ tensor(24, 40)).permute(1, 0), 1),
        (lambda: sum((tensor(40, 64) @ tensor(64, 48) for _ in range(2)), tensor(40, 64) @ tensor(64, 48)), 2),
        (lambda: tensor(40, 64) @ tensor(64, 48) + (tensor(8, 24) @ tensor(24, 48)).repeat(5, 1), 2),
        (lambda: shortcut(tensor(1, 16, 12, 12), tensor(24, 16, 3, 3), tensor(24, 16, 1, 1)), 1),
        # A product's kernel folds all of its columns if they are few. It does not fold them beside other kinds of
        # columns, or behind an attention.
        (lambda: (tensor(40, 64) @ tensor(64, 49) + tensor(49)).relu().sum(1), 1),
        (lambda: (tensor(40, 64) @ tensor(64, 65) + tensor(65)).relu().sum(1), 2),
        (lambda: (tensor(40, 64) @ tensor(64, 49)).sum(), 2),
        (lambda: tensor(1, 16, 7, 7).conv2d(tensor(24, 16, 3, 3), padding=1).relu().mean((2, 3)), 1),
        (lambda: tensor(4, 16, 7, 7).conv2d(tensor(24, 16, 3, 3), padding=1).relu().mean((2, 3)), 2),
        (lambda: tensor(64, 16).scaled_dot_product_attention(tensor(64, 16), tensor(64, 16)).sum(1), 2),
        (lambda: (tensor(40, 64) @ tensor(64, 49)).softmax(-1), 2),
        # The product is too deep for so few rows.
        (lambda: (tensor(40, 1000) @ tensor(1000, 49)).sum(1), 2),
        # A value made of several fetched elements is not made again for each product. A single fetched element is.
        (lambda: tensor(1, 8, 20, 20).interpolate((40, 40), "linear").conv2d(tensor(8, 8, 3, 3), padding=1), 2),
        (lambda: tensor(100, 96)[Tensor(np.zeros(40, np.int32))] @ tensor(96, 64), 1),
        # Exponentials are repeated if they are few.
        (lambda: tensor(4, 1, 128).softmax(-1) @ tensor(4, 128, 64), 1),
        (lambda: tensor(4, 1, 1024).softmax(-1) @ tensor(4, 1024, 64), 2),
    ],
)
def test_a_graph_has_the_expected_number_of_kernels(made, count):
    assert len(kernels(made())) == count


def test_what_two_products_share_is_computed_once_and_with_its_reductions():
    inner = tensor(32, 64).layer_norm()
    found = kernels(inner @ tensor(64, 64), inner @ tensor(64, 48))
    assert [len(one.folds) for one in found] == [2, 1, 1]
    assert found[0].computed in found[1].inputs
    assert found[0].computed in found[2].inputs


def test_a_costly_factor_of_a_product_lies_in_memory_and_a_cheap_one_does_not():
    assert len(kernels((tensor(1024, 64) * 2) @ tensor(64, 1024))) == 1
    assert len(kernels(tensor(1024, 64).exp() @ tensor(64, 1024))) == 2


def test_long_sums_of_few_results_are_made_in_two_steps():
    assert [one.shape for one in kernels(tensor(1 << 20).sum())] == [(1, 256, 1), ()]
    assert len(kernels(tensor(4096, 256).sum(1))) == 1


def test_memory_of_intermediates_is_shared_by_those_that_do_not_live_together():
    x = tensor(256, 256)
    for _ in range(6):
        x = (x @ tensor(256, 256)).relu()
    found = plan(order.prepared([x.node]))
    size = 256 * 256 * 4
    assert len(found.kernels) == 6
    assert found.arena_bytes == 2 * size
    alive: dict = {}
    last = {}
    for at, kernel in enumerate(found.kernels):
        for node in kernel.inputs:
            last[memory_of(node)] = at
    for at, kernel in enumerate(found.kernels):
        if kernel.root in found.places:
            here = range(found.places[kernel.root], found.places[kernel.root] + size)
            for node, there in alive.items():
                assert last[node] < at or here.stop <= there.start or there.stop <= here.start
            alive[kernel.root] = here


def test_readers_of_the_state_before_come_before_the_store():
    memory = nodes.buffer(dtypes.float32, (8,), "state", b"\0" * 32)
    double = nodes.elementwise(Op.ADD, memory, memory)
    before = nodes.node(Op.CONTIGUOUS, dtypes.float32, (8,), (double,))
    store = nodes.node(Op.STORE, dtypes.float32, (8,), (memory, nodes.const(1.0, dtypes.float32, (8,))))
    after = nodes.node(Op.AFTER, dtypes.float32, (8,), (memory, store))
    both = nodes.elementwise(Op.ADD, before, after)
    found = plan([both]).kernels
    assert [root.op for one in found for root in one.roots] == [Op.CONTIGUOUS, Op.STORE, Op.ADD]


def test_a_value_of_before_that_a_later_one_needs_too_is_refused():
    memory = nodes.buffer(dtypes.float32, (8,), "state", b"\0" * 32)
    store = nodes.node(Op.STORE, dtypes.float32, (8,), (memory, nodes.const(1.0, dtypes.float32, (8,))))
    after = nodes.node(Op.AFTER, dtypes.float32, (8,), (memory, store))
    # One kernel would read both states.
    both = nodes.elementwise(Op.ADD, memory, after)
    with pytest.raises(CompileError, match=r"copy the value first \(contiguous\(\)\)"):
        plan([both])


def test_a_sum_over_memory_that_is_stored_to_is_made_before_the_store_and_not_in_it():
    memory = nodes.buffer(dtypes.float32, (8,), "state", b"\0" * 32)
    total = nodes.expand(nodes.reduce(Op.ADD, memory, [0]), (8,))
    store = nodes.node(Op.STORE, dtypes.float32, (8,), (memory, nodes.elementwise(Op.DIV, memory, total)))
    found = plan([nodes.node(Op.AFTER, dtypes.float32, (8,), (memory, store))]).kernels
    assert [one.root.op for one in found] == [Op.REDUCE, Op.STORE]


def test_equal_layers_are_one_kernel_to_the_cache_and_unequal_ones_are_not():
    x = tensor(16, 64)
    first, second, other = (x @ tensor(64, 64)).relu(), (x @ tensor(64, 64)).relu(), (x @ tensor(64, 32)).relu()
    marks = [
        of_kernel(next(iter(Cut(order.prepared([one.node])).kernels.values())))[0] for one in (first, second, other)
    ]
    assert marks[0] == marks[1] != marks[2]
    assert of_graph([first.node])[0] == of_graph([second.node])[0]


def test_kernels_that_read_the_same_memory_in_other_shapes_are_one_kernel_and_others_are_not():
    """A pool's result has axes of one element. It is read as any other image is."""

    def mark(value):
        (root,) = shared([(value @ tensor(64, 32)).node])
        (kernel,) = (one for one in plan([root]).kernels if one.root is root)
        return of_kernel(kernel)[0]

    plain, flat, turned = tensor(16, 64), tensor(16, 64, 1, 1), tensor(64, 16)
    assert mark(plain) == mark(flat.reshape(16, 64)) == mark(tensor(1024).reshape(16, 64)) != mark(turned.permute(1, 0))
    square = tensor(64)
    apart, same = (square.reshape(8, 8) + tensor(8, 8)).node, (square.reshape(8, 8) + square.reshape(8, 8).flip(0)).node
    assert len({of_kernel(plan([one]).kernels[0])[0] for one in (apart, same)}) == 2


def test_the_plan_is_the_same_each_time():
    def made():
        found = kernels(block(tensor(1, 32, 64), 64, 4))
        return [of_kernel(one)[0] for one in found]

    assert made() == made()


def test_of_what_costs_much_only_the_last_that_is_made_of_it_lies_in_memory():
    """A SiLU between two products that are trained: the second product has no use for its exponential and its
    quotient.
    """
    x, first, second = tensor(64, 96), tensor(96, 128), tensor(128, 80)
    made = (x @ first).silu() @ second
    inner = [one for one in kernels(made, *gradient(made.sum(), [first, second])) if one.root.shape == (64, 128)]
    assert not {one.root.op for one in inner} & {Op.EXP2, Op.DIV, Op.RECIP}


def test_states_of_an_lstm_are_written_once_and_not_made_again_from_the_first():
    """One step's state takes a kernel for its gates, and one for the state and its output. That one reads no older
    gates.
    """
    shown, state, into, around = tensor(32, 64), tensor(32, 64), tensor(32, 256), tensor(64, 256)
    for _ in range(5):
        gates = into + shown @ around
        taken, kept, out, new = (gates[:, 64 * i : 64 * i + 64] for i in range(4))
        state = kept.sigmoid() * state + taken.sigmoid() * new.tanh()
        shown = out.sigmoid() * state.tanh()
    found = kernels(shown, state)
    assert len(found) == 10
    assert all(len(one.inputs) <= 3 for one in found)


def chain(step, count):
    x = tensor(64, 64)
    for _ in range(count):
        x = step(x)
    return x


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.softmax(-1),
        lambda x: x.layer_norm() + x,
        lambda x: x + x.softmax(-1) @ x,
        lambda x: x.softmax(0).softmax(1),
    ],
    ids=["softmax", "norm", "softmax and product", "both ways"],
)
def test_planning_a_chain_takes_steps_in_proportion_to_its_length(monkeypatch, step):
    """The test counts the steps from a value to its sources, which make up every search of the cut."""
    steps, sources = [0], cut.sources

    def counted(node, point):
        steps[0] += 1
        return sources(node, point)

    monkeypatch.setattr(cut, "sources", counted)
    taken = []
    for count in (30, 60, 120):
        steps[0] = 0
        kernels(chain(step, count))
        taken.append(steps[0])
    assert taken[2] - taken[1] < 2.2 * (taken[1] - taken[0])


def test_a_chain_of_softmaxes_fills_kernels_with_whole_ones():
    found = kernels(chain(lambda x: x.softmax(-1), 12))
    assert sum(len(one.folds) for one in found) == 24
    assert all(len(one.folds) in range(4, MAX_FOLDS + 1, 2) for one in found)


def heavy(x, count=6):
    """A chain of so many sines. It is more work for each element than a kernel does beside anything that repeats it."""
    for _ in range(count):
        x = x.sin() + 1
    return x


@pytest.mark.parametrize(
    ("made", "roots"),
    [
        (lambda x: x.sum(1, keepdims=True), [Op.ADD, Op.REDUCE]),
        (lambda x: x.softmax(1), [Op.ADD, Op.DIV]),
        (lambda x: x.T.cumsum(1), [Op.ADD, Op.SCAN]),
        (lambda x: x @ tensor(64, 8), [Op.ADD, Op.RESHAPE]),
        (lambda x: x.reshape(64, 1, 64).expand(64, 3, 64) * tensor(3, 64), [Op.ADD, Op.MUL]),
        (lambda x: x[np.arange(64)[::-1].copy()], [Op.ADD, Op.GATHER]),
        (lambda x: x[np.array([3, 5])], [Op.GATHER]),
        (lambda x: x.relu(), [Op.MAX]),
    ],
    ids=["sum", "softmax", "scan", "product", "repeated", "fetched", "fetched in part", "alone"],
)
def test_much_work_for_an_element_is_done_once_and_lies_in_memory(made, roots):
    assert [one.root.op for one in kernels(made(heavy(tensor(64, 64))))] == roots


def image(x):
    return x.reshape(1, 4, 16, 64)


@pytest.mark.parametrize(
    "made",
    [
        lambda x, y: x @ y,
        lambda x, y: heavy(tensor(64, 1), 3) * x @ y,
        lambda x, y: x.linear(y),
        lambda x, y: x.reshape(2, 32, 64) @ y.reshape(2, 64, 32),
        lambda x, y: x.einsum("ij,jk,k->ik", y, tensor(64)),
        lambda x, y: image(x).conv2d(y[:36, :].reshape(64, 4, 3, 3)),
        lambda x, y: x.layer_norm() @ y,
        lambda x, y: (x.unsqueeze(2) + y.unsqueeze(0)).amax(1),
        lambda x, y: (x.unsqueeze(2) * y.unsqueeze(0) + x.unsqueeze(2)).sum(1),
        lambda x, y: (x.unsqueeze(2) * y.unsqueeze(0) * tensor(64, 1, 64)).sum(1),
        lambda x, y: x.reshape(2, 2, 16, 64).scaled_dot_product_attention(y.reshape(2, 2, 16, 64), y.reshape(2, 2, 16, 64)),
    ],
    ids=["product", "one side repeated", "linear", "batches", "einsum", "convolution", "norm", "maximum of sums",
         "sum of products", "product of three", "attention"],
)  # fmt: skip
@pytest.mark.parametrize(
    "work", [lambda: Tensor.randn(64, 64), lambda: heavy(tensor(64, 64), 4)], ids=["random", "sines"]
)
def test_much_work_in_front_of_a_reduction_is_stored_before_it_is_repeated(made, work):
    found = plan(order.prepared([made(work(), work()).node]))
    inner = [one for one in found.kernels if one.root not in found.outputs]
    assert inner
    assert all(prod(one.shape) <= 64 * 64 for one in inner)
    assert found.arena_bytes <= 4 * 64 * 64 * 4


def test_factors_that_are_much_work_take_the_memory_of_two_matrices():
    n = 1024
    angles = (Tensor.arange(n).reshape(n, 1) * Tensor.arange(n) % n).cast("float32") * (6.2831853 / n)
    found = plan(order.prepared([(angles.cos() @ angles.sin()).node]))
    assert (len(found.kernels), found.arena_bytes) == (3, 2 * n * n * 4)


@pytest.mark.parametrize("before", [lambda x: x @ tensor(64, 64), lambda x: x.softmax(1), lambda x: x.sum(1)])
def test_much_work_behind_a_reduction_is_a_kernel_of_its_own(before):
    first, second = kernels(heavy(before(tensor(64, 64))))
    assert first.folds
    assert not second.folds
    assert (first.work < HEAVY, second.work) == (True, HEAVY)


def test_few_operations_are_too_many_where_a_thread_writes_many_elements():
    """Matrix instructions leave 64 results in a thread, and the scores of an attention are many too. Multiply-adds
    leave few.
    """
    half = tensor(64, 64).cast("float16").contiguous()
    assert [len(one.folds) for one in kernels(heavy(half @ half, 2))] == [0, 1, 0]
    assert len(kernels(heavy(tensor(64, 64) @ tensor(64, 64), 2))) == 1
    q = tensor(2, 64, 16)
    scores = q @ q.permute(0, 2, 1)
    attended = [kernels(heavy(scores, count).softmax(-1) @ q) for count in (1, 2)]
    assert [[one.attention is not None for one in found] for found in attended] == [[True], [False] * 3]


def test_a_wide_graph_is_as_much_work_as_a_long_one_and_what_is_shared_counts_once():
    x = tensor(64, 64)
    wide = sum(((x + i).sin() for i in range(1, 6)), x)
    assert [one.work for one in kernels(wide.sum(1))] == [HEAVY, 0]
    shared = x
    for _ in range(40):
        shared = shared * shared + shared
    assert len(kernels(shared.sum(1))) == 1


def test_a_chain_of_transcendentals_in_front_of_long_rows_is_not_megabytes_of_code():
    x = tensor(64, 4096)
    for _ in range(12):
        x = (x.abs() + 1.5).log().sin().exp() / 3
    graph_ = compile_graph(order.prepared([x.softmax(1).node]))
    assert sum(len(one.code) for one in graph_.binaries) < 40_000
