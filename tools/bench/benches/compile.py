"""Compile time: graphs of tensors to a code object, first run in a fresh process, compared with tinygrad, which
compiles the same graphs through LLVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ringup.tools.bench import models
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import median

TARGET = "gfx1100"
ROUNDS, QUICK_ROUNDS = 5, 1
SMALL, LARGE = Goal("ratio", 3), Goal("ratio", 10)
MEASURED = {  # graph: goal
    "matmul 1024": SMALL,
    "softmax": SMALL,
    "layer norm": SMALL,
    "transformer block": SMALL,
    "transformer block, GELU by erf": SMALL,
    "ResNet-18": LARGE,
}


def note(rounds: int) -> str:
    """Return what the figures mean."""
    return (
        f"CPU time from building the graph to the code object for {TARGET}, no card, each time in a fresh process, "
        "imports not counted; "
        f"median of {rounds}, sides in turn; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; "
        "peer: its null device, LLVM -O2, one process"
    )


def measure(bench: Bench) -> Iterator[Figure]:
    """Compile every graph on both sides, a round of each in turn."""
    rounds = QUICK_ROUNDS if bench.quick else ROUNDS
    for graph, goal in MEASURED.items():
        ours, theirs = [], []
        for i in range(rounds):
            bench.say(f"{graph}, round {i + 1} of {rounds}")
            ours.append(mine(bench, graph)["cpu_s"])
            answer = peers(bench, graph, compiles=True)
            if answer is not None:
                theirs.append(answer["cpu_s"])
        yield Figure(graph, "CPU s", median(ours), median(theirs) if theirs else None, goal, note=note(rounds))


def mine(bench: Bench, graph: str) -> Any:
    """Return the result of a fresh interpreter for a graph."""
    return bench.fresh.call("ringup.tools.bench.ours", {"task": "graph", "graph": graph, "target": TARGET})


def peers(bench: Bench, graph: str, *, compiles: bool) -> Any:
    """Return tinygrad's result for a graph, or None without tinygrad. It schedules, and compiles if asked."""
    return bench.peer.call("graphs", {"graph": graph, "target": TARGET, "compile": compiles, "models": models.__file__})
