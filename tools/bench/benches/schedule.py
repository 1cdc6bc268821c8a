"""Schedules: how many kernels graphs of tensors need and how many bytes these move, compared with tinygrad's schedule
of the same graphs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.compile import mine, peers
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.models import SEVERAL

NO_MORE = Goal("ratio", 1)
NOTE = "each kernel counted with the whole of every distinct buffer that it reads or writes"
MEASURED = (
    "matmul 1024",
    "softmax",
    "layer norm",
    "attention",
    "transformer block",
    "decoder step",
    "ResNet-18",
    *SEVERAL,
)
EXCUSED = {  # graphs without a goal: fewer kernels or bytes would be slower
    "LSTM": "tinygrad makes each output again in every one of the 1024 columns of the next product",
}


def measure(bench: Bench) -> Iterator[Figure]:
    """Schedule every graph once with each; the result is deterministic."""
    for graph in MEASURED:
        bench.say(graph)
        ours, theirs = mine(bench, graph), peers(bench, graph, compiles=False)
        kernels, moved = (theirs["kernels"], theirs["bytes"] / 1e6) if theirs is not None else (None, None)
        why = EXCUSED.get(graph, "")
        goal = None if why else NO_MORE
        yield Figure(f"{graph}: kernels", "kernels", ours["kernels"], kernels, goal, note=why)
        yield Figure(f"{graph}: memory moved", "MB", ours["bytes"] / 1e6, moved, goal, note=why or NOTE)
