"""The budget for longer live ranges: how many more registers may be live without a loss of occupancy, in the present
order of the steps.
"""

from __future__ import annotations

from functools import cached_property

from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.registers.liveness import _bits, _flow, _summary


class RegisterBudget:
    """The VGPRs that are live at each step of a program, counted for a block on first use."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._row, code = limits(program.code.target), program.code
        self._group = (code.lds_bytes, code.group_size, code.wave_size)
        self._live_out: list[int] | None = None
        self._counts: dict[int, list[int]] = {}
        # At least what the group's size and LDS leave.
        self._budget = self._budget_of(1)
        self._exact = False

    def reserve(self, block: int, first: int, last: int, dwords: int) -> bool:
        """Return whether `dwords` more may be live from step `first` to step `last` of a block. If so, they count from
        now on.
        """
        counts = self._counts.get(block)
        if counts is None:
            counts = self._counts[block] = self._count(block)
        most = max(counts[first:last], default=0) + dwords
        if most > self._budget and not self._exact:
            self._exact = True
            peak = max(max(self._counts.get(b) or self._count(b), default=0) for b in range(len(self._edges)))
            self._budget = max(self._budget, self._budget_of(peak))
        if most > self._budget:
            return False
        counts[first:last] = [count + dwords for count in counts[first:last]]
        return True

    @cached_property
    def _vector(self) -> frozenset[int]:
        """Return the units of all VGPRs."""
        base, regs = self._program.base, self._program.regs
        return frozenset([unit for reg in regs if reg.bank == "v" for unit in range(base[reg], base[reg] + reg.count)])

    @cached_property
    def _edges(self) -> list[tuple[int, ...]]:
        return self._program.edges()

    def _budget_of(self, vgprs: int) -> int:
        wave_size = self._group[2]
        return self._row.budget(self._row.occupancy(vgprs, *self._group), wave_size)

    def _count(self, block: int) -> list[int]:
        """Return the number of VGPRs that are live after each step of a block."""
        vector = self._vector
        live = {unit for unit in self._leaving(block) if unit in vector}
        counts = []
        for step in reversed(self._program.blocks[block]):
            live.update(vector.intersection(step.writes))
            counts.append(len(live))
            live.difference_update(step.writes)
            live.update(vector.intersection(step.reads))
        counts.reverse()
        return counts

    def _leaving(self, block: int) -> list[int]:
        """Return the units that are live at a block's end."""
        if not self._edges[block]:
            return []
        if self._live_out is None:
            summaries = [_summary(steps, set()) for steps in self._program.blocks]
            self._live_out = _flow(self._edges, [one[0] for one in summaries], [one[1] for one in summaries])[1]
        return _bits(self._live_out[block])
