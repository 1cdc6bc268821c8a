"""Random graphs of dispatches on queues of HSA, PM4 and copies. They wait for each other by signals, barriers of all
kinds and points, and give NumPy's results.
"""

import random

import numpy as np
import pytest

import ringup
from ringup.queues.amd.aql import Condition
from ringup.silicon import card as virtual

SOURCE = """
#define X __builtin_amdgcn_workitem_id_x()
__kernel void mix(__global uint *o, __global uint *a, __global uint *b, uint n) { o[X] = a[X] * 3 + (b[X] ^ n); }
"""
LANES, BUFFERS, NODES = 64, 8, 150


class Node:
    """A dispatch, and how later ones wait for it: `signal`, if it has one, is 0 when it has ended; `point` is that of
    its stream.
    """

    def __init__(self, stream, signal=None, point=None):
        self.stream, self.signal, self.point = stream, signal, point


class Graph:
    """Buffers with NumPy twins, and the nodes that wrote and read each last."""

    def __init__(self, card, program, rng):
        self.card, self.program, self.rng = card, program, rng
        # neighbours are on different pipes, so that a queue that waits stops no other
        self.aql = [card.aql, card.new_aql_queue(), card.new_aql_queue()]
        self.buffers = [
            card.alloc(4 * LANES, ("vram", "host")[n % 2 * (not card.device.polls_vram)]) for n in range(BUFFERS)
        ]
        self.twins = [np.arange(LANES, dtype=np.uint32) * (n + 1) for n in range(BUFFERS)]
        self.wrote = [Node(None, point=self.fill(n)) for n in range(BUFFERS)]
        self.read = [[] for _ in range(BUFFERS)]

    def fill(self, n):
        return self.card.copy.upload(self.buffers[n], self.twins[n].tobytes())

    def node(self, number):
        """Submit a stream of one or more dispatches of one kind of queue."""
        rng, card = self.rng, self.card
        queue = rng.choice([*self.aql, *self.aql, card.compute])
        stream, nodes = queue.stream(), []
        for part in range(rng.randrange(1, 4)):
            out, first, second = rng.sample(range(BUFFERS), 3)
            before = {id(one): one for n in (out, first, second) for one in [self.wrote[n]]}
            before |= {id(one): one for one in self.read[out]}
            if part:
                stream.barrier()
            self.wait(queue, stream, list(before.values()))
            args = [*(self.buffers[n] for n in (out, first, second)), number]
            after = Node(stream)
            if queue is card.compute:
                stream.dispatch(self.program["mix"], 1, LANES, args)
            else:
                after.signal = card.signal(1, rng.choice([None, "vram"]))
                stream.dispatch(self.program["mix"], 1, LANES, args, completion=after.signal)
            self.twins[out] = self.twins[first] * np.uint32(3) + (self.twins[second] ^ np.uint32(number))
            self.wrote[out], self.read[out] = after, []
            self.read[first].append(after)
            self.read[second].append(after)
            nodes.append(after)
        point = queue.submit(stream)
        for node in nodes:
            node.point = point

    def wait(self, queue, stream, before):
        """Wait for nodes: those of this stream are behind a barrier already."""
        rng = self.rng
        others = [one for one in before if one.stream is not stream]
        with_signal = [one for one in others if one.signal is not None and queue is not self.card.compute]
        for one in others:
            if one not in with_signal or rng.random() < 0.3:
                stream.wait_for(one.point)
        signals = [one.signal for one in with_signal]
        how = rng.randrange(3)
        if how == 0 and signals:
            stream.barrier_and(*signals)
        elif how == 1:
            for signal in signals:
                stream.barrier_or(signal)
        else:
            for signal in signals:
                stream.barrier_value(signal, Condition.LT, 1)


def opened(path):
    """Return a card over PCI, one whose caches can be stale, or one behind a bridge."""
    if path != "stale":
        return ringup.open({"PCI": "virtual:navi31", "USB": "virtual:navi33@asm2464pd"}[path], kind=ringup.Radeon)
    radeon = virtual("navi31", vram_bytes=1 << 30, caches=True)
    return ringup.open(radeon.name, kind=ringup.Radeon, transport={"card": radeon})


@pytest.mark.parametrize("path", ["PCI", "stale", "USB"])
@pytest.mark.seeds(1)
def test_random_graphs_end_as_numpy_says(path, opencl, seed):
    rng = random.Random(f"aql graph {seed}")
    with opened(path) as card, np.errstate(over="ignore"):
        graph = Graph(card, card.load(opencl(SOURCE, card.info.target)), rng)
        for number in range(NODES if path != "USB" else NODES // 5):
            graph.node(number)
        for queue in card.queues:
            queue.idle()
        for n in range(BUFFERS):
            got = card.copy.download_array(graph.buffers[n], np.uint32, LANES)
            assert np.array_equal(got, graph.twins[n])
        assert card.mistakes == []
