"""The resources of a processor: registers of a SIMD, waves and LDS, and how they are allocated to kernels.

Source: LLVM AMDGPUBaseInfo.cpp (getVGPRAllocGranule, getVGPREncodingGranule, getTotalNumVGPRs, getMaxWavesPerEU),
AMDGPU.td (Feature1_5xVGPRs, FeatureUserSGPRInit16Bug), AMDGPUUsage "Kernel Descriptor"; Mesa ac_gpu_info.c
(lds_alloc_granularity). Figures are for wave32.

gfx942: 512 VGPRs of a lane are one file; a kernel's first ones are v0 on, and those from the descriptor's accum_offset
on are a0 on. Only v0 to v255 are used here. Source: AMDGPUUsage, "Kernel Descriptor", accum_offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.effects import generation


class Padding(NamedTuple):
    """What follows a kernel's code, since instructions are fetched ahead: `lines` cache lines of `line` bytes with an
    instruction.
    """

    instruction: tuple[str, tuple[int, ...]]
    line: int
    lines: int


# Source: LLVM AMDGPUTargetStreamer.cpp, EmitCodeEnd; AMDGPUBaseInfo.cpp, getInstCacheLineSize.
GFX11_PADDING: Final = Padding(("s_code_end", ()), 128, 3)
GFX90A_PADDING: Final = Padding(("s_nop", (0,)), 64, 16)


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of one processor. `vgprs`: rows of a SIMD's register file, allocated in steps of `granule`, and
    encoded in the kernel descriptor in steps of `encoded`.

    `simds` share `lds_bytes`, which are allocated in steps of `lds_granule`, and `lds_width` bytes of it a cycle.
    `padded_sgprs`: the number of user and
    group-id SGPRs that a kernel must enable. `vgpr_align`: the number of the first of several VGPRs is a multiple.
    """

    vgprs: int
    granule: int
    encoded: int
    waves: int = 16
    # SIMDs of a CU, for a group in CU mode.
    simds: int = 2
    lds_bytes: int = 65536
    lds_granule: int = 1024
    lds_width: int = 128
    max_vgprs: int = 256
    max_sgprs: int = 106
    padded_sgprs: int = 0
    vgpr_align: int = 1
    padding: Padding = GFX11_PADDING

    def occupancy(self, vgprs: int, lds_bytes: int, group_size: int, wave_size: int) -> int:
        """Return the waves that fit on one SIMD, from the VGPRs of a lane, the LDS of a group and the group's size."""
        per_wave = -(-max(vgprs, 1) // self.granule) * self.granule * (wave_size // 32)
        found = min(self.waves, self.vgprs // per_wave)
        waves_of_group = -(-group_size // wave_size)
        if lds_bytes:
            groups = max(1, self.lds_bytes // (-(-lds_bytes // self.lds_granule) * self.lds_granule))
            found = min(found, max(1, groups * waves_of_group // self.simds))
        return found

    def budget(self, waves: int, wave_size: int) -> int:
        """Return the VGPRs of a lane with which `waves` still fit on a SIMD."""
        rows = self.vgprs // max(1, waves) // (wave_size // 32)
        return min(self.max_vgprs, max(self.granule, rows // self.granule * self.granule))


# Source: AMDGPU.td, FeatureRequiresAlignedVGPRs; s102 to s105 are FLAT_SCRATCH and XNACK_MASK.
_CDNA: Final = Limits(
    vgprs=1024,
    granule=8,
    encoded=8,
    waves=8,
    simds=4,
    lds_granule=512,
    max_sgprs=102,
    vgpr_align=2,
    padding=GFX90A_PADDING,
)
LIMITS: Final = {
    "gfx1100": Limits(vgprs=1536, granule=24, encoded=8, padded_sgprs=16),
    "gfx1151": Limits(vgprs=1536, granule=24, encoded=8),
    "gfx1201": Limits(vgprs=1536, granule=24, encoded=8),
    "gfx942": _CDNA,
    # Source: CDNA4 ISA reference, "LDS": 160 KiB in blocks of 1280 bytes, in 64 banks of 4 bytes.
    "gfx950": replace(_CDNA, lds_bytes=160 << 10, lds_granule=1280, lds_width=256),
}


def limits(target: str) -> Limits:
    """Return the row of a processor. Raises CompileError if there is none."""
    generation(target)
    return LIMITS[target]
