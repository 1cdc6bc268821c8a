"""A compiled graph: what remains of it."""

import gc
import inspect
import sys
import threading

import numpy as np
import pytest

from ringup.compiler import compile as compile_module
from ringup.compiler.compile import compile_graph
from ringup.compiler.tensor import Tensor


def values(*shape):
    return Tensor(np.ones(shape, np.float32))


GRAPHS = {
    "product": lambda: (values(70, 40) @ values(40, 90)).relu(),
    "softmax": lambda: values(9, 300).softmax(1),
    "convolution": lambda: values(1, 8, 12, 12).conv2d(values(8, 8, 3, 3), padding=1).gelu(),
    "attention": lambda: values(1, 40, 16).scaled_dot_product_attention(values(1, 50, 16), values(1, 50, 16)),
    "matrix units": lambda: values(64, 64).cast("float16") @ values(64, 64).cast("float16"),
    "running sum": lambda: values(5, 3000).cumsum(1),
    "order": lambda: values(5, 300).argsort(1),
    "whole numbers": lambda: (values(50).cast("int64") // 7 % 5).sort(0)[0],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_waits_for_the_collector(name):
    """Thousands of instructions in a reference cycle would cost every user a twentieth of the time, and would hold the
    graph's memory until a collection.
    """
    node = GRAPHS[name]().node
    gc.collect()
    gc.disable()
    try:
        compile_graph([node])
        assert gc.collect() == 0
    finally:
        gc.enable()


OTHER = values(8)
# All steps, and one of them.
CHAINS = {
    "sums": (20_000, lambda x: x + OTHER),
    "turned around": (1000, lambda x: x.flip(0).neg()),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_long_chain_compiles_within_the_usual_depth_of_calls(name):
    limit = sys.getrecursionlimit()
    x = values(8)
    count, step = CHAINS[name]
    for _ in range(count):
        x = step(x)
    assert len(x.node.ordered()) >= count
    assert len(compile_graph([x.node]).launches) == 1
    assert sys.getrecursionlimit() == limit


def test_indices_nested_in_each_other_compile_within_a_quarter_of_the_usual_depth_of_calls():
    x = values(3)
    for _ in range(400):
        size = x.shape[0]
        x = x.reshape(1, size).expand(2, size).reshape(2 * size)[: size + 1]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + limit // 4)
    try:
        assert len(compile_graph([x.node]).launches) == 1
    finally:
        sys.setrecursionlimit(limit)


def test_two_threads_compile_at_once_what_one_does(monkeypatch):
    monkeypatch.setattr(compile_module, "_kernels", {})
    nodes = {name: make().node for name, make in GRAPHS.items()}
    alone = {name: compile_graph([node]) for name, node in nodes.items()}
    # The same kernels again and again, with others in between.
    compile_module._kernels.clear()
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    found = {}

    def compile_all(names):
        for name in names:
            found[threading.get_ident(), name] = compile_graph([nodes[name]])

    threads = [threading.Thread(target=compile_all, args=(order,)) for order in (list(nodes), list(nodes)[::-1])]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert len(found) == 2 * len(nodes)
    for (_, name), graph in found.items():
        assert graph == alone[name]
        assert graph.code_object() == alone[name].code_object()


def test_compiling_leaves_the_collector_as_it_is():
    """The collector belongs to the process. Another thread may have switched it on or off meanwhile."""
    seen = []
    compile_graph([GRAPHS["matrix units"]().node], watch=lambda _: seen.append((gc.isenabled(), gc.get_threshold())))
    assert seen == [(gc.isenabled(), gc.get_threshold())]


def test_a_result_without_elements_launches_nothing():
    """A kernel that is launched for nothing would store an element behind its buffer."""
    empty, some = Tensor(np.zeros((0, 3), np.float32)), Tensor(np.ones((3, 4), np.float32))
    for made in (empty + 1, empty.cat(empty), empty.cumsum(0), empty @ some, empty.softmax(), empty.sort().values):
        compiled = compile_graph([made.node], "gfx1100")
        assert (compiled.launches, compiled.arena_bytes) == ((), 0)
    both = compile_graph([(empty + 1).node, (some + 1).node], "gfx1100")
    assert [launch.memory[0].at for launch in both.launches] == [1]
