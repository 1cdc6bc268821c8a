"""s_delay_alu: tells the hardware which earlier result the next instructions need, so that it lets other waves issue in
the meantime.

A hint: without it the ALU itself stalls. Source: RDNA3 ISA reference, "ALU Instruction Software Scheduling",
"S_DELAY_ALU"; latencies are those of `instructions/effects.py`. Memory instructions wait for vector results by
themselves (LLVM AMDGPUInsertDelayAlu.cpp) and get no hint.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.rdna.instructions.code import Instr
from ringup.compiler.rdna.instructions.effects import VECTOR
from ringup.compiler.rdna.instructions.steps import Program, Step

VALU_BACK, TRANS_BACK, SALU_CYCLES = 4, 3, 3  # how far the codes reach
VALU_DEP, TRANS_DEP, SALU_DEP = (
    0,
    4,
    8,
)  # the code before the first of each group. Source: table "S_DELAY_ALU Instruction Codes"
MAX_SKIPPED: Final = 5


class _Result(NamedTuple):
    """Who wrote a register: issue class, its number among vector (and among transcendental) instructions, cycle at
    which the result is there.
    """

    kind: str
    vector: int
    trans: int
    ready: int


def insert_delays(program: Program) -> int:
    """Put s_delay_alu before what needs results that are not there yet; two needs share one where they can. Return how
    many were put.
    """
    count = 0
    for b, steps in enumerate(program.blocks):
        made: list[Step] = []
        open_at = -1  # place in `made` of a hint that has room for a second need
        written: dict[int, _Result] = {}
        vector = trans = cycle = 0
        for step in steps:
            effects = step.effects
            kind = effects.kind
            alu = kind in VECTOR or kind == "salu"
            if effects.counters and kind not in ("salu", "smem"):
                written.clear()  # vector memory instructions wait until all vector results are there
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
            cycle += effects.cycles if alu and kind != "trans" else 1  # a transcendental keeps only its own unit
        program.blocks[b] = made
    return count


def _needs(step: Step, written: dict[int, _Result], vector: int, trans: int, cycle: int) -> tuple[list[int], int]:
    """Return the codes of what a step must be delayed for, the longest wait first, and the cycle when all of it is
    there.
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
                continue  # a scalar instruction waits for vector results by itself
            back = vector - result.vector + 1
            code = VALU_DEP + back if back <= VALU_BACK else 0
        if code:
            found[code] = max(found.get(code, 0), wait)
    codes = sorted(found, key=lambda code: (-found[code], code))
    return codes, cycle + max(found.values(), default=0)
