"""The start of a kernel: the contents of registers, the layout of arguments in memory, and the loads of the arguments.

Source: AMDGPUUsage, "Initial Kernel Execution State": s[0:1] hold the address of the arguments (user SGPR
kernarg_segment_ptr). The group's numbers that the descriptor enables follow. v0 holds the thread's numbers x 9:0, y
19:10, z 29:20. Groups are flat here: y and z are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.amd.instructions.code import Reg
from ringup.compiler.amd.select.emitter import Emitter, part
from ringup.compiler.amd.select.memory import load_scalars
from ringup.compiler.machine.ir import Param, Value, walk

# Widths of one load of arguments. A wider one would hold more SGPRs for as long as one of its arguments is live.
_RUN_DWORDS = (8, 4, 2, 1)


def kernarg_layout(params: Sequence[Param]) -> tuple[tuple[int, ...], int]:
    """Return the byte offset of each argument, aligned to its size (at least 4), and the size of
    all, a multiple of 8.
    """
    offsets, end = [], 0
    for one in params:
        size_bytes = max(4, one.type.size_bytes)
        end = -(-end // size_bytes) * size_bytes
        offsets.append(end)
        end += size_bytes
    return tuple(offsets), -(-end // 8) * 8


class Prologue:
    """The registers that have a value at the start, and the places of arguments."""

    def __init__(self, e: Emitter) -> None:
        self._e = e
        self.kernarg = Reg("s", 2, name="kernarg", fixed=0)
        self.thread_id = e.leaves["thread_id"] = Reg("v", name="thread_id", fixed=0)
        leaves = [one for one in walk(e.function.body) if type(one) is Value and not one.args and e.known.uses.get(one)]
        axes = {one.imm for one in leaves if one.op == "group_id"}
        self.group_ids = (0 in axes, 1 in axes, 2 in axes)
        self.inputs = [self.kernarg, self.thread_id]
        if e.row.group_ids is None:
            for axis, wanted in enumerate(self.group_ids):
                if wanted:
                    e.leaves[f"group_id_{axis}"] = made = Reg("s", name=f"group_id_{axis}", fixed=len(self.inputs))
                    self.inputs.append(made)
        offsets, self.kernarg_bytes = kernarg_layout(e.function.params)
        self._runs: list[tuple[Reg, int]] = []
        self._place_arguments(offsets, sorted({one.imm for one in leaves if one.op == "param"}))

    def _place_arguments(self, offsets: tuple[int, ...], used: list[int]) -> None:
        """Assign each used argument to its part of a run of dwords that one load fetches."""
        e = self._e
        at = {number: (offsets[number] // 4, max(1, e.function.params[number].type.size_bytes // 4)) for number in used}
        wanted = sorted(first + i for first, count in at.values() for i in range(count))
        run_of: dict[int, tuple[Reg, int]] = {}
        i = 0
        while i < len(wanted):
            length = 1
            while i + length < len(wanted) and wanted[i + length] == wanted[i] + length:
                length += 1
            first, left = wanted[i], length
            i += length
            while left:
                width = next(one for one in _RUN_DWORDS if one <= left and first % min(one, 4) == 0)
                run = Reg("s", width, name=f"arguments_{first * 4}")
                self._runs.append((run, first * 4))
                for dword in range(width):
                    run_of[first + dword] = run, dword
                first, left = first + width, left - width
        for number, (first, count) in at.items():
            run, dword = run_of[first]
            e.params[number] = part(run, dword, count)

    def emit(self) -> None:
        """Emit the loads of the arguments."""
        for run, offset_bytes in self._runs:
            load_scalars(self._e, run, self.kernarg, None, offset_bytes)
