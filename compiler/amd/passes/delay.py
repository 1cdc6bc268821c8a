"""Inserts s_delay_alu. It tells the hardware which earlier result the next instructions need, so that other waves can
issue in the meantime.

It is a hint: without it, the ALU itself stalls. Source: RDNA3 ISA reference, "ALU Instruction Software Scheduling",
"S_DELAY_ALU"; the latencies are those of `instructions/effects.py`. Memory instructions wait for vector results in
hardware (LLVM AMDGPUInsertDelayAlu.cpp) and get no hint.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import Instr
from ringup.compiler.amd.instructions.effects import VECTOR
from ringup.compiler.amd.instructions.steps import Program, Step

# How far back the codes reach: vector instructions, transcendental ones, and cycles of scalar ones.
VALU_BACK, TRANS_BACK, SALU_CYCLES = 4, 3, 3
# The code before the first one of each group. Source: table "S_DELAY_ALU Instruction Codes".
VALU_DEP, TRANS_DEP, SALU_DEP = 0, 4, 8
MAX_SKIPPED: Final = 5


class _Result(NamedTuple):
    """The writer of a register: its issue class, its number among vector (and among transcendental) instructions, and
    the cycle at which the result is ready.
    """

    kind: str
    vector: int
    trans: int
    ready: int


def insert_delays(program: Program) -> int:
    """Insert s_delay_alu before instructions whose operands are not ready yet; return how many were inserted. One
    instruction holds two delays where possible.
    """
    count = 0
    for b, steps in enumerate(program.blocks):
        made: list[Step] = []
        # The place in `made` of an s_delay_alu that can hold a second delay.
        open_at = -1
        written: dict[int, _Result] = {}
        vector = trans = cycle = 0
        for step in steps:
            effects = step.effects
            kind = effects.kind
            alu = kind in VECTOR or kind == "salu"
            # Vector memory instructions wait for all vector results in hardware.
            if effects.counters and kind not in ("salu", "smem"):
                written.clear()
            if alu and written:
                codes, until = _needs(step, written, vector, trans, cycle)
                cycle = max(cycle, until)
                for code in codes[:2]:
                    skipped = len(made) - open_at - 1 if open_at >= 0 else MAX_SKIPPED + 1
                    if skipped <= MAX_SKIPPED:
                        instr = made[open_at].instr
                        instr.operands[0] |= skipped << 4 | code << 7  # type: ignore[operator]
                        open_at = -1
                    else:
                        open_at = len(made)
                        made.append(program.step(Instr("s_delay_alu", code)))
                        count += 1
            if kind in VECTOR:
                vector += 1
                trans += kind == "trans"
            made.append(step)
            if alu:
                result = _Result(kind, vector, trans, cycle + effects.latency)
                for unit in step.writes:
                    written[unit] = result
            # A transcendental instruction occupies its own unit only.
            cycle += effects.cycles if alu and kind != "trans" else 1
        program.blocks[b] = made
    return count


def _needs(step: Step, written: dict[int, _Result], vector: int, trans: int, cycle: int) -> tuple[list[int], int]:
    """Return the codes of the results that a step must wait for, the longest wait first, and the cycle at which all are
    ready.
    """
    found: dict[int, int] = {}
    for unit in step.reads:
        result = written.get(unit)
        if result is None:
            continue
        wait = result.ready - cycle
        if wait <= 0:
            del written[unit]
            continue
        if result.kind == "salu":
            code = SALU_DEP + min(wait, SALU_CYCLES)
        elif result.kind == "trans":
            back = trans - result.trans + 1
            code = TRANS_DEP + back if back <= TRANS_BACK else 0
        else:
            if step.effects.kind == "salu":
                # A scalar instruction waits for vector results in hardware.
                continue
            back = vector - result.vector + 1
            code = VALU_DEP + back if back <= VALU_BACK else 0
        if code:
            found[code] = max(found.get(code, 0), wait)
    codes = sorted(found, key=lambda code: (-found[code], code))
    return codes, cycle + max(found.values(), default=0)
