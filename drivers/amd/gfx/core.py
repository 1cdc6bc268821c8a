"""The graphics core of a Radeon for compute: from its firmware's boot to a micro engine that takes queues, and back.

Firmware is loaded by the security processor and started by the run-list controller (RLC); this module waits for that,
sets what every VMID needs, starts the compute micro engine (MEC) and lets it interrupt. The graphics ring's engines
stay halted. What differs between generations is a row of `rows`. A card may have several such cores (XCCs), each a die,
which share the work of a queue. Source: amdgpu gfx_v11_0.c (gfx_v11_0_hw_init and what it calls), gfx_v12_0.c,
gfx_v9_4_3.c; amdgpu_amdkfd_gfx_v11.c (init_interrupts_v11), amdgpu_amdkfd_gfx_v12.c, amdgpu_amdkfd_gfx_v9.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from ringup.autogen.amd import gc as words
from ringup.autogen.amd import gc_cp, gc_hqd, gc_rlc, gc_ucode, smuio
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.doorbells import NAVI10, Assignment
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.hqd import COMPUTE_ME, Hqd, Place, drop, selector
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.rows import Golden, core_row
from ringup.drivers.amd.gfx.shape import Design, Shape, read_shape
from ringup.drivers.memory.access import Access
from ringup.errors import DeviceHung

TIMEOUT_US = 100_000  # TIMEOUT: amdgpu's own bound, AMDGPU_MAX_USEC_TIMEOUT in amdgpu.h
# TIMEOUT: amdgpu polls as often as that, with two reads and 1 us between: up to 0.3 s in truth
BOOT_TIMEOUT_US = 500_000
# GUESS: amdgpu waits 50 us and then does other things; queues come at once here, the firmware must run by then
MEC_SETTLE_US = 50_000
VMIDS = 16
SHARED_BASE, PRIVATE_BASE = 1, 2  # bits 63:48 of the apertures of LDS and scratch. Source: gfx_v11_0_init_compute_vmid
ADDRESS_MODE_64, ALIGNMENT_UNALIGNED = 0, 3  # Source: DEFAULT_SH_MEM_CONFIG in gfx_v11_0.c; soc21_enum.h
READ_TIMEOUT = 0xFF  # Source: gfx_v11_0_constants_init
GRAPHICS_ME, FRONT_PIPES = 0, 2  # the micro engine of the graphics ring, and its pipes
# of the graphics ring's engines: where the program of the selected pipe begins, and the resets of all pipes
_FRONT_ENDS = (
    (
        gc_ucode.CP_PFP_PRGRM_CNTR_START,
        gc_ucode.CP_PFP_PRGRM_CNTR_START_HI,
        ("pfp_pipe0_reset", "pfp_pipe1_reset"),
    ),
    (
        gc_ucode.CP_ME_PRGRM_CNTR_START,
        gc_ucode.CP_ME_PRGRM_CNTR_START_HI,
        ("me_pipe0_reset", "me_pipe1_reset"),
    ),
)
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
    gc_rlc.RLC_STAT,
    gc_rlc.RLC_GPM_STAT,
)


class Gfx:
    """The graphics core of one card, or one of its cores: `boot`, `place_programs`, then its memory hub, then `start`.

    `mec_start` is where the compute micro engine's firmware begins, a byte address from the image's header (RS64
    images, version 2); `front_starts` are the same of the graphics ring's engines, PFP and ME. `vmids` are those that
    queues will run in. `first_silicon` tells whether the chip is of revision 0. `xcc`: the core's logical number.
    """

    def __init__(
        self,
        gc: Block,
        smuio_block: Block,
        design: Design,
        mec_start: int,
        vmids: Sequence[int] = range(VMIDS),
        *,
        front_starts: tuple[int, int] = (0, 0),
        first_silicon: Callable[[], bool] = lambda: False,
        doorbells: Assignment = NAVI10,
        xcc: int = 0,
    ) -> None:
        self.block, self.design, self.row = gc, design, core_row(gc.version)
        self.pipes = self.row.pipes
        self.shape: Shape | None = None
        self._smuio, self._mec_start, self._vmids = smuio_block, mec_start, tuple(vmids)
        self._front_starts, self._first_silicon = front_starts, first_silicon
        self._doorbells, self.xcc = doorbells, xcc

    def boot(self) -> None:
        """Wait until the core's firmware is loaded. Raises `DeviceTimeout` after 500 ms."""
        gc = self.block
        if not self.row.autoload:
            # the security processor has started each engine itself
            return
        doing = "waiting for the graphics core's firmware"
        gc.wait(gc_rlc.RLC_RLCS_BOOTLOAD_STATUS, lambda word: bool(word.bootload_complete), BOOT_TIMEOUT_US, doing)
        gc.wait(gc_cp.CP_STAT, lambda word: not int(word), BOOT_TIMEOUT_US, doing)
        if not int(gc.read(words.GB_ADDR_CONFIG)):
            raise DeviceHung(
                "GB_ADDR_CONFIG reads 0: the graphics core booted without its configuration; reset the card"
            )

    def start(self) -> None:
        """Set what all queues need and let the micro engine run. `boot` and `place_programs` must be done and the
        core's memory hub up.
        """
        start_all([self])

    def prepare(self) -> None:
        """Take the first part of `start`: the micro engine runs, and has the time that it needs still before it."""
        gc = self.block
        self._set_golden()
        if self.row.read_timeout:
            gc.ensure(words.GRBM_CNTL, read_timeout=READ_TIMEOUT)
        self.shape = read_shape(gc, self.design)
        self._start_vmids()
        gc.ensure(gc_rlc.RLC_SRM_CNTL, srm_enable=1, auto_incr_addr=1)
        self._set_doorbells()
        self._halt_mec(False)

    def finish(self) -> None:
        """Take the last part of `start`."""
        self._set_interrupts(True)

    def stop(self) -> None:
        """Unmap queues that are still mapped, switch interrupts off and halt the micro engine; twice is harmless."""
        self.drop_queues()
        self._set_interrupts(False)
        self._halt_mec(True)

    def _set_golden(self) -> None:
        """Make the settings of the kernel's tables."""
        gc, row = self.block, self.row
        by_revision: tuple[Golden, ...] = ()
        if row.golden_first or row.golden_later:
            by_revision = row.golden_first if self._first_silicon() else row.golden_later
        for word, mask, bits in (*row.golden, *by_revision):
            seen = int(gc.read(word))
            wanted = seen & ~mask | bits
            if wanted != seen:
                gc.write(word.at(gc.version)(wanted))

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
            **self.row.shader_memory,
        )
        bases = gc.make(words.SH_MEM_BASES, shared_base=SHARED_BASE, private_base=PRIVATE_BASE)
        with gc.selecting(gc.make(words.GRBM_GFX_CNTL)) as select:
            for vmid in self._vmids:
                select(gc.make(words.GRBM_GFX_CNTL, vmid=vmid))
                gc.write(config)
                gc.write(bases)
        if not self.row.data_share:
            return
        for vmid in self._vmids:
            gc.write(gc.make(words.GDS_VMID0_BASE), 2 * vmid)
            gc.write(gc.make(words.GDS_VMID0_SIZE), 2 * vmid)
            gc.write(gc.make(words.GDS_GWS_VMID0), vmid)
            gc.write(gc.make(words.GDS_OA_VMID0), vmid)

    # --- the compute micro engine -------------------------------------------------------------------------------
    def _each_pipe(self, engine: int, pipes: int, step: Callable[[], None]) -> None:
        """Take `step` with each pipe of a micro engine selected."""
        gc = self.block
        with gc.selecting(gc.make(words.GRBM_GFX_CNTL)) as select:
            for pipe in range(pipes):
                select(gc.make(words.GRBM_GFX_CNTL, meid=engine, pipeid=pipe))
                step()

    def place_programs(self) -> None:
        """Set where each pipe's program begins and restart the pipe there, behind `boot`; a reset of the command
        processor takes it away. Source: gfx_v11_0_config_gfx_rs64.

        ORDER: before the core's memory hub is started, as amdgpu does. A driver of others for gfx12 reports that the
        hub does not answer a flush before.
        """
        gc = self.block
        front_ends = zip(_FRONT_ENDS, self._front_starts, strict=True) if self.row.front_ends else ()
        for (start, start_high, resets), at in front_ends:
            self._each_pipe(GRAPHICS_ME, FRONT_PIPES, partial(gc.write_pair, start, start_high, at >> 2))
            for asserted in (1, 0):
                gc.update(gc_cp.CP_ME_CNTL, **dict.fromkeys(resets, asserted))
        engine = self.row.micro_engine
        if engine.starts is None:
            return
        (start, start_high), pipes = engine.starts
        self._each_pipe(COMPUTE_ME, pipes, partial(gc.write_pair, start, start_high, self._mec_start >> 2))
        for asserted in (1, 0):
            gc.update(engine.control, **{f"mec_pipe{pipe}_reset": asserted for pipe in range(pipes)})

    @property
    def halted(self) -> bool:
        """Whether the compute micro engine is halted, so that no compute queue makes progress."""
        engine = self.row.micro_engine
        return bool(getattr(self.block.read(engine.control), engine.halted))

    def halt(self) -> None:
        """Halt the compute micro engine."""
        self._halt_mec(True)

    def _halt_mec(self, halt: bool) -> None:
        """Halt the micro engine or let it run. Source: gfx_v11_0_cp_compute_enable."""
        engine, gc = self.row.micro_engine, self.block
        fields = engine.halt if halt else engine.run
        if engine.whole:
            gc.write(gc.make(engine.control, **fields))
        else:
            gc.update(engine.control, **fields)

    def _set_doorbells(self) -> None:
        """Set the range of the command processor's doorbells and enable it."""
        gc = self.block
        for low, high, doorbells in (
            (gc_cp.CP_RB_DOORBELL_RANGE_LOWER, gc_cp.CP_RB_DOORBELL_RANGE_UPPER, self._doorbells.graphics_range),
            (gc_cp.CP_MEC_DOORBELL_RANGE_LOWER, gc_cp.CP_MEC_DOORBELL_RANGE_UPPER, self._doorbells.mec_range),
        ):
            if doorbells is not None:
                first, last = doorbells
                gc.write(low.at(gc.version)(doorbell_range_lower=first))
                gc.write(high.at(gc.version)(doorbell_range_upper=last))
        # queues are told by doorbells alone
        gc.update(gc_hqd.CP_PQ_WPTR_POLL_CNTL, en=0)
        gc.ensure(gc_hqd.CP_PQ_STATUS, doorbell_enable=1)

    def _set_interrupts(self, on: bool) -> None:
        """Switch the pipes' interrupts for end of pipe and errors on or off."""
        gc = self.block
        fields = dict.fromkeys(_INTERRUPTS, int(on))
        for word in _PIPE_INTERRUPTS[: self.pipes]:
            gc.ensure(word, **fields)
        control = gc.make(gc_cp.CPC_INT_CNTL, time_stamp_int_enable=on, opcode_error_int_enable=on)
        self._each_pipe(COMPUTE_ME, self.pipes, partial(gc.write, control))

    def safe_mode(self) -> AbstractContextManager[None]:
        """Keep the core awake, as `awake` does."""
        return awake([self])

    # --- queues -------------------------------------------------------------------------------------------------
    def queue(
        self, place: Place, spec: QueueSpec, descriptor: memoryview | Access, flush_hdp: Callable[[], None]
    ) -> Hqd:
        """Return a queue that can be mapped at `place`; `descriptor` is the page of memory at `spec.mqd_va`; see
        `Hqd`.
        """
        if place.pipe >= self.pipes:
            raise ValueError(f"this chip has pipes 0 to {self.pipes - 1}, not {place.pipe}")
        if place.queue >= self.row.queues:
            raise ValueError(f"a pipe of this chip has queues 0 to {self.row.queues - 1}, not {place.queue}")
        return Hqd(self.block, place, spec, descriptor, self.safe_mode, flush_hdp)

    def active_queues(self) -> list[Place]:
        """Return the places of mapped queues: this driver's or a previous one's."""
        gc, found = self.block, []
        with gc.selecting(gc.make(words.GRBM_GFX_CNTL)) as select:
            for pipe in range(self.pipes):
                for queue in range(self.row.queues):
                    place = Place(pipe, queue)
                    select(selector(gc, place))
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
        if self.row.captures_clock:
            # gfx_v9_4_3_get_gpu_clock_counter
            self.block.write(self.block.make(gc_rlc.RLC_CAPTURE_GPU_CLOCK_COUNT, capture=1))
            return self.block.read_pair(gc_rlc.RLC_GPU_CLOCK_COUNT_LSB, gc_rlc.RLC_GPU_CLOCK_COUNT_MSB)
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
        return {word.__name__: self.block.read(word) for word in (*_POST_MORTEM, *self.row.post_mortem, *engines)}


def start_all(cores: Sequence[Gfx]) -> None:
    """Start the cores of a card, whose hubs are up. The micro engines get their time together."""
    for core in cores:
        core.prepare()
    cores[0].block.registers.clock.sleep_us(MEC_SETTLE_US)
    for core in cores:
        core.finish()


@contextmanager
def awake(cores: Sequence[Gfx]) -> Iterator[None]:
    """Keep clocks and power of cores on while queue registers are accessed: the run-list controllers' safe mode, which
    all are asked for before the first is waited for. Raises `DeviceTimeout` when one does not answer.
    """
    with ExitStack() as asked:
        for core in cores:
            gc = core.block
            gc.write(gc.make(gc_rlc.RLC_SAFE_MODE, cmd=1, message=1))
            asked.callback(gc.write, gc.make(gc_rlc.RLC_SAFE_MODE, cmd=1))
        for core in cores:
            core.block.wait(gc_rlc.RLC_SAFE_MODE, lambda word: not word.cmd, TIMEOUT_US, "asking the RLC for safe mode")
        yield
