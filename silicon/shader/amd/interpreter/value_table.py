"""The ALUs of a shader core as pure functions: `VALUES[mnemonic](ctx, *sources)`.

Sources are `ins.uses` in the order of the assembly text. They include destinations that are also read (`both`), and
implied and hidden operands: v_fmac_f32 gets vdst, src0, src1; v_cndmask_b32 src0, src1, mask; v_add_co_ci_u32 src0,
src1, mask; v_div_fmas_f32 three sources and VCC; v_fmamk_f32 src0, literal, src1. Each source is an array over all
lanes, with scalars and constants repeated: `uint32` (a 16-bit operand's half is already moved down, see
`Operand.high`), `uint64` for 64 bits, (lanes, dwords) `uint32` for wider ones, `bool` for masks (operand type `mask`).
`modify(ins, operand, value)` has been applied to it. Integer immediates (simm16) are given as in `Operand.bits`.

A vector function returns the values of `ins.defs`, a tuple if there are several (v_swap_b32, carries, v_div_scale_f32).
16-bit results are in the low half, and the caller keeps the register's other half. A mask is a `bool` array, in which
the caller clears inactive lanes (v_cmpx_* writes EXEC). `finish(ctx, value)` then applies omod and clamp of floats; the
function has already clamped integers. Inactive lanes hold anything.

A scalar function takes and returns ints: `(result, scc)`, None for what keeps its value; *_saveexec_* and *_wrexec_*
return `(result, scc, exec)`. s_cmov_* and s_cmovk_i32 return None as the result if SCC is 0.

Lane functions (`values/lanes.py`): v_readlane_b32 and v_readfirstlane_b32 return an int. v_writelane_b32 returns vdst
for all lanes and ignores EXEC. v_permlane* return vdst and apply EXEC and op_sel (fi, bound_ctrl). v_s_* have a scalar
result, that of the first lane. v_wmma_* and v_swmmac_* write all lanes and ignore EXEC; matrices of a wave64 have half
as many registers as those of a wave32 (`decode.of_wave`).
The caller applies DPP, and the registers that M0 selects (v_movrel*, v_swaprel_b32). A VOPD part is the base mnemonic
(`base_mnemonic`).
"""

from __future__ import annotations

import numpy as np

from ringup.silicon.shader.amd.interpreter.mfma import CDNA4_MFMA, MFMA
from ringup.silicon.shader.amd.interpreter.mfma_scaled import SCALED
from ringup.silicon.shader.amd.interpreter.valu_matrix import MATRIX
from ringup.silicon.shader.amd.values.cdna import CDNA
from ringup.silicon.shader.amd.values.cdna4 import CDNA4
from ringup.silicon.shader.amd.values.compare import COMPARE
from ringup.silicon.shader.amd.values.context import Ctx, Scalar, Vector, finish, has_modifiers, modify
from ringup.silicon.shader.amd.values.convert import CONVERT
from ringup.silicon.shader.amd.values.divide import DIVIDE
from ringup.silicon.shader.amd.values.eight_bits import EIGHT_BITS
from ringup.silicon.shader.amd.values.float_arithmetic import FLOAT
from ringup.silicon.shader.amd.values.integers import INT
from ringup.silicon.shader.amd.values.lanes import LANES
from ringup.silicon.shader.amd.values.packed import PACKED
from ringup.silicon.shader.amd.values.salu import SALU
from ringup.silicon.shader.amd.values.scalar_floats import SCALAR_FLOATS
from ringup.silicon.shader.amd.values.transcendental import TRANSCENDENTAL

__all__ = [
    "CDNA4_VALUES",
    "CDNA_VALUES",
    "GCN_VALUES",
    "VALUES",
    "Ctx",
    "base_mnemonic",
    "finish",
    "has_modifiers",
    "modify",
]

# NumPy warns about ordinary results of hardware: overflow, 0/0, NaN to integer.
_quiet = np.errstate(all="ignore")
VALUES: dict[str, Vector | Scalar] = {
    name: _quiet(run)
    for table in (FLOAT, DIVIDE, TRANSCENDENTAL, COMPARE, CONVERT, EIGHT_BITS, PACKED, MATRIX, SCALAR_FLOATS)
    for name, run in table.items()
}
VALUES |= INT | LANES | SALU
# Those of CDNA: some names mean something else there.
CDNA_VALUES: dict[str, Vector | Scalar] = VALUES | {name: _quiet(run) for name, run in (CDNA | MFMA).items()}
_WITHOUT_XF32 = {name: run for name, run in CDNA_VALUES.items() if "xf32" not in name}
CDNA4_VALUES = _WITHOUT_XF32 | {name: _quiet(run) for name, run in (CDNA4 | CDNA4_MFMA | SCALED).items()}
# By generation; the others have `VALUES`.
GCN_VALUES = {"CDNA 3": CDNA_VALUES, "CDNA 4": CDNA4_VALUES}


def base_mnemonic(mnemonic: str) -> str:
    """Return the mnemonic whose function an instruction uses: v_add_f32 for v_dual_add_f32."""
    return mnemonic.replace("v_dual_", "v_")
