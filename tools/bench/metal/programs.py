"""Kernels of the check and of benches, in SASS of our own.

add(a, b, c, n): c[i] = a[i] + b[i], of 32 bits. reverse(a, at): 128 words, through dynamic shared memory at byte `at`.
counts(a): atomically adds 1 in each thread. local(a, at): a[i] = i + 1000, through word `at` (below 64) of local
memory. load(a, from): a[0] = the word at `from`. No instruction's result is read before its stall or barrier allows it.
"""

from __future__ import annotations

from ringup.tools.bench.metal.steps import LeftOut
from ringup.tools.common.sass_text import TARGETS, cubin_of

LOCAL_WORDS = 64
BLOCK = 128
ADD = """
.kernel add
.registers 16
.parameter 8
.parameter 8
.parameter 8
.parameter 4
  [B------:R-:W0:Y:S02] S2R R0, SR_CTAID.X
  [B------:R-:W1:Y:S02] S2R R3, SR_TID.X
  [B01----:R-:W-:Y:S06] IMAD R0, R0, c[0x0][0x0], R3
  [B------:R-:W-:Y:S13] ISETP.GE.U32.AND P0, PT, R0, {24}, PT
  [B------:R-:W-:Y:S06] @P0 EXIT
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, {0}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R4, R0, R7, {8}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R8, R0, R7, {16}
  [B------:R-:W0:Y:S02] LDG.E{sys} R10, [R2]
  [B------:R-:W1:Y:S02] LDG.E{sys} R11, [R4]
  [B01----:R-:W-:Y:S06] IADD3 R10, R10, R11, RZ
  [B------:R0:W-:Y:S02] STG.E{sys} [R8], R10
  [B0-----:R-:W-:Y:S05] EXIT
"""
REVERSE = """
.kernel reverse
.registers 16
.barriers 1
.parameter 8
.parameter 4
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B------:R-:W-:Y:S06] MOV R9, {8}
  [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, {0}
  [B------:R-:W-:Y:S06] IMAD R4, R0, 0x4, R9
  [B------:R-:W0:Y:S02] LDG.E{sys} R5, [R2]
  [B0-----:R0:W-:Y:S02] STS [R4], R5
  [B0-----:R-:W-:Y:S06] IADD3 R6, -R4, 0x1fc, R9
  [B------:R-:W-:Y:S06] IADD3 R6, R6, R9, RZ
  [B------:R-:W-:Y:S06] BAR.SYNC.DEFER_BLOCKING 0x0
  [B------:R-:W1:Y:S02] LDS R8, [R6]
  [B-1----:R0:W-:Y:S02] STG.E{sys} [R2], R8
  [B0-----:R-:W-:Y:S05] EXIT
"""
COUNTS = """
.kernel counts
.registers 16
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, {0}
  [B------:R-:W-:Y:S06] MOV R3, {4}
  [B------:R-:W-:Y:S06] MOV R4, 0x1
  [B------:R0:W-:Y:S02] {red}, R4
  [B0-----:R-:W-:Y:S05] EXIT
"""
LOCAL = """
.kernel local
.registers 16
.frame 256
.parameter 8
.parameter 4
  [B------:R-:W-:Y:S06] MOV R1, {stack}
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] IADD3 R1, R1, -0x100, RZ
  [B------:R-:W-:Y:S06] MOV R5, {8}
  [B------:R-:W-:Y:S06] IMAD R6, R5, 0x4, R1
  [B0-----:R0:W-:Y:S02] STL [R6], R0
  [B0-----:R-:W1:Y:S02] LDL R8, [R6]
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, {0}
  [B-1----:R-:W-:Y:S06] IADD3 R8, R8, 0x3e8, RZ
  [B------:R0:W-:Y:S02] STG.E{sys} [R2], R8
  [B0-----:R-:W-:Y:S05] EXIT
"""
LOAD = """
.kernel load
.registers 16
.parameter 8
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, {0}
  [B------:R-:W-:Y:S06] MOV R3, {4}
  [B------:R-:W-:Y:S06] MOV R4, {8}
  [B------:R-:W-:Y:S06] MOV R5, {12}
  [B------:R-:W0:Y:S02] LDG.E{sys} R6, [R4]
  [B0-----:R0:W-:Y:S02] STG.E{sys} [R2], R6
  [B0-----:R-:W-:Y:S05] EXIT
"""
SOURCE = ADD + REVERSE + COUNTS + LOCAL + LOAD


def cubin(target: str) -> bytes:
    """Return the kernels as a cubin. Raises `LeftOut` for a target that the texts were not written for."""
    if target not in TARGETS:
        raise LeftOut(f"the kernels of this check are written for {', '.join(TARGETS)}, not for {target}")
    return cubin_of(SOURCE, target, "the check's kernels")
