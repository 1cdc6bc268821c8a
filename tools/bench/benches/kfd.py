"""Launches on a card that stays with the kernel's amdgpu, beside tinygrad's through the same /dev/kfd, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.queues import SOURCE
from ringup.tools.bench.benches.shader import compiled
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.on_card import open_card
from ringup.tools.bench.plain_memory import BLOCK, GRID
from ringup.tools.bench.timing import cpu_us, median

ROUNDS, GROUPS = 3, 9
GROUP = 100  # launches that are timed together
BYTES = 4096
HELD_NOTE = (
    "CPU time of a launch among 100 whose doorbell is rung once, behind them: what Python costs, without the store "
    "that a virtual machine traps"
)
RUNG_NOTE = "CPU time with the doorbell of each; in a virtual machine most of it is the trap"
ORDER_NOTE = "each launch sees what the one before stored: ours by the queue's order, the peer's by its signal"
Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """A figure: its key in both answers, and in tinygrad's where that differs."""

    name: str
    key: str
    goal: Goal | None
    note: str
    peer_key: str = ""


FOUR = Goal("ratio", 4)
ROWS = (
    Row("append a dispatch, arguments packed", "append_us", FOUR, "ours may run at once; the peer's are ordered"),
    Row("append a dispatch and a barrier", "ordered_us", FOUR, "", "append_us"),
    Row("eager launch", "eager_us", FOUR, f"{HELD_NOTE}; {ORDER_NOTE}"),
    Row("eager launch through an HSA queue", "aql_us", FOUR, f"{HELD_NOTE}; the peer uses PM4", "eager_us"),
    Row("submit a launch, built before", "submit_us", FOUR, HELD_NOTE),
    Row("submit a kept launch", "kept_us", None, f"{HELD_NOTE}; the peer: built before, not kept", "submit_us"),
    Row("eager launch, each rung", "eager_rung_us", None, RUNG_NOTE),
    Row("submit a launch, each rung", "submit_rung_us", None, RUNG_NOTE),
    Row("eager launch until the host knows that it ended", "wait_us", None, "wall clock"),
)


class _Held:
    """A doorbell that is rung once, at the end."""

    def __init__(self, queue: Any) -> None:
        self._doorbell, self._value = queue.doorbell, 0

    def __enter__(self) -> None:
        self._ring = self._doorbell.ring
        self._doorbell.ring = self._keep

    def _keep(self, value: int) -> None:
        self._value = value

    def __exit__(self, *error: object) -> None:
        self._doorbell.ring = self._ring
        self._ring(self._value)


def measure(bench: Bench) -> Iterator[Figure]:
    """Time both, a round of each in turn, each on the median of its groups."""
    groups = 2 if bench.quick else GROUPS
    ours: list[Mapping[str, float]] = []
    peers: list[Mapping[str, float]] = []
    with open_card(bench) as card:
        code = compiled(SOURCE, card.info.target)
        job = {"code": code.hex(), "name": "add", "grid": GRID, "block": BLOCK, "group": GROUP, "groups": groups}
        for i in range(1 if bench.quick else ROUNDS):
            bench.say(f"round {i + 1}")
            ours.append(run(card, code, groups))
            answer = bench.peer.call("kfd", job)
            peers += [] if answer is None else [answer]
    for row in ROWS:
        peer = median([answer[row.peer_key or row.key] for answer in peers]) if peers else None
        yield Figure(row.name, "us", median([answer[row.key] for answer in ours]), peer, row.goal, note=row.note)


def run(card: Any, code: bytes, groups: int) -> dict[str, float]:
    """Time our launches: microseconds by the keys of `ROWS`."""
    kernel = card.load(code, "add").only()
    data = [card.alloc(BYTES) for _ in range(3)]
    compute, aql = card.compute, card.aql
    arguments = [*data, BYTES // 4]

    def stream(queue: Any, count: int = 1, *, ordered: bool = False) -> Any:
        made = queue.stream()
        for _ in range(count):
            made.dispatch(kernel, GRID, BLOCK, arguments)
            if ordered:
                made.barrier()
        return made

    built = stream(compute)
    kept = compute.keep(stream(compute), GROUP)
    works: dict[str, tuple[Any, Work, bool]] = {
        "eager_us": (compute, lambda: compute.submit(stream(compute)), True),
        "aql_us": (aql, lambda: aql.submit(stream(aql)), True),
        "submit_us": (compute, lambda: compute.submit(built), True),
        "kept_us": (compute, kept.submit, True),
        "eager_rung_us": (compute, lambda: compute.submit(stream(compute)), False),
        "submit_rung_us": (compute, lambda: compute.submit(built), False),
    }
    rounds: dict[str, list[float]] = {}
    for queue, work, _ in works.values():
        work()
        queue.idle()
    for _ in range(groups):
        found = {key: _timed(*work) for key, work in works.items()}
        found["append_us"] = cpu_us(lambda: stream(compute, GROUP), 1) / GROUP
        found["ordered_us"] = cpu_us(lambda: stream(compute, GROUP, ordered=True), 1) / GROUP
        start = time.perf_counter_ns()
        compute.submit(stream(compute)).wait()
        found["wait_us"] = (time.perf_counter_ns() - start) / 1e3
        for key, took in found.items():
            rounds.setdefault(key, []).append(took)
    kept.free()
    card.memory.free(*data)
    kernel.program.free()
    return {key: median(took) for key, took in rounds.items()}


def _timed(queue: Any, work: Work, held: bool) -> float:
    """Time a group of launches; the card does them afterwards, or meanwhile."""
    if held:
        with _Held(queue):
            took = cpu_us(work, GROUP)
    else:
        took = cpu_us(work, GROUP)
    queue.idle()
    return took
