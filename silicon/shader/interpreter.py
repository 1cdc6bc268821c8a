"""The reference engine: one instruction of one wave at a time, by the ISA document, every rule checked as it happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ringup.errors import Unmodelled
from ringup.silicon.shader.state import Counters, Dispatch, Events, Memory, Violation, WaveState

if TYPE_CHECKING:
    from ringup.silicon.shader.launch import Group


class Exit(Enum):
    """What a wave does after an instruction. Its PC is that of the next instruction, except after FAULT: of the one that broke a rule."""

    NEXT = "goes on, at once"
    YIELD = "goes on; others should run first: s_sleep, a branch backwards"
    BARRIER = "waits for its group"
    END = "has ended"
    HALT = "is halted"
    FAULT = "broke a rule: the last of Machine.violations"


@dataclass(slots=True)
class Machine:
    """What is common to the waves of a dispatch."""

    dispatch: Dispatch
    memory: Memory
    events: Events
    strict: bool = True
    counters: Counters = field(default_factory=Counters)
    violations: list[Violation] = field(default_factory=list)


def step_one(wave: WaveState, group: Group, machine: Machine) -> Exit:
    """Execute exactly the instruction at the wave's PC on the wave's own words.

    The group's LDS and `machine.memory` are accessed at once and results land at once; rules that need a wave's history (in-flight loads,
    uninitialised registers) are checked only by `Interpreter`, which keeps it. Memory faults, alignment, illegal code are always found.
    """
    raise Unmodelled(f"instruction of {wave.name} in {group.ident} of {machine.dispatch}")
