"""Strict rules that are checked before a program runs: every path through its blocks keeps latencies and scoreboards.

At most `MAX_STATES` histories are followed before each block, and the rest is not looked at.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES
from ringup.silicon.shader.nv.interpreter.accesses import accesses
from ringup.silicon.shader.nv.strict.tracker import EVERY, HazardError, Tracker
from ringup.silicon.shader.nv.translator.program import successors

if TYPE_CHECKING:
    from ringup.silicon.shader.nv.decoding.instruction import Instruction
    from ringup.silicon.shader.nv.translator.program import Block

MAX_STATES = 64


class Broken(NamedTuple):
    """A broken rule: the place in bytes from the entry, the instruction, why."""

    at: int
    text: str
    detail: str


def hazard(target: str, blocks: dict[int, Block]) -> Broken | None:
    """Return the first hazard that is found, if any. Raises what the rules of instructions raise."""
    seen: dict[int, set[frozenset[object]]] = {start: set() for start in blocks}
    todo = deque([(0, Tracker(target))])
    while todo:
        start, tracker = todo.popleft()
        state = tracker.state()
        if state in seen[start] or len(seen[start]) >= MAX_STATES:
            continue
        seen[start].add(state)
        at = start
        for ins in blocks[start].instructions:
            try:
                _run(target, tracker, ins)
            except HazardError as error:
                return Broken(at, ins.text, str(error))
            at += WORD_BYTES
        for following in successors(blocks[start]):
            if following in blocks:
                todo.append((following, tracker.copy()))
    return None


def _run(target: str, tracker: Tracker, ins: Instruction) -> None:
    tracker.begin(ins)
    tracker.lanes(EVERY)
    for one in accesses(target, ins):
        if one.is_write:
            tracker.write(one.file, one.number)
        else:
            tracker.read(one.file, one.number, guard=one.is_guard)
    tracker.finish()
