"""The register bus of the graphics core (GRBM): which queue, VMID and shader engine an access selects, status, soft
reset, clocks.

Source: amdgpu soc21.c (soc21_grbm_select), gfx_v11_0.c (select_se_sh, soft_reset, get_gb_addr_config), gfx_v9_4_3.c
(xcc_select_se_sh), gc_11_0_0 and gc_9_4_3 headers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ringup.autogen.amd import gc
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.gc.generation import CDNA3, RDNA3, RDNA4, Generation
from ringup.silicon.common.cells import Cells

# the counter that RLC_GPU_CLOCK_COUNT shows: amdgpu soc21_get_xclk
REFERENCE_HZ = 100_000_000
# shader engines that fit in the register space
PRESENT_LIMIT = 8


class Slot(NamedTuple):
    """The place of a queue: micro engine 0 is graphics, 1 and 2 are MEC, 3 is MES."""

    me: int
    pipe: int
    queue: int

    def __str__(self) -> str:
        return f"{self.me}.{self.pipe}.{self.queue}"

    @property
    def ring_id(self) -> int:
        """The queue's number in interrupt entries. Source: gfx_v11_0.c, eop_irq."""
        return self.me << 2 | self.pipe | self.queue << 4


class Chosen(NamedTuple):
    """GRBM_GFX_INDEX: the engine, array and instance that accesses select. GFX9 calls the arrays SH."""

    se_index: int
    sa_index: int
    instance_index: int
    se_broadcast_writes: int
    sa_broadcast_writes: int
    instance_broadcast_writes: int


@dataclass(frozen=True, slots=True)
class GcRow:
    """The differences between graphics cores. `target`: the name that compilers have for its shader cores."""

    version: tuple[int, int, int]
    target: str
    shader_engines: int
    arrays_per_engine: int
    wgps_per_array: int
    gb_addr_config: int
    mec_pipes: int = 4
    queues_per_pipe: int = 8
    gfx_pipes: int = 2
    gfx_queues_per_pipe: int = 2
    # CP_MES_GP3_LO of the scheduler and of the KIQ: version 11:0, API 23:12, feature 31:24
    mes_versions: tuple[int, int] = (0, 0)
    # the size of a SIMD's register file, in rows of 32 lanes. Source: LLVM, feature 1_5xVGPRs
    simd_vgprs: int = 1536
    # fused off, by shader engine and array
    disabled_wgps: dict[tuple[int, int], int] = field(default_factory=dict)
    generation: Generation = RDNA3
    # 1 before RDNA: there are no WGPs, and what this row calls one is a CU
    cus_per_wgp: int = 2

    @property
    def compute_units(self) -> int:
        """The working CUs; each WGP has two."""
        off = sum(mask.bit_count() for mask in self.disabled_wgps.values())
        return self.cus_per_wgp * (self.shader_engines * self.arrays_per_engine * self.wgps_per_array - off)


# UNKNOWN: no public document gives the MES version that a board's firmware reports; amdgpu maps kernel queues through
# MES from version 0x47
MES_VERSIONS = (0x0100_207B, 0x0100_207B)
NAVI31 = GcRow((11, 0, 0), "gfx1100", 6, 2, 4, 0x545, mes_versions=MES_VERSIONS)
# GUESS: the address configurations. navi31 has 2^5 pipes for 24 memory channels and 2^5 packers for 24; the other two
# have 16 channels and 12 packers, and 8 and 8:
NAVI32 = GcRow((11, 0, 3), "gfx1101", 3, 2, 5, 0x444, mes_versions=MES_VERSIONS)
NAVI33 = GcRow((11, 0, 2), "gfx1102", 2, 2, 4, 0x343, mes_versions=MES_VERSIONS, simd_vgprs=1024)
# Source: gfx_v12_0.c, sw_init (pipes and queues; 8 of graphics since "Set the actual number of queues per pipe for
# ME0"); versions as in Debian's gc_12_0_0_uni_mes.bin. GUESS: the address configurations, for 16 channels and 16
# packers, and for 8 and 8
NAVI48 = GcRow(
    (12, 0, 1), "gfx1201", 4, 2, 4, 0x444, mec_pipes=2, queues_per_pipe=4, gfx_pipes=1, gfx_queues_per_pipe=8,
    mes_versions=(0x0101_4076, 0x0101_4076), generation=RDNA4,
)  # fmt: skip
NAVI44 = replace(NAVI48, version=(12, 0, 0), target="gfx1200", shader_engines=2, gb_addr_config=0x343)
# One of eight: 40 CUs, of which 38 work. Source: gfx_v9_4_3.c (pipes, queues, GOLDEN_GB_ADDR_CONFIG), AMD's CDNA3 white
# paper. GUESS: which two are fused off
MI300X = GcRow(
    (9, 4, 3), "gfx942", 4, 1, 10, 0x2A11_4042, gfx_pipes=0, simd_vgprs=512,
    disabled_wgps={(0, 0): 1 << 9, (1, 0): 1 << 9}, generation=CDNA3, cus_per_wgp=1,
)  # fmt: skip

PER_VMID = ("SH_MEM_BASES", "SH_MEM_CONFIG", "SQ_SHADER_TBA_LO", "SQ_SHADER_TBA_HI", "SQ_SHADER_TMA_LO", "SQ_SHADER_TMA_HI",
            "SPI_GDBG_PER_VMID_CNTL")  # fmt: skip
PER_PIPE = ("CPC_INT_CNTL", "CP_MEC_RS64_PRGRM_CNTR_START", "CP_MEC_RS64_PRGRM_CNTR_START_HI", "CP_MEC_MDBASE_LO", "CP_MEC_MDBASE_HI",
            "CP_CPC_IC_BASE_LO", "CP_CPC_IC_BASE_HI", "CP_PFP_PRGRM_CNTR_START", "CP_PFP_PRGRM_CNTR_START_HI",
            "CP_ME_PRGRM_CNTR_START", "CP_ME_PRGRM_CNTR_START_HI")  # fmt: skip
PER_QUEUE_PREFIXES = (
    "CP_HQD_",
    "CP_MQD_",
    "COMPUTE_",
    "CP_GFX_HQD_",
    "CP_GFX_MQD_",
    "CP_RB_WPTR_POLL_ADDR_",
    "CP_RB_DOORBELL_CONTROL",
)
PER_PIPE_PREFIXES = ("CP_MES_",)
# exceptions to the prefixes
SHARED = ("CP_MES_CNTL",)
PER_ARRAY = (
    "CC_GC_SHADER_ARRAY_CONFIG",
    "GC_USER_SHADER_ARRAY_CONFIG",
    "CC_GC_SHADER_RATE_CONFIG",
    "GC_USER_SHADER_RATE_CONFIG",
)


class Acting:
    """A context in which register accesses are those of a queue."""

    __slots__ = ("_before", "_grbm", "_is")

    def __init__(self, grbm: Grbm, slot: Slot, vmid: int) -> None:
        self._grbm, self._is = grbm, (slot, vmid)
        self._before: tuple[Slot, int] | None = None

    def __enter__(self) -> None:
        self._before, self._grbm.actor = self._grbm.actor, self._is

    def __exit__(self, *_: object) -> None:
        self._grbm.actor = self._before


class Grbm:
    """Decodes what an access to the graphics core's registers selects. `cells` holds the registers of the whole core;
    the caller attaches and resets it.
    """

    def __init__(self, board: Board, cells: Cells, row: GcRow = NAVI31) -> None:
        self.board, self.cells, self.row = board, cells, row
        self.busy: Callable[[], tuple[bool, bool, bool]] = lambda: (False, False, False)  # graphics, compute, shaders
        self.on_soft_reset: Callable[[int], None] = lambda mask: None
        self._select = gc.GRBM_GFX_CNTL.at(row.version)
        chosen = gc.GRBM_GFX_INDEX.at(row.version)
        arrays = "sa" if "sa_index" in chosen.FIELDS else "sh"
        self._chosen = chosen
        self._chosen_fields = [name.replace("sa_", f"{arrays}_", 1) for name in Chosen._fields]
        # queue and VMID while a micro engine accesses registers for a queue
        self.actor: tuple[Slot, int] | None = None
        # the registers of an array that this version has
        self._per_array = [name for name in PER_ARRAY if name in cells]
        self._banks()
        for name in ("GB_ADDR_CONFIG", "GB_ADDR_CONFIG_READ"):
            cells.resets_to(name, row.gb_addr_config)
        self._status()
        self._clocks()
        cells.on_write("GRBM_SOFT_RESET", lambda mask: self.on_soft_reset(mask))
        self._fuses()

    def reset(self) -> None:
        """Load the fuses again, after their owner has reset the registers."""
        self.actor = None
        self._fuses()

    # --- banks --------------------------------------------------------------------------------------------------
    def slot(self) -> Slot:
        """Return the queue that accesses select now: the one in GRBM_GFX_CNTL, or the queue of the micro engine that
        accesses.
        """
        if self.actor is not None:
            return self.actor[0]
        word = self._select(self.cells["GRBM_GFX_CNTL"])
        return Slot(word.meid, word.pipeid, word.queueid)

    def vmid(self) -> int:
        """Return the VMID that accesses select now."""
        if self.actor is not None:
            return self.actor[1]
        vmid: int = self._select(self.cells["GRBM_GFX_CNTL"]).vmid
        return vmid

    def acting(self, slot: Slot, vmid: int) -> Acting:
        """Return a context in which register accesses are those of a queue, whatever the host has selected."""
        return Acting(self, slot, vmid)

    def _banks(self) -> None:
        cells = self.cells
        per_queue, per_pipe = (
            [name for prefix in prefixes for name in cells.names_from(prefix) if name not in SHARED]
            for prefixes in (PER_QUEUE_PREFIXES, PER_PIPE_PREFIXES)
        )
        cells.bank(per_queue, self.slot)
        cells.bank([*per_pipe, *(name for name in PER_PIPE if name in cells)], lambda: self.slot()[:2])
        cells.bank(PER_VMID, self.vmid)
        cells.bank(self._per_array, self._array)
        for name in self._per_array:
            cells.on_write(name, self._spreader(name))

    def index(self) -> Chosen:
        """Return the engine, array and instance that accesses select."""
        word = self._chosen(self.cells["GRBM_GFX_INDEX"])
        return Chosen(*(getattr(word, name) for name in self._chosen_fields))

    def _array(self) -> tuple[int, int]:
        """Return the engine and array that reads select; the first ones while broadcasting."""
        index = self.index()
        engine = 0 if index.se_broadcast_writes else index.se_index
        return engine, 0 if index.sa_broadcast_writes else index.sa_index

    def _spreader(self, name: str) -> Callable[[int], None]:
        def spread(value: int) -> None:
            index, row = self.index(), self.row
            engines = range(row.shader_engines) if index.se_broadcast_writes else (index.se_index,)
            arrays = range(row.arrays_per_engine) if index.sa_broadcast_writes else (index.sa_index,)
            for engine in engines:
                for array in arrays:
                    self.cells.set_of((engine, array), name, value)

        return spread

    def _fuses(self) -> None:
        for place, mask in self.row.disabled_wgps.items():
            self.cells.set_of(place, "CC_GC_SHADER_ARRAY_CONFIG", mask << 16)

    def lose_half(self) -> None:
        """Fuse off half of every array."""
        half = (1 << self.row.wgps_per_array // 2) - 1
        for engine in range(self.row.shader_engines):
            for array in range(self.row.arrays_per_engine):
                self.cells.set_of((engine, array), "CC_GC_SHADER_ARRAY_CONFIG", half << 16)

    # --- status and clocks --------------------------------------------------------------------------------------
    def _status(self) -> None:
        cells = self.cells
        cells.on_read("GRBM_STATUS", self._grbm_status)
        cells.on_read("GRBM_STATUS2", self._grbm_status2)
        cells.on_read("CP_STAT", lambda: cells.replace("CP_STAT", 0, cp_busy=1, me_busy=1) if self.busy()[0] else 0)
        cells.on_read(
            "CP_CPC_STATUS", lambda: cells.replace("CP_CPC_STATUS", 0, mec1_busy=1, cpc_busy=1) if self.busy()[1] else 0
        )
        for engine in range(self.row.shader_engines):
            name = f"GRBM_STATUS_SE{engine}"
            cells.on_read(name, partial(self._engine_status, name))

    def _engine_status(self, name: str) -> int:
        return self.cells.replace(name, 0, db_clean=1, cb_clean=1, spi_busy=int(self.busy()[2]))

    def _grbm_status(self) -> int:
        graphics, compute, shaders = self.busy()
        # GFX9 lacks the field
        active = {"any_active": int(shaders)} if self.cells.has_field("GRBM_STATUS", "any_active") else {}
        return self.cells.replace(
            "GRBM_STATUS", 0, me0pipe0_cmdfifo_avail=8, db_clean=1, cb_clean=1, cp_busy=int(graphics or compute),
            spi_busy=int(shaders), gui_active=int(graphics or compute or shaders), **active,
        )  # fmt: skip

    def _grbm_status2(self) -> int:
        graphics, compute, _ = self.busy()
        return self.cells.replace(
            "GRBM_STATUS2", 0, me0pipe1_cmdfifo_avail=8, cpf_busy=int(graphics or compute), cpc_busy=int(compute),
            cpg_busy=int(graphics),
        )  # fmt: skip

    def ticks(self) -> int:
        """Return the 64-bit reference clock counter."""
        return self.board.clock.ticks(REFERENCE_HZ)

    def _clocks(self) -> None:
        """Install the clock counters. They latch when RLC_CAPTURE_GPU_CLOCK_COUNT is written; each numbered copy has
        its own capture register.
        """
        for suffix in ("", "_1", "_2"):
            self.cells.on_write(f"RLC_CAPTURE_GPU_CLOCK_COUNT{suffix}", self._capturer(suffix))
        if self.row.generation.mes is not None:
            self.cells.on_read("CP_MES_MTIME_LO", lambda: self.ticks() & 0xFFFF_FFFF)
            self.cells.on_read("CP_MES_MTIME_HI", lambda: self.ticks() >> 32)

    def _capturer(self, suffix: str) -> Callable[[int], None]:
        def capture(value: int) -> None:
            now = self.ticks()
            self.cells[f"RLC_GPU_CLOCK_COUNT_LSB{suffix}"] = now
            self.cells[f"RLC_GPU_CLOCK_COUNT_MSB{suffix}"] = now >> 32

        return capture
