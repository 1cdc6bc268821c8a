"""The graphics core of a Radeon for compute: from its firmware's boot to a micro engine that takes queues, and back.

Firmware is loaded by the security processor and started by the run-list controller (RLC); this module waits for that,
sets what every VMID needs, starts the compute micro engine (MEC) and lets it interrupt. The graphics ring's engines
stay halted. Source: amdgpu gfx_v11_0.c (gfx_v11_0_hw_init and what it calls), gfx_v12_0.c; amdgpu_amdkfd_gfx_v11.c
(init_interrupts_v11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ringup.autogen.amd import gc as words
from ringup.autogen.amd import gc_cp, gc_hqd, gc_pipe, gc_rlc, gc_ucode, smuio
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus import doorbells
from ringup.drivers.amd.bus.access import Access
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.hqd import COMPUTE_ME, QUEUES, Hqd, Place, drop, selected
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.shape import Design, Shape, read_shape
from ringup.errors import DeviceHung, NotSupported

TIMEOUT_US = 100_000  # TIMEOUT: amdgpu's own bound, AMDGPU_MAX_USEC_TIMEOUT in amdgpu.h
# TIMEOUT: amdgpu polls as often as that, with two reads and 1 us between: up to 0.3 s in truth
BOOT_TIMEOUT_US = 500_000
# GUESS: amdgpu waits 50 us and then does other things; queues come at once here, the firmware must run by then
MEC_SETTLE_US = 50_000
VMIDS = 16
SHARED_BASE, PRIVATE_BASE = 1, 2  # bits 63:48 of the apertures of LDS and scratch. Source: gfx_v11_0_init_compute_vmid
ADDRESS_MODE_64, ALIGNMENT_UNALIGNED, PREFETCH = 0, 3, 3  # Source: DEFAULT_SH_MEM_CONFIG in gfx_v11_0.c; soc21_enum.h
READ_TIMEOUT = 0xFF  # Source: gfx_v11_0_constants_init
TCP_GOLDEN = 0x2000_0000  # of TCP_CNTL; no header names the bit. Source: gfx_v11_0.c, golden_settings_gc_11_0
DB_GOLDEN = 0x8000  # of DB_MEM_CONFIG. Source: gfx_v12_0.c, golden_settings_gc_12_0
_GOLDEN: dict[int, tuple[type[Word], int]] = {
    11: (gc_pipe.TCP_CNTL, TCP_GOLDEN),
    12: (gc_pipe.DB_MEM_CONFIG, DB_GOLDEN),
}
_PIPES: dict[int, int] = {11: 4, 12: 2}  # of the compute micro engine. Source: gfx_v11_0_sw_init, gfx_v12_0_sw_init
_PIPE_INTERRUPTS = (
    gc_cp.CP_ME1_PIPE0_INT_CNTL,
    gc_cp.CP_ME1_PIPE1_INT_CNTL,
    gc_cp.CP_ME1_PIPE2_INT_CNTL,
    gc_cp.CP_ME1_PIPE3_INT_CNTL,
)
_INTERRUPTS = ("time_stamp_int_enable", "generic0_int_enable", "priv_reg_int_enable", "opcode_error_int_enable")
_ENGINE_STATUS: tuple[type[Word], ...] = (
    words.GRBM_STATUS_SE0,
    words.GRBM_STATUS_SE1,
    words.GRBM_STATUS_SE2,
    words.GRBM_STATUS_SE3,
    words.GRBM_STATUS_SE4,
    words.GRBM_STATUS_SE5,
)
_POST_MORTEM: tuple[type[Word], ...] = (
    words.GRBM_STATUS,
    words.GRBM_STATUS2,
    words.GRBM_STATUS3,
    gc_cp.CP_STAT,
    gc_cp.CP_BUSY_STAT,
    gc_cp.CP_STALLED_STAT1,
    gc_cp.CP_STALLED_STAT2,
    gc_cp.CP_STALLED_STAT3,
    gc_cp.CP_CPC_STATUS,
    gc_cp.CP_CPC_BUSY_STAT,
    gc_cp.CP_CPC_STALLED_STAT1,
    gc_cp.CP_CPF_STATUS,
    gc_cp.CP_CPF_BUSY_STAT,
    gc_cp.CP_CPF_STALLED_STAT1,
    gc_cp.CP_MEC_RS64_CNTL,
    gc_cp.CP_MEC_RS64_INSTR_PNTR,
    gc_rlc.RLC_STAT,
    gc_rlc.RLC_GPM_STAT,
)


class Gfx:
    """The graphics core of one card: `boot`, then its memory hub, then `start`.

    `mec_start` is where the compute micro engine's firmware begins, a byte address from the image's header (RS64
    images, version 2). `vmids` are those that queues will run in.
    """

    def __init__(
        self, gc: Block, smuio_block: Block, design: Design, mec_start: int, vmids: Sequence[int] = range(VMIDS)
    ) -> None:
        if gc.version[0] not in _PIPES:
            raise NotSupported(
                f"the graphics core is version {'.'.join(map(str, gc.version))}; {', '.join(map(str, _PIPES))} are known"
            )
        self.block, self.design = gc, design
        self.pipes = _PIPES[gc.version[0]]
        self.shape: Shape | None = None
        self._smuio, self._mec_start, self._vmids = smuio_block, mec_start, tuple(vmids)

    def boot(self) -> None:
        """Wait until the core's firmware is loaded and started. Raises `DeviceTimeout` after 500 ms."""
        gc = self.block
        doing = "waiting for the graphics core's firmware"
        gc.wait(gc_rlc.RLC_RLCS_BOOTLOAD_STATUS, lambda word: bool(word.bootload_complete), BOOT_TIMEOUT_US, doing)
        gc.wait(gc_cp.CP_STAT, lambda word: not int(word), BOOT_TIMEOUT_US, doing)
        if not int(gc.read(words.GB_ADDR_CONFIG)):
            raise DeviceHung(
                "GB_ADDR_CONFIG reads 0: the graphics core booted without its configuration; reset the card"
            )

    def start(self) -> None:
        """Set what all queues need and let the micro engine run. `boot` must be done and the core's memory hub up."""
        gc = self.block
        golden, bits = _GOLDEN[gc.version[0]]
        gc.write(golden.at(gc.version)(int(gc.read(golden)) | bits))
        gc.update(words.GRBM_CNTL, read_timeout=READ_TIMEOUT)
        self.shape = read_shape(gc, self.design)
        self._start_vmids()
        gc.update(gc_rlc.RLC_SRM_CNTL, srm_enable=1, auto_incr_addr=1)
        self._place_mec()
        self._set_doorbells()
        self._halt_mec(False)
        gc.registers.clock.sleep_us(MEC_SETTLE_US)
        self._set_interrupts(True)

    def stop(self) -> None:
        """Unmap queues that are still mapped, switch interrupts off and halt the micro engine; twice is harmless."""
        self.drop_queues()
        self._set_interrupts(False)
        self._halt_mec(True)

    # --- what VMIDs need ----------------------------------------------------------------------------------------
    def _start_vmids(self) -> None:
        """Set how shaders of the driver's VMIDs see memory; none may use global data share, wave synchronisation or
        ordered append.
        """
        gc = self.block
        config = gc.make(
            words.SH_MEM_CONFIG,
            address_mode=ADDRESS_MODE_64,
            alignment_mode=ALIGNMENT_UNALIGNED,
            initial_inst_prefetch=PREFETCH,
        )
        bases = gc.make(words.SH_MEM_BASES, shared_base=SHARED_BASE, private_base=PRIVATE_BASE)
        for vmid in self._vmids:
            with gc.selected(gc.make(words.GRBM_GFX_CNTL, vmid=vmid), gc.make(words.GRBM_GFX_CNTL)):
                gc.write(config)
                gc.write(bases)
        if gc.version[0] > 11:  # without a global data share
            return
        for vmid in self._vmids:
            gc.write(gc.make(words.GDS_VMID0_BASE), 2 * vmid)
            gc.write(gc.make(words.GDS_VMID0_SIZE), 2 * vmid)
            gc.write(gc.make(words.GDS_GWS_VMID0), vmid)
            gc.write(gc.make(words.GDS_OA_VMID0), vmid)

    # --- the compute micro engine -------------------------------------------------------------------------------
    def _each_pipe(self) -> Iterator[int]:
        gc = self.block
        for pipe in range(self.pipes):
            select = gc.make(words.GRBM_GFX_CNTL, meid=COMPUTE_ME, pipeid=pipe)
            with gc.selected(select, gc.make(words.GRBM_GFX_CNTL)):
                yield pipe

    def _place_mec(self) -> None:
        """Set where each pipe's program begins and restart the pipe there. Source: gfx_v11_0_config_gfx_rs64."""
        gc = self.block
        for _ in self._each_pipe():
            gc.write_pair(
                gc_ucode.CP_MEC_RS64_PRGRM_CNTR_START, gc_ucode.CP_MEC_RS64_PRGRM_CNTR_START_HI, self._mec_start >> 2
            )
        for asserted in (1, 0):
            gc.update(gc_cp.CP_MEC_RS64_CNTL, **{f"mec_pipe{pipe}_reset": asserted for pipe in range(self.pipes)})

    @property
    def halted(self) -> bool:
        """Whether the compute micro engine is halted, so that no compute queue makes progress."""
        return bool(self.block.read(gc_cp.CP_MEC_RS64_CNTL).mec_halt)

    def _halt_mec(self, halt: bool) -> None:
        """Halt the micro engine or let it run. Source: gfx_v11_0_cp_compute_enable."""
        pipes = range(self.pipes)
        self.block.update(
            gc_cp.CP_MEC_RS64_CNTL,
            mec_invalidate_icache=halt,
            mec_halt=halt,
            **{f"mec_pipe{pipe}_reset": halt for pipe in pipes},
            **{f"mec_pipe{pipe}_active": not halt for pipe in pipes},
        )

    def _set_doorbells(self) -> None:
        """Set the range of the command processor's doorbells and enable it."""
        gc = self.block
        for low, high, (first, last) in (
            (gc_cp.CP_RB_DOORBELL_RANGE_LOWER, gc_cp.CP_RB_DOORBELL_RANGE_UPPER, doorbells.GFX_RANGE),
            (gc_cp.CP_MEC_DOORBELL_RANGE_LOWER, gc_cp.CP_MEC_DOORBELL_RANGE_UPPER, doorbells.MEC_RANGE),
        ):
            gc.write(low.at(gc.version)(doorbell_range_lower=first))
            gc.write(high.at(gc.version)(doorbell_range_upper=last))
        # queues are told by doorbells alone
        gc.update(gc_hqd.CP_PQ_WPTR_POLL_CNTL, en=0)
        gc.update(gc_hqd.CP_PQ_STATUS, doorbell_enable=1)

    def _set_interrupts(self, on: bool) -> None:
        """Switch the pipes' interrupts for end of pipe and errors on or off."""
        gc = self.block
        fields = dict.fromkeys(_INTERRUPTS, int(on))
        for word in _PIPE_INTERRUPTS[: self.pipes]:
            gc.update(word, **fields)
        for _ in self._each_pipe():
            gc.write(gc.make(gc_cp.CPC_INT_CNTL, time_stamp_int_enable=on, opcode_error_int_enable=on))

    @contextmanager
    def safe_mode(self) -> Iterator[None]:
        """Keep clocks and power of the core on while queue registers are accessed. Raises `DeviceTimeout` when the RLC
        does not answer.
        """
        gc = self.block
        gc.write(gc.make(gc_rlc.RLC_SAFE_MODE, cmd=1, message=1))
        gc.wait(gc_rlc.RLC_SAFE_MODE, lambda word: not word.cmd, TIMEOUT_US, "asking the RLC for safe mode")
        try:
            yield
        finally:
            gc.write(gc.make(gc_rlc.RLC_SAFE_MODE, cmd=1))

    # --- queues -------------------------------------------------------------------------------------------------
    def queue(
        self, place: Place, spec: QueueSpec, descriptor: memoryview | Access, flush_hdp: Callable[[], None]
    ) -> Hqd:
        """Return a queue that can be mapped at `place`; `descriptor` is the page of memory at `spec.mqd_va`; see
        `Hqd`.
        """
        if place.pipe >= self.pipes:
            raise ValueError(f"this chip has pipes 0 to {self.pipes - 1}, not {place.pipe}")
        return Hqd(self.block, place, spec, descriptor, self.safe_mode, flush_hdp)

    def active_queues(self) -> list[Place]:
        """Return the places of mapped queues: this driver's or a previous one's."""
        gc, found = self.block, []
        for pipe in range(self.pipes):
            for queue in range(QUEUES):
                place = Place(pipe, queue)
                with selected(gc, place):
                    if gc.read(gc_hqd.CP_HQD_ACTIVE).active:
                        found.append(place)
        return found

    def drop_queues(self) -> list[Place]:
        """Kill the work of every mapped queue and unmap it; return their places. Raises `DeviceHung` when one does not
        let go.
        """
        places = self.active_queues()
        for place in places:
            drop(self.block, place, self.safe_mode)
        return places

    # --- state --------------------------------------------------------------------------------------------------
    @property
    def idle(self) -> bool:
        """Whether nothing runs on the core."""
        return not self.block.read(words.GRBM_STATUS).gui_active

    def wait_idle(self, timeout_us: int = TIMEOUT_US) -> None:
        """Wait until nothing runs on the core. Raises `DeviceTimeout`."""
        self.block.wait(
            words.GRBM_STATUS, lambda word: not word.gui_active, timeout_us, "waiting for the graphics core to be idle"
        )

    def gpu_clock(self) -> int:
        """Return the card's time stamp counter of 100 MHz, which counts in every power state."""
        block = self._smuio
        high = int(block.read(smuio.GOLDEN_TSC_COUNT_UPPER))
        low = int(block.read(smuio.GOLDEN_TSC_COUNT_LOWER))
        again = int(block.read(smuio.GOLDEN_TSC_COUNT_UPPER))
        # the low half wrapped in between
        if again != high:
            low = int(block.read(smuio.GOLDEN_TSC_COUNT_LOWER))
        return again << 32 | low

    def status(self) -> dict[str, Word]:
        """Read the registers for a post-mortem, by name."""
        engines = _ENGINE_STATUS[: self.design.shader_engines]
        return {word.__name__: self.block.read(word) for word in _POST_MORTEM + engines}
