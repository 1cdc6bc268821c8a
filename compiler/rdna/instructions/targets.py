"""The differences between RDNA processors that instruction selection depends on: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.compiler.rdna.instructions.code import NULL, Operand, Special
from ringup.errors import CompileError

# GFX12's names of instructions that have another name on GFX11. Source: LLVM AMDGPU, AMDGPUAsmGFX11 and AMDGPUAsmGFX12
# (instruction lists).
_GFX12_NAMES = {
    "s_add_u32": "s_add_co_u32", "s_addc_u32": "s_add_co_ci_u32", "s_sub_u32": "s_sub_co_u32", "s_subb_u32": "s_sub_co_ci_u32",
    "s_add_i32": "s_add_co_i32", "s_sub_i32": "s_sub_co_i32", "v_mad_u64_u32": "v_mad_co_u64_u32", "v_mad_i64_i32": "v_mad_co_i64_i32",
    "global_atomic_min_f32": "global_atomic_min_num_f32", "global_atomic_max_f32": "global_atomic_max_num_f32",
    "s_min_f32": "s_min_num_f32", "s_max_f32": "s_max_num_f32", "s_min_f16": "s_min_num_f16", "s_max_f16": "s_max_num_f16",
    **{f"v_{name}_f{bits}": f"v_{name}_num_f{bits}" for name in ("min", "max") for bits in (16, 32, 64)},
    **{f"v_{name}_f{bits}": f"v_{name}_num_f{bits}" for name in ("min3", "max3", "med3") for bits in (16, 32)},
    **{f"v_pk_{name}_f16": f"v_pk_{name}_num_f16" for name in ("min", "max")},
}  # fmt: skip

# In the SGPRs after the user SGPRs.
_GROUP_IDS_11 = None
# Source: AMDGPUUsage, "Initial Kernel Execution State", GFX12: x in ttmp9, y and z in the halves of ttmp7.
_GROUP_IDS_12 = (Special("ttmp9"), Special("ttmp7"), Special("ttmp7"))


class Row(NamedTuple):
    """One processor. Offsets count bytes.

    `global_offsets`: the range of a global instruction's offset. `scalar_offset_end`: the first offset that s_load
    cannot hold. `buffer_word3`: the last word of a descriptor of untyped memory with byte offsets; None where masked
    accesses use EXEC only. `barrier`: the instructions of a group barrier; `wait_*`: those before it. `invalidate`: the
    instructions that drop stale lines of the vector cache. `scalar_floats`: the SALU computes with f32 and f16.
    `matrix`: the name of the layout of fragments (`rdna/matrices.py`). `upper_halves`: conversions to f16 write the
    upper half of a register if op_sel says so. UNKNOWN: LLVM 22 neither prints nor uses that bit on gfx12, so we do not
    use it.
    """

    global_offsets: tuple[int, int]
    scalar_offset_end: int
    buffer_word3: int | None
    scalar_floats: bool
    group_ids: tuple[Special, Special, Special] | None
    wait_loads: tuple[tuple[str, tuple[Operand, ...]], ...]
    wait_lds: tuple[tuple[str, tuple[Operand, ...]], ...]
    wait_both: tuple[tuple[str, tuple[Operand, ...]], ...]
    wait_stores: tuple[tuple[str, tuple[Operand, ...]], ...]
    barrier: tuple[tuple[str, tuple[Operand, ...]], ...]
    invalidate: tuple[tuple[str, Mapping[str, object]], ...]
    atomic_returns: Mapping[str, object]
    matrix: str
    upper_halves: bool
    names: Mapping[str, str]


# Counters of GFX11's s_waitcnt: vmcnt 15:10, lgkmcnt 9:4, expcnt 2:0; all ones do not wait. Source: AMDGPUUsage; RDNA3
# ISA, "S_WAITCNT". Word 3 of a buffer descriptor: OOB_SELECT 29:28 = 3 (raw: an offset at or beyond NUM_RECORDS reads
# 0), FORMAT 17:12 = 22 (32_FLOAT), which an untyped access ignores, as it does DST_SEL. Source: RDNA3 ISA, "Buffer
# Resource Descriptor".
_GFX11 = Row(
    global_offsets=(-4096, 4095), scalar_offset_end=1 << 20, buffer_word3=3 << 28 | 22 << 12, scalar_floats=False,
    group_ids=_GROUP_IDS_11,
    wait_loads=(("s_waitcnt", (0x03F7,)),), wait_lds=(("s_waitcnt", (0xFC07,)),), wait_both=(("s_waitcnt", (0x0007,)),),
    wait_stores=(("s_waitcnt_vscnt", (NULL, 0)),), barrier=(("s_barrier", ()),), invalidate=(("buffer_gl0_inv", {}),),
    atomic_returns={"glc": 1}, matrix="rdna3", upper_halves=True, names={},
)  # fmt: skip
TARGETS: dict[str, Row] = {
    "gfx1100": _GFX11,
    "gfx1151": _GFX11._replace(scalar_floats=True),
    "gfx1201": _GFX11._replace(
        global_offsets=(-(1 << 23), (1 << 23) - 1), scalar_offset_end=1 << 23, buffer_word3=None, scalar_floats=True,
        group_ids=_GROUP_IDS_12,
        wait_loads=(("s_wait_loadcnt", (0,)),), wait_lds=(("s_wait_dscnt", (0,)),),
        wait_both=(("s_wait_loadcnt_dscnt", (0,)),), wait_stores=(("s_wait_storecnt", (0,)),),
        barrier=(("s_barrier_signal", (-1,)), ("s_barrier_wait", (-1,))), invalidate=(("global_inv", {"scope": "SCOPE_SE"}),),
        atomic_returns={"th": "TH_ATOMIC_RETURN"}, matrix="rdna4", upper_halves=False, names=_GFX12_NAMES,
    ),
}  # fmt: skip


def row(target: str) -> Row:
    """Return a processor's row. Raises CompileError if there is none."""
    found = TARGETS.get(target)
    if found is None:
        raise CompileError(f"no instruction selection for {target}; supported: {', '.join(TARGETS)}")
    return found
