"""The modelled cards, one row each: functions on the bus, memory, shape of the graphics core, clocks.

IP versions and register bases come from the register database; this table has what no register header states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ringup.autogen.linux import pci as regs
from ringup.errors import NoSuchCard
from ringup.silicon.amd.gc import grbm
from ringup.silicon.amd.gc.grbm import GcRow
from ringup.silicon.amd.psp.applications import Hive
from ringup.silicon.amd.sdma.engine import SDMA_6, SDMA_7, SdmaRow
from ringup.silicon.amd.smu import tables
from ringup.silicon.amd.smu.tables import PowerRow
from ringup.silicon.pci.capabilities import (
    advanced_errors,
    express,
    extended,
    msi,
    power_management,
    resizable_bars,
    subsystem,
    vendor_extended,
    vendor_specific,
)
from ringup.silicon.pci.function import Bar, Bits, FunctionRow

ATI = 0x1002
MEMORY_32 = regs.PCI_BASE_ADDRESS_MEM_TYPE_32
# PCI Express 4.0, 7.7.7; pci_regs.h has no name for it
EXT_CAP_ID_MARGINING = 0x27
PME_ALL_BUT_D0 = (
    regs.PCI_PM_CAP_PME_D1 | regs.PCI_PM_CAP_PME_D2 | regs.PCI_PM_CAP_PME_D3hot | regs.PCI_PM_CAP_PME_D3cold
)
ATOMICS = regs.PCI_EXP_DEVCAP2_ATOMIC_COMP32 | regs.PCI_EXP_DEVCAP2_ATOMIC_COMP64


# values that reproduce the device description that Mesa recorded on a navi31; UNKNOWN: the four *_depth and sdp values
GC_INFO = {
    "gc_num_max_gs_thds": 32,
    "gc_gs_table_depth": 32,
    "gc_gsprim_buff_depth": 1792,
    "gc_parameter_cache_depth": 1024,
    "gc_double_offchip_lds_buffer": 1,
    "gc_wave_size": 32,
    "gc_max_waves_per_simd": 16,
    "gc_max_scratch_slots_per_cu": 32,
    "gc_lds_size": 64,
    "gc_num_sc_per_se": 1,
    "gc_num_packer_per_sc": 4,
    "gc_num_gl2a": 4,
    "gc_num_sdp_interface": 16,
    "gc_num_tcp_per_wpg": 2,
    "gc_tcp_l1_size": 32,
    "gc_num_sqc_per_wgp": 1,
    "gc_l1_instruction_cache_size_per_sqc": 32,
    "gc_l1_data_cache_size_per_sqc": 16,
    "gc_gl1c_per_sa": 1,
}


@dataclass(frozen=True, slots=True)
class GcShape:
    """The graphics core's shape. Its registers, the discovery binary and the VBIOS all report it, so they agree."""

    core: GcRow
    backends_per_engine: int
    gl2_channels: int
    sdma_engines: int
    sdma: SdmaRow
    l2_kib: int
    l1_kib: int  # for each shader array
    info: Mapping[str, int] = field(default_factory=lambda: GC_INFO)  # the rest of `struct gc_info_v1_2`, by member


@dataclass(frozen=True, slots=True)
class BusRow:
    """The bus interface: its block in the register database, and the prefix of its doorbell ranges. `chiplets`: it
    serves several I/O dies.
    """

    block: str
    doorbells: str
    chiplets: bool = False


NBIO_4_3 = BusRow("nbio", "S2A_DOORBELL_ENTRY_")
NBIO_7_9 = BusRow("nbio", "DOORBELL0_CTRL_ENTRY_", chiplets=True)
NBIF_6_3 = BusRow("nbif", "GDC_S2A0_S2A_DOORBELL_ENTRY_")


@dataclass(frozen=True, slots=True)
class ChipRow:
    """One card."""

    name: str  # in the register database
    product: str
    # upstream port, downstream port, then the endpoint's functions; the GPU is called "gpu"
    functions: tuple[FunctionRow, ...]
    vram_bytes: int
    memory_type: int  # enum atom_dgpu_vram_type
    memory_channels: int
    memory_channel_bits: int
    gc: GcShape
    power: PowerRow
    bus: BusRow
    mall_bytes_per_umc: int
    # size that the security processor's firmware requests for its own memory region
    tmr_bytes: int
    # the board's boot has made that region: amdgpu_psp.c, psp_early_init (boot_time_tmr)
    boot_tmr: bool
    # memory at the end of VRAM that the board's firmware keeps, as the VBIOS states it; 0: it states nothing
    reserved_bytes: int
    # hw id, block whose registers it shares, version
    external_ips: tuple[tuple[str, str, tuple[int, int, int]], ...]
    # segments whose bases the database lacks
    extra_bases: Mapping[str, tuple[int, ...]]
    # memory controllers that the database lacks: version, bases of each
    controllers: tuple[tuple[int, int, int], tuple[int, ...]] | None
    # blocks that the board lists and that are fused off
    harvested: tuple[str, ...]
    reference_clock_10khz: int
    boot_gfx_clock_10khz: int
    boot_memory_clock_10khz: int
    # STRAP_ATI_REV_ID: the ASIC's revision, not the PCI revision
    revision: int
    part_number: str
    vbios_date: str
    vbios_version: str
    # graphics cores, and I/O dies, each with a memory hub
    cores: int = 1
    dies: int = 1
    # SMUIO_MCM_CONFIG.PKG_TYPE
    package: int = 0
    # form of the lists of blocks and of the core's shape: amdgpu's discovery.h
    table_version: int = 3
    # whether the security processor decrypts images
    decrypts: bool = False
    # memory behind `vram_bytes` that the board's firmware keeps, within the range of the memory controllers
    kept_bytes: int = 0
    # the cards that it is linked with
    hive: Hive | None = None


class Link(NamedTuple):
    """The speed of a board's links, as a generation of PCI Express, and the revision of its switch."""

    generation: int
    switch_revision: int


GENERATION_4 = Link(4, 0x10)
# `lspci -vvv` of a Radeon RX 9070 XT and an RX 9060 XT, issues 766 and 741 of geerlingguy/raspberry-pi-pcie-devices
GENERATION_5 = Link(5, 0x24)


def _port(name: str, device_id: int, kind: int, link: Link, lanes: int, bars: tuple[Bar, ...] = ()) -> FunctionRow:
    """A port of the switch that sits on every board since Navi 10."""
    capabilities = (
        vendor_specific(0x48, 8),
        power_management(
            0x50, regs.PCI_PM_CAP_PME_D0 | regs.PCI_PM_CAP_PME_D3hot | regs.PCI_PM_CAP_PME_D3cold | 3, True
        ),
        express(0x58, kind, generation=link.generation, lanes=lanes, bridge=True),
        msi(0xA0),
        subsystem(0xC0, ATI, device_id),
        vendor_extended(0x100, 1, 1, 0x10),
        advanced_errors(0x150),
    )
    return FunctionRow(
        name, ATI, device_id, 0x060400, link.switch_revision, bars=bars, capabilities=capabilities,
        header_type=regs.PCI_HEADER_TYPE_BRIDGE,
    )  # fmt: skip


def _companion(name: str, device_id: int, class_code: int, pin: int, bar: Bar, generation: int = 4) -> FunctionRow:
    """A function that shares the endpoint with the GPU: sound, USB. It exists only for software that scans the bus."""
    capabilities = (
        vendor_specific(0x48, 8),
        power_management(0x50, PME_ALL_BUT_D0 | 3, True),
        express(0x64, regs.PCI_EXP_TYPE_LEG_END, generation=generation, lanes=16),
        msi(0xA0),
        vendor_extended(0x100, 1, 1, 0x10),
        advanced_errors(0x150),
        extended("acs", regs.PCI_EXT_CAP_ID_ACS, 0x2A0),
    )
    return FunctionRow(
        name, ATI, device_id, class_code, subsystem=(ATI, device_id), bars=(bar,), capabilities=capabilities,
        interrupt_pin=pin, multifunction=True,
    )  # fmt: skip


def _bars(vram_mib: int) -> tuple[Bar, ...]:
    """The GPU's BARs. The first can be as large as the power of two that holds all of VRAM."""
    largest = (vram_mib - 1).bit_length()
    return (
        Bar(0, 256 << 20, sizes_mib=tuple(1 << n for n in range(8, largest + 1))),
        Bar(2, 2 << 20, sizes_mib=tuple(1 << n for n in range(1, 9))),
        Bar(4, 256, regs.PCI_BASE_ADDRESS_SPACE_IO),
        Bar(5, 1 << 20, MEMORY_32),
    )


def _gpu(device_id: int, revision: int, subsystem: int, bars: tuple[Bar, ...], generation: int = 4) -> FunctionRow:
    """The GPU itself.

    Source: `lspci -vvv` of a Radeon RX 7900 XTX, issue 503 of geerlingguy/raspberry-pi-pcie-devices (BARs, capabilities
    and their places, resizable BAR's sizes); offsets as in nbio_4_3_0_offset.h, cfgBIF_CFG_DEV0_EPF0_*. That card has
    no function level reset, no MSI-X and no serial number. The link to the switch is always sixteen lanes wide. Device
    ids: the pci.ids list. GUESS: the other cards have the same capabilities.
    """
    capabilities = (
        vendor_specific(0x48, 8),
        power_management(0x50, PME_ALL_BUT_D0 | 3, True),
        express(0x64, regs.PCI_EXP_TYPE_LEG_END, generation=generation, lanes=16, device2=ATOMICS),
        msi(0xA0),
        vendor_extended(0x100, 1, 1, 0x10),
        advanced_errors(0x150),
        resizable_bars(0x200, bars),
        extended("power budgeting", regs.PCI_EXT_CAP_ID_PWR, 0x240, (Bits(4, writable=0xFF),)),
        extended("secondary", regs.PCI_EXT_CAP_ID_SECPCI, 0x270, (Bits(4, writable=3), Bits(8, clears=0xFFFF))),
        extended("acs", regs.PCI_EXT_CAP_ID_ACS, 0x2A0),
        extended("pasid", regs.PCI_EXT_CAP_ID_PASID, 0x2D0, (Bits(4, 0x0A06, 0x7 << 16),)),
        extended("ltr", regs.PCI_EXT_CAP_ID_LTR, 0x320, (Bits(4, writable=0x1FFF_1FFF),)),
        extended("16 GT/s", regs.PCI_EXT_CAP_ID_PL_16GT, 0x410, (Bits(0xC, 0xF), Bits(0x10, clears=0xFFFF))),
        extended("margining", EXT_CAP_ID_MARGINING, 0x450),
    )
    return FunctionRow(
        "gpu", ATI, device_id, 0x030000, revision, (ATI, subsystem), bars, 128 << 10, capabilities, multifunction=True
    )


def _board(
    gpu: FunctionRow, *companions: FunctionRow, lanes: int = 16, link: Link = GENERATION_4
) -> tuple[FunctionRow, ...]:
    """The switch of every board since Navi 10, and the endpoint behind it. `lanes`: of the slot's link."""
    return (
        _port("upstream", 0x1478, regs.PCI_EXP_TYPE_UPSTREAM, link, lanes, (Bar(0, 16 << 10, MEMORY_32),)),
        _port("downstream", 0x1479, regs.PCI_EXP_TYPE_DOWNSTREAM, link, 16),
        gpu,
        *companions,
    )


AUDIO = _companion("audio", 0xAB30, 0x040300, 2, Bar(0, 16 << 10, MEMORY_32))
NAVI31 = ChipRow(
    name="navi31",
    product="Radeon RX 7900 XTX",
    functions=_board(
        _gpu(0x744C, 0xC8, 0x0E3B, _bars(24 << 10)),
        AUDIO,
        _companion("usb", 0x7446, 0x0C0330, 3, Bar(0, 1 << 20)),
        _companion("ucsi", 0x7444, 0x0C8000, 4, Bar(0, 16 << 10)),
    ),
    # what RCC_CONFIG_MEMSIZE reports; the firmware keeps 16 MiB of the 24 GiB
    vram_bytes=24560 << 20,
    memory_type=0x70,  # ATOM_DGPU_VRAM_TYPE_GDDR6
    memory_channels=24,
    memory_channel_bits=16,
    gc=GcShape(
        core=grbm.NAVI31,
        backends_per_engine=4,
        gl2_channels=24,
        sdma_engines=2,
        sdma=SDMA_6,
        l2_kib=6144,
        l1_kib=256,
    ),
    power=tables.NAVI31,
    bus=NBIO_4_3,
    mall_bytes_per_umc=16 << 20,
    # the real firmware computes no more than this from its table of contents: drivers assert it
    tmr_bytes=0x130_0000,
    boot_tmr=False,
    reserved_bytes=0,
    external_ips=(("SDMA0_HWID", "gc", (6, 0, 0)), ("SDMA1_HWID", "gc", (6, 0, 0)), ("MP1_HWID", "mp", (13, 0, 0))),
    # GUESS: the driver reads segment 4 of the data fabric, whose base no public table has; any unused base works
    extra_bases={"df": (0x07C0_0000, 0x0, 0x0240_B800)},
    controllers=None,
    harvested=("vcn",),  # the model has no video engine, so the board lists it as fused off
    reference_clock_10khz=10_000,
    boot_gfx_clock_10khz=50_000,  # UNKNOWN: what the board's own VBIOS says
    boot_memory_clock_10khz=9_600,
    revision=0,
    part_number="113-RINGUP31-001",
    vbios_date="11/03/22 00:00",
    vbios_version="ATOMBIOSBK-AMD VER022.001.002.008.000001",
)

# Shapes: AMD's data sheets of the Radeon RX 7800 XT and RX 7600 (CUs, ROPs, bus, Infinity Cache); with amdgpu's limits
# they determine engines and arrays. Caches: as on navi31, for each channel and array. GUESS: subsystems, companion
# functions, size of the TMR.
NAVI32 = replace(
    NAVI31,
    name="navi32",
    product="Radeon RX 7800 XT",
    functions=_board(_gpu(0x747E, 0xC8, 0x747E, _bars(16 << 10)), AUDIO),
    vram_bytes=16368 << 20,
    memory_channels=16,
    gc=GcShape(
        core=grbm.NAVI32, backends_per_engine=4, gl2_channels=16, sdma_engines=2, sdma=SDMA_6, l2_kib=4096, l1_kib=256
    ),
    power=tables.NAVI32,
    external_ips=(("SDMA0_HWID", "gc", (6, 0, 3)), ("SDMA1_HWID", "gc", (6, 0, 3)), ("MP1_HWID", "mp", (13, 0, 10))),
    part_number="113-RINGUP32-001",
    vbios_date="08/25/23 00:00",
    vbios_version="ATOMBIOSBK-AMD VER022.001.002.032.000001",
)
NAVI33 = replace(
    NAVI31,
    name="navi33",
    product="Radeon RX 7600",
    functions=_board(_gpu(0x7480, 0xCF, 0x7480, _bars(8 << 10)), AUDIO, lanes=8),
    vram_bytes=8176 << 20,
    memory_channels=8,
    gc=GcShape(
        core=grbm.NAVI33, backends_per_engine=4, gl2_channels=8, sdma_engines=2, sdma=SDMA_6, l2_kib=2048, l1_kib=256
    ),
    power=tables.NAVI33,
    external_ips=(("SDMA0_HWID", "gc", (6, 0, 2)), ("SDMA1_HWID", "gc", (6, 0, 2)), ("MP1_HWID", "mp", (13, 0, 7))),
    part_number="113-RINGUP33-001",
    vbios_date="05/10/23 00:00",
    vbios_version="ATOMBIOSBK-AMD VER022.001.002.033.000001",
)

# Shapes: AMD's data sheets of the Radeon RX 9070 XT and RX 9060 XT. Functions: `lspci -vvv` of both (`GENERATION_5`).
# GUESS: subsystems, size of the TMR, capabilities beyond navi31's, L1 caches, memory controllers' version and bases.
NAVI48 = replace(
    NAVI31,
    name="navi48",
    product="Radeon RX 9070 XT",
    functions=_board(
        _gpu(0x7550, 0xC0, 0x7550, _bars(16 << 10), 5),
        _companion("audio", 0xAB40, 0x040300, 2, Bar(0, 16 << 10, MEMORY_32), 5),
        link=GENERATION_5,
    ),
    vram_bytes=16304 << 20,
    memory_channels=16,
    gc=GcShape(
        core=grbm.NAVI48,
        backends_per_engine=4,
        gl2_channels=16,
        sdma_engines=2,
        sdma=SDMA_7,
        l2_kib=8192,
        l1_kib=256,
    ),
    power=tables.NAVI48,
    bus=NBIF_6_3,
    boot_tmr=True,
    # Public logs of amdgpu on cards with 16 GiB and 8 GiB: the GART's table of 1 MiB, placed as high as possible,
    # begins 517 MiB below the end ("table at 0x00000083DAB00000" of 16304M, "0x00000081DCB00000" of 8144M).
    reserved_bytes=516 << 20,
    external_ips=(("SDMA0_HWID", "gc", (7, 0, 1)), ("SDMA1_HWID", "gc", (7, 0, 1)), ("MP1_HWID", "mp", (14, 0, 3))),
    extra_bases={},
    controllers=((8, 14, 0), (0x14000, 0x54000, 0x94000, 0xD4000)),
    part_number="113-RINGUP48-001",
    vbios_date="02/14/25 00:00",
    vbios_version="ATOMBIOSBK-AMD VER022.001.002.048.000001",
)
NAVI44 = replace(
    NAVI48,
    name="navi44",
    product="Radeon RX 9060 XT",
    functions=_board(
        _gpu(0x7590, 0xC0, 0x7590, _bars(16 << 10), 5),
        _companion("audio", 0xAB40, 0x040300, 2, Bar(0, 16 << 10, MEMORY_32), 5),
        link=GENERATION_5,
    ),
    memory_channels=8,
    gc=GcShape(
        core=grbm.NAVI44,
        backends_per_engine=4,
        gl2_channels=8,
        sdma_engines=2,
        sdma=SDMA_7,
        l2_kib=4096,
        l1_kib=256,
    ),
    power=tables.NAVI44,
    external_ips=(("SDMA0_HWID", "gc", (7, 0, 0)), ("SDMA1_HWID", "gc", (7, 0, 0)), ("MP1_HWID", "mp", (14, 0, 2))),
    controllers=((8, 14, 0), (0x14000, 0x54000)),
    part_number="113-RINGUP44-001",
    vbios_date="05/05/25 00:00",
    vbios_version="ATOMBIOSBK-AMD VER022.001.002.044.000001",
)

# the Radeons; `every` has the accelerators too
CHIPS = {row.name: row for row in (NAVI31, NAVI32, NAVI33, NAVI44, NAVI48)}


def every() -> dict[str, ChipRow]:
    """Return all rows by name, in the order of their names."""
    # it builds on this module
    from ringup.silicon.amd.board.instinct import INSTINCTS

    return dict(sorted((CHIPS | INSTINCTS).items()))


def find(name: str) -> ChipRow:
    """Return the row of a chip; an unknown name raises `NoSuchCard`, which lists the known ones."""
    rows = every()
    try:
        return rows[name]
    except KeyError:
        raise NoSuchCard(f"no virtual card {name!r}; there are: {', '.join(rows)}") from None
