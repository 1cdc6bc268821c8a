"""The accelerators: cards for computing only, of several dies. Rows like those of `chips.py`.

Source: AMD's data sheet of the Instinct MI300X and the CDNA3 white paper (cores, memory, caches, link); gfx_v9_4_3.c,
gmc_v9_0.c, aqua_vanjaram.c (how a driver finds them); the pci.ids list.
"""

from __future__ import annotations

from dataclasses import replace

from ringup.autogen.linux import pci as regs
from ringup.silicon.amd.board.chips import ATI, NAVI31, NBIO_7_9, ChipRow, GcShape
from ringup.silicon.amd.gc import grbm
from ringup.silicon.amd.psp.applications import Hive
from ringup.silicon.amd.sdma.engine import SDMA_4_4
from ringup.silicon.amd.smu import tables
from ringup.silicon.pci.capabilities import (
    advanced_errors,
    express,
    extended,
    msi,
    power_management,
    resizable_bars,
    vendor_extended,
    vendor_specific,
)
from ringup.silicon.pci.function import Bar, Bits, FunctionRow

# the rest of `struct gc_info_v2_1`, by member. AMD's CDNA3 white paper: wave size, LDS, caches; UNKNOWN: the depths
GC_INFO_9 = {
    "gc_num_max_gs_thds": 0,
    "gc_gs_table_depth": 0,
    "gc_gsprim_buff_depth": 0,
    "gc_parameter_cache_depth": 0,
    "gc_double_offchip_lds_buffer": 0,
    "gc_wave_size": 64,
    "gc_max_waves_per_simd": 8,
    "gc_max_scratch_slots_per_cu": 32,
    "gc_lds_size": 64,
    "gc_num_sc_per_se": 1,
    "gc_num_packer_per_sc": 1,
    "gc_num_sdp_interface": 16,
    "gc_num_cu_per_sqc": 2,
    "gc_instruction_cache_size_per_sqc": 64,
    "gc_scalar_data_cache_size_per_sqc": 16,
}
KEPT_BYTES = 64 << 20
LARGEST_BAR_MIB = 256 << 10
BARS = (
    Bar(0, 256 << 20, sizes_mib=tuple(1 << n for n in range(8, LARGEST_BAR_MIB.bit_length()))),
    Bar(2, 2 << 20, sizes_mib=tuple(1 << n for n in range(1, 9))),
    Bar(4, 256, regs.PCI_BASE_ADDRESS_SPACE_IO),
    Bar(5, 2 << 20, regs.PCI_BASE_ADDRESS_MEM_TYPE_32),
)


def _port(name: str, device_id: int, kind: int) -> FunctionRow:
    """A port of the bridge that the model puts above every card. GUESS: on metal the function sits behind a switch of
    the server's board.
    """
    capabilities = (
        power_management(0x50, regs.PCI_PM_CAP_PME_D0 | 3, True),
        express(0x58, kind, generation=5, lanes=16, bridge=True),
        msi(0xA0),
        advanced_errors(0x150),
    )
    return FunctionRow(
        name, ATI, device_id, 0x060400, 0x24, capabilities=capabilities, header_type=regs.PCI_HEADER_TYPE_BRIDGE
    )


def _gpu(device_id: int) -> FunctionRow:
    """The only function of the endpoint. GUESS: its capabilities, which are a Radeon's, and its subsystem."""
    atomics = regs.PCI_EXP_DEVCAP2_ATOMIC_COMP32 | regs.PCI_EXP_DEVCAP2_ATOMIC_COMP64
    capabilities = (
        vendor_specific(0x48, 8),
        power_management(0x50, regs.PCI_PM_CAP_PME_D0 | 3, True),
        express(0x64, regs.PCI_EXP_TYPE_ENDPOINT, generation=5, lanes=16, device2=atomics),
        msi(0xA0),
        vendor_extended(0x100, 1, 1, 0x10),
        advanced_errors(0x150),
        resizable_bars(0x200, BARS),
        extended("secondary", regs.PCI_EXT_CAP_ID_SECPCI, 0x270, (Bits(4, writable=3), Bits(8, clears=0xFFFF))),
        extended("acs", regs.PCI_EXT_CAP_ID_ACS, 0x2A0),
        extended("pasid", regs.PCI_EXT_CAP_ID_PASID, 0x2D0, (Bits(4, 0x0A06, 0x7 << 16),)),
        extended("16 GT/s", regs.PCI_EXT_CAP_ID_PL_16GT, 0x410, (Bits(0xC, 0xF), Bits(0x10, clears=0xFFFF))),
    )
    return FunctionRow("gpu", ATI, device_id, 0x120000, 0, (ATI, device_id), BARS, 128 << 10, capabilities)


MI300X = replace(
    NAVI31,
    name="mi300x",
    product="Instinct MI300X",
    functions=(
        _port("upstream", 0x1478, regs.PCI_EXP_TYPE_UPSTREAM),
        _port("downstream", 0x1479, regs.PCI_EXP_TYPE_DOWNSTREAM),
        _gpu(0x74A1),
    ),
    # what RCC_CONFIG_MEMSIZE reports. GUESS: how much of the 192 GiB the firmware keeps. amdgpu's system aperture ends
    # 16 MiB before the memory controllers' range (gfxhub_v1_2.c, init_system_aperture_regs), so it is at least that
    vram_bytes=(192 << 30) - KEPT_BYTES,
    kept_bytes=KEPT_BYTES,
    memory_type=0x80,  # ATOM_DGPU_VRAM_TYPE_HBM3
    memory_channels=64,  # of 128 bits: gmc_v9_0.c, vram_width
    memory_channel_bits=128,
    gc=GcShape(
        core=grbm.MI300X,
        backends_per_engine=1,
        gl2_channels=16,
        sdma_engines=16,
        sdma=SDMA_4_4,
        l2_kib=4096,
        l1_kib=32,
        info=GC_INFO_9,
    ),
    power=tables.MI300X,
    bus=NBIO_7_9,
    boot_tmr=True,
    mall_bytes_per_umc=2 << 20,  # 256 MiB of Infinity Cache over 128 channels
    external_ips=(("MP1_HWID", "mp", (13, 0, 6)),),
    extra_bases={},
    part_number="113-RINGUP300X-001",
    vbios_date="12/06/23 00:00",
    vbios_version="ATOMBIOSBK-AMD VER022.040.003.000.000001",
    revision=2,
    cores=8,
    dies=4,
    package=1,  # OAM
    table_version=4,
    decrypts=True,
    # eight cards on a server's board, of which this one is present. GUESS: the numbers
    hive=Hive(0x0300_A000_0000_0001, 0x0300_A000_0000_0011, 8),
)
INSTINCTS: dict[str, ChipRow] = {row.name: row for row in (MI300X,)}
