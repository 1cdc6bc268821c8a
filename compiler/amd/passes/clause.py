"""Inserts s_clause before runs of memory instructions of one kind: the hardware then issues the run without
instructions of another wave between.

Source: RDNA3 ISA reference, "Instruction Clauses"; LLVM SIInsertHardClauses.cpp and AMDGPU.td,
FeatureMaxHardClauseLength32 (gfx11).
"""

from __future__ import annotations

from typing import Final

from ringup.compiler.amd.instructions.code import Instr
from ringup.compiler.amd.instructions.steps import Program, Step

LONGEST: Final = 32
KINDS: Final = {
    ("global", "read"): "load",
    ("scratch", "read"): "load",
    ("global", "write"): "store",
    ("scratch", "write"): "store",
    ("scalar", "read"): "scalar",
}


def insert_clauses(program: Program) -> int:
    """Insert s_clause before every run of two or more; return how many were inserted."""
    count = 0
    for b, steps in enumerate(program.blocks):
        made: list[Step] = []
        i = 0
        while i < len(steps):
            kind = KINDS.get((steps[i].effects.memory, steps[i].effects.access))
            end = i + 1
            if kind is not None:
                while (
                    end < len(steps)
                    and end - i < LONGEST
                    and KINDS.get((steps[end].effects.memory, steps[end].effects.access)) == kind
                ):
                    end += 1
                if end - i > 1:
                    made.append(program.step(Instr("s_clause", end - i - 1)))
                    count += 1
            made += steps[i:end]
            i = end
        program.blocks[b] = made
    return count
