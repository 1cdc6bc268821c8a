"""Single instructions that the interpreter executes for translated code, on the state of the same warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.shader.common.state import MemoryFault, Violation
from ringup.silicon.shader.nv.interpreter.engine import executed
from ringup.silicon.shader.nv.interpreter.step import Machine, RuleBroken, Step
from ringup.silicon.shader.nv.state import PREDICATES, Group, Warp
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.layout import Field

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.nv.decoding.instruction import Instruction

    Words = NDArray[np.uint32]


class SingleSteps:
    """The warps of the resident groups, as the interpreter sees them. `shared` and `local` are those of each group."""

    def __init__(
        self, launch: Launch, machine: Machine, states: Words, shared: NDArray[np.uint8], local: Words | None
    ) -> None:
        self._launch, self._machine = launch, machine
        self._states, self._shared, self._local = states, shared, local
        self._groups: dict[int, Group] = {}

    def _group(self, number: int, ident: tuple[int, int, int]) -> Group:
        found = self._groups.get(number)
        if found is None:
            shared = self._shared[number, : self._launch.shared_bytes]
            # Translated code does not note which bytes of shared memory were written.
            found = self._groups[number] = Group(self._launch, ident, shared, np.ones(shared.size, np.bool_))
            found.local = None if self._local is None else self._local[number]
            count = self._launch.registers
            found.warps = [Warp(found, warp, count, 0, 0, words) for warp, words in enumerate(self._states[number])]
        found.ident = ident
        return found

    def execute(
        self, ins: Instruction, pc: int, group: int, ident: tuple[int, int, int], warp: int, cycle: int
    ) -> Violation | None:
        """Execute an instruction; return the rule that it breaks. Raises `Unmodelled`."""
        one, words = self._group(group, ident).warps[warp], self._states[group, warp]
        one.turn = cycle
        one.active, one.alive = int(words[Field.ACTIVE]), int(words[Field.ALIVE])
        for number in range(PREDICATES - 1):
            one.predicates[number] = int(words[layout.PREDICATES + number])
            one.uniform_predicates[number] = bool(words[layout.UNIFORM_PREDICATES + number])
        try:
            executed(Step(ins, pc, one, self._machine))
        except RuleBroken as broken:
            return Violation(broken.kind, pc, ins.text, one.name, broken.detail, broken.lane, broken.gpu_va)
        except MemoryFault as fault:
            return Violation("memory", pc, ins.text, one.name, str(fault), None, fault.gpu_va)
        words[layout.PREDICATES : layout.PREDICATES + PREDICATES - 1] = one.predicates[:-1]
        words[layout.UNIFORM_PREDICATES : layout.UNIFORM_PREDICATES + PREDICATES - 1] = one.uniform_predicates[:-1]
        return None
