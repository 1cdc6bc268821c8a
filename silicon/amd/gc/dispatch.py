"""Compute dispatch (ADC and SPI): a queue's COMPUTE_* registers become a grid on the shader cores, and the grid runs in
slices. On a card of several graphics cores that run one partition, each core takes a share of a grid's groups.

One instruction of one wave takes 1 ns of virtual time. That lets the rest of the card run meanwhile; it is no estimate
of performance. Source: gc_11_0_0 and gc_12_0_0 headers (COMPUTE_*), LLVM AMDGPUUsage "Code Object V3 Kernel Descriptor"
(granules), Mesa radv (start, partial groups, scratch), amdkfd kfd_int_process_v11.c, kfd_int_process_v9.c (SQ
interrupt words), gc_9_4_3 headers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from ringup.autogen.amd import gc, gc_compute, gc_cp, gc_sq
from ringup.errors import Unmodelled
from ringup.silicon.amd.common.parts import Board, Hub, InterruptSink
from ringup.silicon.amd.gc.grbm import PRESENT_LIMIT, Grbm, Slot
from ringup.silicon.amd.memory.caches import CachedMemory
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.clock import Timer
from ringup.silicon.shader.common.launch import CDNA3_START, RDNA3_START, Start, gfx9_place, occupancy
from ringup.silicon.shader.common.state import (
    HW_ID1,
    STATUS,
    Dispatch,
    Engine,
    Memory,
    Region,
    Run,
    ScopedMemory,
    Violation,
    WaveState,
)

# wave-instructions between two turns of the rest of the card
SLICE = 2_000
INSTRUCTION_US = 0.001  # busy_ns counts 1 for each
IDLE_US = 1.0  # between slices in which nothing could run
# Waves that only wait, in a loop or at a barrier, get a turn less and less often, down to this. Each turn costs the
# simulation the same, and a second of waiting would have half a million.
MAX_PAUSE_US = 1000.0
# between polls for work that runs beside the card, in the machine's time
WAITING_US = 200.0
START_US = 1.0  # from the packet to the first instruction
USER_DATA = 16  # COMPUTE_USER_DATA_*
LDS_GRANULE_BYTES = 512  # RSRC2.lds_size
LDS_LIMIT_BYTES = 64 * 1024
GROUP_LIMIT = 1024
DESCRIBED = 1024  # dispatches that are cached
UNALIGNED = 3  # SH_MEM_CONFIG.alignment_mode
# SOC21_IH_CLIENTID_GFX of soc21_ih_clientid.h, SOC15_IH_CLIENTID_SE0SH of soc15_ih_clientid.h, which has one client for
# each of four shader engines; irqsrcs_gfx_11_0_0.h, irqsrcs_gfx_9_0.h
CLIENT_GFX, SRC_SQ = 0x0A, 239
ENCODING_INSTRUCTION, ENCODING_ERROR = 1, 2  # enum SQ_INTERRUPT_WORD_ENCODING
# enum SQ_INTERRUPT_ERROR_TYPE by kind of violation
ERROR_TYPES = {"illegal": 1, "memory": 2}
# s_sendmsg. Source: RDNA3 ISA reference, "S_SENDMSG"
MSG_INTERRUPT = 1
RTN_GET_DOORBELL, RTN_GET_TMA, RTN_GET_REALTIME, RTN_GET_TBA = 0x80, 0x82, 0x83, 0x85
STATUS_PRIV = 1 << 5


class Form(NamedTuple):
    """How a generation describes a dispatch: granule of RSRC1.vgprs by wave size, the most VGPRs of a wave, bytes of
    TMPRING_SIZE.wavesize, whether TMPRING_SIZE.waves counts those of one shader engine, how cores start waves, and
    whether each shader engine is a client of interrupts, whose words are those of GFX9.
    """

    vgpr_granule: dict[int, int]
    vgpr_limit: int
    scratch_granule_bytes: int
    scratch_by_engine: bool
    start: Start
    engines_interrupt: bool

    @property
    def preloads(self) -> bool:
        """Whether kernels may have arguments in SGPRs."""
        return self.start.is_wide

    @property
    def accumulates(self) -> bool:
        """Whether VGPRs above RSRC3.accum_offset are accumulation registers."""
        return self.start.is_wide


RDNA = Form({32: 8, 64: 4}, 256, 256, True, RDNA3_START, False)
# Source: LLVM AMDGPUUsage, compute_pgm_rsrc1 and compute_pgm_rsrc3 for gfx942; Mesa radv (scratch before GFX11)
CDNA = Form({64: 8}, 512, 1024, False, CDNA3_START, True)
ACCUM_GRANULE = 4


def form_of(version: tuple[int, int, int]) -> Form:
    """Return the form of a version's dispatches."""
    return CDNA if version[0] == 9 else RDNA


class Words(NamedTuple):
    """The layouts of the registers of a dispatch on one graphics core."""

    form: Form
    initiator: Any
    threads: Any
    rsrc1: Any
    rsrc2: Any
    scratch: Any
    rsrc3: Any
    memory: Any

    def registers(self, rsrc1: int, rsrc3: int, wave_size: int) -> tuple[int, int]:
        """Return the VGPRs and accumulation registers of a wave. UNKNOWN: an offset beyond the allocation; here the
        wave then has no accumulation registers.
        """
        count = (self.rsrc1(rsrc1).vgprs + 1) * self.form.vgpr_granule[wave_size]
        if not self.form.accumulates:
            return count, 0
        own = min((self.rsrc3(rsrc3).accum_offset + 1) * ACCUM_GRANULE, count)
        return own, count - own

    def wave_size(self, initiator: int) -> int:
        """Return how many lanes waves have."""
        return 32 if 32 in self.form.vgpr_granule and self.initiator(initiator).cs_w32_en else 64


@cache
def words_of(version: tuple[int, int, int]) -> Words:
    """Return the layouts of a version."""
    layouts = (
        gc_compute.COMPUTE_DISPATCH_INITIATOR, gc_compute.COMPUTE_NUM_THREAD_X, gc_compute.COMPUTE_PGM_RSRC1,
        gc_compute.COMPUTE_PGM_RSRC2, gc_compute.COMPUTE_TMPRING_SIZE, gc_compute.COMPUTE_PGM_RSRC3,
        gc.SH_MEM_CONFIG,
    )  # fmt: skip
    return Words(form_of(version), *(layout.at(version) for layout in layouts))


class BadDispatch(Exception):
    """A dispatch that never ends on metal."""


class NoRoom(BadDispatch):
    """Not even one group fits on the cores."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a dispatch packet asks for."""

    slot: Slot
    vmid: int
    dimensions: tuple[int, int, int]
    initiator: int
    doorbell: int
    # COMPUTE_CURRENT_LOGIC_XCC_ID; -1: never set
    logic_xcc: int = -1


# the registers that `describe` reads, except user SGPRs: those of the queue, and those of the VMID
PER_QUEUE = (
    "COMPUTE_PGM_RSRC1", "COMPUTE_PGM_RSRC2", "COMPUTE_PGM_RSRC3", "COMPUTE_TMPRING_SIZE", "COMPUTE_PGM_LO", "COMPUTE_PGM_HI",
    "COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_DISPATCH_SCRATCH_BASE_HI",
    *(f"COMPUTE_{what}_{axis}" for what in ("NUM_THREAD", "START") for axis in "XYZ"),
    *(f"COMPUTE_STATIC_THREAD_MGMT_SE{engine}" for engine in range(PRESENT_LIMIT)),
)  # fmt: skip
CHUNK, CHUNK_MASK, PARTITION = "COMPUTE_TG_CHUNK_SIZE", 0xFFFF, "CP_HYP_XCP_CTL"
WHOLE = (0, 1, 1)  # a share that is the grid
PER_VMID = ("SH_MEM_BASES", "SH_MEM_CONFIG", "SQ_SHADER_TBA_LO", "SQ_SHADER_TBA_HI")
PLACES = {name: place for place, name in enumerate((*PER_QUEUE, *PER_VMID))}


class Snapshot:
    """A copy of those registers, as words. User SGPRs are 0."""

    def __init__(self, words: tuple[int, ...]) -> None:
        self._words = words

    def __getitem__(self, name: str) -> int:
        return 0 if name.startswith("COMPUTE_USER_DATA_") else self._words[PLACES[name]]

    def per_vmid(self, name: str) -> int:
        """Return a register that each VMID has."""
        return self._words[PLACES[name]]

    def pair(self, name: str) -> int:
        """Return the 64 bits of NAME_LO and NAME_HI."""
        return self[f"{name}_LO"] | self[f"{name}_HI"] << 32


def _nothing() -> int:
    return 0


class Reader:
    """Reads the registers that a dispatch of one slot and VMID uses."""

    def __init__(self, cells: Cells, slot: Slot, vmid: int, version: tuple[int, int, int]) -> None:
        self._version = version
        self._words = [
            # GFX9 has masks of four engines only
            *(cells.reader(name, slot) if name in cells else _nothing for name in PER_QUEUE),
            *(cells.reader(name, vmid) for name in PER_VMID),
        ]
        self._chunk = cells.reader(CHUNK, slot) if CHUNK in cells else _nothing
        self._partition = cells.reader(PARTITION) if PARTITION in cells else None
        self._user_data = [cells.reader(f"COMPUTE_USER_DATA_{number}", slot) for number in range(USER_DATA)]

    def describe(self, order: Order, shader_engines: int, simd_vgprs: int) -> Dispatch:
        """Return the dispatch that the registers and a packet ask for; raise `BadDispatch` if no core can start it."""
        words = tuple([read() for read in self._words])
        shape = shader_engines, simd_vgprs, self._version
        found = _described(words, order.dimensions, order.initiator, order.vmid, *shape)
        user_data = tuple([read() for read in self._user_data[: len(found.user_sgprs)]])
        return self._placed(found._replace(user_sgprs=user_data), order)

    def _placed(self, dispatch: Dispatch, order: Order) -> Dispatch:
        """Return the dispatch with what this core of a partition runs of it.

        With COMPUTE_TG_CHUNK_SIZE 0 a core runs all groups. Source: kfd_mqd_manager_v9.c, init_mqd_v9_4_3: 1 for queues
        that all cores run, and 0 for those of one core. GUESS: chunks of as many groups, in the order of the grid, go
        to the cores by their COMPUTE_CURRENT_LOGIC_XCC_ID; one that was never set is the core's own number.
        """
        if self._partition is None:
            return dispatch
        partition = gc_cp.CP_HYP_XCP_CTL(self._partition())
        own, chunk = partition.virtual_xcc_id, self._chunk() & CHUNK_MASK
        share = (order.logic_xcc if order.logic_xcc >= 0 else own, partition.num_xcc_in_xcp, chunk)
        return dispatch._replace(xcc_id=own, share=share if chunk and share[1] else WHOLE)


@lru_cache(DESCRIBED)
def _described(
    words: tuple[int, ...],
    dimensions: tuple[int, int, int],
    initiator: int,
    vmid: int,
    shader_engines: int,
    simd_vgprs: int,
    version: tuple[int, int, int],
) -> Dispatch:
    order = Order(Slot(0, 0, 0), vmid, dimensions, initiator, 0)
    return describe(Snapshot(words), order, shader_engines, simd_vgprs, words_of(version))


def _axes(
    registers: Snapshot, order: Order, layouts: Words
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return group size, partial size, first group and number of groups along x, y, z.

    Dimensions end at DIM and begin at START, unless FORCE_START_AT_000; with USE_THREAD_DIMENSIONS they count
    work-items.
    """
    initiator = layouts.initiator(order.initiator)
    words = [layouts.threads(registers[f"COMPUTE_NUM_THREAD_{axis}"]) for axis in "XYZ"]
    size = tuple(word.num_thread_full for word in words)
    if 0 in size:
        raise BadDispatch(f"groups of {size} work-items")
    start = (0, 0, 0) if initiator.force_start_at_000 else tuple(registers[f"COMPUTE_START_{axis}"] for axis in "XYZ")
    end: tuple[int, ...] = order.dimensions
    partial = tuple(word.num_thread_partial for word in words) if initiator.partial_tg_en else (0, 0, 0)
    if initiator.use_thread_dimensions:
        if initiator.partial_tg_en:
            partial = tuple(items % full for items, full in zip(end, size, strict=True))
        end = tuple(-(-items // full) for items, full in zip(end, size, strict=True))
    partial = tuple(part % full for part, full in zip(partial, size, strict=True))
    return size, partial, start, tuple(max(0, last - first) for last, first in zip(end, start, strict=True))


def describe(registers: Snapshot, order: Order, shader_engines: int, simd_vgprs: int, layouts: Words) -> Dispatch:
    """Turn registers into a dispatch; raise `BadDispatch` if no core can start it."""
    rsrc1 = layouts.rsrc1(registers["COMPUTE_PGM_RSRC1"])
    rsrc2 = layouts.rsrc2(registers["COMPUTE_PGM_RSRC2"])
    ring = layouts.scratch(registers["COMPUTE_TMPRING_SIZE"])
    form = layouts.form
    bases = gc.SH_MEM_BASES(registers.per_vmid("SH_MEM_BASES"))
    config = layouts.memory(registers.per_vmid("SH_MEM_CONFIG"))
    size, partial, start, count = _axes(registers, order, layouts)
    wave_size = layouts.wave_size(order.initiator)
    vgprs, accumulators = layouts.registers(rsrc1, registers["COMPUTE_PGM_RSRC3"], wave_size)
    lds = rsrc2.lds_size * LDS_GRANULE_BYTES
    checks = (
        (size[0] * size[1] * size[2] > GROUP_LIMIT, f"groups of {size} are more than {GROUP_LIMIT} work-items"),
        (
            vgprs + accumulators > form.vgpr_limit,
            f"RSRC1 asks for {vgprs + accumulators} VGPRs a wave, there are {form.vgpr_limit}",
        ),
        (lds > LDS_LIMIT_BYTES, f"RSRC2 asks for {lds} bytes of LDS a group, there are {LDS_LIMIT_BYTES}"),
        (rsrc2.user_sgpr > USER_DATA, f"RSRC2 asks for {rsrc2.user_sgpr} user SGPRs, there are {USER_DATA}"),
        (rsrc2.scratch_en and not ring.wavesize, "RSRC2 enables scratch and COMPUTE_TMPRING_SIZE has none"),
        (config.address_mode != 0, "SH_MEM_CONFIG.address_mode is 32-bit"),
        (
            not any(
                registers[f"COMPUTE_STATIC_THREAD_MGMT_SE{engine}"]
                for engine in range(min(shader_engines, PRESENT_LIMIT))
            ),
            "COMPUTE_STATIC_THREAD_MGMT_SE* leave no CU to run on",
        ),
    )
    for wrong, text in checks:
        if wrong:
            raise BadDispatch(text)
    tba = registers.per_vmid("SQ_SHADER_TBA_LO") | registers.per_vmid("SQ_SHADER_TBA_HI") << 32
    trap_high = gc_sq.SQ_SHADER_TBA_HI(registers.per_vmid("SQ_SHADER_TBA_HI"))
    # GFX12 has neither these modes nor the bit: programs trap where the VMID has a handler
    has_modes = "dx10_clamp" in rsrc1.FIELDS
    if not has_modes and rsrc2.dynamic_vgpr:
        raise Unmodelled("a dispatch whose waves change their number of VGPRs (COMPUTE_PGM_RSRC2.dynamic_vgpr)")
    dispatch = Dispatch(
        pc=registers.pair("COMPUTE_PGM") << 8 & (1 << 48) - 1,
        wave_size=wave_size,
        group_size=(size[0], size[1], size[2]),
        group_count=(count[0], count[1], count[2]),
        vgpr_count=vgprs,
        user_sgprs=tuple(registers[f"COMPUTE_USER_DATA_{number}"] for number in range(rsrc2.user_sgpr)),
        group_start=(start[0], start[1], start[2]),
        partial_size=(partial[0], partial[1], partial[2]),
        enable_group_id=(bool(rsrc2.tgid_x_en), bool(rsrc2.tgid_y_en), bool(rsrc2.tgid_z_en)),
        enable_group_info=bool(rsrc2.tg_size_en),
        tidig_comp_cnt=rsrc2.tidig_comp_cnt,
        lds_size_bytes=lds,
        scratch_base=registers.pair("COMPUTE_DISPATCH_SCRATCH_BASE") << 8 & (1 << 48) - 1 if rsrc2.scratch_en else 0,
        scratch_wave_bytes=ring.wavesize * form.scratch_granule_bytes if rsrc2.scratch_en else 0,
        scratch_waves=ring.waves * (shader_engines if form.scratch_by_engine else 1) if rsrc2.scratch_en else 0,
        float_mode=rsrc1.float_mode,
        dx10_clamp=has_modes and bool(rsrc1.dx10_clamp),
        ieee_mode=has_modes and bool(rsrc1.ieee_mode),
        privileged=bool(rsrc1.priv),
        trap_enabled=bool(rsrc2.trap_present if has_modes else trap_high.trap_en),
        exceptions=rsrc2.excp_en,
        trap_base=(tba & (1 << 40) - 1) << 8 if trap_high.trap_en else 0,
        vmid=order.vmid,
        shared_aperture=bases.shared_base,
        private_aperture=bases.private_base,
        simd_vgprs=simd_vgprs,
        mtype_unaligned=config.alignment_mode == UNALIGNED,
        acc_count=accumulators,
        wgp_mode="wgp_mode" in rsrc1.FIELDS and bool(rsrc1.wgp_mode),
    )
    if all(count) and not occupancy(dispatch, form.start):
        raise NoRoom("not even one group fits on a WGP")
    return dispatch


class Space:
    """The address space of a grid: that of its queue's VMID, which may change while the queue is disconnected.
    Implements `shader.state.Memory`.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory, self._moves = memory, 0

    @property
    def epoch(self) -> int:
        """The memory's epoch; it changes when the grid moves."""
        return self._memory.epoch + (self._moves << 64)

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Find what lies at an address."""
        return self._memory.region(gpu_va, write, execute)

    @property
    def scoped(self) -> ScopedMemory | None:
        """The caches of the compute units, if the card has any that the cores see."""
        return self._memory.scoped if isinstance(self._memory, CachedMemory) else None

    def move(self, memory: Memory) -> None:
        """Continue in another address space."""
        self.retire()
        self._memory = memory
        self._moves += 1

    def retire(self) -> None:
        """Empty the first-level caches, if the card has any."""
        if isinstance(self._memory, CachedMemory):
            self._memory.retire()


class Grid:
    """A dispatch in progress. It schedules its own slices, and calls `done` once, when the last wave has ended."""

    def __init__(self, dispatcher: Dispatcher, order: Order, done: Callable[[Grid], None]) -> None:
        self.order = order
        self._dispatcher, self._done = dispatcher, done
        self._timer: Timer | None = None
        self._seen = 0
        self._pause_us = 0.0
        self.hung = False
        self.run: Run | None = None
        self.dispatch: Dispatch | None = None
        self._space = Space(dispatcher.hub.memory(order.vmid, "TCP"))

    def begin(self) -> None:
        """Start it; a dispatch that no core can run hangs."""
        dispatcher, order = self._dispatcher, self.order
        try:
            self.dispatch = dispatcher.describe(order)
        except BadDispatch as error:
            self.hung = True
            dispatcher.board.log.note("spi", "violation", "queue {}: dispatch never ends: {}", order.slot, error)
            return
        if all(self.dispatch.group_count):
            self.run = dispatcher.engine.start(
                self.dispatch, self._space, Messages(dispatcher, self), strict=dispatcher.strict
            )
        self.thaw(START_US)

    def adopt(self, slot: Slot, vmid: int, doorbell: int, done: Callable[[Grid], None]) -> None:
        """Belong to a queue in another slot, perhaps in another VMID, after `freeze`."""
        if vmid != self.order.vmid:
            self._space.move(self._dispatcher.hub.memory(vmid, "TCP"))
        self.order, self._done = replace(self.order, slot=slot, vmid=vmid, doorbell=doorbell), done

    def thaw(self, delay_us: float = 0.0) -> None:
        """Continue after `freeze`."""
        if not self.hung:
            self._timer = self._dispatcher.board.clock.after(delay_us, self._slice)

    def freeze(self) -> None:
        """Stop taking slices; the waves stay."""
        if self._timer is not None:
            self._timer.cancel()

    def kill(self) -> None:
        """Drop all waves."""
        self.freeze()
        self._space.retire()
        if self.run is not None:
            self.run.kill()

    def _slice(self) -> None:
        run = self.run
        if run is None:
            self._done(self)
            return
        ended = run.step(SLICE)
        # the instructions executed so far count with the next slice
        if run.waiting:
            self._timer = self._dispatcher.board.clock.after(WAITING_US, self._slice)
            return
        executed = run.instructions - self._seen
        self._seen += executed
        spent = executed * INSTRUCTION_US
        if ended:
            self._space.retire()
            self._dispatcher.busy_ns += executed
            self._timer = self._dispatcher.board.clock.after(spent, partial(self._done, self))
            return
        if run.violations:
            self._hang(run.violations)
            return
        waits = run.repeating or not executed
        self._pause_us = min(max(2 * self._pause_us, IDLE_US), MAX_PAUSE_US) if waits else 0.0
        # waves in a loop are busy all the time, those at a barrier are not
        self._dispatcher.busy_ns += round(max(self._pause_us * 1000, executed)) if executed else 0
        self._timer = self._dispatcher.board.clock.after(max(spent, self._pause_us), self._slice)

    def _hang(self, violations: list[Violation]) -> None:
        self.hung = True
        for violation in violations:
            self._dispatcher.board.log.note("sq", "violation", "queue {}: {}", self.order.slot, violation)
        if kind := ERROR_TYPES.get(violations[0].kind):
            data = (kind << 21, ENCODING_ERROR << 6)
            if self._dispatcher.form.engines_interrupt:
                data = gfx9_words(kind << 20, ENCODING_ERROR)
            self._dispatcher.interrupts.interrupt(CLIENT_GFX, SRC_SQ, vmid=self.order.vmid, data=data)


def gfx9_words(
    data: int, encoding: int, place: int = 0, engine: int = 0, *, privileged: bool = False
) -> tuple[int, int]:
    """Return the words of an interrupt of GFX9, as kfd_int_process_v9.c decodes them: 24 bits of data in 11:0, 31:28
    and the second word; privilege 13, wave 17:14, SIMD 19:18, CU 23:20, engine 25:24, encoding 27:26. `place`: the
    wave's HW_ID1, in RDNA3's form.
    """
    first = data & 0xFFF | (data >> 12 & 0xF) << 28 | privileged << 13 | engine << 24 | encoding << 26
    wave, simd, unit, _ = gfx9_place(place)
    first |= wave << 14 | simd << 18 | unit << 20
    return first, data >> 16


class Messages:
    """The messages from waves to the card: `shader.state.Events` of one grid."""

    def __init__(self, dispatcher: Dispatcher, grid: Grid) -> None:
        self._dispatcher, self._grid = dispatcher, grid

    def realtime(self) -> int:
        """The 100 MHz counter."""
        return self._dispatcher.ticks()

    def message(self, code: int, m0: int, wave: WaveState) -> int:
        """Handle s_sendmsg; s_sendmsg_rtn gets the result."""
        dispatch = self._grid.dispatch
        if code == MSG_INTERRUPT:
            self._interrupt(m0, wave)
            return 0
        values = {
            RTN_GET_DOORBELL: self._grid.order.doorbell,
            RTN_GET_REALTIME: self.realtime(),
            RTN_GET_TBA: 0 if dispatch is None else dispatch.trap_base,
            RTN_GET_TMA: self._dispatcher.trap_memory(self._grid.order.vmid),
        }
        return values.get(code, 0)

    def _interrupt(self, m0: int, wave: WaveState) -> None:
        """Raise an interrupt. Its words, as kfd_int_process_v11.c decodes them: data 23:0, array 25, privilege 26, wave
        31:27; SIMD 1:0, WGP 5:2, encoding 7:6.
        """
        place = int(wave.words[HW_ID1])
        privileged = bool(int(wave.words[STATUS]) & STATUS_PRIV)
        vmid, engine = self._grid.order.vmid, 0
        if self._dispatcher.form.engines_interrupt:
            engine = (place >> 18 & 7) % self._dispatcher.shader_engines
            words = gfx9_words(m0 & 0xFF_FFFF, ENCODING_INSTRUCTION, place, engine, privileged=privileged)
            self._dispatcher.interrupts.interrupt(CLIENT_GFX + engine, SRC_SQ, vmid=vmid, data=words)
            return
        first = m0 & 0xFF_FFFF | (place >> 16 & 1) << 25 | privileged << 26 | (place & 31) << 27
        second = place >> 8 & 3 | (place >> 10 & 15) << 2 | ENCODING_INSTRUCTION << 6
        self._dispatcher.interrupts.interrupt(CLIENT_GFX, SRC_SQ, vmid=vmid, data=(first, second))


class Dispatcher:
    """Starts grids. `engine` is the shader cores; `busy_ns` counts the virtual time for which waves ran."""

    def __init__(
        self, board: Board, grbm: Grbm, hub: Hub, interrupts: InterruptSink, engine: Engine, *, strict: bool = True
    ) -> None:
        self.board, self.hub, self.interrupts, self.engine, self.strict = board, hub, interrupts, engine, strict
        self.cells, self.ticks = grbm.cells, grbm.ticks
        self.shader_engines, self.simd_vgprs = grbm.row.shader_engines, grbm.row.simd_vgprs
        self.target, self._version = grbm.row.target, grbm.row.version
        self.form = form_of(self._version)
        self.busy_ns = 0
        self._readers: dict[tuple[Slot, int], Reader] = {}

    def describe(self, order: Order) -> Dispatch:
        """Turn a queue's registers into a dispatch; raise `BadDispatch` if no core can start it."""
        self._has_cores()
        key = order.slot, order.vmid
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = Reader(self.cells, *key, self._version)
        return reader.describe(order, self.shader_engines, self.simd_vgprs)

    def start(self, order: Order, done: Callable[[Grid], None]) -> Grid | None:
        """Start a grid; return None if the initiator does not enable compute, which metal ignores."""
        self._has_cores()
        if not words_of(self._version).initiator(order.initiator).compute_shader_en:
            self.board.log.note(
                "spi",
                "violation",
                "queue {}: initiator {:#x} does not enable compute: nothing starts",
                order.slot,
                order.initiator,
            )
            return None
        grid = Grid(self, order, done)
        grid.begin()
        return grid

    def _has_cores(self) -> None:
        if self.target not in self.engine.runs:
            raise Unmodelled(f"{self.target}'s programs on an engine for {', '.join(self.engine.runs) or 'nothing'}")

    def trap_memory(self, vmid: int) -> int:
        """Return the address of a VMID's trap handler memory."""
        return self.cells.of(vmid, "SQ_SHADER_TMA_LO") << 8 | self.cells.of(vmid, "SQ_SHADER_TMA_HI") << 40
