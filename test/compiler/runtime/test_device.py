"""Graphs on a card: compiled once and run again with other data from a kept stream. Their memory is returned."""

import gc
import weakref

import numpy as np
import pytest

from ringup.compiler.compile import compile_graph
from ringup.compiler.runtime import device as runtime
from ringup.compiler.runtime.device import Device
from ringup.compiler.runtime.memory import MIN_BYTES, Pool, rounded
from ringup.compiler.tensor import Size, Tensor, device
from ringup.errors import DeviceLost, OutOfMemory

RANDOM = np.random.default_rng(3)
X, Y = (RANDOM.standard_normal((33, 40)).astype(np.float32) for _ in range(2))
WEIGHTS = RANDOM.standard_normal((40, 24)).astype(np.float32)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_results_are_numpys(on_card):
    x, w = Tensor(X), Tensor(WEIGHTS)
    powers = np.exp(X - X.max(1, keepdims=True))
    close((x @ w).numpy(), X @ WEIGHTS)
    close(x.softmax(1).numpy(), powers / powers.sum(1, keepdims=True))
    close((x.T * 2 + 1).sum(0).numpy(), (X.T * 2 + 1).sum(0))
    np.testing.assert_array_equal(x[::-1, 3:7].argmax(1).numpy(), X[::-1, 3:7].argmax(1))
    np.testing.assert_array_equal((x > 0).numpy(), X > 0)
    assert Tensor([1, 2, 3]).sum().item() == 6


def test_several_outputs_of_one_graph(on_card):
    x = Tensor(X)
    total, same, double = x.sum(1), x.sum(1), x * 2
    before = len(on_card.graphs)
    total.realize(same, double, x)
    assert len(on_card.graphs) == before + 1
    for one in (total, same):
        close(one.numpy(), X.sum(1))
    close(double.numpy(), X * 2)


def test_a_graph_run_again_is_neither_compiled_nor_are_weights_sent_again(on_card, card):
    weights = Tensor(WEIGHTS, name="weights")

    def layer(values):
        return (Tensor(values) @ weights).tanh().numpy()

    close(layer(X), np.tanh(X @ WEIGHTS))
    graphs, place = len(on_card.graphs), weights.node.arg.data.gpu_va
    with card.profile() as profile:
        found = layer(Y)
    close(found, np.tanh(Y @ WEIGHTS))
    assert len(on_card.graphs) == graphs
    assert weights.node.arg.data.gpu_va == place
    sizes = sorted(int(span.name.split()[1]) for span in profile.spans())
    # The spans are copies: the input to the card, the result back. A kept stream has no spans of its own.
    assert sizes == [
        found.nbytes,
        Y.nbytes,
    ]


def test_a_stream_is_kept_over_runs(on_card):
    def run(values):
        return (Tensor(values) * 3 - 1).sum(0).numpy()

    run(X)
    kept = [one.kept for one in on_card._loaded.values()]
    close(run(Y), (Y * 3 - 1).sum(0))
    assert [one.kept for one in on_card._loaded.values()] == kept


def test_the_graphs_used_last_are_kept(on_card, monkeypatch):
    monkeypatch.setattr(runtime, "MAX_GRAPHS", 3)

    def run(count):
        return Tensor(X[:count]).sum(0).numpy()

    for count in (2, 3, 4, 2, 5):
        close(run(count), X[:count].sum(0))
    assert [graph.outputs[0].shape for graph in on_card.graphs] == [(40,)] * 3
    kept = on_card.graphs
    close(run(2), X[:2].sum(0))
    # The graphs of 4, 5 and 2 rows: that of 2 rows was still there.
    assert on_card.graphs == [kept[0], kept[2], kept[1]]
    # This graph is compiled again.
    close(run(3), X[:3].sum(0))
    assert len(on_card.graphs) == 3


def test_kernels_go_with_the_last_graph_that_needs_them(card, monkeypatch):
    monkeypatch.setattr(runtime, "MAX_GRAPHS", 2)
    evaluator = Device(card)
    loaded = []

    def run(tensor, expected):
        with device(evaluator):
            close(tensor.numpy(), expected)
        loaded.append(len(evaluator._programs))

    sums = [X[:count] for count in (2, 3, 4)]
    run(Tensor(sums[0]).sum(0), sums[0].sum(0))
    run(Tensor(sums[0]).sum(0) * 2, sums[0].sum(0) * 2)
    # The first graph and its kernel are dropped.
    run((Tensor(X) + 1).contiguous() * 2, (X + 1) * 2)
    # One of its kernels is loaded already.
    run((Tensor(X) + 1).contiguous().sum(0), (X + 1).sum(0))
    # The graph that loaded the shared kernel is dropped. The program stays for the other graph.
    run(Tensor(sums[1]).sum(0), sums[1].sum(0))
    assert loaded == [1, 2, 3, 3, 4]
    # The shared kernel still runs.
    run((Tensor(Y) + 1).contiguous().sum(0), (Y + 1).sum(0))
    programs = {id(one.program) for one in evaluator._programs._held.values()}
    for count in range(4, 20):
        run(Tensor(X[:count]).sum(0), X[:count].sum(0))
    # Two graphs of one kernel each.
    assert loaded[-1] == 2
    assert not programs & {id(one.program) for one in evaluator._programs._held.values()}
    assert card.device.violations == []


def test_memory_comes_back_to_the_pool(on_card):
    def work():
        return ((Tensor(X) + 1).softmax(1) @ Tensor(WEIGHTS)).numpy()

    work()
    gc.collect()
    held, idle = on_card.pool.held_bytes, on_card.pool.idle_bytes
    for _ in range(3):
        work()
    gc.collect()
    assert (on_card.pool.held_bytes, on_card.pool.idle_bytes) == (held, idle)
    kept = Tensor(X).contiguous().realize()
    gc.collect()
    used = on_card.pool.held_bytes - on_card.pool.idle_bytes
    assert held - idle + X.nbytes <= used <= held - idle + 2 * X.nbytes
    del kept
    gc.collect()
    assert on_card.pool.held_bytes - on_card.pool.idle_bytes == held - idle


def test_nothing_that_is_compiled_keeps_a_tensors_memory(on_card):
    gc.collect()
    used = on_card.pool.held_bytes - on_card.pool.idle_bytes
    table, places = Tensor(RANDOM.standard_normal((100, 64)).astype(np.float32)), Tensor([[1, 3], [99, 0]])
    table[5:7].assign(0)
    (table.embedding(places).layer_norm() @ Tensor(np.ones((64, 3), np.float32))).numpy()
    table.cat(table + 1).cumsum(0).numpy()
    kept = weakref.ref(table.node.arg)
    del table, places
    gc.collect()
    assert kept() is None
    on_card.pool.trim()
    # The intermediates of the largest graph, which are held once.
    assert on_card.pool.held_bytes <= used + (64 << 10)


def test_two_tensors_share_a_buffer(on_card):
    whole = Tensor(X.copy()).realize()
    part = whole[3:5]
    part.assign(Tensor(np.full((2, 40), 7, np.float32)))
    whole[0] = 1
    expected = X.copy()
    expected[3:5], expected[0] = 7, 1
    np.testing.assert_array_equal(whole.numpy(), expected)
    np.testing.assert_array_equal(part.numpy(), expected[3:5])


def test_an_assignment_stays_in_its_memory(on_card):
    counter = Tensor(np.zeros(5, np.float32)).realize()
    (counter + 0).numpy()
    place = counter.node.arg.data.gpu_va
    for _ in range(3):
        counter += 1
        counter.realize()
    assert counter.tolist() == [3] * 5
    assert counter.node.arg.data.gpu_va == place


@pytest.mark.parametrize("most", [16, 128, 3000])
def test_symbolic_sizes_are_bound_at_each_run(on_card, most):
    n = Size("n", 1, most)
    values = RANDOM.standard_normal((most, 8)).astype(np.float32)
    part = Tensor(values)[:n]
    graphs = len(on_card.graphs)
    made = part.softmax(0), part.T @ part, part.amax(0)
    for count in (1, most // 3, most, 2):
        x = values[:count]
        powers = np.exp(x - x.max(0))
        close(made[0].numpy(n=count), powers / powers.sum(0))
        np.testing.assert_allclose(made[1].numpy(n=count), x.T @ x, rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(made[2].numpy(n=count), x.max(0))
    assert len(on_card.graphs) == graphs + len(made)
    with pytest.raises(ValueError, match=f"n is {most + 1}, outside of 1 to {most}"):
        made[0].numpy(n=most + 1)
    with pytest.raises(ValueError, match=rf"n \(1 to {most}\) has no value"):
        made[0].numpy()


def test_a_size_that_needs_more_groups_makes_another_stream_and_the_same_graph(on_card):
    n = Size("rows", 1, 5000)
    values = np.arange(5000, dtype=np.float32)
    made = Tensor(values)[:n] + 1
    for count in (10, 5000, 10):
        np.testing.assert_array_equal(made.numpy(rows=count), values[:count] + 1)


def test_a_chain_of_hundreds_of_operations_is_one_kernel(on_card):
    x, expected = Tensor(X), X.astype(np.float64)
    for _ in range(400):
        x, expected = x * 0.99 + 0.01, expected * 0.99 + 0.01
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-4, atol=1e-6)
    assert len(on_card.graphs[-1].launches) == 1


def test_a_chain_of_thousands_compiles():
    x = Tensor(X)
    for _ in range(3000):
        x = x * 0.99 + 0.01
    assert len(compile_graph([x.node]).launches) == 1


def test_nothing_to_compute(on_card):
    assert Tensor(np.zeros((0, 4), np.float32)).numpy().shape == (0, 4)
    assert (Tensor(np.zeros((0, 4), np.float32)) + 1).numpy().shape == (0, 4)


def test_no_memory_left_is_one_error_and_the_card_goes_on(own_card):
    evaluator = Device(own_card(vram_bytes=512 << 20))
    with device(evaluator):
        spare = [Tensor(np.zeros(10 << 20, np.float32)).contiguous().realize() for _ in range(3)]
        del spare
        gc.collect()
        assert evaluator.pool.idle_bytes >= 120 << 20
        with pytest.raises(OutOfMemory, match=r"1 GiB asked for tensor") as caught:
            Tensor.ones(1 << 28).contiguous().realize()
        assert caught.value.__context__ is None
        # The pool freed its idle memory before it gave up.
        assert evaluator.pool.idle_bytes == 0
        assert (Tensor([1.0, 2.0]) + 1).tolist() == [2, 3]
        # 300 MiB did not fit beside the idle memory.
        large = Tensor.ones(75 << 20).contiguous().realize()
        assert large[-1].item() == 1


def test_a_card_that_is_lost_in_a_run_is_reported_and_is_no_hang(own_card):
    card = own_card()
    with device(Device(card)):
        x = Tensor(X)
        for _ in range(3):
            x = (x @ Tensor(WEIGHTS) @ Tensor(WEIGHTS).T).tanh()
        # Compile and translate the kernels before the loss.
        x.realize()
        again = Tensor(Y)
        for _ in range(3):
            again = (again @ Tensor(WEIGHTS) @ Tensor(WEIGHTS).T).tanh()
        began = card.device.clock.now_us
        card.device.clock.after(30, card.device.unplug)
        with pytest.raises(DeviceLost, match="virtual:navi31 is gone from the bus"):
            again.numpy()
        assert card.device.clock.now_us - began < 1_000_000
        with pytest.raises(DeviceLost):
            (x + 1).numpy()


def test_sizes_are_taken_in_steps_so_that_freed_pieces_fit_again():
    assert rounded(1) == MIN_BYTES
    for size in (1, 255, 256, 257, 1000, 4096, 5000, 1 << 20, (1 << 20) + 1, 123_456_789):
        found = rounded(size)
        assert found >= size
        assert found % MIN_BYTES == 0
        assert found <= max(MIN_BYTES, size * 1.25 + MIN_BYTES)
        assert rounded(found) == found


def test_a_pool_gives_a_freed_piece_again(card):
    pool = Pool(card)
    first = pool.take(1000)
    place = first.gpu_va
    del first
    gc.collect()
    second = pool.take(1001)
    assert second.gpu_va == place
    assert pool.held_bytes == rounded(1001)
    second.write(b"abc")
    assert second.read()[:3] == b"abc"
    del second
    gc.collect()
    pool.trim()
    assert pool.held_bytes == 0


def test_a_closed_card_is_named(own_card):
    card = own_card()
    evaluator = Device(card)
    with device(evaluator):
        there, later, host = Tensor(X).contiguous().realize(), Tensor(X) + 1, Tensor(Y)
        place = there.node.arg.data
        assert "bytes at 0x" in repr(place)
        card.close()
        with pytest.raises(
            ValueError, match=r"lay in the memory of virtual:navi31, which was closed: .* copy tensors to the host"
        ) as caught:
            there.numpy()
        assert caught.value.__context__ is None
        for asked in (later, host * 2, there + 1):
            with pytest.raises(ValueError, match=r"computing tensors on virtual:navi31: it was closed; open it again"):
                asked.numpy()
        with pytest.raises(ValueError, match="computing tensors on virtual:navi31: it was closed"):
            there.assign(host).realize()
        # The tensor never went to that card.
        np.testing.assert_array_equal(host.numpy(), Y)
        assert "of virtual:navi31, closed" in repr(place)
        evaluator.pool.trim()
        assert evaluator.pool.idle_bytes == 0


def test_a_name_that_is_no_size_and_a_value_that_is_no_number_are_refused(on_card):
    n = Size("n", 1, 33)
    part = Tensor(X)[:n].sum(0)
    for asked in (part.numpy, part.tolist, part.sum().item):
        with pytest.raises(ValueError, match=r"m=3: the tensor has no size m; it has n \(1 to 33\)"):
            asked(n=2, m=3)
    with pytest.raises(ValueError, match=r"m=3: the tensor has no size m"):
        part.realize(sizes={"m": 3})
    with pytest.raises(ValueError, match=r"n=3: the tensor has no size n; none of its sizes is open"):
        Tensor([1.0]).numpy(n=3)
    with pytest.raises(ValueError, match=r"n=3: the tensor has no size n; none of its sizes is open"):
        (Tensor([1.0]) + 1).numpy(n=3)
    for value in (2.0, "2", None, True):
        with pytest.raises(TypeError, match=r"n is a whole number, 1 to 33, not"):
            part.numpy(n=value)
    for value in (0, 34, -1, 1 << 70):
        with pytest.raises(ValueError, match=f"n is {value}, outside of 1 to 33"):
            part.numpy(n=value)
    with pytest.raises(ValueError, match=r"n \(1 to 33\) has no value; there are none: give it by its name, n=…"):
        part.numpy()
    close(part.numpy(n=np.int64(4)), X[:4].sum(0))


def test_tensors_that_lie_on_another_card_are_brought_to_the_one_that_computes(card, own_card):
    """The tensors take part in kept graphs beside the card's own, are assigned to, and go back. A closed card is named
    in the error.
    """
    here, there = Device(card), Device(own_card())
    values = np.arange(12, dtype=np.float32).reshape(3, 4)

    def made(evaluator):
        with device(evaluator):
            return (Tensor(values) * 2).realize()

    one, other = made(here), made(there)
    for evaluator in (there, here, there):
        with device(evaluator):
            close((one + other + 1).numpy(), values * 4 + 1)
    with device(here):
        other[0] = 7
        close(other.numpy(), np.concatenate([np.full((1, 4), 7), values[1:] * 2]))
        close((other - one).numpy(), np.concatenate([7 - values[:1] * 2, np.zeros((2, 4))]))
    with device(there):
        one.realize()
        gone = (Tensor(values) + 1).realize()
    there.card.close()
    with device(here), pytest.raises(ValueError, match="which was closed"):
        (gone * 3).numpy()
