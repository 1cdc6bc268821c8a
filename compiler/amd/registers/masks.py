"""Tracks which lanes are active: the EXEC masks of structured code as a tree of nested states.

A vector instruction under a narrowed EXEC keeps the other lanes of its destination. Whether that matters depends on
where else the register is used. `states` numbers the masks so that liveness can find out. State 0 is the mask at the
start of the wave.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from ringup.compiler.amd.instructions.effects import EXEC_HI, EXEC_LO, SCC
from ringup.compiler.amd.instructions.steps import Program, Step

# A state that is not nested in any other, and in which no other is nested.
UNKNOWN = -1
_NARROWS = re.compile(r"s_and_saveexec|s_and_not0_saveexec|s_and_b|s_and_not1_b|v_cmpx_")


class States(NamedTuple):
    """`at[block]`: the state at a block's start. `changes[block]`: a list of (index, state after it). `parent[state]`:
    the enclosing mask.
    """

    at: list[int]
    changes: list[list[tuple[int, int]]]
    parent: list[int]

    def within(self, inner: int, outer: int) -> bool:
        """Return whether every lane of `inner` is a lane of `outer`."""
        while inner > outer:
            inner = self.parent[inner]
        return inner == outer and outer != UNKNOWN


def states(program: Program) -> States | None:
    """Number the EXEC masks; return None if the kernel never changes EXEC.

    A restore is recognised by its source: a register that only a saveexec (or a move of EXEC) writes. Anything else
    that writes EXEC creates a new state. It is nested in the old one if it can only clear lanes, and unrelated
    otherwise.
    """
    blocks = program.blocks
    writers = [[i for i, step in enumerate(steps) if EXEC_LO in step.writes] for steps in blocks]
    if not any(writers):
        return None
    return _Masks(program, writers).walk()


class _Masks:
    def __init__(self, program: Program, writers: list[list[int]]) -> None:
        self.program, self.writers = program, writers
        self.parent = [UNKNOWN]
        self.saved: dict[tuple[int, ...], int] = {}
        self.times = Counter(unit for steps in program.blocks for step in steps for unit in step.writes)
        self.whole_waves = program.code.group_size % program.wave_size == 0

    def walk(self) -> States:
        """Walk the blocks forwards. In structured code, a block is entered from above or from its own loop's end."""
        blocks, edges = self.program.blocks, self.program.edges()
        at, seen = [UNKNOWN] * len(blocks), [False] * len(blocks)
        at[0], seen[0] = 0, True
        changes: list[list[tuple[int, int]]] = [[] for _ in blocks]
        steady = True
        for number, steps in enumerate(blocks):
            state = at[number]
            for i, step in enumerate(steps):
                if EXEC_LO in step.writes:
                    before, state = state, self._after(step, state)
                    changes[number].append((i, state))
                    if "saveexec" in step.instr.mnemonic:
                        self.saved[_registers(step.writes)] = before
                elif EXEC_LO in step.reads and step.instr.mnemonic.startswith("s_mov_b"):
                    self.saved[step.writes] = state
            for after in edges[number]:
                if not seen[after]:
                    seen[after], at[after] = True, state
                elif at[after] != state:
                    steady = steady and after > number
                    at[after] = UNKNOWN
        # A loop iterates with a different mask: nothing is known anywhere.
        if not steady:
            at, self.parent = [UNKNOWN] * len(blocks), [UNKNOWN] * len(self.parent)
            changes = [[(i, UNKNOWN) for i, _ in some] for some in changes]
        return States(at, changes, self.parent)

    def _after(self, step: Step, state: int) -> int:
        name, sources = step.instr.mnemonic, _registers(step.reads)
        if (
            name.startswith(("s_mov_b", "s_or_b"))
            and sources in self.saved
            and all(self.times[unit] == 1 for unit in sources)
        ):
            return self.saved[sources]
        if name.startswith("s_mov_b") and step.instr.operands[-1] == -1 and self.whole_waves:
            return 0
        self.parent.append(
            state if _NARROWS.match(name) and (EXEC_LO in step.reads or name.startswith("v_")) else UNKNOWN
        )
        return len(self.parent) - 1


def _registers(units: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(unit for unit in units if unit not in (SCC, EXEC_LO, EXEC_HI))
