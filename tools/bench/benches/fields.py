"""Struct fields and bit-fields: get, set, construction, first touch, filling a whole struct; the same statements for
all libraries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringup.errors import RingupError
from ringup.tools.bench import sample
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import loop_ns, median

ROUNDS = 9
FIRST_TOUCHES = 60
FIRST_TOUCH_GOAL_NS = 500.0  # a later touch plus cold caches
PLAIN_GOAL = Goal("ratio", 1 / 1.5)
BIT_GOAL = Goal("ratio", 1 / 2)
FILL_GOAL = Goal("ratio", 5)


@dataclass(frozen=True)
class Loop:
    """A statement, how many accesses it makes, how often a round runs it, and the goal against ctypes. `ours`
    replaces it for ringup.
    """

    statement: str
    accesses: int = 1
    loops: int = 20_000
    goal: Goal | None = None
    ours: str = ""


def _by_path() -> str:
    """Return the assignments that fill the struct field by field, each named by its path."""
    places = [(i, j) for i in range(sample.PARTS) for j in range(sample.FIELDS)]
    return "\n".join(f"s.p{i}.f{j} = values[{i * sample.FIELDS + j}]" for i, j in places)


def _part_by_part() -> str:
    """Return the same with each part looked up once."""
    parts = [f"q = s.p{i}\n{_fields('q', i * sample.FIELDS)}" for i in range(sample.PARTS)]
    return "\n".join(parts)


def _fields(view: str, first: int) -> str:
    return "\n".join(f"{view}.f{j} = values[{first + j}]" for j in range(sample.FIELDS))


PACK = "S.pack_into(memory, 0, *values)"
LOOPS = {
    "plain get": Loop("p.f0; p.f1; p.f2; p.f3", 4, goal=PLAIN_GOAL),
    "plain set": Loop("p.f0 = v0; p.f1 = v1; p.f2 = v2; p.f3 = v3", 4, goal=PLAIN_GOAL),
    "nested get": Loop("s.p3.f2", goal=PLAIN_GOAL),
    "nested set": Loop("s.p3.f2 = v2", goal=PLAIN_GOAL),
    "bit-field get": Loop("b.f0; b.f1; b.f2; b.f3", 4, goal=BIT_GOAL),
    "bit-field set": Loop("b.f0 = w0; b.f1 = w1; b.f2 = w2; b.f3 = w3", 4, goal=BIT_GOAL),
    "make a struct of 200 fields": Loop("S()"),
    "lay a view over a buffer": Loop("lay(memory)"),
    "fill 200 fields": Loop(_by_path(), loops=400, goal=FILL_GOAL, ours=PACK),
    "fill 200 fields, parts held": Loop(_part_by_part(), loops=400, goal=FILL_GOAL, ours=PACK),
    "fill 20 bit-fields": Loop(_fields("b", 0), loops=2_000, ours="B.pack_into(bits, 0, *values)"),
}
FILLED = {"fill 200 fields": "memory", "fill 200 fields, parts held": "memory", "fill 20 bit-fields": "bits"}


def names_of(loop: str) -> dict[str, Any]:
    """Return the values that the statement of a loop uses."""
    values, bits = sample.VALUES, sample.BIT_VALUES
    scalars = {f"v{i}": value for i, value in enumerate(values)} | {f"w{i}": value for i, value in enumerate(bits)}
    filling = (
        bits * (sample.FIELDS // 4) if FILLED.get(loop) == "bits" else values * (sample.PARTS * sample.FIELDS // 4)
    )
    return {**scalars, "values": filling}


def measure(bench: Bench) -> Iterator[Figure]:
    """Run every loop with ringup, ctypes, cffi and tinygrad, a round of each in turn."""
    sides = {"ours": sample.ours(), "ctypes": sample.with_ctypes(), "cffi": sample.with_cffi()}
    check_same_layout(sides)
    rounds: list[Mapping[str, Mapping[str, float]]] = []
    for i in range(ROUNDS):
        bench.say(f"round {i + 1} of {ROUNDS}")
        times: dict[str, Mapping[str, float]] = {side: run_loops(names, side) for side, names in sides.items()}
        peer = bench.peer.call("fields", _job())
        rounds.append(times if peer is None else {**times, "tinygrad": peer})
    for name, loop in LOOPS.items():
        for beside in ("tinygrad", "ctypes", "cffi"):
            goal = loop.goal if beside == "ctypes" else None
            yield _figure(rounds, name, beside, goal)
    for name, goal in (
        ("first touch of a field", Goal("ours", FIRST_TOUCH_GOAL_NS)),
        ("new struct type to first touch", None),
    ):
        for beside in ("tinygrad", "ctypes"):
            yield _figure(rounds, name, beside, goal if beside == "tinygrad" else None)


def _figure(rounds: list[Mapping[str, Mapping[str, float]]], name: str, beside: str, goal: Goal | None) -> Figure:
    ours = median([times["ours"][name] for times in rounds])
    theirs = [times[beside][name] for times in rounds if beside in times]
    title = name if beside == "tinygrad" else f"{name} vs {beside}"
    return Figure(title, "ns", ours, median(theirs) if theirs else None, goal, beside=beside)


def run_loops(names: Mapping[str, Any], side: str) -> dict[str, float]:
    """Time every loop once with one library: nanoseconds for each access."""
    times = {}
    for name, loop in LOOPS.items():
        statement = loop.ours if side == "ours" and loop.ours else loop.statement
        times[name] = loop_ns(statement, {**names, **names_of(name)}, loop.loops) / loop.accesses
    if "new" in names:
        times["first touch of a field"], times["new struct type to first touch"] = first_touch_ns(names["new"])
    return times


def first_touch_ns(new: Callable[[], Any]) -> tuple[float, float]:
    """Time the first read of a field of a new type, and everything from making the type to that read, minus the cost of
    the clock.
    """
    clock = time.perf_counter_ns
    touches, wholes, clocks = [], [], []
    for _ in range(FIRST_TOUCHES):
        start = clock()
        made = new()()
        before = clock()
        made.f10  # noqa: B018 - the read that is timed
        after = clock()
        clocks.append(clock() - after)
        touches.append(after - before)
        wholes.append(after - start)
    return max(median(touches) - median(clocks), 0), median(wholes) - median(clocks)


def check_same_layout(sides: Mapping[str, Mapping[str, Any]]) -> None:
    """Fill the struct with every library and compare the bytes. A different layout ends the bench."""
    for name, memory in FILLED.items():
        written = {}
        for side, names in sides.items():
            loop = LOOPS[name]
            names[memory][:] = bytes(len(names[memory]))
            exec(loop.ours if side == "ours" else loop.statement, {**names, **names_of(name)})
            written[side] = bytes(names[memory])
        if len(set(written.values())) != 1:
            raise RingupError(f"bench fields: {name}: {', '.join(written)} do not write the same bytes")


def _job() -> dict[str, Any]:
    """Return what tinygrad needs to build the same struct and run the same statements."""
    loops = {name: [loop.statement, loop.accesses, loop.loops, names_of(name)] for name, loop in LOOPS.items()}
    ours, writes = sample.ours(), {}
    for name, memory in FILLED.items():
        exec(LOOPS[name].ours, {**ours, **names_of(name)})
        writes[name] = [memory, bytes(ours[memory]).hex()]
    return {
        "part": list(sample.part_rows()),
        "part_bytes": sample.PART_BYTES,
        "parts": sample.PARTS,
        "bit_rows": list(sample.bit_rows()),
        "bit_bytes": sample.BIT_BYTES,
        "loops": loops,
        "writes": writes,
        "first_touches": FIRST_TOUCHES,
    }
