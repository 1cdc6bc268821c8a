"""Assignments: which kernel reads which state, in which order, in one evaluation and over several. An evaluator that
writes in place plays them.
"""

import numpy as np
import numpy_graph
import pytest
import random_assignments

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.nodes import Op, ordered
from ringup.compiler.tensor import Size, Tensor, device
from ringup.compiler.tensor import order as order_module
from ringup.errors import CompileError


class InPlace:
    """An evaluator that writes into the buffers' own bytes, and runs nodes in the worst order that the rule allows.

    Nodes that are neither views nor elementwise are computed once and kept. Views and elementwise nodes are computed
    anew from memory where they are needed, as a fused kernel would. Before a STORE runs, kernels that read the state it
    overwrites have run: that is all the rule gives.
    """

    def __init__(self):
        self.judge = numpy_graph

    def evaluate(self, nodes, sizes):
        self.sizes, self.kept, self.memory = sizes, {}, {}
        every = ordered(nodes)
        after = order_module.followers(every)
        for node in every:
            if node.op is Op.BUFFER:
                kind = self.judge.numpy_dtype(node.dtype)
                data = node.arg.data
                self.memory[node] = (
                    np.zeros(node.shape, kind)
                    if data is None
                    else np.frombuffer(bytearray(data), kind).reshape(node.shape).copy()
                )
        pending = [node for node in every if node.op is Op.AFTER]
        roots = dict.fromkeys(nodes)
        for event in pending:
            before = event.sources[0]
            # Every kernel that reads the old state runs now and not earlier.
            for node in every:
                whole = node.op in (Op.CONTIGUOUS, Op.REDUCE, Op.GATHER, Op.SCATTER, Op.SCAN, Op.SORT) or (
                    node in roots and node.op is not Op.AFTER
                )
                if whole and node not in self.kept and self.reads(node, before) and not self.late(node, event, after):
                    # A view would change with the memory.
                    self.kept[node] = np.array(self.value(node))
            for store in event.sources[1:]:
                self.store(store, before)
        return [np.array(self.value(node)).reshape(-1).view(np.uint8) for node in nodes]

    def reads(self, node, state):
        todo, seen = list(node.sources), set()
        while todo:
            one = todo.pop()
            if one is state:
                return True
            if one in seen or one.op in (Op.AFTER, Op.STORE) or one in self.kept:
                continue
            seen.add(one)
            todo += one.sources
        return False

    def late(self, node, event, after):
        """Whether the node needs this event or a later one of the same memory. By the rule, such a node does not read
        what is overwritten.
        """
        return event in ordered([node])

    def value(self, node):
        if node in self.kept:
            return self.kept[node]
        if node.op in (Op.BUFFER, Op.AFTER):
            return self.memory[order_module.state_of(node)]
        shape = tuple(
            size
            if isinstance(size, int)
            else graph.index.evaluate(size, self.sizes)
            if hasattr(graph, "index")
            else self.size(size)
            for size in node.shape
        )
        with np.errstate(all="ignore"):
            made = self.judge.one(node, [self.value(source) for source in node.sources], shape, self.sizes)
        if node.op in (Op.CONTIGUOUS, Op.REDUCE, Op.GATHER, Op.SCATTER, Op.SCAN, Op.SORT):
            self.kept[node] = made = np.array(made)
        return made

    def size(self, size):
        from ringup.compiler.graph import index

        return index.evaluate(size, self.sizes)

    def store(self, store, before):
        view, value = store.sources
        target = self.memory[order_module.state_of(before)].reshape(-1)
        places = self.judge.places_of(view, self.sizes).reshape(-1)
        elements = np.broadcast_to(self.value(value), self.judge.places_of(view, self.sizes).shape)
        # One element after the other, each read again, so that an overlap would show.
        for i, place in enumerate(places):
            target[place] = elements.reshape(-1)[i] if value in self.kept else self.value(value).reshape(-1)[i]


@pytest.fixture(params=["values", "in place"], autouse=True)
def evaluators(request, evaluator):
    """Both evaluators: the reference, which treats states as values, and the one that writes memory in place."""
    with device(evaluator if request.param == "values" else InPlace()):
        yield


def test_a_read_made_before_an_assignment_sees_the_old_value():
    t = Tensor([1.0, 2.0, 3.0])
    old = t * 10
    t.assign([7.0, 8.0, 9.0])
    new = t * 10
    t.realize()
    assert old.tolist() == [10, 20, 30]
    assert new.tolist() == [70, 80, 90]
    assert t.tolist() == [7, 8, 9]


def test_old_and_new_in_one_value():
    t = Tensor([1.0, 2.0, 3.0])
    old = t.flip(0) * 2
    t += 5
    both = old + t
    # Nobody asks for this value by itself.
    del old
    assert both.tolist() == [6 + 6, 7 + 4, 8 + 2]
    assert t.tolist() == [6, 7, 8]


def test_an_assignment_that_reads_other_places_of_itself():
    t = Tensor(np.arange(6.0))
    t[1:] = t[:-1]
    assert t.tolist() == [0, 0, 1, 2, 3, 4]
    t[:-1] = t[1:]
    assert t.tolist() == [0, 1, 2, 3, 4, 4]
    t.assign(t.flip(0) + t)
    assert t.tolist() == [4, 5, 5, 5, 5, 4]
    t.assign(t / t.sum())
    np.testing.assert_allclose(t.numpy(), np.array([4, 5, 5, 5, 5, 4]) / 28)


def test_two_tensors_swap():
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    was = a * 1
    a.assign(b)
    b.assign(was)
    # Nobody asks for this value by itself.
    del was
    a.realize(b)
    assert a.tolist() == [3, 4]
    assert b.tolist() == [1, 2]


def test_three_tensors_turn_round_through_reads_of_each_other():
    a, b, c = Tensor([1.0, 2.0]), Tensor([3.0, 4.0]), Tensor([5.0, 6.0])
    x, y, z = a + b, b + c, c + a
    a.assign(y)
    b.assign(z)
    c.assign(x)
    del x, y, z
    a.realize(b, c)
    assert (a.tolist(), b.tolist(), c.tolist()) == ([8, 10], [6, 8], [4, 6])


def test_many_assignments_wait_for_each_other():
    t = Tensor(np.zeros(4))
    for i in range(4):
        t[i] = t.sum() + 1
    assert t.tolist() == [1, 2, 4, 8]
    for _ in range(3):
        t += t
    assert t.tolist() == [8, 16, 32, 64]


def test_what_still_reads_an_old_state_is_computed_with_the_assignment():
    t = Tensor([1.0, 2.0])
    old = t + 1
    older = old * 2
    t.assign(t * 100)
    other = t + 1
    t.realize()
    t.assign(t * 10)
    t.realize()
    assert old.tolist() == [2, 3]
    assert older.tolist() == [4, 6]
    assert other.tolist() == [101, 201]
    assert t.tolist() == [1000, 2000]


def test_a_reader_with_open_sizes_keeps_a_copy():
    n = Size("n", 1, 4)
    t = Tensor([1.0, 2.0, 3.0, 4.0])
    part = t[:n] * 2
    t.assign(t * 0)
    t.realize()
    assert part.tolist(n=3) == [2, 4, 6]
    assert part.tolist(n=2) == [2, 4]
    assert t.tolist() == [0] * 4


def test_a_cache_written_at_a_place_known_at_run_time():
    cache = Tensor.zeros(2, 8)
    expected = np.zeros((2, 8), np.float32)
    at = Size("at", 0, 7)
    for place in (0, 1, 5):
        x = np.full((2, 1), place + 1, np.float32)
        cache[:, at : at + 1].assign(Tensor(x))
        seen = cache[:, : at + 1].sum(1)
        expected[:, place] = place + 1
        np.testing.assert_array_equal(seen.numpy(at=place), expected[:, : place + 1].sum(1))
        np.testing.assert_array_equal(cache.numpy(), expected)
    n = Size("n", 1, 4)
    cache[:, at : at + n].assign(Tensor.ones(2, 1).expand(2, n) * 9)
    cache.realize(sizes={"at": 2, "n": 3})
    expected[:, 2:5] = 9
    np.testing.assert_array_equal(cache.numpy(), expected)
    cache[:, at : at + n].assign(0)
    with pytest.raises(IndexError, match=r"from at to at \+ n is 7 to 9 of 8"):
        cache.realize(sizes={"at": 7, "n": 2})


def test_words_said_one_by_one_are_those_said_at_once():
    """A decoder attends over a cache, a few positions at a time at a place known at run time. The result equals that of
    all positions at once.
    """
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 8, 4)).astype(np.float32) for _ in range(3))
    whole = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), causal=True).numpy()
    keys, values = Tensor.zeros(2, 8, 4), Tensor.zeros(2, 8, 4)
    at, n, place = Size("at", 0, 7), Size("n", 1, 3), 0
    q_all, k_all, v_all = Tensor(q), Tensor(k), Tensor(v)
    for count in (3, 1, 1, 2, 1):
        keys[:, at : at + n] = k_all[:, at : at + n]
        values[:, at : at + n].assign(v_all[:, at : at + n])
        seen = q_all[:, at : at + n].scaled_dot_product_attention(
            keys[:, : at + n], values[:, : at + n], causal=True, start=at
        )
        found = seen.realize(sizes={"at": place, "n": count}).numpy()
        np.testing.assert_allclose(found, whole[:, place : place + count], rtol=1e-5, atol=1e-6)
        place += count
    np.testing.assert_array_equal(keys.numpy(), k)


def test_the_memory_stays_the_same(evaluator):
    with device(evaluator):
        t = Tensor(np.zeros((2, 2)))
        before = order_module.storage_of(t.node)
        t += 1
        assert t.node.op is Op.AFTER
        assert order_module.storage_of(t.node) is before
        t.realize()
        (root,) = [node for node in evaluator.calls[-1] if node.op is Op.AFTER]
        assert order_module.storage_of(root) is before
        elsewhere = t.clone()
        # The tensor owns no memory, so it becomes another value.
        elsewhere += 1
        assert t.tolist() == [[1, 1], [1, 1]]
        assert elsewhere.tolist() == [[2, 2], [2, 2]]


def test_views_are_written_through():
    t = Tensor(np.zeros((3, 4)))
    t[1].assign(5)
    t.T[0].assign([1, 2, 3])
    t.reshape(12)[10:].flip(0).assign([8, 9])
    v = t[0]
    v[1:3] = 6
    v += 1
    expected = np.zeros((3, 4))
    expected[1] = 5
    expected[:, 0] = [1, 2, 3]
    expected[2, 2:] = [9, 8]
    expected[0, 1:3] = 6
    expected[0] += 1
    np.testing.assert_array_equal(t.numpy(), expected)
    np.testing.assert_array_equal(v.numpy(), expected[0])
    with pytest.raises(TypeError, match=r"a part by index arrays, .* write t\[...\] = value"):
        t[[0, 1]].assign(0)
    t[2] = np.full((1, 1, 4), 2.0)
    assert t[2].tolist() == [2] * 4
    with pytest.raises(ValueError, match=r"a value of shape \[2, 4\] for a part of 1 axes"):
        t[2] = np.ones((2, 4))
    with pytest.raises(ValueError, match=r"a value of shape \[3\] does not go into \[4\]"):
        t[0].assign([1, 2, 3])


def test_what_shares_memory_with_an_assigned_tensor_keeps_its_value():
    """A clone, views of the whole, and a tensor that got the same value in the same evaluation keep theirs."""
    shares = (lambda x: x.clone(), lambda x: x.reshape(3), lambda x: x.permute(0), lambda x: x[:], lambda x: x.detach())
    for share in shares:
        t = Tensor(np.arange(3.0))
        other = share(t)
        t += 5
        t.realize()
        np.testing.assert_array_equal(other.numpy(), np.arange(3.0))
        np.testing.assert_array_equal(t.numpy(), np.arange(3.0) + 5)
    x = Tensor(np.arange(3.0))
    one, other = x + 1, x + 1
    one.realize(other)
    one += 1
    other += 2
    np.testing.assert_array_equal(one.numpy(), np.arange(3.0) + 2)
    np.testing.assert_array_equal(other.numpy(), np.arange(3.0) + 3)


def test_views_of_a_view_that_was_written_through_write_there_too():
    t = Tensor(np.arange(8.0))
    view = t.reshape(2, 4)
    view[0, 0] = 10
    inner = view.permute(1, 0)[1]
    inner.assign(20)
    inner[0] = 30
    np.testing.assert_array_equal(t.numpy(), [10, 30, 2, 3, 4, 20, 6, 7])


def test_a_part_written_through_a_view_leaves_the_rest_as_it_is_there_now():
    t = Tensor(np.zeros(5))
    view = t[:]
    # The view still shows zeros.
    t += 1
    view[[0, 3]] = 7
    view[::2] = 8
    np.testing.assert_array_equal(t.numpy(), [8, 1, 8, 7, 8])
    np.testing.assert_array_equal(view.numpy(), [8, 1, 8, 7, 8])


def test_a_view_of_what_nothing_else_refers_to_is_changed_in_place():
    t = Tensor(np.arange(4.0)).reshape(2, 2)
    t += 1
    t[0] = 7
    np.testing.assert_array_equal(t.numpy(), [[7, 7], [3, 4]])


@pytest.mark.seeds(20)
def test_random_chains_of_assignments_through_views(seed):
    random_assignments.check(seed)


def test_every_in_place_operator():
    for name, x, y in (("add", 7, 2), ("sub", 7, 2), ("mul", 7, 2), ("floordiv", 7, 2), ("mod", 7, 2), ("pow", 7, 2), ("and", 7, 2),
                       ("or", 8, 2), ("xor", 7, 2), ("lshift", 7, 2), ("rshift", 7, 2)):  # fmt: skip
        t = Tensor([x])
        again = t
        again = getattr(again, f"__i{name}__")(y)
        assert again is t
        assert t.item() == getattr(x, f"__{name}__")(y)
    t = Tensor([7.0])
    t /= 2
    assert t.item() == 3.5


def test_gradients_pass_assignments():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    y[1:] = x[:-1] * 10
    y.sum().backward()
    assert x.grad.tolist() == [2 + 10, 10, 0]
    y[0] = 5
    assert y.tolist() == [5, 10, 20]


def test_impossible_orders_are_named():
    place = graph.buffer(dtypes.float32, (2,), "weights", bytes(8))
    other = graph.buffer(dtypes.float32, (2,), "other", bytes(8))
    one = graph.const(1, dtypes.float32, (2,))

    def after(state, view, value=one):
        return graph.node(
            Op.AFTER, state.dtype, state.shape, (state, graph.node(Op.STORE, view.dtype, view.shape, (view, value)))
        )

    forked = graph.elementwise(Op.ADD, after(place, place), after(place, place, graph.const(2, dtypes.float32, (2,))))
    for node, match in (
        (forked, "weights is assigned twice from the same state, in branches"),
        (after(place, other), "an AFTER of weights waits for a STORE into another state, of other"),
        (after(place, graph.elementwise(Op.ADD, place, one)), "not a view"),
        (after(after(place, place), place), "into another state"),
        (
            graph.node(Op.AFTER, one.dtype, one.shape, (one, graph.node(Op.STORE, one.dtype, one.shape, (place, one)))),
            "no memory|another state",
        ),
        (graph.node(Op.AFTER, one.dtype, one.shape, (place, one)), "which is no STORE"),
    ):
        with pytest.raises(CompileError, match=match):
            Tensor._of(node).realize()


def test_a_forgotten_graph_over_overwritten_memory_is_refused():
    t = Tensor(np.array([1.0, 2.0]), name="weights")
    # No live tensor holds this graph.
    node = graph.elementwise(Op.NEG, t.node)
    t += 1
    t.realize()
    with pytest.raises(CompileError, match="reads weights as it was; that memory holds later values"):
        order_module.storage_of(node.sources[0]).data.read()


def test_detach_and_bitcast_are_views_that_write_through():
    # PyTorch 2.14: detach() and view(dtype) share memory
    x = Tensor([1.0, 2.0, 3.0])
    x.detach()[1] = 5
    assert x.tolist() == [1, 5, 3]
    x.bitcast("int32")[0] = 0
    x.reshape(3, 1).bitcast("uint32").flip(0)[0].assign([0x4000_0000])
    assert x.tolist() == [0, 5, 2]
    wide = x.detach().reshape(1, 3)
    wide += 1
    assert (x.tolist(), wide.tolist()) == ([1, 6, 3], [[1, 6, 3]])
    computed = x * 2
    computed.detach()[0] = -1
    assert (computed.tolist(), x.tolist()) == ([-1, 12, 6], [1, 6, 3])


def test_strided_parts_write_through():
    # NumPy: slices with steps are views
    x, array = Tensor(np.zeros((3, 5))), np.zeros((3, 5))
    for one in (x, array):
        part = one[::2]
        part[1] = 5
        part += 1
        one[:, ::3] += 10
        one[::-2, 1:4:2] = 7
        one[::2].T[0] = 3
    np.testing.assert_array_equal(x.numpy(), array)
    x[::2].assign(1)
    array[::2] = 1
    np.testing.assert_array_equal(x.numpy(), array)


COPIES = {
    "expand": lambda x: x.expand(2, 3, 4),
    "a view of expand": lambda x: x.expand(2, 3, 4).reshape(24)[3:],
    "diagonal": lambda x: x.diagonal(),
    "a view of another width": lambda x: x.view("int16"),
    "unfold": lambda x: x.unfold(1, 2),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_whose_source_would_not_change_refuse_assignment(name):
    part = COPIES[name](Tensor(np.zeros((3, 4), np.float32)))
    values = part.tolist()
    for write in (lambda: part.assign(1), lambda: part.__setitem__(0, 1), lambda: part.__iadd__(1)):
        with pytest.raises(TypeError, match=r"it is a copy, .* or to a clone\(\)"):
            write()
    assert part.tolist() == values
    alone = part.clone()
    alone += 1
    assert alone.flatten().tolist()[0] == part.flatten().tolist()[0] + 1


def test_an_assignment_that_reads_what_is_overwritten_is_computed_along():
    weight, mean = Tensor([1.0, 2.0], requires_grad=True), Tensor([0.0])
    for _ in range(3):
        # a running mean of what the weight gives, which nothing else reads
        mean.assign(mean * 0.5 + weight.detach().sum())
        weight.assign(weight.detach() * 2)
    weight.realize()
    # 3, 1.5 + 6, 3.75 + 12: no copy of the weight's earlier values is kept for them
    assert mean.node.op is Op.BUFFER
    assert mean.tolist() == [15.75]
    assert weight.tolist() == [8, 16]


@pytest.mark.parametrize(
    "change",
    [lambda t: t.assign(t * 2), lambda t: t.mul_(2), lambda t: t.__imul__(2), lambda t: t.__setitem__(..., t * 2)],
    ids=["assign", "mul_", "*=", "t[...] ="],
)
def test_a_view_of_a_tensor_that_is_gone_is_written_like_any_other(change):
    t = Tensor(np.arange(6, dtype=np.float32)).reshape(2, 3).permute(1, 0)
    before = t + 0
    change(t)
    np.testing.assert_array_equal(t.numpy(), np.arange(6).reshape(2, 3).T * 2)
    np.testing.assert_array_equal(before.numpy(), np.arange(6).reshape(2, 3).T)


def test_what_is_kept_from_before_an_assignment_is_not_the_repeated_elements():
    """A product of an old state with a new one keeps the old matrix once, not the factors of the product's terms."""
    t = Tensor(np.arange(12.0).reshape(3, 4))
    old = t.reshape(3, 4)
    t += 1
    made = old @ t.transpose() + (old.unsqueeze(1) * t.unsqueeze(0)).sum(-1)
    kept = {one for one in ordered(order_module.prepared([made.node])) if one.op is Op.CONTIGUOUS}
    assert [one.shape for one in kept] == [(3, 4)]
    wanted = np.arange(12.0).reshape(3, 4) @ (np.arange(12.0).reshape(3, 4) + 1).T * 2
    np.testing.assert_array_equal(made.numpy(), wanted)
