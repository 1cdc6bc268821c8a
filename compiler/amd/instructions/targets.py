"""The differences between processors that instruction selection depends on: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import NULL, Operand, Special
from ringup.compiler.amd.instructions.names import GFX12_NAMES, has
from ringup.errors import CompileError

# In the SGPRs after the user SGPRs.
_GROUP_IDS_11 = None
# Source: AMDGPUUsage, "Initial Kernel Execution State", GFX12: x in ttmp9, y and z in the halves of ttmp7.
_GROUP_IDS_12 = (Special("ttmp9"), Special("ttmp7"), Special("ttmp7"))


class Row(NamedTuple):
    """One processor. Offsets count bytes.

    `scalars`: how many scalar values (SGPRs, a literal, VCC as a mask) a vector instruction reads. `long_literals`: an
    instruction in the long encoding may have one of them. `beyond`: an offset outside any descriptor, as an operand.
    `compares_to_exec`: v_cmpx writes EXEC alone. `row_xmask`: DPP exchanges any lanes of a row, and v_permlane* lanes
    of rows. `whole_permute`: ds_bpermute reaches all lanes of a wave64. `halves_kept`: a load of one half of a register
    keeps the other one; QUIRK: with SRAM ECC it does not (LLVM AMDGPU.td, FeatureSRAMECC).
    `global_offsets`: the range of a global instruction's offset. `scalar_offset_end`: the first offset that s_load
    cannot hold. `buffer_word3`: the last word of a descriptor of untyped memory with byte offsets; `no_offset`: the
    scalar offset of an access that has none. `barrier`: the instructions of a group barrier; `wait_*`: those before it.
    `invalidate`: the instructions that drop stale lines of the vector cache. `scalar_floats`: the SALU computes with
    f32 and f16. `matrix`: the name of the layout of fragments (`amd/matrices.py`). `upper_halves`: conversions to f16
    write the upper half of a register if op_sel says so. UNKNOWN: LLVM 22 neither prints nor uses that bit on gfx12, so
    we do not use it.
    """

    name: str
    scalars: int
    long_literals: bool
    beyond: int | float
    compares_to_exec: bool
    row_xmask: bool
    whole_permute: bool
    halves_kept: bool
    global_offsets: tuple[int, int]
    scalar_offset_end: int
    buffer_word3: int
    no_offset: Operand
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

    def has(self, mnemonic: str) -> bool:
        """Return whether the processor has an instruction, by its name on GFX11."""
        return has(self.name, mnemonic)


# An offset outside a descriptor of 2 GiB, whatever constant is added.
BEYOND: Final = 0x8000_0000
# Counters of GFX11's s_waitcnt: vmcnt 15:10, lgkmcnt 9:4, expcnt 2:0; all ones do not wait. Source: AMDGPUUsage; RDNA3
# ISA, "S_WAITCNT". Word 3 of a buffer descriptor: OOB_SELECT 29:28 = 3 (raw: an offset at or beyond NUM_RECORDS reads
# 0), FORMAT 17:12 = 22 (32_FLOAT), which an untyped access ignores, as it does DST_SEL. Source: RDNA3 ISA, "Buffer
# Resource Descriptor"; RDNA4 ISA, the same table, and Mesa ac_descriptors.c (its value 3 is raw on gfx12 too).
_GFX11 = Row(
    name="gfx1100", scalars=2, long_literals=True, beyond=BEYOND, compares_to_exec=True, row_xmask=True, whole_permute=False,
    halves_kept=True,
    global_offsets=(-4096, 4095), scalar_offset_end=1 << 20, buffer_word3=3 << 28 | 22 << 12, no_offset=0, scalar_floats=False,
    group_ids=_GROUP_IDS_11,
    wait_loads=(("s_waitcnt", (0x03F7,)),), wait_lds=(("s_waitcnt", (0xFC07,)),), wait_both=(("s_waitcnt", (0x0007,)),),
    wait_stores=(("s_waitcnt_vscnt", (NULL, 0)),), barrier=(("s_barrier", ()),), invalidate=(("buffer_gl0_inv", {}),),
    atomic_returns={"glc": 1}, matrix="rdna3", upper_halves=True, names={},
)  # fmt: skip
# Word 3 of CDNA3's buffer descriptor: DATA_FORMAT 18:15 = 4 (32); 0 would be an invalid descriptor. A raw buffer
# (stride 0) has the same range check as on gfx11. -2.0 is an inline constant and, as an integer, above 3 GiB. Counters
# of s_waitcnt: vmcnt 15:14 and 3:0, lgkmcnt 11:8, expcnt 6:4; vmcnt counts stores too. Source: CDNA3 ISA reference,
# "Buffer Resource Descriptor", "Range Checking", "S_WAITCNT"; AMDGPUUsage, "Memory Model gfx942".
_GFX942 = Row(
    name="gfx942", scalars=1, long_literals=False, beyond=-2.0, compares_to_exec=False, row_xmask=False, whole_permute=True,
    halves_kept=False,
    global_offsets=(-4096, 4095), scalar_offset_end=1 << 20, buffer_word3=4 << 15, no_offset=0, scalar_floats=False, group_ids=_GROUP_IDS_11,
    wait_loads=(("s_waitcnt", (0x0F70,)),), wait_lds=(("s_waitcnt", (0xC07F,)),), wait_both=(("s_waitcnt", (0x0070,)),),
    wait_stores=(), barrier=(("s_barrier", ()),), invalidate=(("buffer_inv", {"sc0": 1}),),
    atomic_returns={"sc0": 1}, matrix="cdna3", upper_halves=False, names={},
)  # fmt: skip
TARGETS: dict[str, Row] = {
    "gfx1100": _GFX11,
    "gfx1151": _GFX11._replace(name="gfx1151", scalar_floats=True),
    "gfx1201": _GFX11._replace(
        name="gfx1201",
        global_offsets=(-(1 << 23), (1 << 23) - 1), scalar_offset_end=1 << 23, no_offset=NULL, scalar_floats=True,
        group_ids=_GROUP_IDS_12,
        wait_loads=(("s_wait_loadcnt", (0,)),), wait_lds=(("s_wait_dscnt", (0,)),),
        wait_both=(("s_wait_loadcnt_dscnt", (0,)),), wait_stores=(("s_wait_storecnt", (0,)),),
        barrier=(("s_barrier_signal", (-1,)), ("s_barrier_wait", (-1,))), invalidate=(("global_inv", {"scope": "SCOPE_SE"}),),
        atomic_returns={"th": "TH_ATOMIC_RETURN"}, matrix="rdna4", upper_halves=False, names=GFX12_NAMES,
    ),
    "gfx942": _GFX942,
    "gfx950": _GFX942._replace(name="gfx950", matrix="cdna4"),
}  # fmt: skip


def row(target: str) -> Row:
    """Return a processor's row. Raises CompileError if there is none."""
    found = TARGETS.get(target)
    if found is None:
        raise CompileError(f"no instruction selection for {target}; supported: {', '.join(TARGETS)}")
    return found
