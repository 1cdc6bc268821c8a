"""Names that instruction texts use for numbers: hardware registers, messages, buffer formats, export targets, image
dimensions, cache policies.

Source: LLVM AMDGPUUsage and AMDGPUOperandSyntax ("hwreg", "msg", "fmt", "tgt", "dim", "th", "scope"), ISA documents.
The numbers of each processor come from llvm-mc 22, one value at a time.
"""

from __future__ import annotations

from typing import Final

GENERATIONS: Final = {"gfx1100": 11, "gfx1151": 11, "gfx1201": 12, "gfx942": 9, "gfx950": 9}

_HWREGS_11 = {
    1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 5: "HW_REG_GPR_ALLOC", 6: "HW_REG_LDS_ALLOC", 7: "HW_REG_IB_STS",
    15: "HW_REG_SH_MEM_BASES", 18: "HW_REG_PERF_SNAPSHOT_PC_LO", 19: "HW_REG_PERF_SNAPSHOT_PC_HI", 20: "HW_REG_FLAT_SCR_LO",
    21: "HW_REG_FLAT_SCR_HI", 23: "HW_REG_HW_ID1", 24: "HW_REG_HW_ID2", 27: "HW_REG_PERF_SNAPSHOT_DATA", 29: "HW_REG_SHADER_CYCLES",
}  # fmt: skip
_HWREGS_12 = {
    1: "HW_REG_WAVE_MODE", 2: "HW_REG_WAVE_STATUS", 4: "HW_REG_WAVE_STATE_PRIV", 5: "HW_REG_WAVE_GPR_ALLOC", 6: "HW_REG_WAVE_LDS_ALLOC",
    7: "HW_REG_IB_STS", 10: "HW_REG_PERF_SNAPSHOT_DATA", 11: "HW_REG_PERF_SNAPSHOT_PC_LO", 12: "HW_REG_PERF_SNAPSHOT_PC_HI",
    15: "HW_REG_PERF_SNAPSHOT_DATA1", 16: "HW_REG_PERF_SNAPSHOT_DATA2", 17: "HW_REG_WAVE_EXCP_FLAG_PRIV", 18: "HW_REG_WAVE_EXCP_FLAG_USER",
    19: "HW_REG_WAVE_TRAP_CTRL", 20: "HW_REG_WAVE_SCRATCH_BASE_LO", 21: "HW_REG_WAVE_SCRATCH_BASE_HI", 23: "HW_REG_WAVE_HW_ID1",
    24: "HW_REG_WAVE_HW_ID2", 26: "HW_REG_WAVE_SCHED_MODE", 29: "HW_REG_SHADER_CYCLES_LO", 30: "HW_REG_SHADER_CYCLES_HI",
    31: "HW_REG_WAVE_DVGPR_ALLOC_LO", 32: "HW_REG_WAVE_DVGPR_ALLOC_HI",
}  # fmt: skip
_HWREGS_9 = {
    1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 5: "HW_REG_GPR_ALLOC", 6: "HW_REG_LDS_ALLOC",
    7: "HW_REG_IB_STS", 15: "HW_REG_SH_MEM_BASES", 16: "HW_REG_TBA_LO", 17: "HW_REG_TBA_HI", 18: "HW_REG_TMA_LO", 19: "HW_REG_TMA_HI",
    20: "HW_REG_XCC_ID", 21: "HW_REG_SQ_PERF_SNAPSHOT_DATA", 22: "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
    23: "HW_REG_SQ_PERF_SNAPSHOT_PC_LO", 24: "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
}  # fmt: skip
HWREGS: Final = {11: _HWREGS_11, 12: _HWREGS_12, 9: _HWREGS_9}
# gfx11's names, which the assembler accepts for gfx12 too.
HWREG_ALIASES: Final = {
    12: {"HW_REG_MODE": 1, "HW_REG_STATUS": 2, "HW_REG_STATE_PRIV": 4, "HW_REG_GPR_ALLOC": 5, "HW_REG_LDS_ALLOC": 6, "HW_REG_HW_ID1": 23,
         "HW_REG_HW_ID2": 24, "HW_REG_EXCP_FLAG_PRIV": 17, "HW_REG_EXCP_FLAG_USER": 18, "HW_REG_TRAP_CTRL": 19,
         "HW_REG_SCRATCH_BASE_LO": 20, "HW_REG_SCRATCH_BASE_HI": 21, "HW_REG_SHADER_CYCLES": 29},
    11: {}, 9: {},
}  # fmt: skip

_RETURNING = {
    128: "MSG_RTN_GET_DOORBELL", 129: "MSG_RTN_GET_DDID", 130: "MSG_RTN_GET_TMA", 131: "MSG_RTN_GET_REALTIME", 132: "MSG_RTN_SAVE_WAVE",
    133: "MSG_RTN_GET_TBA", 134: "MSG_RTN_GET_TBA_TO_PC",
}  # fmt: skip
MESSAGES: Final = {
    11: {1: "MSG_INTERRUPT", 2: "MSG_HS_TESSFACTOR", 3: "MSG_DEALLOC_VGPRS", 5: "MSG_STALL_WAVE_GEN", 6: "MSG_HALT_WAVES",
         9: "MSG_GS_ALLOC_REQ", **_RETURNING},
    12: {1: "MSG_INTERRUPT", 2: "MSG_HS_TESSFACTOR", 3: "MSG_DEALLOC_VGPRS", 9: "MSG_GS_ALLOC_REQ", **_RETURNING,
         135: "MSG_RTN_GET_SE_AID_ID"},
    9: {1: "MSG_INTERRUPT", 2: "MSG_GS", 3: "MSG_GS_DONE", 4: "MSG_SAVEWAVE", 5: "MSG_STALL_WAVE_GEN", 6: "MSG_HALT_WAVES",
        7: "MSG_ORDERED_PS_DONE", 8: "MSG_EARLY_PRIM_DEALLOC", 9: "MSG_GS_ALLOC_REQ", 10: "MSG_GET_DOORBELL", 15: "MSG_SYSMSG"},
}  # fmt: skip
# gfx9: the operations of a message, by number.
MESSAGE_OPERATIONS: Final = {
    "MSG_GS": {1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"},
    "MSG_GS_DONE": {0: "GS_OP_NOP", 1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"},
    "MSG_SYSMSG": {1: "SYSMSG_OP_ECC_ERR_INTERRUPT", 2: "SYSMSG_OP_REG_RD", 4: "SYSMSG_OP_TTRACE_PC"},
}  # fmt: skip

_N, _I, _F = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT"), ("UINT", "SINT", "FLOAT"), ("FLOAT",)
# Layout and number formats, in the order of the codes from 1 on.
_UNIFIED = (
    ("8", _N), ("16", (*_N, "FLOAT")), ("8_8", _N), ("32", _I), ("16_16", (*_N, "FLOAT")), ("10_11_11", _F), ("11_11_10", _F),
    ("10_10_10_2", ("UNORM", "SNORM", "UINT", "SINT")), ("2_10_10_10", _N), ("8_8_8_8", _N), ("32_32", _I),
    ("16_16_16_16", (*_N, "FLOAT")), ("32_32_32", _I), ("32_32_32_32", _I),
)  # fmt: skip
# By code.
BUFFER_FORMATS: Final = (
    "BUF_FMT_INVALID",
    *(f"BUF_FMT_{layout}_{kind}" for layout, kinds in _UNIFIED for kind in kinds),
)
DEFAULT_FORMAT: Final = 1  # not printed
DATA_FORMATS: Final = (  # gfx9: dfmt
    "INVALID", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2", "2_10_10_10", "8_8_8_8", "32_32",
    "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15",
)  # fmt: skip
NUMBER_FORMATS: Final = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT")  # gfx9: nfmt

EXPORT_TARGETS: Final = {
    **{i: f"mrt{i}" for i in range(8)}, 8: "mrtz", **{12 + i: f"pos{i}" for i in range(5)}, 20: "prim",
    21: "dual_src_blend0", 22: "dual_src_blend1",
}  # fmt: skip

DIMENSIONS: Final = ("1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY")
DIMENSION_PREFIX: Final = "SQ_RSRC_IMG_"

SCOPES: Final = ("SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
SYSTEM_SCOPE: Final = 3
_LOADS = ("RT", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT")
_STORES = ("RT", "NT", "HT", "WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB")
# gfx12: th's names by the kind of instruction. 0 is not printed.
TEMPORAL_HINTS: Final = {
    "load": {f"TH_LOAD_{name}": code for code, name in enumerate(_LOADS)},
    "store": {f"TH_STORE_{name}": code for code, name in enumerate(_STORES)},
    "atomic": {"TH_ATOMIC_RT": 0, "TH_ATOMIC_RETURN": 1, "TH_ATOMIC_RT_RETURN": 1, "TH_ATOMIC_NT": 2, "TH_ATOMIC_NT_RETURN": 3,
               "TH_ATOMIC_CASCADE_RT": 4, "TH_ATOMIC_CASCADE_NT": 6},
}  # fmt: skip
# Code 3 at system scope only.
BYPASS: Final = {"load": "TH_LOAD_BYPASS", "store": "TH_STORE_BYPASS"}
# A bit of an atomic's th. It has a name at device scope and above.
CASCADE_BIT: Final = 4


def th_text(kind: str, th: int, scope: int) -> str:
    """Return the name of a temporal hint other than 0 of a load, store or atomic."""
    if kind == "atomic" and th & CASCADE_BIT:
        return ("TH_ATOMIC_CASCADE_NT" if th & 2 else "TH_ATOMIC_CASCADE_RT") if scope >= 2 else f"TH_ATOMIC_{th:#x}"
    if th == 3 and scope == SYSTEM_SCOPE and kind in BYPASS:
        return BYPASS[kind]
    names = {code: name for name, code in reversed(TEMPORAL_HINTS[kind].items())}
    return names.get(th, f"{th:#x}")


def th_code(kind: str, name: str) -> int | None:
    """Return the code of a temporal hint's name for an instruction of that kind, None if the kind does not have it."""
    if name == BYPASS.get(kind):
        return 3
    found = TEMPORAL_HINTS[kind].get(name)
    if found is None and kind == "atomic" and name.startswith("TH_ATOMIC_0x"):
        number = int(name.removeprefix("TH_ATOMIC_"), 16)
        return number if number < 8 else None
    return found
