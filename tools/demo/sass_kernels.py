"""The kernels of `ringup demo` for NVIDIA's cards, in SASS of our own, assembled by ringup.

Each operation is the one of the LLVM source in `kernels`, so that NumPy's results are equal to the bit. No instruction
reads a register before the stall or the scoreboard of its writer allows it.
"""

from __future__ import annotations

from ringup.tools.common.sass_text import cubin_of

# index of the thread, in R0
INDEX = """
  [B------:R-:W0:Y:S02] S2R R0, SR_CTAID.X
  [B------:R-:W1:Y:S02] S2R R3, SR_TID.X
  [B01----:R-:W-:Y:S06] IMAD R0, R0, c[0x0][0x0], R3
  [B------:R-:W-:Y:S06] MOV R7, 0x4
"""
# out, x, y, factor
SAXPY = """
.kernel saxpy
.registers 16
.parameter 8
.parameter 8
.parameter 8
.parameter 4
{index}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, {8}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R4, R0, R7, {16}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R8, R0, R7, {0}
  [B------:R-:W0:Y:S02] LDG.E{sys} R10, [R2]
  [B------:R-:W1:Y:S02] LDG.E{sys} R11, [R4]
  [B01----:R-:W-:Y:S06] FMUL R10, R10, {24}
  [B------:R-:W-:Y:S06] FADD R10, R10, R11
  [B------:R0:W-:Y:S02] STG.E{sys} [R8], R10
  [B0-----:R-:W-:Y:S05] EXIT
"""
# out, a, b, side. The row is the index divided by the side: half a step above, the rounded quotient is never too small
MATMUL = """
.kernel matmul
.registers 24
.parameter 8
.parameter 8
.parameter 8
.parameter 4
{index}
  [B------:R-:W-:Y:S06] MOV R5, {24}
  [B------:R-:W0:Y:S02] I2F.U32 R4, R0
  [B------:R-:W1:Y:S02] I2F.U32 R5, R5
  [B01----:R-:W-:Y:S06] FADD R4, R4, 0.5
  [B------:R-:W0:Y:S02] MUFU.RCP R5, R5
  [B0-----:R-:W-:Y:S06] FMUL R4, R4, R5
  [B------:R-:W0:Y:S02] F2I.U32.TRUNC.NTZ R4, R4
  [B0-----:R-:W-:Y:S06] IMAD R6, R4, {24}, RZ
  [B------:R-:W-:Y:S06] IADD3 R5, R0, -R6, RZ
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R6, R7, {8}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R8, R5, R7, {16}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R12, R0, R7, {0}
  [B------:R-:W-:Y:S06] MOV R10, RZ
  [B------:R-:W-:Y:S06] MOV R11, RZ
again_matmul:
  [B------:R-:W0:Y:S02] LDG.E{sys} R14, [R2]
  [B------:R-:W1:Y:S02] LDG.E{sys} R15, [R8]
  [B01----:R-:W-:Y:S06] FMUL R14, R14, R15
  [B------:R-:W-:Y:S06] FADD R10, R10, R14
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R7, 0x1, R2
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R8, R7, {24}, R8
  [B------:R-:W-:Y:S06] IADD3 R11, R11, 0x1, RZ
  [B------:R-:W-:Y:S13] ISETP.LT.U32.AND P0, PT, R11, {24}, PT
  [B------:R-:W-:Y:S06] @P0 BRA again_matmul
  [B------:R0:W-:Y:S02] STG.E{sys} [R12], R10
  [B0-----:R-:W-:Y:S05] EXIT
"""
# out, width (a power of two), steps, left, top, pixel. The first step is always taken: it begins at zero
MANDELBROT = """
.kernel mandelbrot
.registers 24
.parameter 8
.parameter 4
.parameter 4
.parameter 4
.parameter 4
.parameter 4
{index}
  [B------:R-:W-:Y:S06] MOV R4, {8}
  [B------:R-:W-:Y:S06] IADD3 R4, R4, -0x1, RZ
  [B------:R-:W0:Y:S02] POPC R5, R4
  [B------:R-:W-:Y:S06] LOP3.LUT R16, R0, R4, RZ, 0xc0, !PT
  [B0-----:R-:W-:Y:S06] SHF.R.U32.HI R17, RZ, R5, R0
  [B------:R-:W0:Y:S02] I2F.U32 R16, R16
  [B------:R-:W1:Y:S02] I2F.U32 R17, R17
  [B01----:R-:W-:Y:S06] FMUL R16, R16, {24}
  [B------:R-:W-:Y:S06] FMUL R17, R17, {24}
  [B------:R-:W-:Y:S06] FADD R16, R16, {16}
  [B------:R-:W-:Y:S06] FADD R17, R17, {20}
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R7, {0}
  [B------:R-:W-:Y:S06] MOV R8, RZ
  [B------:R-:W-:Y:S06] MOV R9, RZ
  [B------:R-:W-:Y:S06] MOV R10, RZ
  [B------:R-:W-:Y:S06] MOV R11, RZ
  [B------:R-:W-:Y:S06] MOV R12, RZ
again_mandelbrot:
  [B------:R-:W-:Y:S06] FMUL R15, R8, R9
  [B------:R-:W-:Y:S06] FMUL R15, R15, 2
  [B------:R-:W-:Y:S06] FADD R9, R15, R17
  [B------:R-:W-:Y:S06] FADD R14, R11, -R12
  [B------:R-:W-:Y:S06] FADD R8, R14, R16
  [B------:R-:W-:Y:S06] IADD3 R10, R10, 0x1, RZ
  [B------:R-:W-:Y:S06] FMUL R11, R8, R8
  [B------:R-:W-:Y:S06] FMUL R12, R9, R9
  [B------:R-:W-:Y:S06] FADD R13, R11, R12
  [B------:R-:W-:Y:S13] FSETP.LT.AND P0, PT, R13, 4, PT
  [B------:R-:W-:Y:S13] ISETP.LT.U32.AND P0, PT, R10, {12}, P0
  [B------:R-:W-:Y:S06] @P0 BRA again_mandelbrot
  [B------:R0:W-:Y:S02] STG.E{sys} [R2], R10
  [B0-----:R-:W-:Y:S05] EXIT
"""
SOURCES = {"saxpy": SAXPY, "matmul": MATMUL, "mandelbrot": MANDELBROT}
# chips of which a virtual card has run these texts
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89")


def compile_for(target: str, name: str) -> bytes:
    """Return a kernel of the demo as a cubin for one of `TARGETS`."""
    return cubin_of(SOURCES[name].replace("{index}", INDEX), target, f"the demo's {name}")
