"""The benches of compile time and schedules: their graphs, the answers of each side, and the figures made of them.
These tests check no measured time.
"""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from ringup.tools.bench import models, ours
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches import compile as compiling
from ringup.tools.bench.benches import schedule
from ringup.tools.competitor.environment import SCRIPTS, Peer

SHAPES = {
    "matmul 1024": (1024, 1024),
    "softmax": (1024, 1024),
    "layer norm": (1024, 1024),
    "transformer block": (1, 256, 512),
    "transformer block, GELU by erf": (1, 256, 512),
    "ResNet-18": (1, 1000),
    "decoder step": (1, 1, 1000),
    "attention": (1, 8, 256, 64),
    "attention f16": (1, 8, 256, 64),
    "attention of one query": (1, 8, 1, 64),
    "attention of one query f16": (1, 8, 1, 64),
    "matmul f16": (1024, 1024),
    "conv": (1, 64, 56, 56),
}


class Side:
    """Gives prepared answers, one after the other, and records what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def call(self, what, job):
        self.asked.append((what, dict(job)))
        return self.answers[len(self.asked) - 1 if len(self.answers) > 1 else 0]


def answer(cpu_s, kernels=3, moved=2_000_000):
    return {"wall_s": 2 * cpu_s, "cpu_s": cpu_s, "kernels": kernels, "bytes": moved}


def bench(fresh, peer, *, quick=False):
    return Bench(sources=None, peer=peer, fresh=fresh, quick=quick, say=lambda text: None)


def rows(figures):
    return {row["name"]: row for row in (json.loads(one.as_json()) for one in figures)}


@pytest.mark.parametrize("graph", models.GRAPHS)
def test_every_graph_is_built_with_its_shape(graph):
    assert tuple(models.GRAPHS[graph](models.Maker(ours.kit())).shape) == SHAPES[graph]


def test_the_graphs_are_loaded_by_the_peer_without_anything_of_ours():
    text = Path(models.__file__).read_text(encoding="utf-8")
    assert "import ringup" not in text
    assert "from ringup" not in text
    spec = spec_from_file_location("peer_graphs", SCRIPTS / "graphs.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    try:
        loaded = script.models(models.__file__)
        assert set(loaded.GRAPHS) == set(models.GRAPHS)
        assert set(loaded.SEVERAL) == set(models.SEVERAL)
    finally:
        del sys.modules["models"]


def test_our_side_counts_kernels_and_the_bytes_of_their_buffers():
    found = ours.graph({"graph": "matmul 1024", "target": "gfx1100"})
    assert (found["kernels"], found["bytes"]) == (1, 3 * 4 << 20)
    assert found["cpu_s"] > 0
    assert found["wall_s"] > 0


@pytest.mark.parametrize("graph", models.SEVERAL)
def test_graphs_of_several_results_are_compiled_as_one(graph):
    made = models.results(graph, models.Maker(ours.kit()))
    found = ours.graph({"graph": graph, "target": "gfx1100"})
    assert len(made) > 1
    assert found["kernels"] >= 1
    assert found["bytes"] >= max(one.size * 4 for one in made)


def test_a_step_of_an_optimiser_reads_its_state_and_does_not_make_it():
    """The optimiser's state lies in memory before the step. Otherwise our graph would have kernels that fill it with
    zeros.
    """
    made = models.results("perceptron, a step of AdamW", models.Maker(ours.kit()))
    states = [one for one in made[1:] if one.node.op.value == "after"]
    assert len(states) == 3 * 6
    assert all(one.node.sources[0].op.value == "buffer" for one in states)


def test_a_buffer_counts_once_for_each_kernel_that_touches_it():
    found = ours.graph({"graph": "attention", "target": "gfx1100"})
    assert found["kernels"] >= 1
    # Each touches three inputs and the output.
    assert found["bytes"] >= 4 * 8 * 256 * 64 * 4


def test_compile_times_are_medians_and_sides_take_turns():
    times = [answer(one) for one in (5.0, 1.0, 2.0, 4.0, 3.0)] * len(compiling.MEASURED)
    peer = Side(answer(12.0))
    fresh = Side(*times)
    found = rows(compiling.measure(bench(fresh, peer)))
    assert list(found) == list(compiling.MEASURED)
    row = found["matmul 1024"]
    assert (row["unit"], row["ours"], row["peer"], row["ratio"], row["met"]) == ("CPU s", 3.0, 12.0, 4.0, True)
    assert found["ResNet-18"]["goal"] == "ratio >= 10"
    assert found["ResNet-18"]["met"] is False
    assert len(fresh.asked) == len(peer.asked) == compiling.ROUNDS * len(compiling.MEASURED)
    assert fresh.asked[0] == ("ringup.tools.bench.ours", {"task": "graph", "graph": "matmul 1024", "target": "gfx1100"})
    assert peer.asked[0] == (
        "graphs",
        {"graph": "matmul 1024", "target": "gfx1100", "compile": True, "models": models.__file__},
    )


def test_a_quick_run_compiles_once_and_without_a_peer_ratios_are_unknown():
    fresh = Side(answer(1.5))
    found = rows(compiling.measure(bench(fresh, Peer(None), quick=True)))
    assert len(fresh.asked) == len(compiling.MEASURED)
    assert {(row["ours"], row["peer"], row["ratio"], row["met"]) for row in found.values()} == {(1.5, None, None, None)}


def test_schedules_are_compared_by_kernels_and_bytes():
    found = rows(schedule.measure(bench(Side(answer(1.0, 4, 3_000_000)), Side(answer(1.0, 3, 6_000_000)))))
    row = found["ResNet-18: kernels"]
    assert (row["ours"], row["peer"], row["ratio"], row["met"]) == (4, 3, 0.75, False)
    row = found["ResNet-18: memory moved"]
    assert (row["unit"], row["ours"], row["peer"], row["ratio"], row["met"]) == ("MB", 3.0, 6.0, 2.0, True)
    assert "met" not in found["LSTM: kernels"]
    assert found["LSTM: kernels"]["note"] == schedule.EXCUSED["LSTM"]
    assert set(found) == {f"{graph}: {what}" for graph in schedule.MEASURED for what in ("kernels", "memory moved")}


def test_schedules_without_a_peer_say_ours_alone():
    found = rows(schedule.measure(bench(Side(answer(1.0)), Peer(None))))
    assert {row["peer"] for row in found.values()} == {None}
