"""Kernels of the check, in SASS of ringup's own, as a cubin that its assembler makes. No compiler of NVIDIA's is used.

add(a, b, c, n): c[i] = a[i] + b[i], of 32 bits. reverse(a, at): 128 words, through dynamic shared memory at byte `at`.
counts(a): atomically adds 1 in each thread. local(a, at): a[i] = i + 1000, through word `at` (below 64) of local
memory. load(a, from): a[0] = the word at `from`. No instruction's result is read before its stall or barrier allows it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ringup.compiler.isa.sass import assembly, cubin_write
from ringup.compiler.isa.sass.cubin import Generation
from ringup.queues.nv.rows import BankLayout
from ringup.tools.bench.metal.steps import LeftOut

LOCAL_WORDS = 64
BLOCK = 128
# what the text below was written for. From sm_100 on constants are read by other instructions
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
# from sm_90 on an address in registers alone is written with the uniform register that is zero: Mesa NAK, OpAtom
RED, RED_HOPPER = "RED.E.ADD.STRONG.GPU [R2]", "REDG.E.ADD.STRONG.GPU [R2.64+URZ]"
SOURCE = """
.target {target}

.kernel add
.registers 16
.parameter 8
.parameter 8
.parameter 8
.parameter 4
  [B------:R-:W0:Y:S02] S2R R0, SR_CTAID.X
  [B------:R-:W1:Y:S02] S2R R3, SR_TID.X
  [B01----:R-:W-:Y:S06] IMAD R0, R0, c[0x0][0x0], R3
  [B------:R-:W-:Y:S13] ISETP.GE.U32.AND P0, PT, R0, c[0x0][{params:#x}+0x18], PT
  [B------:R-:W-:Y:S06] @P0 EXIT
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, c[0x0][{params:#x}]
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R4, R0, R7, c[0x0][{params:#x}+0x8]
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R8, R0, R7, c[0x0][{params:#x}+0x10]
  [B------:R-:W0:Y:S02] LDG.E{sys} R10, [R2]
  [B------:R-:W1:Y:S02] LDG.E{sys} R11, [R4]
  [B01----:R-:W-:Y:S06] IADD3 R10, R10, R11, RZ
  [B------:R0:W-:Y:S02] STG.E{sys} [R8], R10
  [B0-----:R-:W-:Y:S05] EXIT

.kernel reverse
.registers 16
.barriers 1
.parameter 8
.parameter 4
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B------:R-:W-:Y:S06] MOV R9, c[0x0][{params:#x}+0x8]
  [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, c[0x0][{params:#x}]
  [B------:R-:W-:Y:S06] IMAD R4, R0, 0x4, R9
  [B------:R-:W0:Y:S02] LDG.E{sys} R5, [R2]
  [B0-----:R0:W-:Y:S02] STS [R4], R5
  [B0-----:R-:W-:Y:S06] IADD3 R6, -R4, 0x1fc, R9
  [B------:R-:W-:Y:S06] IADD3 R6, R6, R9, RZ
  [B------:R-:W-:Y:S06] BAR.SYNC.DEFER_BLOCKING 0x0
  [B------:R-:W1:Y:S02] LDS R8, [R6]
  [B-1----:R0:W-:Y:S02] STG.E{sys} [R2], R8
  [B0-----:R-:W-:Y:S05] EXIT

.kernel counts
.registers 16
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, c[0x0][{params:#x}]
  [B------:R-:W-:Y:S06] MOV R3, c[0x0][{params:#x}+0x4]
  [B------:R-:W-:Y:S06] MOV R4, 0x1
  [B------:R0:W-:Y:S02] {red}, R4
  [B0-----:R-:W-:Y:S05] EXIT

.kernel local
.registers 16
.frame 256
.parameter 8
.parameter 4
  [B------:R-:W-:Y:S06] MOV R1, c[0x0][{stack:#x}]
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] IADD3 R1, R1, -0x100, RZ
  [B------:R-:W-:Y:S06] MOV R5, c[0x0][{params:#x}+0x8]
  [B------:R-:W-:Y:S06] IMAD R6, R5, 0x4, R1
  [B0-----:R0:W-:Y:S02] STL [R6], R0
  [B0-----:R-:W1:Y:S02] LDL R8, [R6]
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, c[0x0][{params:#x}]
  [B-1----:R-:W-:Y:S06] IADD3 R8, R8, 0x3e8, RZ
  [B------:R0:W-:Y:S02] STG.E{sys} [R2], R8
  [B0-----:R-:W-:Y:S05] EXIT

.kernel load
.registers 16
.parameter 8
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, c[0x0][{params:#x}]
  [B------:R-:W-:Y:S06] MOV R3, c[0x0][{params:#x}+0x4]
  [B------:R-:W-:Y:S06] MOV R4, c[0x0][{params:#x}+0x8]
  [B------:R-:W-:Y:S06] MOV R5, c[0x0][{params:#x}+0xc]
  [B------:R-:W0:Y:S02] LDG.E{sys} R6, [R4]
  [B0-----:R0:W-:Y:S02] STG.E{sys} [R2], R6
  [B0-----:R-:W-:Y:S05] EXIT
"""
SUM = re.compile(r"\[(0x[0-9a-f]+)\+(0x[0-9a-f]+)\]")


@lru_cache
def cubin(target: str, bank: BankLayout) -> bytes:
    """Return the kernels as a cubin. Raises `LeftOut` for a target that the text was not written for."""
    if target not in TARGETS:
        raise LeftOut(f"the kernels of this check are written for {', '.join(TARGETS)}, not for {target}")
    source = SOURCE.format(
        target=target,
        params=bank.params,
        stack=bank.stack_top,
        sys=".SYS" if target == "sm_75" else "",
        red=RED_HOPPER if target == "sm_90" else RED,
    )
    # `c[0x0][0x160+0x18]` as one number, as the assembler reads it
    source = SUM.sub(lambda found: f"[{int(found[1], 16) + int(found[2], 16):#x}]", source)
    made = assembly.assemble(source, "the check's kernels")
    return cubin_write.write(made.kernels, target, Generation.CUDA_12, made.data, made.addresses)
