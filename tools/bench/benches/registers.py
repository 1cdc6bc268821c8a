"""The register database: opening a chip's, and finding registers by name in all its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import median

RUNS = 7
JOB = {"task": "lookups", "chip": "navi31", "first": "CP_HQD_PQ_CONTROL", "seed": 11, "count": 2000}
OPEN_NOTE = "peer: importing its 28 register tables, then a dictionary of the block gc_11_0_0"
LOOKUP_NOTE = (
    "random names of all blocks, each looked up for the first time; peer: a dictionary of the "
    "registers it chose of gc_11_0_0"
)
ROWS = (  # figure, key of both answers, unit, goal, note
    ("open navi31", "open_ms", "ms", 5.0, OPEN_NOTE),
    ("open navi31 and find its first register", "first_ms", "ms", 5.0, OPEN_NOTE),
    ("a register by name, with its offset", "place_us", "us", 10.0, LOOKUP_NOTE),
    ("a register by name, with its fields", "fields_us", "us", 10.0, LOOKUP_NOTE),
)


def measure(bench: Bench) -> Iterator[Figure]:
    """Open and look up in fresh interpreters, ringup and tinygrad in turn."""
    bench.say("registers of navi31")
    ours, peers = [], []
    bench.fresh.call("ringup.tools.bench.ours", JOB)  # writes the bytecode
    for _ in range(RUNS):
        ours.append(bench.fresh.call("ringup.tools.bench.ours", JOB))
        answer = bench.peer.call("registers", JOB)
        peers += [] if answer is None else [answer]
    for name, key, unit, goal, note in ROWS:
        peer = median([answer[key] for answer in peers]) if peers else None
        yield Figure(name, unit, median([answer[key] for answer in ours]), peer, Goal("ours", goal), note=note)
