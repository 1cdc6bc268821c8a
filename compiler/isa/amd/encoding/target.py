"""The differences between processors apart from instructions: codes of registers, sizes, limits. One row for each
processor.

Source: LLVM AMDGPUUsage, "Processors", "Kernel Descriptor" (granules); ISA documents, "Kernel State", "Scalar Source
Operands".
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.compiler.isa.amd.encoding.names import GENERATIONS


@dataclass(frozen=True, slots=True)
class Limits:
    """One processor. Register counts are per wave. Granules are the units of allocation, for waves
    of 32 and 64 lanes.
    """

    name: str
    # The processor of `autogen.isa` with the same instructions.
    instructions: str
    generation: int
    # EF_AMDGPU_MACH of the ELF header's flags.
    elf_machine: int
    wave_sizes: tuple[int, ...]
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_granule: tuple[int, int]
    # Of one SIMD and lane: all its waves together.
    vgprs_in_file: tuple[int, int]
    waves_of_simd: int
    simds_of_unit: int
    lds_bytes: int
    lds_granule: int
    max_group_size: int
    scratch_granule: int
    m0: int
    null: int | None
    # Scalar values that one vector instruction may read.
    constant_bus: int
    vop3_literal: bool
    # Ranges of vector registers start at even numbers.
    even_vgprs: bool
    inst_cache_line: int


# Register files of RDNA's SIMDs, with their granules.
LARGE, SMALL = ((1536, 768), (24, 12)), ((1024, 512), (16, 8))


def _row(name: str, mach: int, file: tuple[tuple[int, int], tuple[int, int]], instructions: str = "") -> Limits:
    vgprs_in_file, granule = file
    generation = GENERATIONS[instructions or name]
    return Limits(
        name=name, instructions=instructions or name, generation=generation, elf_machine=mach, wave_sizes=(32, 64), vgprs=256, agprs=0,
        sgprs=106, vgpr_granule=granule, vgprs_in_file=vgprs_in_file, waves_of_simd=16, simds_of_unit=2, lds_bytes=65536, lds_granule=1024,
        max_group_size=1024, scratch_granule=256, m0=125, null=124, constant_bus=2, vop3_literal=True, even_vgprs=False, inst_cache_line=128,
    )  # fmt: skip


def _cdna(name: str, mach: int, lds: int, lds_granule: int) -> Limits:
    return Limits(
        name=name, instructions=name, generation=GENERATIONS[name], elf_machine=mach, wave_sizes=(64,), vgprs=256, agprs=256, sgprs=102,
        vgpr_granule=(8, 8), vgprs_in_file=(512, 512), waves_of_simd=8, simds_of_unit=4, lds_bytes=lds, lds_granule=lds_granule,
        max_group_size=1024, scratch_granule=1024, m0=124, null=None, constant_bus=1, vop3_literal=False, even_vgprs=True, inst_cache_line=128,
    )  # fmt: skip


LIMITS = {
    row.name: row
    for row in (
        _row("gfx1100", 0x41, LARGE),
        _row("gfx1101", 0x46, LARGE, "gfx1100"),
        _row("gfx1102", 0x47, SMALL, "gfx1100"),
        _row("gfx1103", 0x44, SMALL, "gfx1100"),
        _row("gfx1150", 0x43, SMALL, "gfx1151"),
        _row("gfx1151", 0x4A, LARGE),
        _row("gfx1152", 0x55, SMALL, "gfx1151"),
        _row("gfx1153", 0x58, SMALL, "gfx1151"),
        _row("gfx1200", 0x48, LARGE, "gfx1201"),
        _row("gfx1201", 0x4E, LARGE),
        _cdna("gfx942", 0x4C, 65536, 512),
        _cdna("gfx950", 0x4F, 163840, 1280),
    )
}
