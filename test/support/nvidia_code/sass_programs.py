"""Programs for NVIDIA's cards in SASS of our own, as cubins that ringup's assembler makes.

They wait for everything that they use: no instruction's result is read before its stall or barrier allows it. Beside
add, counts and local of the check on metal: reverse(a): 128 words, through shared memory that the kernel itself has.
spin(a): runs until the word at `a` is not zero.
"""

from functools import cache

from ringup.tools.bench.metal import programs
from ringup.tools.common.sass_text import cubin_of

OWN = """
.kernel reverse
.registers 16
.barriers 1
.shared 512
.parameter 8
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R7, 0x4
  [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, {0}
  [B------:R-:W-:Y:S06] IMAD R4, R0, 0x4, RZ
  [B------:R-:W0:Y:S02] LDG.E{sys} R5, [R2]
  [B0-----:R0:W-:Y:S02] STS [R4], R5
  [B0-----:R-:W-:Y:S06] IADD3 R6, -R4, 0x1fc, RZ
  [B------:R-:W-:Y:S06] BAR.SYNC.DEFER_BLOCKING 0x0
  [B------:R-:W1:Y:S02] LDS R8, [R6]
  [B-1----:R0:W-:Y:S02] STG.E{sys} [R2], R8
  [B0-----:R-:W-:Y:S05] EXIT

.kernel spin
.registers 16
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, {0}
  [B------:R-:W-:Y:S06] MOV R3, {4}
again:
  [B------:R-:W0:Y:S02] LDG.E.STRONG.SYS R4, [R2]
  [B0-----:R-:W-:Y:S13] ISETP.EQ.U32.AND P0, PT, R4, RZ, PT
  [B------:R-:W-:Y:S06] @P0 BRA again
  [B------:R-:W-:Y:S05] EXIT
"""
SOURCE = programs.ADD + programs.COUNTS + programs.LOCAL + OWN


@cache
def cubin(target):
    """Return the kernels above as a cubin."""
    return cubin_of(SOURCE, target, "sass_programs")
